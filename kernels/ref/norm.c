/* LayerNorm and RMSNorm. Sums are made in double over the loaded numbers. */
#include <math.h>

#include "kernels/ref/ref.h"

zr_status_t ref_layernorm(const zr_kern_call_t *call) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  ref_view_t w = ref_view(call, 1), b = ref_view(call, 2); /* [cols] */
  ref_view_t stats = ref_view(call, 4);                    /* [rows, 2] */
  for (int64_t t = 0; t < rows; t++) {
    ref_view_t x = ref_from(ref_view(call, 0), t * cols), y = ref_from(ref_view(call, 3), t * cols);
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < cols; c++) mean += ref_get(x, c);
    mean /= (double)cols;
    for (int64_t c = 0; c < cols; c++) variance += (ref_get(x, c) - mean) * (ref_get(x, c) - mean);
    double rstd = 1 / sqrt(variance / (double)cols + call->shape->real);
    for (int64_t c = 0; c < cols; c++)
      ref_set(y, c, (ref_get(x, c) - mean) * rstd * ref_get(w, c) + ref_get(b, c));
    ref_set(stats, 2 * t, mean);
    ref_set(stats, 2 * t + 1, rstd);
  }
  return ZR_OK;
}

zr_status_t ref_rmsnorm(const zr_kern_call_t *call) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  ref_view_t w = ref_view(call, 1);     /* [cols] */
  ref_view_t stats = ref_view(call, 3); /* [rows] */
  for (int64_t t = 0; t < rows; t++) {
    ref_view_t x = ref_from(ref_view(call, 0), t * cols), y = ref_from(ref_view(call, 2), t * cols);
    double square = ref_dot(x, x, cols);
    double rstd = 1 / sqrt(square / (double)cols + call->shape->real);
    for (int64_t c = 0; c < cols; c++) ref_set(y, c, ref_get(x, c) * rstd * ref_get(w, c));
    ref_set(stats, t, rstd);
  }
  return ZR_OK;
}

/* With xhat = (x - mean) rstd and g = dy w:
 *   dx = rstd (g - mean(g) - xhat mean(g xhat)),  dw = sum dy xhat,  db = sum dy.
 * RMSNorm has mean = 0 and no mean(g) term. */
static void norm_grad_x(const zr_kern_call_t *call, int centred) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  ref_view_t w = ref_view(call, 1), stats = ref_view(call, 2);
  for (int64_t t = 0; t < rows; t++) {
    ref_view_t x = ref_from(ref_view(call, 0), t * cols);
    ref_view_t dy = ref_from(ref_view(call, 3), t * cols);
    ref_view_t dx = ref_from(ref_view(call, 4), t * cols);
    double mean = centred ? ref_get(stats, 2 * t) : 0;
    double rstd = ref_get(stats, centred ? 2 * t + 1 : t);
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < cols; c++) {
      double g = ref_get(dy, c) * ref_get(w, c);
      mean_g += g;
      mean_gx += g * (ref_get(x, c) - mean) * rstd;
    }
    mean_g = centred ? mean_g / (double)cols : 0;
    mean_gx /= (double)cols;
    for (int64_t c = 0; c < cols; c++) {
      double xhat = (ref_get(x, c) - mean) * rstd;
      double value = rstd * (ref_get(dy, c) * ref_get(w, c) - mean_g - xhat * mean_gx);
      ref_put(dx, c, value, ref_accumulates(call, 4));
    }
  }
}

zr_status_t ref_layernorm_grad(const zr_kern_call_t *call) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  ref_view_t x = ref_view(call, 0), stats = ref_view(call, 2), dy = ref_view(call, 3);
  ref_view_t dw = ref_view(call, 5), db = ref_view(call, 6); /* [cols] */
  norm_grad_x(call, 1);
  for (int64_t c = 0; c < cols; c++) {
    double sum_w = 0, sum_b = 0;
    for (int64_t t = 0; t < rows; t++) {
      double g = ref_get(dy, t * cols + c);
      double centred = ref_get(x, t * cols + c) - ref_get(stats, 2 * t);
      sum_w += g * centred * ref_get(stats, 2 * t + 1);
      sum_b += g;
    }
    ref_put(dw, c, sum_w, ref_accumulates(call, 5));
    ref_put(db, c, sum_b, ref_accumulates(call, 6));
  }
  return ZR_OK;
}

zr_status_t ref_rmsnorm_grad(const zr_kern_call_t *call) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  ref_view_t x = ref_view(call, 0), stats = ref_view(call, 2), dy = ref_view(call, 3);
  ref_view_t dw = ref_view(call, 5); /* [cols] */
  norm_grad_x(call, 0);
  for (int64_t c = 0; c < cols; c++) {
    double value = 0;
    for (int64_t t = 0; t < rows; t++)
      value += ref_get(dy, t * cols + c) * ref_get(x, t * cols + c) * ref_get(stats, t);
    ref_put(dw, c, value, ref_accumulates(call, 5));
  }
  return ZR_OK;
}
