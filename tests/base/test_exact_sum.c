/* The sums are checked against a plain two's complement integer of 1,024 bits that is added to and
 * rounded bit by bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/exact_sum.h"
#include "runtime/base/rng.h"
#include "tests/support/cmocka_all.h"

enum { WIDE_BITS = 1024, WIDE_BIAS = 420 }; /* bit i stands for 2^(i - WIDE_BIAS) */
typedef struct {
  unsigned char bit[WIDE_BITS];
} wide_t;

static void wide_add(wide_t *wide, double value) {
  if (value == 0) return;
  int exponent;
  double fraction = frexp(fabs(value), &exponent);
  uint64_t mantissa = (uint64_t)ldexp(fraction, 53);
  int low = exponent - 53 + WIDE_BIAS;
  int carry = 0;
  for (int i = 0; i < WIDE_BITS; ++i) {
    int digit = i >= low && i < low + 53 ? (int)(mantissa >> (i - low) & 1) : 0;
    int sum = value > 0 ? wide->bit[i] + digit + carry : wide->bit[i] - digit - carry;
    carry = value > 0 ? sum >> 1 : sum < 0;
    wide->bit[i] = (unsigned char)(sum & 1);
  }
}

static double wide_value(const wide_t *wide) {
  wide_t w = *wide;
  int negative = w.bit[WIDE_BITS - 1];
  if (negative) {
    int carry = 1;
    for (int i = 0; i < WIDE_BITS; ++i) {
      int sum = !w.bit[i] + carry;
      w.bit[i] = (unsigned char)(sum & 1);
      carry = sum >> 1;
    }
  }
  int top = WIDE_BITS - 1;
  while (top >= 0 && !w.bit[top]) --top;
  if (top < 0) return 0;
  double kept = 0;
  int low = top - 52;
  for (int i = top; i >= low; --i) kept = 2 * kept + (i >= 0 ? w.bit[i] : 0);
  int half = low > 0 ? w.bit[low - 1] : 0, rest = 0;
  for (int i = 0; i < low - 1; ++i) rest |= w.bit[i];
  if (half && (rest || fmod(kept, 2) == 1)) kept += 1;
  double value = ldexp(kept, low - WIDE_BIAS);
  return negative ? -value : value;
}

static void same_double(double a, double b) {
  uint64_t a_bits, b_bits;
  memcpy(&a_bits, &a, sizeof a);
  memcpy(&b_bits, &b, sizeof b);
  if (a_bits != b_bits) print_error("%a is not %a\n", a, b);
  assert_true(a_bits == b_bits);
}

/* Mixed magnitudes and signs, now and then the negative of an earlier value. */
static double random_value(uint64_t key, uint64_t i, int low_exponent, int high_exponent) {
  uint64_t u = zr_rng_u64(key, 3 * i);
  int exponent = low_exponent +
                 (int)(zr_rng_u64(key, 3 * i + 1) % (uint64_t)(high_exponent - low_exponent + 1));
  double value = ldexp(1 + (double)(u >> 12) * 0x1p-52, exponent);
  return u & 1 ? -value : value;
}

static void random_sums(void **state) {
  (void)state;
  static const int ranges[][2] = {{-330, 318}, {-3, 3}, {-300, -290}, {290, 318}, {0, 60}};
  for (uint64_t trial = 0; trial < 100; ++trial) {
    const int *range = ranges[trial % 5];
    int n = 1 + (int)(zr_rng_u64(1, trial) % 40);
    zr_exact_sum_t sum = {0};
    wide_t wide = {0};
    for (int i = 0; i < n; ++i) {
      double value = random_value(trial + 10, (uint64_t)i, range[0], range[1]);
      if (i % 7 == 6) value = -random_value(trial + 10, (uint64_t)i / 2, range[0], range[1]);
      zr_exact_add(&sum, value);
      wide_add(&wide, value);
      same_double(zr_exact_value(&sum), wide_value(&wide));
    }
  }
}

static void order_and_grouping_are_free(void **state) {
  (void)state;
  enum { N = 4000 };
  static double values[N];
  for (uint64_t i = 0; i < N; ++i) values[i] = random_value(3, i, -200, 200);
  zr_exact_sum_t forward = {0};
  for (int i = 0; i < N; ++i) zr_exact_add(&forward, values[i]);
  double expected = zr_exact_value(&forward);
  for (int n_parts = 1; n_parts <= 9; ++n_parts) {
    zr_exact_sum_t part[9] = {0}, total = {0};
    for (uint64_t i = 0; i < N; ++i) {
      uint64_t j = zr_rng_permute(4, N, i);
      zr_exact_add(&part[j % (uint64_t)n_parts], values[j]);
    }
    for (int p = n_parts - 1; p >= 0; --p) zr_exact_merge(&total, &part[p]);
    same_double(zr_exact_value(&total), expected);
    /* as an integer all-reduce does it */
    zr_exact_sum_t plain = {0};
    for (int p = 0; p < n_parts; ++p) {
      for (int i = 0; i < ZR_EXACT_LIMBS; ++i) plain.limb[i] += part[p].limb[i];
    }
    same_double(zr_exact_value(&plain), expected);
  }
}

