#include "runtime/base/exact_sum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Between additions a limb stays below 2^52: 1,024 ranks can then be added as plain integers. */
static const int64_t limb_limit = (int64_t)1 << 52;

static bool over_limit(int64_t limb) {
  return limb >= limb_limit || limb <= -limb_limit;
}

/* Brings all limbs but the last into 0 .. 2^32 - 1; the last one carries the sign. */
static void normalise(int64_t limb[ZR_EXACT_LIMBS]) {
  for (int i = 0; i + 1 < ZR_EXACT_LIMBS; ++i) {
    int64_t carry = limb[i] >> 32; /* rounds down, so the digit is never negative */
    limb[i] &= 0xffffffff;
    limb[i + 1] += carry;
  }
}

static void keep_room(zr_exact_sum_t *sum) {
  normalise(sum->limb);
  if (over_limit(sum->limb[ZR_EXACT_LIMBS - 1])) {
    sum->n_nonfinite += 1;
    sum->limb[ZR_EXACT_LIMBS - 1] = 0;
  }
}

void zr_exact_add(zr_exact_sum_t *sum, double value) {
  if (value == 0) return;
  if (!(fabs(value) < 0x1p320)) {
    sum->n_nonfinite += 1;
    return;
  }
  int exponent;
  double fraction = frexp(value, &exponent);
  int64_t mantissa = (int64_t)ldexp(fabs(fraction), 53);
  int position = exponent - 53 + ZR_EXACT_BIAS; /* of the mantissa's lowest bit */
  if (position < 0) {
    mantissa = position <= -53 ? 0 : mantissa >> -position;
    position = 0;
  }
  if (mantissa == 0) return;
  unsigned __int128 digits = (unsigned __int128)mantissa << (position % 32);
  bool full = false;
  for (int i = position / 32; digits != 0; ++i, digits >>= 32) {
    int64_t digit = (int64_t)(uint32_t)digits;
    sum->limb[i] += value < 0 ? -digit : digit;
    full = full || over_limit(sum->limb[i]);
  }
  if (full) keep_room(sum);
}

void zr_exact_merge(zr_exact_sum_t *sum, const zr_exact_sum_t *other) {
  bool full = false;
  for (int i = 0; i < ZR_EXACT_LIMBS; ++i) {
    sum->limb[i] += other->limb[i];
    full = full || over_limit(sum->limb[i]);
  }
  sum->n_nonfinite += other->n_nonfinite;
  if (full) keep_room(sum);
}

/* The limbs are normalised and not negative; top is the highest one that is not zero. The three
 * limbs from it hold at least 65 bits; all below them matter only by being zero or not. */
static double round_magnitude(const int64_t limb[ZR_EXACT_LIMBS], int top) {
  unsigned __int128 head = (unsigned __int128)limb[top] << 64;
  if (top >= 1) head |= (unsigned __int128)limb[top - 1] << 32;
  if (top >= 2) head |= (unsigned __int128)limb[top - 2];
  bool sticky = false;
  for (int i = 0; i < top - 2; ++i) sticky = sticky || limb[i] != 0;
  int bits = 64;
  while (bits < 128 && head >> bits != 0) ++bits;
  int dropped = bits - 53;
  uint64_t kept = (uint64_t)(head >> dropped);
  unsigned __int128 rest = head & (((unsigned __int128)1 << dropped) - 1);
  unsigned __int128 half = (unsigned __int128)1 << (dropped - 1);
  if (rest > half || (rest == half && (sticky || (kept & 1)))) ++kept;
  return ldexp((double)kept, dropped + 32 * (top - 2) - ZR_EXACT_BIAS);
}

double zr_exact_value(const zr_exact_sum_t *sum) {
  if (sum->n_nonfinite > 0) return (double)NAN;
  int64_t limb[ZR_EXACT_LIMBS];
  memcpy(limb, sum->limb, sizeof limb);
  normalise(limb);
  bool negative = limb[ZR_EXACT_LIMBS - 1] < 0;
  if (negative) {
    for (int i = 0; i < ZR_EXACT_LIMBS; ++i) limb[i] = -limb[i];
    normalise(limb);
  }
  int top = ZR_EXACT_LIMBS - 1;
  while (top > 0 && limb[top] == 0) --top;
  if (limb[top] == 0) return 0.0;
  double magnitude = round_magnitude(limb, top);
  return negative ? -magnitude : magnitude;
}
