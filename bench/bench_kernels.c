/* The kernels of one GPT-2 124M step (4 x 256 tokens) on one thread: CPU time of each, its share of
 * the step and of its ceiling. The ceiling of an operation is the larger of its flops at the best
 * product's rate and its bytes at the rate of memcpy, both measured in the same run.
 *
 *   bench_kernels [fp32 | bf16 | fp16] [instruction set] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/control.h"
#include "runtime/plan/op.h"

enum { ROWS = 1024, SEQ = 256, HIDDEN = 768, WIDE = 3072, HEADS = 12, LAYERS = 12 };
enum { VOCAB = 50257, VOCAB_PADDED = 50304, PARAMS = 124 * 1000 * 1024, MIN_RUNS = 3 };

typedef struct {
  const char *name;
  int32_t kind;
  int per_step;
  int64_t attr[ZR_MAX_ATTRS];
  const char *types; /* of operands: t compute, s sum, f fp32, d fp64, i int32, l low, '.' bytes */
} row_t;

static const row_t rows[] = {
    {"embedding", ZR_OP_EMBEDDING, 1, {ROWS, HIDDEN, VOCAB_PADDED, SEQ, 1024}, "ittt"},
    {"layernorm", ZR_OP_LAYERNORM, 2 * LAYERS + 1, {ROWS, HIDDEN}, "ttttf"},
    {"linear qkv", ZR_OP_LINEAR, LAYERS, {ROWS, HIDDEN, 2304, HIDDEN, 2304, 1}, "tttt."},
    {"attention", ZR_OP_ATTENTION, LAYERS, {4, SEQ, HEADS, HEADS, 64}, "ttf."},
    {"linear out", ZR_OP_LINEAR, LAYERS, {ROWS, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 1}, "tttt."},
    {"add", ZR_OP_ADD, 2 * LAYERS, {ROWS * HIDDEN}, "ttt"},
    {"linear up", ZR_OP_LINEAR, LAYERS, {ROWS, HIDDEN, WIDE, HIDDEN, WIDE, 1}, "tttt."},
    {"gelu", ZR_OP_GELU, LAYERS, {ROWS * WIDE}, "tt"},
    {"linear down", ZR_OP_LINEAR, LAYERS, {ROWS, WIDE, HIDDEN, WIDE, HIDDEN, 1}, "tttt."},
    {"head_loss", ZR_OP_HEAD_LOSS, 1, {ROWS, HIDDEN, VOCAB, VOCAB_PADDED, 512}, "tti.dts."},
    {"grad_x qkv", ZR_OP_LINEAR_GRAD_X, LAYERS, {ROWS, HIDDEN, 2304, HIDDEN, 2304, 1}, "ttt."},
    {"grad_x out", ZR_OP_LINEAR_GRAD_X, LAYERS, {ROWS, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 1}, "ttt."},
    {"grad_x up", ZR_OP_LINEAR_GRAD_X, LAYERS, {ROWS, HIDDEN, WIDE, HIDDEN, WIDE, 1}, "ttt."},
    {"grad_x down", ZR_OP_LINEAR_GRAD_X, LAYERS, {ROWS, WIDE, HIDDEN, WIDE, HIDDEN, 1}, "ttt."},
    {"grad_w qkv", ZR_OP_LINEAR_GRAD_W, LAYERS, {ROWS, HIDDEN, 2304, HIDDEN, 2304, 1}, "tts."},
    {"grad_w out", ZR_OP_LINEAR_GRAD_W, LAYERS, {ROWS, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 1}, "tts."},
    {"grad_w up", ZR_OP_LINEAR_GRAD_W, LAYERS, {ROWS, HIDDEN, WIDE, HIDDEN, WIDE, 1}, "tts."},
    {"grad_w down", ZR_OP_LINEAR_GRAD_W, LAYERS, {ROWS, WIDE, HIDDEN, WIDE, HIDDEN, 1}, "tts."},
    {"grad_b 3072", ZR_OP_LINEAR_GRAD_B, LAYERS, {ROWS, HIDDEN, WIDE, HIDDEN, WIDE, 1}, "ts."},
    {"grad_b 2304", ZR_OP_LINEAR_GRAD_B, LAYERS, {ROWS, HIDDEN, 2304, HIDDEN, 2304, 1}, "ts."},
    {"grad_b 768", ZR_OP_LINEAR_GRAD_B, 2 * LAYERS, {ROWS, WIDE, HIDDEN, WIDE, HIDDEN, 1}, "ts."},
    {"layernorm_grad", ZR_OP_LAYERNORM_GRAD, 2 * LAYERS + 1, {ROWS, HIDDEN}, "ttfttss."},
    {"attention_grad", ZR_OP_ATTENTION_GRAD, LAYERS, {4, SEQ, HEADS, HEADS, 64}, "ttftt."},
    {"gelu_grad", ZR_OP_GELU_GRAD, LAYERS, {ROWS * WIDE}, "ttt"},
    {"embedding_grad", ZR_OP_EMBEDDING_GRAD, 1, {ROWS, HIDDEN, VOCAB_PADDED, SEQ, 1024}, "itss."},
    {"block_norm", ZR_OP_BLOCK_NORM, 1, {PARAMS}, "s."},
    {"adamw", ZR_OP_ADAMW, 1, {PARAMS, 0, 0, PARAMS}, "tsff..l"},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

typedef struct {
  double seconds; /* least CPU time of one call */
  double flops, bytes;
} result_t;

static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(int64_t bytes) {
  void *p = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64 + 64);
  if (p == NULL) {
    fprintf(stderr, "bench_kernels: no memory for %lld bytes\n", (long long)bytes);
    exit(1);
  }
  return memset(p, 0, (size_t)bytes);
}

