/* Exact sums of doubles in an integer superaccumulator: order-free, so a norm or a loss is the same
 * for any number of ranks, threads and any stage.
 *
 * Value = sum over i of limb[i] * 2^(32 i - ZR_EXACT_BIAS). Limbs are signed 64-bit and hold 32-bit
 * digits with room for carries, so adding two accumulators is adding limbs: an integer all-reduce
 * does it. The range covers sums of squares of any finite fp32 values in blocks of 1,024 (2^-298 ..
 * 2^267) and sums of losses. Bits of a value below 2^-384 are dropped, value by value; |value| >=
 * 2^320 counts as non-finite. One thread at a time for each accumulator. */
#ifndef ZR_BASE_EXACT_SUM_H
#define ZR_BASE_EXACT_SUM_H

#include <stdint.h>

enum { ZR_EXACT_LIMBS = 22, ZR_EXACT_BIAS = 384 };

typedef struct {
  int64_t limb[ZR_EXACT_LIMBS]; /* |limb| < 2^52 after each call: 1,024 ranks add up below 2^62 */
  int64_t n_nonfinite;          /* values that were NaN, infinite or outside the range */
} zr_exact_sum_t;

void zr_exact_add(zr_exact_sum_t *sum, double value);
void zr_exact_merge(zr_exact_sum_t *sum, const zr_exact_sum_t *other);
/* The exact sum rounded once to double (round to nearest even); NaN if n_nonfinite > 0. */
double zr_exact_value(const zr_exact_sum_t *sum);

#endif
