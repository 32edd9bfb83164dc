#include "runtime/train/curve.h"

#include <math.h>
#include <string.h>

/* Buckets that are full make room by pairs. */
static void halve(zr_curve_t *curve) {
  for (int i = 0; i < ZR_CURVE_BUCKETS / 2; ++i) {
    curve->sum[i] = curve->sum[2 * i] + curve->sum[2 * i + 1];
    curve->count[i] = curve->count[2 * i] + curve->count[2 * i + 1];
  }
  curve->n_buckets = ZR_CURVE_BUCKETS / 2;
  curve->per_bucket *= 2;
}

void zr_curve_add(zr_curve_t *curve, double value) {
  if (!isfinite(value)) return;
  if (curve->per_bucket == 0) curve->per_bucket = 1;
  int last = curve->n_buckets - 1;
  if (last < 0 || curve->count[last] >= curve->per_bucket) {
    if (curve->n_buckets == ZR_CURVE_BUCKETS) halve(curve);
    last = curve->n_buckets++;
    curve->sum[last] = 0;
    curve->count[last] = 0;
  }
  curve->sum[last] += value;
  curve->count[last] += 1;
}

void zr_curve_draw(const zr_curve_t *curve, char out_text[ZR_CURVE_BYTES]) {
  static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double low = INFINITY, high = -INFINITY;
  for (int i = 0; i < curve->n_buckets; ++i) {
    double mean = curve->sum[i] / (double)curve->count[i];
    low = fmin(low, mean);
    high = fmax(high, mean);
  }
  size_t used = 0;
  for (int i = 0; i < ZR_CURVE_BUCKETS; ++i) {
    const char *mark = " ";
    if (i < curve->n_buckets) {
      double mean = curve->sum[i] / (double)curve->count[i];
      mark = blocks[high > low ? (int)((mean - low) / (high - low) * 7.999) : 0];
    }
    size_t bytes = strlen(mark);
    memcpy(out_text + used, mark, bytes + 1);
    used += bytes;
  }
}
