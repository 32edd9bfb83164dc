/* One kernel, called as the executor calls it, on operands of its own. */
#include <string.h>

#include "bench/zerobench/bench.h"
#include "kernels/control.h"
#include "runtime/plan/op.h"

enum { TOKENS = 50257 };

static zr_dtype_t dtype_of(char type, zr_dtype_t compute) {
  switch (type) {
    case 't':
      return compute;
    case 's':
    case 'f':
      return ZR_F32;
    case 'h':
      return ZR_BF16;
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

zr_kern_shape_t zr_bench_shape(int32_t kind, const int64_t attr[ZR_MAX_ATTRS], const char *types,
                               zr_dtype_t compute) {
  zr_kern_shape_t shape = {.kind = kind};
  memcpy(shape.attr, attr, sizeof shape.attr);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) shape.dtype[i] = ZR_U8;
  for (size_t i = 0; i < strlen(types); i++) {
    if (types[i] == '-' || (types[i] == 'l' && compute == ZR_F32)) continue;
    shape.dtype[i] = (uint8_t)dtype_of(types[i], compute);
    shape.present |= (uint8_t)(1u << i);
  }
  return shape;
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
    if (dtype == ZR_I32) ((int32_t *)p)[i] = (int32_t)(x % TOKENS);
  }
}

static void fill_layout(void *p, int64_t elems) {
  zr_kern_layout_t *layout = p;
  layout->n_tensors = 1;
  layout->tensor[0] = (zr_kern_tensor_t){0, elems, {1, 2, 3}, 1};
}

static void fill_control(void *p) {
  zr_control_t *ctl = p;
  *ctl = (zr_control_t){.n_ranks = 1, .inv_tokens = 1.0f / 1024, .clip_coef = 1};
  ctl->decay_mul = 0.9999f, ctl->step_size = 1e-4f, ctl->inv_sqrt_bias2 = 1;
  ctl->beta1_f32 = 0.9f, ctl->beta2_f32 = 0.95f, ctl->eps_f32 = 1e-8f, ctl->gain = 1;
  ctl->one_minus_beta1 = 0.1f, ctl->one_minus_beta2 = 0.05f, ctl->momentum_f32 = 0.9f;
}

static int is_named(const zr_op_row_t *row, int i, const char *name) {
  return strcmp(row->operand[i].name, name) == 0;
}

static int64_t needed(const zr_bench_kernel_t *k, const zr_op_row_t *row, int i, int64_t need) {
  const zr_bench_t *b = k->bench;
  if (row->operand[i].access == ZR_SCRATCH) {
    return b->kern_ops->scratch_bytes(b->kern, &k->shape, b->n_threads);
  }
  if (is_named(row, i, "ctl")) return (int64_t)sizeof(zr_control_t);
  if (is_named(row, i, "layout")) {
    return (int64_t)(sizeof(zr_kern_layout_t) + sizeof(zr_kern_tensor_t));
  }
  return need;
}

/* Bytes that operand i makes the kernel read and write. */
static double moved(const zr_kern_shape_t *shape, const zr_op_row_t *row, int i, int64_t bytes) {
  const zr_op_operand_row_t *operand = &row->operand[i];
  if (operand->access == ZR_SCRATCH || is_named(row, i, "ctl") || is_named(row, i, "layout")) {
    return 0;
  }
  int both = operand->access == ZR_ACCUMULATE && !operand->may_accumulate;
  return (double)bytes * ((both || shape->accumulate >> i & 1) ? 2 : 1);
}

static zr_status_t make_operands(zr_bench_t *b, zr_bench_kernel_t *k) {
  const zr_op_row_t *row = zr_op_row(k->shape.kind);
  int64_t need[ZR_MAX_OPERANDS] = {0};
  row->operand_bytes(&k->shape, need);
  for (int i = 0; i < row->n_operands; i++) {
    if ((k->shape.present >> i & 1) == 0) continue;
    int64_t bytes = needed(k, row, i, need[i]);
    void *memory = NULL;
    ZR_TRY(b->hal_ops->mem_create(b->hal, ZR_TIER_DEVICE, bytes > 0 ? bytes : 1, &memory));
    k->call.operand[i] = memory;
    k->call.bytes[i] = bytes;
    k->bytes += moved(&k->shape, row, i, bytes);
    if (is_named(row, i, "ctl")) {
      fill_control(memory);
    } else if (is_named(row, i, "layout")) {
      fill_layout(memory, k->shape.attr[ZR_ADAMW_ELEMS]);
    } else if (row->operand[i].access == ZR_SCRATCH) {
      memset(memory, 0, (size_t)bytes);
    } else {
      fill(memory, (zr_dtype_t)k->shape.dtype[i], bytes);
    }
  }
  return ZR_OK;
}

zr_status_t zr_bench_kernel_make(zr_bench_t *b, const zr_kern_shape_t *shape,
                                 zr_bench_kernel_t *out) {
  *out = (zr_bench_kernel_t){.bench = b, .shape = *shape, .call = {.pool = b->pool}};
  const zr_op_row_t *row = zr_op_row(shape->kind);
  out->flops = row->flops == NULL ? 0 : (double)row->flops(shape);
  ZR_TRY(make_operands(b, out));
  return b->kern_ops->prepare(b->kern, &out->shape, b->n_threads, &out->call.prepared);
}

zr_status_t zr_bench_kernel_run(void *kernel) {
  zr_bench_kernel_t *k = kernel;
  k->call.shape = &k->shape;
  return k->bench->kern_ops->run(k->bench->kern, &k->call);
}

void zr_bench_kernel_free(zr_bench_t *b, zr_bench_kernel_t *k) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    int64_t bytes = k->call.bytes[i];
    if (k->call.operand[i] == NULL) continue;
    b->hal_ops->mem_destroy(b->hal, ZR_TIER_DEVICE, k->call.operand[i], bytes > 0 ? bytes : 1);
    k->call.operand[i] = NULL;
  }
}

zr_status_t zr_bench_dtypes(const zr_bench_t *b, zr_dtype_t out_dtype[3], int *out_n) {
  out_dtype[0] = ZR_F32;
  out_dtype[1] = ZR_BF16;
  *out_n = b->options.dtype == NULL ? 2 : 1;
  if (b->options.dtype == NULL) return ZR_OK;
  if (zr_dtype_parse(b->options.dtype, &out_dtype[0]) == ZR_OK &&
      (out_dtype[0] == ZR_F32 || out_dtype[0] == ZR_BF16 || out_dtype[0] == ZR_F16)) {
    return ZR_OK;
  }
  return zr_fail(ZR_ERR_CONFIG, "--dtype is fp32, bf16 or fp16, not '%.40s'", b->options.dtype);
}
