/* Matrix products by shape and type: as zerorun cuts them for its workers, beside the same product
 * with the library's own threading. */
#include <string.h>

#include "bench/zerobench/bench.h"
#include "bench/zerobench/library.h"

enum { ROWS = 1024, HIDDEN = 768, WIDE = 3072, VOCAB_PADDED = 50304, CHUNK = 512 };

/* x [rows, in] times w to [rows, out]; w is [in, out], or [out, in] with io = 0. */
typedef struct {
  const char *name;
  int64_t rows, in, out, io;
} linear_t;

static const linear_t gpt2[] = {
    {"qkv", ROWS, HIDDEN, 3 * HIDDEN, 1},
    {"out", ROWS, HIDDEN, HIDDEN, 1},
    {"up", ROWS, HIDDEN, WIDE, 1},
    {"down", ROWS, WIDE, HIDDEN, 1},
    {"head", CHUNK, HIDDEN, VOCAB_PADDED, 0},
};
static const linear_t quick[] = {{"small", 64, 96, 80, 1}};

typedef struct {
  const char *name, *types;
  int32_t kind;
  int a, b, c; /* operands */
} pass_t;

static const pass_t passes[] = {
    {"y", "tt-tb", ZR_OP_LINEAR, 0, 1, 3},
    {"dx", "tttb", ZR_OP_LINEAR_GRAD_X, 0, 1, 2},
    {"dw", "ttsb", ZR_OP_LINEAR_GRAD_W, 0, 1, 2},
};
enum { N_PASSES = sizeof passes / sizeof passes[0] };

static zr_bench_product_t product_of(const linear_t *l, int32_t kind) {
  int64_t in = l->in, out = l->out;
  switch (kind) {
    case ZR_OP_LINEAR:
      return (zr_bench_product_t){l->rows,        out, in, in, 1, l->io ? out : 1,
                                  l->io ? 1 : in, out, 0,  0};
    case ZR_OP_LINEAR_GRAD_X:
      return (zr_bench_product_t){l->rows,         in, out, out, 1, l->io ? 1 : in,
                                  l->io ? out : 1, in, 0,   0};
    default: /* dw = x^T dy, or dy^T x */
      return l->io ? (zr_bench_product_t){in, out, l->rows, 1, in, out, 1, out, 0, 0}
                   : (zr_bench_product_t){out, in, l->rows, 1, out, in, 1, in, 0, 0};
  }
}

typedef struct {
  zr_bench_kernel_t kernel;
  zr_bench_library_t *library;
  const void *a, *b;
  void *c;
} pair_t;

static zr_status_t run_library(void *context) {
  pair_t *pair = context;
  return zr_bench_library_run(pair->library, pair->a, pair->b, pair->c);
}

/* The library multiplies in bf16 where the processor does, else the same shape in fp32, on areas
 * that are twice as large. */
static zr_status_t make_library(zr_bench_t *b, const linear_t *l, const pass_t *pass,
                                zr_dtype_t dtype, pair_t *pair) {
  zr_bench_product_t product = product_of(l, pass->kind);
  product.ab = dtype;
  product.c = pass->kind == ZR_OP_LINEAR_GRAD_W ? ZR_F32 : dtype;
  void *const *operand = pair->kernel.call.operand;
  int swap = pass->kind == ZR_OP_LINEAR_GRAD_W && !l->io;
  pair->a = operand[swap ? pass->b : pass->a];
  pair->b = operand[swap ? pass->a : pass->b];
  pair->c = operand[pass->c];
  return zr_bench_library_create(b->alloc, &product, b->n_threads, &pair->library);
}

static zr_status_t report(zr_bench_t *b, const char *what, zr_dtype_t dtype, zr_dtype_t library,
                          double flops, const zr_bench_work_t *work, int n_works) {
  bool same = dtype == library;
  zr_bench_row_t row = {.what = what,
                        .seconds = work[0].seconds,
                        .value = flops / work[0].seconds * 1e-9,
                        .unit = "GF/s"};
  if (n_works > 1) {
    row.ceiling = flops / work[1].seconds * 1e-9;
    row.ceiling_of = same ? "library, own threads" : "library in fp32, own threads";
  }
  return zr_bench_row(b, &row);
}

