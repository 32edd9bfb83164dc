/* Serial = concurrent = with random delays, bit for bit, over several executions and changes of
 * plan; records; no allocation in between; every constructor failure. */
#include <stdlib.h>
#include <string.h>

#include "mini.h"

typedef struct {
  bool serial;
  uint64_t delay_seed;
  int n_threads, poison;
  bool run_ahead;   /* starts executions without waiting */
  bool cpu_kernels; /* the same bits for all kinds of this program */
} run_mode_t;

typedef struct {
  void *contents;
  int64_t bytes;
  zr_step_record_t record[6];
} result_t;

static void run_steps(mini_t *mini, const run_mode_t *mode, int64_t first, int64_t n,
                      zr_step_record_t *out_record) {
  for (int64_t i = first; i < first + n; i++) {
    assert_ok(zr_exec_start(mini->exec, MINI_STEP, i));
    if (!mode->run_ahead) assert_ok(zr_exec_wait(mini->exec));
    if (i > first) assert_ok(zr_exec_record(mini->exec, i - 1, &out_record[i - 2]));
  }
  assert_ok(zr_exec_record(mini->exec, first + n - 1, &out_record[first + n - 2]));
}

static result_t run_mode(const run_mode_t *mode) {
  mini_t mini;
  result_t result = {0};
  mini_open(&mini, &mini_shape);
  if (mode->n_threads > 1) {
    assert_ok(zr_pool_create(&mini.alloc, mode->n_threads, &mini.pool));
    mini.options.pool = mini.pool;
  }
  if (mode->cpu_kernels) mini_use_cpu_kernels(&mini);
  mini.options.serial = mode->serial;
  mini.options.delay_seed = mode->delay_seed;
  mini.options.delay_max_ns = 300000;
  mini.options.poison = mode->poison;
  mini_start(&mini);
  const int64_t calls = mini.alloc.n_calls;
  run_steps(&mini, mode, 1, 3, result.record);
  assert_ok(zr_exec_start(mini.exec, MINI_EVAL, 1));
  assert_ok(zr_exec_start(mini.exec, MINI_EVAL, 2));
  run_steps(&mini, mode, 4, 3, result.record);
  assert_ok(zr_exec_start(mini.exec, MINI_EVAL, 3));
  assert_ok(zr_exec_wait(mini.exec));
  assert_int_equal(mini.alloc.n_calls, calls);
  result.contents = mini_contents(&mini, &result.bytes);
  mini_close(&mini);
  return result;
}

static void check_equal(const result_t *a, const result_t *b) {
  assert_int_equal(a->bytes, b->bytes);
  assert_memory_equal(a->contents, b->contents, (size_t)a->bytes);
  assert_memory_equal(a->record, b->record, sizeof a->record);
}

static void test_modes_agree(void **state) {
  (void)state;
  const run_mode_t oracle_mode = {.serial = true, .poison = -1};
  result_t oracle = run_mode(&oracle_mode);
  for (int i = 0; i < 6; i++) {
    const zr_step_record_t *record = &oracle.record[i];
    assert_int_equal(record->iteration, i + 1);
    assert_int_equal(record->step_tokens, 2 * (MINI_ROWS - (i + 1)));
    assert_true(record->grad_norm > (i ? oracle.record[i - 1].grad_norm : 0));
  }
  const run_mode_t modes[] = {
      {.poison = -1},
      {.poison = 255, .run_ahead = true},
      {.poison = 0xa5, .n_threads = 3, .run_ahead = true},
      {.poison = 0, .delay_seed = 1},
      {.poison = 255, .delay_seed = 2, .run_ahead = true},
      {.poison = 0xa5, .delay_seed = 3, .run_ahead = true, .n_threads = 2},
      {.poison = 255, .cpu_kernels = true, .n_threads = 2, .run_ahead = true, .delay_seed = 6},
      {.serial = true, .delay_seed = 4, .poison = 255},
  };
  for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
    result_t other = run_mode(&modes[m]);
    check_equal(&oracle, &other);
    free(other.contents);
  }
  free(oracle.contents);
}