static double copy_bps(void) {
  const int64_t bytes = (int64_t)128 << 20;
  char *from = memory(bytes), *to = memory(bytes);
  double best = 1e9;
  for (int i = 0; i < 8; i++) {
    double begin = cpu_seconds();
    memcpy(to, from, (size_t)bytes);
    double seconds = cpu_seconds() - begin;
    if (seconds < best) best = seconds;
    from[i] = (char)(to[i + 1] + 1); /* so that no copy is left out */
  }
  free(from);
  free(to);
  return 2 * (double)bytes / best;
}

static zr_dtype_t dtype_of(char type, zr_dtype_t compute) {
  switch (type) {
    case 't':
      return compute;
    case 's':
    case 'f':
      return ZR_F32;
    case 'd':
      return ZR_F64;
    case 'i':
      return ZR_I32;
    case 'l':
      return compute == ZR_BF16 ? ZR_I16 : ZR_F32;
    default:
      return ZR_U8;
  }
}

/* Small numbers of changing sign, so that nothing is subnormal or predictable; tokens of a text. */
static void fill(void *p, zr_dtype_t dtype, int64_t bytes) {
  uint32_t x = 12345;
  int64_t n = bytes / zr_dtype_bytes(dtype);
  for (int64_t i = 0; i < n; i++) {
    x = x * 1664525u + 1013904223u;
    float value = (float)((int32_t)x >> 8) * 0x1p-24f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == ZR_F32) ((float *)p)[i] = value;
    if (dtype == ZR_BF16) ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
    if (dtype == ZR_F16) ((uint16_t *)p)[i] = (uint16_t)(0x3400u | (x >> 16 & 0x83ffu));
    if (dtype == ZR_I32) ((int32_t *)p)[i] = (int32_t)(x % VOCAB);
  }
}

static zr_kern_layout_t *one_tensor(void) {
  zr_kern_layout_t *layout = memory(sizeof *layout + sizeof(zr_kern_tensor_t));
  layout->n_tensors = 1;
  layout->tensor[0] = (zr_kern_tensor_t){0, PARAMS, {1, 2, 3}, 1};
  return layout;
}

static zr_control_t *control(void) {
  zr_control_t *ctl = memory(sizeof *ctl);
  ctl->n_ranks = 1;
  ctl->inv_tokens = 1.0f / ROWS;
  ctl->clip_coef = 1, ctl->decay_mul = 0.9999f, ctl->step_size = 1e-4f, ctl->inv_sqrt_bias2 = 1;
  ctl->beta1_f32 = 0.9f, ctl->beta2_f32 = 0.95f, ctl->eps_f32 = 1e-8f;
  ctl->one_minus_beta1 = 0.1f, ctl->one_minus_beta2 = 0.05f;
  ctl->digest = 1;
  return ctl;
}

/* Allocates and fills the operands; the bytes that the operation must read and write. */
static double make_operands(const row_t *row, zr_kern_shape_t *shape, zr_kern_call_t *call,
                            int64_t scratch) {
  const zr_op_row_t *op = zr_op_row(row->kind);
  int64_t need[ZR_MAX_OPERANDS] = {0};
  double bytes = 0;
  op->operand_bytes(shape, need);
  for (size_t i = 0; i < strlen(row->types); i++) {
    int access = op->operand[i].access;
    int64_t n = access == ZR_SCRATCH ? scratch : need[i];
    if (strcmp(op->operand[i].name, "ctl") == 0) {
      call->operand[i] = control();
      call->bytes[i] = (int64_t)sizeof(zr_control_t);
    } else if (strcmp(op->operand[i].name, "layout") == 0) {
      call->operand[i] = one_tensor();
      call->bytes[i] = (int64_t)(sizeof(zr_kern_layout_t) + sizeof(zr_kern_tensor_t));
    } else {
      call->operand[i] = memory(n);
      call->bytes[i] = n;
      fill(call->operand[i], (zr_dtype_t)shape->dtype[i], access == ZR_SCRATCH ? 0 : n);
      int twice = access == ZR_ACCUMULATE && !op->operand[i].may_accumulate;
      if (access != ZR_SCRATCH) bytes += (double)(twice ? 2 * n : n);
    }
  }
  if (row->kind == ZR_OP_EMBEDDING) bytes = (double)(2 * call->bytes[3]);
  return bytes;
}

