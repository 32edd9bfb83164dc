/* Kernels by kind, type and size, on one thread and on all. */
#include <string.h>

#include "bench/zerobench/calibrate.h"
#include "runtime/plan/op.h"

enum { HEAD_DIM = 64, MOST_SEQ = 256, VOCAB = 50304 };

/* Rows of a micro-batch x width of a model. */
typedef struct {
  int64_t rows, hidden;
} scale_t;

static const scale_t scales[] = {
    {128, 64}, {256, 128}, {256, 256}, {512, 512}, {1024, 768}, {2048, 1024},
};
enum { N_SCALES = sizeof scales / sizeof scales[0] };

typedef enum {
  LINEAR,
  NORM,
  HEAD_NORM,
  ROPE,
  ATTENTION,
  ELEMS,
  WIDE,
  EMBEDDING,
  HEAD,
  ROWS,
  STATES
} family_t;

typedef struct {
  int32_t kind;
  family_t family;
  const char *types; /* zr_bench_shape's */
} kernel_t;

static const kernel_t kernels[] = {
    {ZR_OP_LINEAR, LINEAR, "tttt."},
    {ZR_OP_LINEAR_GRAD_X, LINEAR, "ttt."},
    {ZR_OP_LINEAR_GRAD_W, LINEAR, "tts."},
    {ZR_OP_LINEAR_GRAD_B, LINEAR, "ts."},
    {ZR_OP_LAYERNORM, NORM, "ttttf"},
    {ZR_OP_LAYERNORM_GRAD, NORM, "ttfttss."},
    {ZR_OP_RMSNORM, NORM, "tttf"},
    {ZR_OP_RMSNORM_GRAD, NORM, "ttftts."},
    {ZR_OP_HEAD_NORM, HEAD_NORM, "tttf"},
    {ZR_OP_HEAD_NORM_GRAD, HEAD_NORM, "ttftts."},
    {ZR_OP_ROPE, ROPE, "ft"},
    {ZR_OP_ATTENTION, ATTENTION, "ttf-."},
    {ZR_OP_ATTENTION_GRAD, ATTENTION, "ttftt-."},
    {ZR_OP_GELU, WIDE, "tt"},
    {ZR_OP_GELU_GRAD, WIDE, "ttt"},
    {ZR_OP_SWIGLU, WIDE, "ttt"},
    {ZR_OP_SWIGLU_GRAD, WIDE, "ttttt"},
    {ZR_OP_ADD, ELEMS, "ttt"},
    {ZR_OP_EMBEDDING, EMBEDDING, "ittt"},
    {ZR_OP_EMBEDDING_GRAD, EMBEDDING, "itss-."},
    {ZR_OP_HEAD_LOSS, HEAD, "tti.dts."},
    {ZR_OP_HEAD_EVAL, HEAD, "ttid."},
    {ZR_OP_COUNT, ROWS, "i."},
    {ZR_OP_LOSS_SUM, ROWS, "d."},
    {ZR_OP_FILL, STATES, "s"},
    {ZR_OP_ACCUMULATE, STATES, "ss"},
    {ZR_OP_SHARD_ADD, STATES, "ss"},
    {ZR_OP_BLOCK_NORM, STATES, "s."},
    {ZR_OP_ADAMW, STATES, "tsff..l"},
    {ZR_OP_SGD, STATES, "tsf-..l"},
    {ZR_OP_LION, STATES, "tsf-..l"},
    {ZR_OP_ADAGRAD, STATES, "tsf-..l"},
};
enum { N_KERNELS = sizeof kernels / sizeof kernels[0] };

static void put(int64_t attr[ZR_MAX_ATTRS], int64_t a, int64_t b, int64_t c, int64_t d, int64_t e,
                int64_t f) {
  const int64_t values[ZR_MAX_ATTRS] = {a, b, c, d, e, f};
  memcpy(attr, values, sizeof values);
}

/* `wide`: the second shape of a scale, as a block has narrow and wide ones. */
static void attributes(family_t family, const scale_t *s, bool wide, int64_t attr[ZR_MAX_ATTRS]) {
  int64_t n = s->rows, h = s->hidden, out = wide ? 4 * h : h, heads = h / HEAD_DIM;
  int64_t seq = n < MOST_SEQ ? n : MOST_SEQ, states = wide ? 12 * h * h : 3 * h * h;
  switch (family) {
    case LINEAR:
      return put(attr, n, h, out, h, out, 0);
    case NORM:
      return put(attr, n, out, 0, 0, 0, 0);
    case HEAD_NORM:
      return put(attr, n, heads, HEAD_DIM, h, 0, 0);
    case ROPE:
      return put(attr, n, seq, heads, HEAD_DIM, h, 0);
    case ATTENTION:
      return put(attr, n / seq, seq, heads, heads, HEAD_DIM, 0);
    case EMBEDDING:
      return put(attr, n, h, VOCAB, seq, 1024, 0);
    case HEAD:
      return put(attr, n, h, VOCAB, VOCAB, n < 1024 ? n : 1024, 0);
    case ROWS:
      return put(attr, n, 0, 0, 0, 0, 0);
    case STATES:
      return put(attr, states, 0, 0, states, 0, 0);
    default:
      return put(attr, n * (family == WIDE ? 4 : 1) * out, 0, 0, 0, 0, 0);
  }
}

