/* RMSNorm of each head, from rows without gaps into columns of wider rows. Sums are in double. */
#include <math.h>

#include "kernels/ref/ref.h"

zr_status_t ref_head_norm(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t heads = attr[ZR_HEAD_NORM_HEADS], dim = attr[ZR_HEAD_NORM_HEAD_DIM];
  ref_view_t w = ref_view(call, 1), stats = ref_view(call, 3);
  for (int64_t t = 0; t < attr[ZR_HEAD_NORM_ROWS]; t++)
    for (int64_t h = 0; h < heads; h++) {
      ref_view_t x = ref_from(ref_view(call, 0), (t * heads + h) * dim);
      ref_view_t y = ref_from(ref_view(call, 2), t * attr[ZR_HEAD_NORM_LDY] + h * dim);
      double rstd = 1 / sqrt(ref_dot(x, x, dim) / (double)dim + call->shape->real);
      for (int64_t c = 0; c < dim; c++) ref_set(y, c, ref_get(x, c) * rstd * ref_get(w, c));
      ref_set(stats, t * heads + h, rstd);
    }
  return ZR_OK;
}

/* dx = rstd (g - xhat mean(g xhat)) with g = dy w, xhat = x rstd;  dw = sum over rows and heads of
 * dy xhat. */
zr_status_t ref_head_norm_grad(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t rows = attr[ZR_HEAD_NORM_ROWS], heads = attr[ZR_HEAD_NORM_HEADS];
  int64_t dim = attr[ZR_HEAD_NORM_HEAD_DIM];
  ref_view_t x = ref_view(call, 0), w = ref_view(call, 1), stats = ref_view(call, 2);
  ref_view_t dy = ref_view(call, 3), dx = ref_view(call, 4), dw = ref_view(call, 5);
  for (int64_t i = 0; i < rows * heads; i++) {
    ref_view_t xi = ref_from(x, i * dim);
    ref_view_t dyi = ref_from(dy, i / heads * attr[ZR_HEAD_NORM_LDY] + i % heads * dim);
    double rstd = ref_get(stats, i), mean = 0;
    for (int64_t c = 0; c < dim; c++) mean += ref_get(dyi, c) * ref_get(w, c) * ref_get(xi, c);
    mean *= rstd / (double)dim;
    for (int64_t c = 0; c < dim; c++) {
      double value = rstd * (ref_get(dyi, c) * ref_get(w, c) - ref_get(xi, c) * rstd * mean);
      ref_put(dx, i * dim + c, value, ref_accumulates(call, 4));
    }
  }
  for (int64_t c = 0; c < dim; c++) {
    double sum = 0;
    for (int64_t i = 0; i < rows * heads; i++) {
      int64_t at = i / heads * attr[ZR_HEAD_NORM_LDY] + i % heads * dim + c;
      sum += ref_get(dy, at) * ref_get(x, i * dim + c) * ref_get(stats, i);
    }
    ref_put(dw, c, sum, ref_accumulates(call, 5));
  }
  return ZR_OK;
}
