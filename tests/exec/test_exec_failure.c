/* Failures of kernels, collectives, data, device and time: each ends the run with one detail that
 * names rank, unit, operation, stream and cause; nothing hangs, nothing leaks. */
#include <stdio.h>
#include <string.h>

#include "mini.h"
#include "runtime/base/clock.h"

/* Runs steps until one fails; checks that the failure is sticky and that destroy is bounded. */
static zr_status_t run_until_failure(mini_t *mini, int64_t n_steps, char *out_detail) {
  zr_status_t status = ZR_OK;
  for (int64_t i = 1; i <= n_steps && status == ZR_OK; i++) {
    status = zr_exec_start(mini->exec, MINI_STEP, i);
  }
  if (status == ZR_OK) status = zr_exec_wait(mini->exec);
  snprintf(out_detail, ZR_DETAIL_BYTES, "%s", zr_detail());
  assert_int_equal(zr_exec_wait(mini->exec), status);
  assert_string_equal(zr_detail(), out_detail);
  assert_int_equal(zr_exec_start(mini->exec, MINI_EVAL, 1), status);
  assert_string_equal(zr_detail(), out_detail);
  return status;
}

static void check_failure(mini_t *mini, zr_status_t expected, const char *const parts[]) {
  char detail[ZR_DETAIL_BYTES];
  mini_start(mini);
  const int64_t begin_ns = zr_clock_ns();
  const zr_status_t status = run_until_failure(mini, 3, detail);
  if (status != expected) fail_msg("%s: %s", zr_status_name(status), detail);
  for (int i = 0; parts[i]; i++) {
    if (!strstr(detail, parts[i])) fail_msg("'%s' is not in '%s'", parts[i], detail);
  }
  mini_close(mini);
  assert_true(zr_clock_ns() - begin_ns < 5000000000);
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_kernel_fails(void **state) {
  (void)state;
  for (int serial = 0; serial < 2; serial++) {
    for (int64_t at = 1; at <= 9; at += 4) {
      mini_t mini;
      mini_open(&mini, &mini_shape);
      mini_fault_kern(&mini, ZR_OP_ADD, at);
      mini.options.serial = serial;
      check_failure(&mini, ZR_ERR_DEVICE,
                    PARTS("rank 0: layers.", "/add on compute: the kernel fails as asked"));
    }
  }
}

static void test_kernel_fails_on_the_comm_stream(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini_fault_kern(&mini, ZR_OP_SHARD_ADD, 1);
  check_failure(&mini, ZR_ERR_DEVICE,
                PARTS("rank 0: layers.2/shard_add on comm: the kernel fails as asked"));
}

static void test_collective_fails(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini_fault_comm(&mini, ZR_FAULT_ERROR, 4);
  check_failure(&mini, ZR_ERR_NETWORK,
                PARTS("rank 0: layers.2/reduce_scatter on comm: fault(self)", "as asked"));
}

static void test_fetch_fails(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini.fetch_fails_at = 2;
  check_failure(&mini, ZR_ERR_DATA, PARTS("rank 0: ", "fetch#0 on h2d: data.bin: it ends early"));
}

/* The n-th call of the device: memory first, then each submit. */
static void test_device_fails(void **state) {
  (void)state;
  mini_t mini;
  for (int64_t at = 1;; at++) {
    mini_open(&mini, &mini_shape);
    mini_fault_hal(&mini, ZR_FAULT_ERROR, at);
    zr_status_t status = zr_exec_create(&mini.alloc, &mini.options, &mini.exec);
    if (status == ZR_OK) status = zr_exec_start(mini.exec, MINI_STEP, 1);
    const zr_status_t started = status;
    if (status == ZR_OK) status = zr_exec_wait(mini.exec);
    const size_t n_ops = mini.program->plan[MINI_STEP]->n_ops;
    if (status == ZR_OK) {
      assert_int_equal(at, 2 + (int64_t)n_ops); /* one arena, then each operation */
      break;
    }
    assert_int_equal(status, ZR_ERR_DEVICE);
    assert_int_equal(started, ZR_ERR_DEVICE);
    assert_detail("fails as asked");
    if (at == 2) assert_detail("rank 0: control_begin on compute: ");
    mini_close(&mini);
  }
  mini_close(&mini);
}

/* --- the watchdog --- */

static void test_hung_operation_is_named(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  const int32_t op = mini_find_op(&mini, MINI_STEP, ZR_OP_BLOCK_NORM, 1);
  mini_fault_hal(&mini, ZR_FAULT_HANG, 1 + 1 + mini.n_units + op + 1); /* arena, uploads */
  mini.options.watchdog_ns = 500000000;
  check_failure(&mini, ZR_ERR_TIMEOUT,
                PARTS("rank 0: layers.1/block_norm on compute: not done after", "limit is 0.5 s"));
}

static void test_hung_collective_is_named(void **state) {
  (void)state;
  for (int serial = 0; serial < 2; serial++) {
    mini_t mini;
    mini_open(&mini, &mini_shape);
    mini_fault_comm(&mini, ZR_FAULT_HANG, 2);
    mini.options.watchdog_ns = 500000000;
    mini.options.serial = serial;
    check_failure(&mini, ZR_ERR_TIMEOUT,
                  PARTS("rank 0: layers.1/all_gather on comm: not done after"));
  }
}

/* The queue fills up behind the hung operation: starting must see it too. */
static void test_watchdog_looks_while_starting(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini_fault_comm(&mini, ZR_FAULT_HANG, 2);
  mini.options.watchdog_ns = 500000000;
  mini_start(&mini);
  zr_status_t status = ZR_OK;
  for (int64_t i = 1; i < 5000 && status == ZR_OK; i++) {
    status = zr_exec_start(mini.exec, MINI_STEP, i);
  }
  assert_int_equal(status, ZR_ERR_TIMEOUT);
  assert_detail("all_gather on comm");
  mini_close(&mini);
}

static void test_slow_is_not_late(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini.options.watchdog_ns = 1000000000;
  mini.options.delay_seed = 5;
  mini.options.delay_max_ns = 60000000; /* in all more than the limit */
  mini_start(&mini);
  assert_ok(zr_exec_start(mini.exec, MINI_STEP, 1));
  assert_ok(zr_exec_start(mini.exec, MINI_STEP, 2));
  assert_ok(zr_exec_wait(mini.exec));
  mini_close(&mini);
}

static void test_wrong_number_of_ranks(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini.program->plan[1]->n_ranks = 2;
  assert_int_equal(zr_exec_create(&mini.alloc, &mini.options, &mini.exec), ZR_ERR_INVALID_ARGUMENT);
  assert_detail("plan 'eval' is for 2 ranks");
  mini_close(&mini);
}

static void test_unsupported_kernel_is_named(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini.kern_ops->close(mini.kern);
  assert_ok(zr_kern_ref_open(&mini.alloc, ZR_F64, &mini.kern_ops, &mini.kern));
  mini.options.kern = mini.kern;
  assert_int_equal(zr_exec_create(&mini.alloc, &mini.options, &mini.exec), ZR_ERR_UNSUPPORTED);
  assert_detail("rank 0: layers.0/add: ");
  mini_close(&mini);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kernel_fails),
      cmocka_unit_test(test_kernel_fails_on_the_comm_stream),
      cmocka_unit_test(test_collective_fails),
      cmocka_unit_test(test_fetch_fails),
      cmocka_unit_test(test_device_fails),
      cmocka_unit_test(test_hung_operation_is_named),
      cmocka_unit_test(test_hung_collective_is_named),
      cmocka_unit_test(test_watchdog_looks_while_starting),
      cmocka_unit_test(test_slow_is_not_late),
      cmocka_unit_test(test_wrong_number_of_ranks),
      cmocka_unit_test(test_unsupported_kernel_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