/* A head's flops are a vocabulary's: three sizes of it are long enough to wait for. */
static int n_scales(const zr_bench_t *b, family_t family) {
  if (b->options.quick) return family == HEAD ? 1 : 2;
  return family == HEAD ? 3 : N_SCALES;
}

static bool has_wide(family_t family) {
  return family == LINEAR || family == STATES;
}

static zr_status_t measure(zr_bench_t *b, const kernel_t *k, const zr_kern_shape_t *shape,
                           zr_profile_curve_t *curve) {
  zr_bench_kernel_t kernel;
  double ns = 0;
  zr_status_t status = zr_bench_kernel_make(b, shape, &kernel);
  if (status == ZR_OK) status = zr_bench_middle_ns(b, zr_bench_kernel_run, &kernel, &ns);
  double bytes = k->kind == ZR_OP_EMBEDDING ? 2 * (double)kernel.call.bytes[3] : kernel.bytes;
  /* Sizes that are too near to tell apart are left out: the first one stands for both. */
  if (status == ZR_OK)
    (void)zr_profile_curve_add(curve, kernel.flops > 0 ? kernel.flops : bytes, ns);
  zr_bench_kernel_free(b, &kernel);
  return status;
}

static zr_status_t kernel(zr_bench_t *b, const kernel_t *k, zr_dtype_t dtype, int team,
                          zr_profile_t *profile) {
  int n = n_scales(b, k->family);
  for (int i = 0; i < n; i++) {
    for (int wide = 0; wide <= has_wide(k->family); wide++) {
      int64_t attr[ZR_MAX_ATTRS] = {0};
      attributes(k->family, &scales[i], wide != 0, attr);
      zr_kern_shape_t shape = zr_bench_shape(k->kind, attr, k->types, dtype);
      shape.real = k->family == ATTENTION ? 0.125 : 1e-5;
      zr_profile_type_t type = zr_profile_type(&shape);
      /* Kinds that know no compute type were measured with the first one. */
      if (type == ZR_PROFILE_F32 && dtype != ZR_F32) return ZR_OK;
      ZR_TRY(measure(b, k, &shape, &profile->curve[team][k->kind][type]));
    }
  }
  return ZR_OK;
}

static zr_status_t row(zr_bench_t *b, const zr_profile_t *profile, const kernel_t *k, int type) {
  const zr_profile_curve_t *curve = &profile->curve[ZR_PROFILE_ALL][k->kind][type];
  int last = curve->n_points - 1;
  if (last < 0) return ZR_OK;
  char what[64];
  bool flops = zr_op_row(k->kind)->flops != NULL;
  double rate = curve->work[last] / curve->ns[last];
  (void)snprintf(what, sizeof what, "%s, %s", zr_op_row(k->kind)->name,
                 zr_profile_type_name((zr_profile_type_t)type));
  zr_bench_row_t line = {.what = what,
                         .seconds = curve->ns[last] * 1e-9,
                         .value = rate,
                         .unit = flops ? "GF/s" : "GB/s"};
  if (!flops) line.ceiling = profile->memory_bytes_per_ns[ZR_PROFILE_ALL];
  if (!flops) line.ceiling_of = "memcpy of all threads";
  return zr_bench_row(b, &line);
}

static zr_status_t team(zr_bench_t *b, const zr_dtype_t *dtype, int n_dtypes, int which,
                        zr_profile_t *profile) {
  for (int d = 0; d < n_dtypes; d++) {
    for (int k = 0; k < N_KERNELS; k++) {
      zr_bench_say(b, "%s, %s, %s", zr_op_row(kernels[k].kind)->name, zr_dtype_name(dtype[d]),
                   which == ZR_PROFILE_ONE ? "one thread" : "all threads");
      ZR_TRY(kernel(b, &kernels[k], dtype[d], which, profile));
    }
  }
  return ZR_OK;
}

zr_status_t zr_bench_calibrate_kernels(zr_bench_t *b, zr_profile_t *profile) {
  zr_dtype_t dtype[3];
  int n_dtypes = 0, n_threads = b->n_threads;
  zr_pool_t *pool = b->pool;
  ZR_TRY(zr_bench_dtypes(b, dtype, &n_dtypes));
  ZR_TRY(team(b, dtype, n_dtypes, ZR_PROFILE_ALL, profile));
  b->pool = NULL;
  b->n_threads = 1;
  zr_status_t status = team(b, dtype, n_dtypes, ZR_PROFILE_ONE, profile);
  b->pool = pool;
  b->n_threads = n_threads;
  ZR_TRY(status);
  for (int type = 0; type < ZR_PROFILE_TYPES; type++) {
    for (int k = 0; k < N_KERNELS; k++) ZR_TRY(row(b, profile, &kernels[k], type));
  }
  return ZR_OK;
}