/* Far more operations in flight than a stream's queue holds. */
static void test_long_run_ahead(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini_start(&mini);
  const int64_t calls = mini.alloc.n_calls;
  for (int64_t i = 1; i <= 600; i++) assert_ok(zr_exec_start(mini.exec, MINI_EVAL, i));
  assert_ok(zr_exec_wait(mini.exec));
  for (int64_t i = 1; i <= 50; i++) assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
  zr_step_record_t record;
  assert_ok(zr_exec_record(mini.exec, 47, &record));
  assert_int_equal(record.iteration, 47);
  assert_ok(zr_exec_record(mini.exec, 50, &record));
  assert_int_equal(record.iteration, 50);
  assert_int_equal(zr_exec_record(mini.exec, 46, &record), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(mini.alloc.n_calls, calls);
  assert_ok(zr_exec_wait(mini.exec));
  mini_close(&mini);
}

static void test_arenas_are_exact_and_poisoned(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini.options.poison = 0x5a;
  assert_ok(zr_exec_create(&mini.alloc, &mini.options, &mini.exec));
  int64_t bytes;
  const unsigned char *arena = zr_exec_arena(mini.exec, ZR_TIER_DEVICE, &bytes);
  assert_int_equal(bytes, mini.program->plan[0]->arena_bytes[ZR_TIER_DEVICE]);
  for (int64_t i = 0; i < bytes; i++) assert_int_equal(arena[i], 0x5a);
  assert_null(zr_exec_arena(mini.exec, ZR_TIER_DISK, &bytes));
  assert_int_equal(bytes, 0);
  mini_close(&mini);
}

static void test_bad_requests(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini_start(&mini);
  char byte = 0;
  zr_step_record_t record;
  assert_int_equal(zr_exec_start(mini.exec, 2, 1), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(zr_exec_record(mini.exec, 1, &record), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(zr_exec_upload(mini.exec, 1000, 0, &byte, 1), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(zr_exec_upload(mini.exec, mini.state[0], 4096, &byte, 1),
                   ZR_ERR_INVALID_ARGUMENT);
  assert_detail("state0");
  assert_ok(zr_exec_start(mini.exec, MINI_EVAL, 1));
  assert_int_equal(zr_exec_record(mini.exec, 1, &record), ZR_ERR_INVALID_ARGUMENT);
  assert_ok(zr_exec_wait(mini.exec));
  mini_close(&mini);
}

/* The device's timelines go on where the executor before stopped. */
static void test_two_executors_one_device(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  for (int round = 0; round < 3; round++) {
    mini_start(&mini);
    assert_ok(zr_exec_start(mini.exec, MINI_STEP, 1));
    assert_ok(zr_exec_start(mini.exec, MINI_STEP, 2));
    zr_step_record_t record;
    assert_ok(zr_exec_record(mini.exec, 2, &record));
    assert_int_equal(record.iteration, 2);
    zr_exec_destroy(mini.exec);
    mini.exec = NULL;
  }
  mini_close(&mini);
}

static void test_create_fails_at_every_allocation(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini.options.poison = 1;
  mini.options.trace_plan = MINI_STEP;
  mini.options.trace_count = 2;
  const int64_t live = mini.alloc.live_count, before = mini.alloc.n_calls;
  int64_t n = 1;
  for (;; n++) {
    mini.alloc.fail_at = mini.alloc.n_calls + n;
    const zr_status_t status = zr_exec_create(&mini.alloc, &mini.options, &mini.exec);
    mini.alloc.fail_at = 0;
    if (status == ZR_OK) break;
    assert_int_equal(status, ZR_ERR_OUT_OF_MEMORY);
    assert_null(mini.exec);
    assert_int_equal(mini.alloc.live_count, live);
  }
  assert_true(n > 10 && mini.alloc.n_calls > before);
  mini_close(&mini);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_modes_agree),
      cmocka_unit_test(test_long_run_ahead),
      cmocka_unit_test(test_arenas_are_exact_and_poisoned),
      cmocka_unit_test(test_bad_requests),
      cmocka_unit_test(test_two_executors_one_device),
      cmocka_unit_test(test_create_fails_at_every_allocation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
