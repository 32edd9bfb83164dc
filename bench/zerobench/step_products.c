/* The products of a plan, each shape alone with all workers: what the step's share of them is
 * measured against. */
#include <string.h>

#include "bench/zerobench/step.h"

enum { COPY_BYTES = 256 << 20, QUICK_BYTES = 4 << 20 };

int zr_step_is_product(int32_t kind) {
  return kind == ZR_OP_LINEAR || kind == ZR_OP_LINEAR_GRAD_X || kind == ZR_OP_LINEAR_GRAD_W ||
         kind == ZR_OP_HEAD_LOSS;
}

static bool equal(const zr_kern_shape_t *a, const zr_kern_shape_t *b) {
  return a->kind == b->kind && a->accumulate == b->accumulate && a->present == b->present &&
         memcmp(a->attr, b->attr, sizeof a->attr) == 0 &&
         memcmp(a->dtype, b->dtype, sizeof a->dtype) == 0;
}

static zr_status_t add(zr_bench_t *b, int32_t kind, const zr_kern_shape_t *shape, int64_t count,
                       zr_step_products_t *p) {
  for (int i = 0; i < p->n; i++) {
    if (p->product[i].kind == kind && equal(&p->product[i].kernel.shape, shape)) {
      p->product[i].count += count;
      return ZR_OK;
    }
  }
  if (p->n == ZR_STEP_MAX_PRODUCTS) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "the plan has products of more than %d shapes",
                   (int)ZR_STEP_MAX_PRODUCTS);
  }
  zr_step_product_t *product = &p->product[p->n++];
  *product = (zr_step_product_t){.kind = kind, .count = count, .seconds = 1e30};
  return zr_bench_kernel_make(b, shape, &product->kernel);
}

/* logits, gradient of x, gradient of w, for each chunk of rows */
static zr_status_t add_head(zr_bench_t *b, const zr_kern_shape_t *head, zr_step_products_t *p) {
  static const int32_t kinds[] = {ZR_OP_LINEAR, ZR_OP_LINEAR_GRAD_X, ZR_OP_LINEAR_GRAD_W};
  static const char *const types[] = {"tt-tb", "tttb", "ttsb"};
  int64_t rows = head->attr[ZR_HEAD_ROWS], chunk = head->attr[ZR_HEAD_CHUNK];
  int64_t in = head->attr[ZR_HEAD_HIDDEN], out = head->attr[ZR_HEAD_VOCAB_PADDED];
  if (chunk > rows) chunk = rows;
  for (int64_t at = 0; at < rows; at += chunk) {
    int64_t n = rows - at < chunk ? rows - at : chunk;
    int64_t attr[ZR_MAX_ATTRS] = {n, in, out, in, out, 0};
    for (int i = 0; i < 3; i++) {
      zr_kern_shape_t shape = zr_bench_shape(kinds[i], attr, types[i], (zr_dtype_t)head->dtype[0]);
      if (i == 2) shape.dtype[2] = head->dtype[6];
      ZR_TRY(add(b, ZR_OP_HEAD_LOSS, &shape, 1, p));
    }
  }
  return ZR_OK;
}

zr_status_t zr_step_products_make(zr_bench_t *b, const zr_plan_t *plan,
                                  zr_step_products_t *out_products) {
  zr_step_products_t *p = out_products;
  memset(p, 0, sizeof *p);
  p->copy_seconds = 1e30;
  ZR_TRY(zr_bench_copy_make(b, b->options.quick ? QUICK_BYTES : COPY_BYTES, b->pool, &p->copy));
  for (size_t i = 0; i < plan->n_ops; i++) {
    const zr_kern_shape_t *shape = &plan->op[i].shape;
    if (!zr_step_is_product(shape->kind)) continue;
    ZR_TRY(shape->kind == ZR_OP_HEAD_LOSS ? add_head(b, shape, p)
                                          : add(b, shape->kind, shape, 1, p));
  }
  return ZR_OK;
}

static double least(double a, double b) {
  return a < b ? a : b;
}

zr_status_t zr_step_products_time(zr_bench_t *b, zr_step_products_t *p) {
  zr_bench_work_t work[ZR_STEP_MAX_PRODUCTS + 2];
  for (int i = 0; i < p->n; i++) {
    work[i] = (zr_bench_work_t){zr_bench_kernel_run, &p->product[i].kernel, 0};
  }
  work[p->n] = (zr_bench_work_t){zr_bench_memcpy, &p->copy, 0};
  work[p->n + 1] = (zr_bench_work_t){zr_bench_copy_stream, &p->copy, 0};
  ZR_TRY(zr_bench_time(b, work, p->n + 2, 2, 0));
  for (int i = 0; i < p->n; i++) {
    p->product[i].seconds = least(p->product[i].seconds, work[i].seconds);
  }
  p->copy_seconds = least(p->copy_seconds, least(work[p->n].seconds, work[p->n + 1].seconds));
  return ZR_OK;
}

void zr_step_products_free(zr_bench_t *b, zr_step_products_t *p) {
  for (int i = 0; i < p->n; i++) zr_bench_kernel_free(b, &p->product[i].kernel);
  zr_bench_copy_free(b, &p->copy);
}

double zr_step_products_seconds(const zr_step_products_t *p, int32_t kind, double *out_flops) {
  double seconds = 0;
  *out_flops = 0;
  for (int i = 0; i < p->n; i++) {
    if (kind >= 0 && p->product[i].kind != kind) continue;
    seconds += (double)p->product[i].count * p->product[i].seconds;
    *out_flops += (double)p->product[i].count * p->product[i].kernel.flops;
  }
  return seconds;
}
