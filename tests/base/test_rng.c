#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/base/rng.h"
#include "tests/support/cmocka_all.h"

static void permute_is_a_bijection(void **state) {
  (void)state;
  enum { MOST = 5000 };
  static unsigned char seen[MOST];
  for (uint64_t n = 1; n <= MOST; n = n < 70 ? n + 1 : n * 3 / 2) {
    for (uint64_t key = 0; key < 3; ++key) {
      memset(seen, 0, sizeof seen);
      for (uint64_t i = 0; i < n; ++i) {
        uint64_t image = zr_rng_permute(key * 77, n, i);
        assert_true(image < n);
        assert_int_equal(seen[image], 0);
        seen[image] = 1;
      }
    }
  }
}

static void permute_shuffles(void **state) {
  (void)state;
  int fixed = 0, same = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    uint64_t image = zr_rng_permute(5, 1000, i);
    fixed += image == i;
    same += image == zr_rng_permute(6, 1000, i);
  }
  assert_true(fixed < 10 && same < 10); /* about one each */
  /* Neighbours go far apart: the mean distance of two random places is n / 3. */
  double distance = 0;
  for (uint64_t i = 0; i < 999; ++i) {
    distance += fabs((double)zr_rng_permute(5, 1000, i) - (double)zr_rng_permute(5, 1000, i + 1));
  }
  assert_true(fabs(distance / 999 - 333.3) < 30);
}

static void permute_of_huge_ranges(void **state) {
  (void)state;
  static const uint64_t sizes[] = {UINT64_MAX, (uint64_t)1 << 63, ((uint64_t)1 << 32) + 1,
                                   (uint64_t)1 << 62};
  for (int s = 0; s < 4; ++s) {
    for (uint64_t i = 0; i < 100; ++i) {
      uint64_t a = zr_rng_permute(9, sizes[s], i), b = zr_rng_permute(9, sizes[s], i + 1);
      assert_true(a < sizes[s] && b < sizes[s] && a != b);
    }
  }
}

static void uniform_and_normal_have_their_moments(void **state) {
  (void)state;
  enum { N = 200000 };
  double sum = 0, squares = 0, normal = 0, normal2 = 0, normal4 = 0;
  for (uint64_t i = 0; i < N; ++i) {
    double u = zr_rng_uniform(1, i), z = zr_rng_normal(2, i);
    assert_true(u > 0 && u < 1 && isfinite(z));
    sum += u;
    squares += u * u;
    normal += z;
    normal2 += z * z;
    normal4 += z * z * z * z;
  }
  assert_true(fabs(sum / N - 0.5) < 0.003);
  assert_true(fabs(squares / N - 1.0 / 3) < 0.003);
  assert_true(fabs(normal / N) < 0.01);
  assert_true(fabs(normal2 / N - 1) < 0.015);
  assert_true(fabs(normal4 / N - 3) < 0.12);
}

static void keys_and_counters_matter(void **state) {
  (void)state;
  assert_true(zr_rng_key(1, "a") != zr_rng_key(1, "b"));
  assert_true(zr_rng_key(1, "a") != zr_rng_key(2, "a"));
  assert_true(zr_rng_key(1, "") != zr_rng_key(0, ""));
  /* One flipped bit of key or counter flips about half of the 64. */
  int64_t flipped = 0;
  for (uint64_t bit = 0; bit < 64; ++bit) {
    uint64_t base = zr_rng_u64(3, 4);
    flipped += __builtin_popcountll(base ^ zr_rng_u64(3 ^ (1ull << bit), 4));
    flipped += __builtin_popcountll(base ^ zr_rng_u64(3, 4 ^ (1ull << bit)));
  }
  assert_true(llabs(flipped - 128 * 32) < 300);
}

/* Data order, initial weights and recorded digests depend on them. */
static void values_do_not_change_between_versions(void **state) {
  (void)state;
  assert_true(zr_rng_u64(0, 0) == 0x31042cc5515af7eeull);
  assert_true(zr_rng_u64(1, 2) == 0xc3f251c9daa330e2ull);
  assert_true(zr_rng_key(7, "wte.weight") == 0x198126a42acff383ull);
  assert_true(zr_rng_uniform(3, 4) == 0x1.57cbe7dfdc82bp-1);
  assert_true(fabs(zr_rng_normal(3, 4) - 0x1.20abfad9a6cfbp-3) < 1e-15);
  assert_true(zr_rng_permute(5, 1000, 17) == 292);
  assert_true(zr_digest_element(1, 2, 3.0f) == 0xedabbe75b8942c90ull);
}

static void digest_is_a_sum_over_elements(void **state) {
  (void)state;
  uint64_t key = zr_rng_key(ZR_DIGEST_PARAM, "w"), forward = 0, backward = 0, swapped = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    forward += zr_digest_element(key, i, (float)i);
    backward += zr_digest_element(key, 99 - i, (float)(99 - i));
    swapped += zr_digest_element(key, i, (float)(99 - i));
  }
  assert_true(forward == backward && forward != swapped);
  assert_true(zr_digest_element(key, 0, 0.0f) != zr_digest_element(key, 0, -0.0f));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(permute_is_a_bijection),
      cmocka_unit_test(permute_shuffles),
      cmocka_unit_test(permute_of_huge_ranges),
      cmocka_unit_test(uniform_and_normal_have_their_moments),
      cmocka_unit_test(keys_and_counters_matter),
      cmocka_unit_test(values_do_not_change_between_versions),
      cmocka_unit_test(digest_is_a_sum_over_elements),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
