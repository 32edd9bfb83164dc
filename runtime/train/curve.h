/* The loss as a small curve: a fixed number of buckets over the whole run so far, each the mean of
 * as many steps as it takes. */
#ifndef ZR_TRAIN_CURVE_H
#define ZR_TRAIN_CURVE_H

#include <stddef.h>
#include <stdint.h>

enum { ZR_CURVE_BUCKETS = 24, ZR_CURVE_BYTES = 3 * ZR_CURVE_BUCKETS + 1 };

typedef struct {
  double sum[ZR_CURVE_BUCKETS];
  int64_t count[ZR_CURVE_BUCKETS];
  int n_buckets;
  int64_t per_bucket; /* 0 means 1: zeroed memory is an empty curve */
} zr_curve_t;

void zr_curve_add(zr_curve_t *curve, double value); /* what is not finite is left out */
/* UTF-8 blocks, from the lowest to the highest bucket, always ZR_CURVE_BUCKETS columns wide. */
void zr_curve_draw(const zr_curve_t *curve, char out_text[ZR_CURVE_BYTES]);

#endif