static double sum_of(const double *values, int n) {
  zr_exact_sum_t sum = {0};
  for (int i = 0; i < n; ++i) zr_exact_add(&sum, values[i]);
  return zr_exact_value(&sum);
}

static void rounds_to_nearest_even(void **state) {
  (void)state;
  same_double(sum_of((double[]){1, 0x1p-53}, 2), 1);                         /* tie, even below */
  same_double(sum_of((double[]){1, 0x1p-52, 0x1p-53}, 3), 1 + 0x1p-51);      /* tie, odd below */
  same_double(sum_of((double[]){1, 0x1p-53, 0x1p-300}, 3), 1 + 0x1p-52);     /* just above */
  same_double(sum_of((double[]){1, 0x1p-53, -0x1p-300}, 3), 1);              /* just below */
  same_double(sum_of((double[]){-1, -0x1p-53, -0x1p-380}, 3), -1 - 0x1p-52); /* mirrored */
  same_double(sum_of((double[]){2 - 0x1p-52, 0x1p-53}, 2), 2);               /* carries over */
  same_double(sum_of((double[]){0x1p300, 1, -0x1p300}, 3), 1);               /* cancels */
  same_double(sum_of((double[]){0x1p-384, -0x1p-384}, 2), 0);
}

static void edges_of_the_range(void **state) {
  (void)state;
  same_double(sum_of(NULL, 0), 0);
  same_double(sum_of((double[]){0.0, -0.0}, 2), 0);
  same_double(sum_of((double[]){0x1p-384}, 1), 0x1p-384);
  double largest = ldexp(2 - 0x1p-52, 319);
  same_double(sum_of((double[]){largest, largest}, 2), 2 * largest);
  same_double(sum_of((double[]){-largest}, 1), -largest);
  /* Below the last bit nothing is kept, and it is not an error. */
  same_double(sum_of((double[]){0x1p-385}, 1), 0);
  same_double(sum_of((double[]){4.9e-324, 0x1.8p-384}, 2), 0x1p-384);
  /* The smallest and largest squares of fp32, and a block of the largest. */
  double small = ldexp(1, -149), big = 3.40282346638528859811704183484516925440e+38;
  same_double(sum_of((double[]){small * small}, 1), 0x1p-298);
  same_double(sum_of((double[]){big * big * 1024}, 1), big * big * 1024);
}

static void values_outside_are_nonfinite(void **state) {
  (void)state;
  static const double bad[] = {INFINITY, -INFINITY, NAN, 0x1p320, -0x1p320, 1e300};
  for (int i = 0; i < 6; ++i) {
    zr_exact_sum_t sum = {0}, other = {0};
    zr_exact_add(&sum, 1);
    zr_exact_add(&sum, bad[i]);
    assert_int_equal(sum.n_nonfinite, 1);
    assert_true(isnan(zr_exact_value(&sum)));
    zr_exact_merge(&other, &sum);
    assert_true(isnan(zr_exact_value(&other)));
  }
}

static void many_additions_do_not_overflow(void **state) {
  (void)state;
  /* 2^22 additions of all-ones digits, then doubling by merges up to 2^62 of them. */
  zr_exact_sum_t sum = {0};
  double value = ldexp(2 - 0x1p-52, 40);
  for (int i = 0; i < 1 << 22; ++i) zr_exact_add(&sum, value);
  same_double(zr_exact_value(&sum), ldexp(value, 22));
  for (int i = 0; i < 40; ++i) {
    zr_exact_sum_t copy = sum;
    zr_exact_merge(&sum, &copy);
  }
  same_double(zr_exact_value(&sum), ldexp(value, 62));
  /* The last limb has nowhere to carry to: said, not wrapped. */
  zr_exact_sum_t high = {0};
  zr_exact_add(&high, 0x1p319);
  for (int i = 0; i < 60; ++i) {
    zr_exact_sum_t copy = high;
    zr_exact_merge(&high, &copy);
  }
  assert_true(isnan(zr_exact_value(&high)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_sums),
      cmocka_unit_test(order_and_grouping_are_free),
      cmocka_unit_test(rounds_to_nearest_even),
      cmocka_unit_test(edges_of_the_range),
      cmocka_unit_test(values_outside_are_nonfinite),
      cmocka_unit_test(many_additions_do_not_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
