/* The disk that only counts, and the one that misbehaves on purpose. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "tests/cts/disk_cts.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

enum { GRAIN = ZR_DISK_ALIGN_BYTES };

static zr_status_t open_null(const void *context, zr_alloc_t *alloc, int64_t bytes,
                             const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) {
  (void)context;
  return zr_disk_null_open(alloc, bytes, out_ops, out_disk);
}

/* A faulty disk around one of files. */
static zr_status_t open_fault(const void *context, zr_alloc_t *alloc, int64_t bytes,
                              const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) {
  const char *path = temp_dir;
  const zr_disk_options_t options = {.path = &path, .n_paths = 1, .bytes = bytes};
  const zr_disk_ops_t *inner_ops;
  zr_disk_t *inner;
  ZR_TRY(zr_disk_open(alloc, &options, &inner_ops, &inner));
  const zr_status_t status =
      zr_disk_fault_open(alloc, context, inner_ops, inner, out_ops, out_disk);
  if (status != ZR_OK) inner_ops->close(inner);
  return status;
}

#define OPEN(...)                                                            \
  const zr_fault_t fault = {__VA_ARGS__};                                    \
  const zr_disk_ops_t *ops = NULL;                                           \
  zr_disk_t *disk = NULL;                                                    \
  char *memory = aligned_alloc(GRAIN, 2 * GRAIN);                            \
  (void)state;                                                               \
  memset(memory, 1, 2 * GRAIN);                                              \
  assert_int_equal(open_fault(&fault, NULL, 4 * GRAIN, &ops, &disk), ZR_OK); \
  assert_non_null(strstr(ops->name, "fault("))

static void an_error_comes_on_the_asked_call(void **state) {
  OPEN(.kind = ZR_FAULT_ERROR, .at = 3);
  assert_int_equal(ops->write(disk, 0, memory, GRAIN), ZR_OK);
  assert_int_equal(ops->read(disk, 0, memory, GRAIN), ZR_OK);
  assert_int_equal(ops->write(disk, 0, memory, GRAIN), ZR_ERR_IO);
  assert_non_null(strstr(zr_detail(), "write fails as asked (call 3)"));
  assert_int_equal(ops->write(disk, 0, memory, GRAIN), ZR_OK);
  ops->close(disk);
  free(memory);
}

static void a_corruption_is_one_bit_of_one_read(void **state) {
  OPEN(.kind = ZR_FAULT_CORRUPT, .at = 2);
  assert_int_equal(ops->write(disk, 0, memory, 2 * GRAIN), ZR_OK);
  assert_int_equal(ops->read(disk, 0, memory, 2 * GRAIN), ZR_OK);
  for (int i = 0; i < 2 * GRAIN; i++) assert_int_equal(memory[i], i == GRAIN ? 0 : 1);
  assert_int_equal(ops->read(disk, 0, memory, 2 * GRAIN), ZR_OK);
  assert_int_equal(memory[GRAIN], 1);
  ops->close(disk);
  free(memory);
}

static void a_delayed_call_comes_later(void **state) {
  OPEN(.kind = ZR_FAULT_DELAY, .at = 1, .delay_ns = 20000000);
  const int64_t begin_ns = zr_clock_ns();
  assert_int_equal(ops->write(disk, 0, memory, GRAIN), ZR_OK);
  assert_true(zr_clock_ns() - begin_ns >= 20000000);
  ops->close(disk);
  free(memory);
}

static void *cancel_soon(void *context) {
  void **both = context;
  const zr_disk_ops_t *ops = both[0];
  zr_clock_sleep_ns(20000000);
  ops->cancel(both[1], ZR_ERR_TIMEOUT, "read is late");
  return NULL;
}

static void a_hung_call_ends_when_cancelled(void **state) {
  OPEN(.kind = ZR_FAULT_HANG, .at = 2);
  void *both[] = {(void *)(uintptr_t)ops, disk};
  pthread_t thread;
  assert_int_equal(ops->write(disk, 0, memory, GRAIN), ZR_OK);
  assert_int_equal(pthread_create(&thread, NULL, cancel_soon, both), 0);
  assert_int_equal(ops->read(disk, 0, memory, GRAIN), ZR_ERR_TIMEOUT);
  assert_string_equal(zr_detail(), "read is late");
  (void)pthread_join(thread, NULL);
  ops->close(disk);
  free(memory);
}

static void a_null_disk_wants_whole_grains(void **state) {
  (void)state;
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  assert_int_equal(zr_disk_null_open(NULL, 0, &ops, &disk), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(zr_disk_null_open(NULL, 4097, &ops, &disk), ZR_ERR_INVALID_ARGUMENT);
}

int main(void) {
  if (make_temp_dir(NULL) != 0) return 2;
  static const zr_fault_t none = {0}, delays = {.random_seed = 5, .delay_ns = 1000000};
  const zr_cts_disk_t null = {.open = open_null};
  const zr_cts_disk_t quiet = {.open = open_fault, .context = &none, .has_memory = true};
  const zr_cts_disk_t random = {.open = open_fault, .context = &delays, .has_memory = true};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_error_comes_on_the_asked_call),
      cmocka_unit_test(a_corruption_is_one_bit_of_one_read),
      cmocka_unit_test(a_delayed_call_comes_later),
      cmocka_unit_test(a_hung_call_ends_when_cancelled),
      cmocka_unit_test(a_null_disk_wants_whole_grains),
  };
  int n_failed = zr_cts_disk(&null, "disk null");
  n_failed += zr_cts_disk(&quiet, "disk fault, quiet");
  n_failed += zr_cts_disk(&random, "disk fault, random delays");
  n_failed += cmocka_run_group_tests_name("disk fault", tests, NULL, NULL);
  n_failed += remove_temp_dir(NULL) != 0;
  return n_failed ? 1 : 0;
}
