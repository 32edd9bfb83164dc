/* A disk that fails, hangs or is missing: one detail with rank, unit, operation and cause;
 * transfers that hang are cancelled; nothing is left. */
#include <stdio.h>
#include <string.h>

#include "mini_tiers.h"
#include "runtime/base/clock.h"

/* Three steps on a disk that misbehaves from the first execution on; all parts in the detail. */
static void check_failure(mini_t *mini, const memdisk_options_t *disk, zr_status_t expected,
                          const char *const parts[]) {
  tiers_start(mini, disk);
  const int64_t begin_ns = zr_clock_ns();
  zr_status_t status = ZR_OK;
  for (int64_t i = 1; i <= 3 && status == ZR_OK; i++) {
    status = zr_exec_start(mini->exec, MINI_STEP, i);
  }
  if (status == ZR_OK) status = zr_exec_wait(mini->exec);
  if (status != expected) fail_msg("%s: %s", zr_status_name(status), zr_detail());
  for (int i = 0; parts[i]; i++) assert_detail(parts[i]);
  char byte = 0;
  assert_int_equal(zr_exec_download(mini->exec, mini->state[0], 0, &byte, 1), expected);
  assert_int_equal(zr_exec_start(mini->exec, MINI_EVAL, 1), expected);
  for (int i = 0; parts[i]; i++) assert_detail(parts[i]);
  mini_close(mini);
  assert_true(zr_clock_ns() - begin_ns < 5000000000);
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_disk_read_fails(void **state) {
  (void)state;
  for (int serial = 0; serial < 2; serial++) {
    mini_t mini;
    const memdisk_options_t disk = {.fail_read_at = 2};
    tiers_open(&mini, NULL);
    mini.options.serial = serial;
    check_failure(&mini, &disk, ZR_ERR_IO,
                  PARTS("rank 0: layers.1/disk_read on read: memdisk: read of 49152 bytes at ",
                        "fails as asked"));
  }
}

static void test_disk_write_fails(void **state) {
  (void)state;
  for (int64_t at = 1; at <= 24; at += 6) {
    mini_t mini;
    const memdisk_options_t disk = {.fail_write_at = at};
    tiers_open(&mini, NULL);
    check_failure(&mini, &disk, ZR_ERR_IO,
                  PARTS("rank 0: layers.", "/disk_write on write: memdisk: write of "));
  }
}

static void test_host_update_fails(void **state) {
  (void)state;
  mini_t mini;
  tiers_open(&mini, NULL);
  mini_fault_kern(&mini, ZR_OP_ADAMW, 6);
  check_failure(&mini, NULL, ZR_ERR_DEVICE,
                PARTS("rank 0: layers.1/adamw on host: the kernel fails as asked"));
}

/* Whichever direction hangs, the watchdog names it, and the transfer's thread comes back. */
static void test_hung_transfer_is_named_and_cancelled(void **state) {
  (void)state;
  for (int write = 0; write < 2; write++) {
    mini_t mini;
    const memdisk_options_t disk = {.hang_read_at = write ? 0 : 7, .hang_write_at = write ? 3 : 0};
    tiers_open(&mini, NULL);
    mini.options.watchdog_ns = 300000000;
    check_failure(&mini, &disk, ZR_ERR_TIMEOUT,
                  PARTS(write ? "rank 0: layers.2/disk_write on write: not done after"
                              : "rank 0: layers.1/disk_read on read: not done after",
                        "limit is 0.3 s"));
  }
}

/* The same through the wrapper that makes any disk hang or fail. Calls 1 to 4 are the uploads. */
static void test_faulty_disk(void **state) {
  (void)state;
  static const zr_fault_kind_t kinds[] = {ZR_FAULT_HANG, ZR_FAULT_ERROR};
  for (int k = 0; k < 2; k++) {
    mini_t mini;
    const zr_fault_t fault = {.kind = kinds[k], .at = 4 + 3};
    tiers_open(&mini, NULL);
    assert_ok(zr_disk_fault_open(&mini.alloc, &fault, mini.disk_ops, mini.disk, &mini.disk_ops,
                                 &mini.disk));
    mini.options.disk_ops = mini.disk_ops;
    mini.options.disk = mini.disk;
    mini.options.watchdog_ns = 300000000;
    mini.options.serial = true; /* reads 0, then its activation's write, then this one */
    check_failure(&mini, NULL, k ? ZR_ERR_IO : ZR_ERR_TIMEOUT,
                  PARTS("rank 0: layers.1/disk_read on read: ", k ? "as asked" : "not done after"));
  }
}

/* No watchdog: what fails elsewhere ends the hung read. */
static void test_failure_elsewhere_cancels_the_disk(void **state) {
  (void)state;
  mini_t mini;
  const memdisk_options_t disk = {.hang_read_at = 4};
  tiers_open(&mini, NULL);
  mini.options.watchdog_ns = 0;
  mini_fault_kern(&mini, ZR_OP_ADD, 2);
  check_failure(&mini, &disk, ZR_ERR_DEVICE,
                PARTS("rank 0: layers.1/add on compute: the kernel fails as asked"));
}

/* Bytes that hang are asked for and not moved. */
static void test_moving_bytes_of_a_hung_read(void **state) {
  (void)state;
  mini_t mini;
  const memdisk_options_t disk = {.hang_read_at = 1};
  tiers_open(&mini, NULL);
  mini.options.watchdog_ns = 200000000;
  tiers_start(&mini, &disk);
  assert_ok(zr_exec_start(mini.exec, MINI_STEP, 1));
  zr_exec_stats_t stats;
  zr_exec_stats(mini.exec, &stats);
  for (int l = 0; l < ZR_N_LINKS; l++) {
    assert_int_equal(stats.moved_bytes[l] + stats.moving_bytes[l], tiers_step_bytes[l]);
  }
  assert_int_equal(stats.moved_bytes[ZR_LINK_DISK_READ], 0);
  assert_int_equal(zr_exec_wait(mini.exec), ZR_ERR_TIMEOUT);
  mini_close(&mini);
}

static void test_no_disk_for_a_plan_that_needs_one(void **state) {
  (void)state;
  mini_t mini;
  tiers_open(&mini, NULL);
  mini.options.disk = NULL;
  assert_int_equal(zr_exec_create(&mini.alloc, &mini.options, &mini.exec), ZR_ERR_INVALID_ARGUMENT);
  assert_detail("bytes on disk, but the executor was given no disk");
  mini_close(&mini);
}

static void test_a_disk_that_fails_while_it_is_filled(void **state) {
  (void)state;
  mini_t mini;
  const memdisk_options_t at_once = {.fail_write_at = 1}, reads = {.fail_read_at = 1};
  char byte = 0;
  tiers_open(&mini, &at_once);
  mini.options.poison = 1;
  assert_int_equal(zr_exec_create(&mini.alloc, &mini.options, &mini.exec), ZR_ERR_IO);
  assert_detail("fails as asked");
  mini_close(&mini);
  tiers_open(&mini, NULL);
  tiers_start(&mini, &at_once);
  assert_int_equal(zr_exec_upload(mini.exec, mini.state[1], 4096, &byte, 1), ZR_ERR_IO);
  assert_detail("rank 0: writing 'state1': memdisk: write of ");
  memdisk_set(mini.disk, &reads);
  assert_int_equal(zr_exec_download(mini.exec, mini.state[1], 4096, &byte, 1), ZR_ERR_IO);
  assert_detail("rank 0: reading 'state1': memdisk: read of 4096 bytes at ");
  mini_close(&mini);
}

/* Nothing was uploaded: the first start writes zeros, and says what went wrong. */
static void test_first_contents_fail(void **state) {
  (void)state;
  mini_t mini;
  const memdisk_options_t disk = {.fail_write_at = 1};
  tiers_open(&mini, &disk);
  assert_ok(zr_exec_create(&mini.alloc, &mini.options, &mini.exec));
  for (int i = 0; i < 2; i++) {
    assert_int_equal(zr_exec_start(mini.exec, MINI_EVAL, 1), ZR_ERR_IO);
    assert_detail("rank 0: first contents of the disk: memdisk: write of ");
  }
  mini_close(&mini);
}

static zr_status_t no_host_memory(int64_t bytes, bool pin, zr_host_memory_t *out_memory) {
  (void)pin;
  (void)out_memory;
  return zr_fail(ZR_ERR_OUT_OF_MEMORY, "%lld bytes of host memory", (long long)bytes);
}

static void unmap_nothing(zr_host_memory_t *memory) {
  assert_null(memory);
}

static void test_host_memory_is_refused(void **state) {
  (void)state;
  mini_t mini;
  tiers_open(&mini, NULL);
  mini.options.host_map = no_host_memory;
  assert_int_equal(zr_exec_create(&mini.alloc, &mini.options, &mini.exec), ZR_ERR_INVALID_ARGUMENT);
  mini.options.host_unmap = unmap_nothing;
  assert_int_equal(zr_exec_create(&mini.alloc, &mini.options, &mini.exec), ZR_ERR_OUT_OF_MEMORY);
  assert_detail("bytes of host memory");
  mini_close(&mini);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_disk_read_fails),
      cmocka_unit_test(test_disk_write_fails),
      cmocka_unit_test(test_host_update_fails),
      cmocka_unit_test(test_hung_transfer_is_named_and_cancelled),
      cmocka_unit_test(test_faulty_disk),
      cmocka_unit_test(test_failure_elsewhere_cancels_the_disk),
      cmocka_unit_test(test_moving_bytes_of_a_hung_read),
      cmocka_unit_test(test_no_disk_for_a_plan_that_needs_one),
      cmocka_unit_test(test_a_disk_that_fails_while_it_is_filled),
      cmocka_unit_test(test_first_contents_fail),
      cmocka_unit_test(test_host_memory_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
