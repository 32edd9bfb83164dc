/* The 16-bit types against their definitions. Without an argument a sample of the 2^32 floats; with
 * `all`, every one of them (minutes). */
#include <math.h>
#include <string.h>

#include "runtime/base/half.h"
#include "tests/support/cmocka_all.h"

static uint64_t stride = 12289; /* a prime: all exponents, signs and low bits come by */

typedef uint16_t (*narrow_fn_t)(float value);
typedef float (*widen_fn_t)(uint16_t half);

/* `got` is the nearest to a finite `value`, the even one of two: its neighbours are not nearer. The
 * first number past the largest stands for infinity. */
static int is_nearest(float value, uint16_t got, widen_fn_t widen, uint16_t infinity,
                      double past_largest) {
  uint16_t magnitude = got & 0x7fffu;
  double v = fabs((double)value);
  if ((got & 0x8000u) != (zr_f32_bits(value) >> 16 & 0x8000u) || magnitude > infinity) return 0;
  double at = magnitude == infinity ? past_largest : (double)widen(magnitude);
  double off = fabs(v - at);
  if (magnitude > 0) {
    double below = fabs(v - (double)widen((uint16_t)(magnitude - 1)));
    if (below < off || (below == off && (magnitude & 1u))) return 0;
  }
  if (magnitude == infinity) return 1;
  double above =
      magnitude + 1 == infinity ? past_largest : (double)widen((uint16_t)(magnitude + 1));
  return !(fabs(v - above) < off || (fabs(v - above) == off && (magnitude & 1u)));
}

static void check_narrowing(uint32_t bits, narrow_fn_t narrow, widen_fn_t widen, uint16_t infinity,
                            double past_largest) {
  float value = zr_f32_of_bits(bits);
  uint16_t got = narrow(value);
  uint16_t sign = bits >> 16 & 0x8000u;
  int good = 0;
  if (isnan(value)) {
    uint16_t quiet = (uint16_t)(infinity | ((~infinity & 0x7fffu) + 1u) >> 1);
    good = (got & 0x8000u) == sign && (got & quiet) == quiet && isnan(widen(got));
  } else if (isinf(value)) {
    good = got == (sign | infinity);
  } else {
    good = is_nearest(value, got, widen, infinity, past_largest);
  }
  if (!good) fail_msg("%08x becomes %04x", bits, got);
}

static void check_split(uint32_t bits) {
  float master = zr_f32_of_bits(bits);
  uint16_t high = 0;
  int16_t low = 0;
  zr_master_split(master, &high, &low);
  if (isnan(master)) {
    if (!isnan(zr_bf16_to_f32(high)) || !isnan(zr_master_join(high, low)))
      fail_msg("the NaN %08x is split into %04x and %d", bits, high, low);
    return;
  }
  if (zr_f32_bits(zr_master_join(high, low)) != bits)
    fail_msg("%08x is split into %04x and %d", bits, high, low);
  if ((isinf(zr_bf16_to_f32(high)) != 0) != (fabs((double)master) >= 0x1.ffp127))
    fail_msg("%08x: the parameter is %04x", bits, high);
  /* the parameter is a nearest bf16: rounding to even differs in a tie only */
  if ((bits & 0xffffu) != 0x8000u && high != zr_bf16_from_f32(master))
    fail_msg("%08x: the parameter %04x is not the nearest", bits, high);
}

static void check_float(uint32_t bits) {
  check_narrowing(bits, zr_bf16_from_f32, zr_bf16_to_f32, 0x7f80, 0x1p128);
  check_narrowing(bits, zr_f16_from_f32, zr_f16_to_f32, 0x7c00, 0x1p16);
  check_split(bits);
}

static void floats_of_the_sample(void **state) {
  (void)state;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += stride) check_float((uint32_t)bits);
}

/* Around each number of either type, and around the middles between them: where rounding turns. */
static void floats_around_every_half(void **state) {
  (void)state;
  for (uint32_t half = 0; half <= UINT16_MAX; half++) {
    uint32_t at[] = {half << 16, half << 16 | 0x8000u, zr_f32_bits(zr_f16_to_f32((uint16_t)half)),
                     zr_f32_bits(zr_f16_to_f32((uint16_t)half)) + 0x1000u};
    for (int i = 0; i < 4; i++)
      for (uint32_t step = 0; step < 5; step++) check_float(at[i] + step - 2u);
  }
  for (int n = 0; n < 1024; n++) { /* the middles of fp16's subnormals */
    uint32_t middle = zr_f32_bits(((float)n + 0.5f) * 0x1p-24f);
    for (uint32_t step = 0; step < 5; step++) check_float(middle + step - 2u);
  }
}

static double f16_by_definition(uint16_t half) {
  int exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
  return half & 0x8000u ? -magnitude : magnitude;
}

static void every_half_survives_fp32(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
    uint16_t half = (uint16_t)bits;
    float b = zr_bf16_to_f32(half), f = zr_f16_to_f32(half);
    assert_int_equal(zr_bf16_from_f32(b), isnan(b) ? half | 0x40u : half);
    assert_int_equal(zr_f16_from_f32(f), isnan(f) ? half | 0x200u : half);
    assert_int_equal(isfinite(f) != 0, (half & 0x7c00u) != 0x7c00u);
    if (isfinite(f))
      assert_true((double)f == f16_by_definition(half) && (signbit(f) != 0) == half >> 15);
#ifdef __FLT16_MAX__
    _Float16 compiler;
    memcpy(&compiler, &half, sizeof compiler);
    if (isfinite(f)) assert_true((float)compiler == f);
#endif
  }
}

static void known_numbers(void **state) {
  (void)state;
  assert_int_equal(zr_bf16_from_f32(1), 0x3f80);
  assert_int_equal(zr_bf16_from_f32(1 + 0x1p-8f), 0x3f80); /* ties to even */
  assert_int_equal(zr_bf16_from_f32(1 + 0x3p-8f), 0x3f82);
  assert_int_equal(zr_bf16_from_f32(0x1.ffp127f), 0x7f80);
  assert_int_equal(zr_f16_from_f32(65504), 0x7bff);
  assert_int_equal(zr_f16_from_f32(0x1.ffdffep15f), 0x7bff);
  assert_int_equal(zr_f16_from_f32(65520), 0x7c00);
  assert_int_equal(zr_f16_from_f32(-1e30f), 0xfc00);
  assert_int_equal(zr_f16_from_f32(0x1p-24f), 1);
  assert_int_equal(zr_f16_from_f32(0x1p-25f), 0);
  assert_int_equal(zr_f16_from_f32(-0x1.000002p-25f), 0x8001);
  assert_int_equal(zr_f16_from_f32(0x1.ff8p-15f), 0x3ff);
  assert_int_equal(zr_f16_from_f32(0x1.fffp-15f), 0x400);
  uint16_t high = 0;
  int16_t low = 0;
  zr_master_split(zr_f32_of_bits(0x3f808000), &high, &low); /* a tie goes away from zero */
  assert_true(high == 0x3f81 && low == -0x8000);
  zr_master_split(zr_f32_of_bits(0x7f7fffff), &high, &low); /* the largest float */
  assert_true(high == 0x7f80 && low == -1);
  zr_master_split(zr_f32_of_bits(0x7fffffff), &high, &low); /* a carry would make -0 of it */
  assert_true(high == 0x7fff && low == 0);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "all") == 0) stride = 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_numbers),
      cmocka_unit_test(every_half_survives_fp32),
      cmocka_unit_test(floats_around_every_half),
      cmocka_unit_test(floats_of_the_sample),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