static zr_kern_shape_t shape_of(const linear_t *l, const pass_t *pass, zr_dtype_t dtype) {
  int64_t attr[ZR_MAX_ATTRS] = {l->rows, l->in, l->out, l->in, l->out, l->io};
  return zr_bench_shape(pass->kind, attr, pass->types, dtype);
}

static zr_status_t measure(zr_bench_t *b, const linear_t *l, const pass_t *pass, zr_dtype_t dtype) {
  zr_dtype_t library = dtype == ZR_BF16 && zr_bench_library_has_bf16() ? ZR_BF16 : ZR_F32;
  char what[64];
  (void)snprintf(what, sizeof what, "%s %s %s %lldx%lldx%lld", zr_dtype_name(dtype), l->name,
                 pass->name, (long long)l->rows, (long long)l->in, (long long)l->out);
  zr_bench_say(b, "%s", what);
  pair_t ours = {0}, theirs = {0};
  zr_kern_shape_t shape = shape_of(l, pass, dtype), other = shape_of(l, pass, library);
  zr_status_t status = zr_bench_kernel_make(b, &shape, &ours.kernel);
  if (status == ZR_OK && library != dtype) {
    status = zr_bench_kernel_make(b, &other, &theirs.kernel);
  } else if (status == ZR_OK) {
    theirs = ours;
  }
  if (status == ZR_OK) status = make_library(b, l, pass, library, &theirs);
  zr_bench_work_t work[2] = {{zr_bench_kernel_run, &ours.kernel, 0}, {run_library, &theirs, 0}};
  int n_works = theirs.library == NULL ? 1 : 2;
  if (status == ZR_OK) status = zr_bench_time(b, work, n_works, 3, b->options.all ? 1.0 : 0.3);
  if (status == ZR_OK) {
    status = report(b, what, dtype, library, ours.kernel.flops, work, n_works);
  }
  zr_bench_library_destroy(theirs.library);
  if (library != dtype) zr_bench_kernel_free(b, &theirs.kernel);
  zr_bench_kernel_free(b, &ours.kernel);
  return status;
}

static zr_status_t parse_shape(const char *text, linear_t *out) {
  long long m = 0, n = 0, k = 0;
  char rest = 0;
  if (sscanf(text, "%lld,%lld,%lld%c", &m, &n, &k, &rest) != 3 || m < 1 || n < 1 || k < 1 ||
      m > 1 << 24 || n > 1 << 24 || k > 1 << 24) {
    return zr_fail(ZR_ERR_CONFIG, "--shape is M,N,K (rows, columns, inner), not '%.40s'", text);
  }
  *out = (linear_t){"shape", m, k, n, 1};
  return ZR_OK;
}

zr_status_t zr_bench_gemm(zr_bench_t *b) {
  linear_t one;
  const linear_t *list = b->options.quick ? quick : gpt2;
  size_t n = b->options.quick ? 1 : sizeof gpt2 / sizeof gpt2[0];
  if (b->options.shape != NULL) {
    ZR_TRY(parse_shape(b->options.shape, &one));
    list = &one;
    n = 1;
  }
  zr_dtype_t dtype[3];
  int n_dtypes;
  ZR_TRY(zr_bench_dtypes(b, dtype, &n_dtypes));
  for (int t = 0; t < n_dtypes; t++) {
    for (size_t i = 0; i < n; i++) {
      for (int p = 0; p < N_PASSES; p++) ZR_TRY(measure(b, &list[i], &passes[p], dtype[t]));
    }
  }
  return zr_bench_note(b, "a product is named rows x in x out: y = x w, dx = dy w^T, dw = x^T dy");
}