static int measure(const row_t *row, zr_dtype_t compute, const zr_kern_ops_t *ops, zr_kern_t *kern,
                   result_t *out) {
  zr_kern_shape_t shape = {.kind = row->kind, .real = row->kind == ZR_OP_ATTENTION ? 0.125 : 1e-5};
  if (row->kind == ZR_OP_ATTENTION_GRAD) shape.real = 0.125;
  memcpy(shape.attr, row->attr, sizeof shape.attr);
  for (size_t i = 0; i < strlen(row->types); i++) {
    if (row->types[i] == 'l' && compute == ZR_F32) continue;
    shape.dtype[i] = (uint8_t)dtype_of(row->types[i], compute);
    shape.present |= (uint8_t)(1u << i);
  }
  zr_kern_call_t call = {.shape = &shape};
  out->bytes = make_operands(row, &shape, &call, ops->scratch_bytes(kern, &shape, 1));
  out->flops =
      zr_op_row(row->kind)->flops == NULL ? 0 : (double)zr_op_row(row->kind)->flops(&shape);
  zr_status_t status = ops->prepare(kern, &shape, 1, &call.prepared);
  double total = 0;
  out->seconds = 1e9;
  for (int i = 0; status == ZR_OK && (i < MIN_RUNS || (i < 20 && total < 0.2)); i++) {
    double begin = cpu_seconds();
    status = ops->run(kern, &call);
    double seconds = cpu_seconds() - begin;
    total += seconds;
    if (seconds < out->seconds) out->seconds = seconds;
  }
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) free(call.operand[i]);
  if (status != ZR_OK) fprintf(stderr, "bench_kernels: %s: %s\n", row->name, zr_detail());
  return status == ZR_OK ? 0 : 1;
}

static void report(const result_t result[N_ROWS], double copy, double product) {
  double step = 0, bound = 0;
  for (int i = 0; i < N_ROWS; i++) step += result[i].seconds * rows[i].per_step;
  printf("copy %.1f GB/s, best product %.1f GF/s\n", copy * 1e-9, product * 1e-9);
  printf("%-16s %4s %9s %6s %9s %9s %8s\n", "kind", "n", "ms", "share", "GF/s", "GB/s", "ceiling");
  for (int i = 0; i < N_ROWS; i++) {
    const result_t *r = &result[i];
    double by_flops = r->flops / product, by_bytes = r->bytes / copy;
    double least = by_flops > by_bytes ? by_flops : by_bytes, all = r->seconds * rows[i].per_step;
    bound += least * rows[i].per_step;
    printf("%-16s %4d %9.2f %5.1f%% %9.1f %9.1f %7.0f%%\n", rows[i].name, rows[i].per_step,
           all * 1e3, 100 * all / step, r->flops / r->seconds * 1e-9, r->bytes / r->seconds * 1e-9,
           100 * least / r->seconds);
  }
  printf("%-16s %4s %9.2f   sum of the ceilings %.2f ms, ratio %.3f\n", "all", "", step * 1e3,
         bound * 1e3, step / bound);
}

int main(int argc, char **argv) {
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  zr_dtype_t compute = ZR_F32;
  if ((argc > 1 && zr_dtype_parse(argv[1], &compute) != ZR_OK) ||
      zr_kern_cpu_open(NULL, argc > 2 ? argv[2] : "auto", &ops, &kern) != ZR_OK) {
    fprintf(stderr, "bench_kernels: %s\n", zr_detail());
    return 1;
  }
  result_t result[N_ROWS];
  int failed = 0;
  double product = 0;
  for (int i = 0; i < N_ROWS && !failed; i++) {
    failed = measure(&rows[i], compute, ops, kern, &result[i]);
    int is_product = rows[i].kind == ZR_OP_LINEAR || rows[i].kind == ZR_OP_LINEAR_GRAD_X ||
                     rows[i].kind == ZR_OP_LINEAR_GRAD_W;
    double rate = result[i].flops / result[i].seconds;
    if (!failed && is_product && rate > product) product = rate;
  }
  printf("%s, %s, one thread\n", ops->name, zr_dtype_name(compute));
  if (!failed) report(result, copy_bps(), product);
  ops->close(kern);
  return failed;
}
