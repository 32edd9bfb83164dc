#include <pthread.h>
#include <string.h>

#include "runtime/base/status.h"
#include "tests/support/cmocka_all.h"

static void detail_is_formatted_and_cut(void **state) {
  (void)state;
  assert_int_equal(zr_fail(ZR_ERR_DATA, "%s: %d", "file", 7), ZR_ERR_DATA);
  assert_string_equal(zr_detail(), "file: 7");
  char longer[2 * ZR_DETAIL_BYTES];
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  (void)zr_fail(ZR_ERR_IO, "%s", longer);
  assert_int_equal(strlen(zr_detail()), ZR_DETAIL_BYTES - 1);
}

static void detail_may_wrap_itself(void **state) {
  (void)state;
  (void)zr_fail(ZR_ERR_DATA, "inner");
  (void)zr_fail(ZR_ERR_DATA, "outer: %s", zr_detail());
  assert_string_equal(zr_detail(), "outer: inner");
  zr_detail_set(zr_detail());
  assert_string_equal(zr_detail(), "outer: inner");
  zr_detail_set(NULL);
  assert_string_equal(zr_detail(), "");
}

static void *other_thread(void *context) {
  (void)context;
  int was_empty = zr_detail()[0] == 0;
  (void)zr_fail(ZR_ERR_IO, "other");
  return was_empty ? context : NULL;
}

static void detail_is_per_thread(void **state) {
  (void)state;
  (void)zr_fail(ZR_ERR_DATA, "mine");
  pthread_t thread;
  int mark;
  void *result = NULL;
  assert_int_equal(pthread_create(&thread, NULL, other_thread, &mark), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, &mark);
  assert_string_equal(zr_detail(), "mine");
}

static void names_and_exit_codes(void **state) {
  (void)state;
  static const struct {
    zr_status_t status;
    int exit_code;
  } rows[] = {{ZR_OK, 0},
              {ZR_ERR_INVALID_ARGUMENT, 2},
              {ZR_ERR_CONFIG, 2},
              {ZR_ERR_DATA, 3},
              {ZR_ERR_NOT_FOUND, 3},
              {ZR_ERR_UNSUPPORTED, 2},
              {ZR_ERR_VERIFY, 1},
              {ZR_ERR_OUT_OF_MEMORY, 4},
              {ZR_ERR_NO_SPACE, 4},
              {ZR_ERR_IO, 5},
              {ZR_ERR_DEVICE, 5},
              {ZR_ERR_NETWORK, 5},
              {ZR_ERR_TIMEOUT, 5},
              {ZR_ERR_PEER, 6},
              {ZR_ERR_NUMERIC, 7},
              {ZR_ERR_INTERNAL, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    assert_int_equal(zr_status_exit_code(rows[i].status), rows[i].exit_code);
    assert_string_not_equal(zr_status_name(rows[i].status), "unknown");
  }
  assert_string_equal(zr_status_name(-999), "unknown");
  assert_int_equal(zr_status_exit_code(-999), 1);
}

static zr_status_t tries(zr_status_t first, int *reached) {
  ZR_TRY(first);
  *reached = 1;
  return ZR_OK;
}

static void try_returns_at_the_first_error(void **state) {
  (void)state;
  int reached = 0;
  assert_int_equal(tries(ZR_ERR_IO, &reached), ZR_ERR_IO);
  assert_int_equal(reached, 0);
  assert_int_equal(tries(ZR_OK, &reached), ZR_OK);
  assert_int_equal(reached, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(detail_is_formatted_and_cut),    cmocka_unit_test(detail_may_wrap_itself),
      cmocka_unit_test(detail_is_per_thread),           cmocka_unit_test(names_and_exit_codes),
      cmocka_unit_test(try_returns_at_the_first_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
