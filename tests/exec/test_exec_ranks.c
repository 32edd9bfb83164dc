/* Several ranks under mpirun. The argument chooses the case, for MPI can be opened only once by a
 * process: "agree", "hash", "kernel", "create", "hang". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mini.h"
#include "runtime/base/clock.h"

static const char *which;
static const zr_comm_ops_t *comm_ops;
static zr_comm_t *comm;
static zr_comm_info_t info;
static zr_alloc_t comm_alloc;

static const int64_t seconds_ns = 1000000000;

/* Serial and concurrent modes, with delays, agree on every rank; so do the ranks on the records. */
static void case_agree(void) {
  void *oracle = NULL;
  int64_t bytes = 0;
  zr_step_record_t first = {0};
  mini_t mini;
  mini_open_comm(&mini, &mini_shape, comm_ops, comm);
  for (int mode = 0; mode < 3; mode++) {
    mini.options.serial = mode == 0;
    mini.options.delay_seed = mode == 2 ? 7 + (uint64_t)info.rank : 0;
    mini.options.delay_max_ns = 200000;
    mini_start(&mini);
    for (int64_t i = 1; i <= 3; i++) assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
    zr_step_record_t record;
    assert_ok(zr_exec_record(mini.exec, 3, &record));
    assert_ok(zr_exec_start(mini.exec, MINI_EVAL, 1));
    assert_ok(zr_exec_wait(mini.exec));
    assert_int_equal(record.step_tokens, info.n_ranks * 2 * (MINI_ROWS - 3));
    void *contents = mini_contents(&mini, &bytes);
    if (mode == 0) {
      oracle = contents;
      first = record;
    } else {
      assert_memory_equal(contents, oracle, (size_t)bytes);
      assert_memory_equal(&record, &first, sizeof record);
      free(contents);
    }
    zr_exec_stats_t stats;
    zr_exec_stats(mini.exec, &stats);
    const int64_t moved = mini_shape.shard_elems * 4 * (info.n_ranks - 1);
    /* 3 steps of 3 gathers and 3 reductions, 3 gathers in eval, 3 counts */
    assert_int_equal(stats.sent_bytes, 21 * moved + 3 * 8 * (info.n_ranks - 1));
    zr_exec_destroy(mini.exec);
    mini.exec = NULL;
  }
  free(oracle);
  mini_close(&mini);
}

/* The last rank has another plan: nobody starts, all name it. */
static void case_hash(void) {
  mini_shape_t shape = mini_shape;
  mini_t mini;
  if (info.rank == info.n_ranks - 1) shape.value = 0.5;
  mini_open_comm(&mini, &shape, comm_ops, comm);
  const zr_status_t status = zr_exec_create(&mini.alloc, &mini.options, &mini.exec);
  if (status == ZR_ERR_PEER) {
    assert_detail("another plan 'step'"); /* a peer saw it first */
  } else {
    assert_int_equal(status, ZR_ERR_INTERNAL);
    char text[64];
    snprintf(text, sizeof text, "rank %d compiled another plan 'step'", info.n_ranks - 1);
    assert_detail(text);
  }
  mini_close(&mini);
}

/* A kernel fails on the last rank: there the cause itself, elsewhere ZR_ERR_PEER with its text. */
static void case_kernel(void) {
  const int culprit = info.n_ranks - 1;
  mini_t mini;
  mini_open_comm(&mini, &mini_shape, comm_ops, comm);
  if (info.rank == culprit) mini_fault_kern(&mini, ZR_OP_ADD, 9);
  mini_start(&mini);
  const int64_t begin_ns = zr_clock_ns();
  zr_status_t status = ZR_OK;
  for (int64_t i = 1; i <= 20 && status == ZR_OK; i++) {
    status = zr_exec_start(mini.exec, MINI_STEP, i);
  }
  if (status == ZR_OK) status = zr_exec_wait(mini.exec);
  assert_int_equal(status, info.rank == culprit ? ZR_ERR_DEVICE : ZR_ERR_PEER);
  char text[64];
  snprintf(text, sizeof text, "rank %d: layers.", culprit);
  assert_int_equal(strncmp(zr_detail(), text, strlen(text)), 0);
  assert_detail("/add on compute: the kernel fails as asked");
  mini_close(&mini);
  assert_true(zr_clock_ns() - begin_ns < 8 * seconds_ns);
}

/* The last rank has no memory while the others are already comparing plans. */
static void case_create(void) {
  mini_t mini;
  mini_open_comm(&mini, &mini_shape, comm_ops, comm);
  const bool culprit = info.rank == info.n_ranks - 1;
  if (culprit) mini.alloc.fail_at = mini.alloc.n_calls + 3;
  const zr_status_t status = zr_exec_create(&mini.alloc, &mini.options, &mini.exec);
  assert_int_equal(status, culprit ? ZR_ERR_OUT_OF_MEMORY : ZR_ERR_PEER);
  mini.alloc.fail_at = 0;
  mini_close(&mini);
}

/* An operation of the last rank hangs. The others wait for it in a collective; the message names
 * the one that is late, on all ranks. */
static void case_hang(void) {
  mini_t mini;
  mini_open_comm(&mini, &mini_shape, comm_ops, comm);
  const int culprit = info.n_ranks - 1;
  const int32_t op = mini_find_op(&mini, MINI_STEP, ZR_OP_FILL, 0);
  if (info.rank == culprit) {
    mini_fault_hal(&mini, ZR_FAULT_HANG, 1 + 1 + mini.n_units + op + 1);
  }
  mini.options.watchdog_ns = seconds_ns;
  mini_start(&mini);
  assert_ok(zr_exec_start(mini.exec, MINI_STEP, 1));
  const zr_status_t status = zr_exec_wait(mini.exec);
  assert_int_equal(status, info.rank == culprit ? ZR_ERR_TIMEOUT : ZR_ERR_PEER);
  char text[96];
  snprintf(text, sizeof text, "rank %d: layers.2/fill on compute: not done after", culprit);
  assert_detail(text);
  mini_close(&mini);
}

static void test_case(void **state) {
  (void)state;
  const struct {
    const char *name;
    void (*fn)(void);
  } cases[] = {{"agree", case_agree},
               {"hash", case_hash},
               {"kernel", case_kernel},
               {"create", case_create},
               {"hang", case_hang}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!strcmp(which, cases[i].name)) {
      cases[i].fn();
      return;
    }
  }
  fail_msg("no case '%s'", which);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_case)};
  which = argc > 1 ? argv[1] : "agree";
  zr_alloc_init(&comm_alloc);
  if (zr_comm_mpi_open(&comm_alloc, &comm_ops, &comm) != ZR_OK) {
    fprintf(stderr, "skipped: %s\n", zr_detail());
    return 77;
  }
  info = comm_ops->info(comm);
  return cmocka_run_group_tests_name(which, tests, NULL, NULL);
}
