#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/rng.h"
#include "runtime/comm/comm.h"
#include "tests/support/cmocka_all.h"

enum { MOST_PARTS = 13, COUNT = 1300 };
static float parts[MOST_PARTS][COUNT];
static const float *part_list[MOST_PARTS];

static void fill(uint64_t key) {
  for (int p = 0; p < MOST_PARTS; ++p) {
    part_list[p] = parts[p];
    for (int i = 0; i < COUNT; ++i) {
      parts[p][i] = (float)zr_rng_normal(key + (uint64_t)p, (uint64_t)i);
    }
  }
}

/* The definition, one element at a time. */
static float serial(const float *const *list, int n, int i) {
  if (n == 1) return list[0][i];
  int split = 1;
  while (split * 2 < n) split *= 2;
  return serial(list, split, i) + serial(list + split, n - split, i);
}

static void equals_the_recursive_definition(void **state) {
  (void)state;
  static const int64_t counts[] = {0, 1, 511, 512, 513, COUNT};
  static float out[COUNT];
  fill(1);
  for (int n = 1; n <= MOST_PARTS; ++n) {
    for (int c = 0; c < 6; ++c) {
      for (int accumulate = 0; accumulate < 2; ++accumulate) {
        for (int i = 0; i < COUNT; ++i) out[i] = 0.25f;
        zr_comm_tree_sum_f32(part_list, n, out, counts[c], accumulate);
        for (int i = 0; i < COUNT; ++i) {
          float sum = serial(part_list, n, i);
          float expected = i >= counts[c] ? 0.25f : accumulate ? 0.25f + sum : sum;
          assert_memory_equal(&out[i], &expected, sizeof expected);
        }
      }
    }
  }
}

static uint16_t half_parts[MOST_PARTS][COUNT];
static const uint16_t *half_list[MOST_PARTS];

static uint16_t serial_bf16(const uint16_t *const *list, int n, int i) {
  if (n == 1) return list[0][i];
  int split = 1;
  while (split * 2 < n) split *= 2;
  return zr_bf16_from_f32(zr_bf16_to_f32(serial_bf16(list, split, i)) +
                          zr_bf16_to_f32(serial_bf16(list + split, n - split, i)));
}

/* Out of place and with the last part as the output. */
static void bf16_is_rounded_at_each_node(void **state) {
  (void)state;
  static const int64_t counts[] = {0, 1, 511, 512, 513, COUNT};
  static uint16_t out[COUNT], expected[COUNT];
  fill(3);
  for (int n = 1; n <= MOST_PARTS; ++n) {
    for (int c = 0; c < 6; ++c) {
      for (int mode = 0; mode < 3; ++mode) { /* written, accumulated, in place */
        for (int p = 0; p < MOST_PARTS; ++p) {
          half_list[p] = half_parts[p];
          for (int i = 0; i < COUNT; ++i) half_parts[p][i] = zr_bf16_from_f32(parts[p][i]);
        }
        uint16_t *to = mode == 2 ? half_parts[n - 1] : out;
        for (int i = 0; i < COUNT; ++i) {
          out[i] = zr_bf16_from_f32(0.25f);
          uint16_t sum = serial_bf16(half_list, n, i);
          expected[i] = i >= counts[c] ? to[i]
                        : mode == 1    ? zr_bf16_from_f32(0.25f + zr_bf16_to_f32(sum))
                                       : sum;
        }
        zr_comm_tree_sum_bf16(half_list, n, to, counts[c], mode == 1);
        assert_memory_equal(to, expected, sizeof expected);
      }
    }
  }
}

static void known_shapes(void **state) {
  (void)state;
  /* 1 + 2^-24 + 2^-24: ((a b) c) rounds away both small ones, (a (b c)) would keep them. */
  const float a = 1, b = 0x1p-24f, c = 0x1p-24f;
  const float *three[] = {&a, &b, &c};
  float out = 0;
  zr_comm_tree_sum_f32(three, 3, &out, 1, 0);
  assert_true(out == 1);
  const float d = 0x1p-24f;
  const float *four[] = {&a, &b, &c, &d}; /* (a b) (c d) */
  zr_comm_tree_sum_f32(four, 4, &out, 1, 0);
  assert_true(out == 1 + 0x1p-23f);
}

static void out_may_be_a_part(void **state) {
  (void)state;
  static float expected[COUNT];
  for (int n = 1; n <= MOST_PARTS; ++n) {
    for (int p = 0; p < n; ++p) {
      fill(7);
      for (int i = 0; i < COUNT; ++i) expected[i] = serial(part_list, n, i);
      zr_comm_tree_sum_f32(part_list, n, parts[p], COUNT, 0);
      assert_memory_equal(parts[p], expected, sizeof expected);
    }
  }
}

static void scratch_is_bounded(void **state) {
  (void)state;
  assert_int_equal(zr_comm_exchange_scratch_bytes(4, 0), 0);
  assert_int_equal(zr_comm_exchange_scratch_bytes(4, 1), 4 * 64);
  assert_int_equal(zr_comm_exchange_scratch_bytes(3, 4096), 3 * 4096);
  assert_int_equal(zr_comm_exchange_scratch_bytes(8, (int64_t)1 << 40), 8 << 20);
}

static void names(void **state) {
  (void)state;
  assert_string_equal(zr_tier_name(ZR_TIER_DEVICE), "device");
  assert_string_equal(zr_tier_name(ZR_TIER_DISK), "disk");
  assert_string_equal(zr_stream_name(ZR_STREAM_COMPUTE), "compute");
  assert_string_equal(zr_stream_name(ZR_STREAM_HOST), "host");
  for (int i = 0; i < ZR_N_STREAMS; ++i) {
    for (int j = 0; j < i; ++j) {
      assert_string_not_equal(zr_stream_name((zr_stream_id_t)i), zr_stream_name((zr_stream_id_t)j));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equals_the_recursive_definition),
      cmocka_unit_test(bf16_is_rounded_at_each_node),
      cmocka_unit_test(known_shapes),
      cmocka_unit_test(out_may_be_a_part),
      cmocka_unit_test(scratch_is_bounded),
      cmocka_unit_test(names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
