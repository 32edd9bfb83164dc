#include <string.h>

#include "runtime/base/alloc.h"
#include "tests/support/cmocka_all.h"

static void memory_is_zeroed_aligned_and_counted(void **state) {
  (void)state;
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  static const size_t sizes[] = {0, 1, 63, 64, 65, 4097, 1 << 22};
  int64_t total = 0;
  unsigned char *blocks[7] = {0};
  for (int i = 0; i < 7; ++i) {
    assert_int_equal(zr_alloc_get(&alloc, sizes[i], 1, &blocks[i]), ZR_OK);
    assert_non_null(blocks[i]);
    assert_int_equal((uintptr_t)blocks[i] % 64, 0);
    for (size_t j = 0; j < sizes[i]; ++j) assert_int_equal(blocks[i][j], 0);
    memset(blocks[i], 0xee, sizes[i]);
    total += (int64_t)sizes[i];
    assert_int_equal(alloc.live_bytes, total);
    assert_int_equal(alloc.live_count, i + 1);
  }
  for (int i = 0; i < 7; ++i) zr_alloc_free(&alloc, blocks[i]);
  zr_alloc_free(&alloc, NULL);
  assert_int_equal(alloc.live_bytes, 0);
  assert_int_equal(alloc.live_count, 0);
  assert_int_equal(alloc.peak_bytes, total);
  assert_int_equal(alloc.n_calls, 7);
}

static void overflow_and_failure_leave_the_output_alone(void **state) {
  (void)state;
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  char mark;
  void *memory = &mark;
  assert_int_equal(zr_alloc_get(&alloc, SIZE_MAX / 2, 3, &memory), ZR_ERR_OUT_OF_MEMORY);
  assert_int_equal(zr_alloc_get(&alloc, SIZE_MAX, 1, &memory), ZR_ERR_OUT_OF_MEMORY);
  alloc.fail_at = 4;
  void *first = NULL;
  assert_int_equal(zr_alloc_get(&alloc, 8, 1, &first), ZR_OK);
  assert_int_equal(zr_alloc_get(&alloc, 123, 1, &memory), ZR_ERR_OUT_OF_MEMORY);
  assert_non_null(strstr(zr_detail(), "123"));
  assert_int_equal(zr_alloc_get(&alloc, 8, 1, &memory), ZR_ERR_OUT_OF_MEMORY);
  assert_ptr_equal(memory, &mark);
  zr_alloc_free(&alloc, first);
  assert_int_equal(alloc.live_count, 0);
}

static void grow_keeps_items_and_zeroes_new_ones(void **state) {
  (void)state;
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  int64_t *items = NULL;
  size_t capacity = 0;
  for (int64_t n = 1; n <= 1000; ++n) {
    assert_int_equal(zr_alloc_grow(&alloc, &items, &capacity, (size_t)n, sizeof *items), ZR_OK);
    assert_true(capacity >= (size_t)n);
    assert_int_equal(items[n - 1], 0);
    items[n - 1] = n;
  }
  for (int64_t n = 1; n <= 1000; ++n) assert_int_equal(items[n - 1], n);
  assert_true(alloc.n_calls <= 11);
  alloc.fail_at = 1;
  size_t before = capacity;
  int64_t *same = items;
  assert_int_equal(zr_alloc_grow(&alloc, &items, &capacity, capacity + 1, sizeof *items),
                   ZR_ERR_OUT_OF_MEMORY);
  assert_int_equal(capacity, before);
  assert_ptr_equal(items, same);
  zr_alloc_free(&alloc, items);
  assert_int_equal(alloc.live_bytes, 0);
}

static void strdup_and_the_default_allocator(void **state) {
  (void)state;
  char *copy = NULL;
  int64_t live = zr_alloc_default()->live_count;
  assert_int_equal(zr_alloc_strdup(NULL, "text", &copy), ZR_OK);
  assert_string_equal(copy, "text");
  assert_int_equal(zr_alloc_default()->live_count, live + 1);
  zr_alloc_free(NULL, copy);
  assert_int_equal(zr_alloc_default()->live_count, live);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_zeroed_aligned_and_counted),
      cmocka_unit_test(overflow_and_failure_leave_the_output_alone),
      cmocka_unit_test(grow_keeps_items_and_zeroes_new_ones),
      cmocka_unit_test(strdup_and_the_default_allocator),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
