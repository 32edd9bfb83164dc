/* Accounting: the bytes that leave a rank, the plan's, and the executor's are the same number at
 * every setting, within the formulas of DESIGN.md section 12; and a rank keeps 1/N of what the
 * stage says is cut. Under mpirun with 2, 3 and 4 ranks, each way:
 *   ZR_COMM_SHARED=0  every byte is handed to MPI, and is counted at MPI's own calls
 *   otherwise         ranks of a node read each other's memory: MPI is handed nothing, what is too
 *                     large for the page that they share is counted at process_vm_readv, byte for
 *                     byte, and the small rest is what the backend says it sent */
#include <stdlib.h>

#include "tests/proof/machine.h"

int64_t zr_pmpi_sent_bytes(void);
int64_t zr_pmpi_uncounted_calls(void);
int64_t zr_vm_read_bytes(void);

enum { N_STEPS = 2, PAGE_BYTES = 16384 /* ZR_MPI_INLINE_BYTES */ };

static machine_world_t world;

/* The three small agreements of a step: token count; norm, loss and flags; digests. */
static int64_t agreements_bytes(void) {
  const int64_t norm = (int64_t)offsetof(zr_control_t, norm);
  return 8 + ((int64_t)offsetof(zr_control_t, flags) + 8 - norm) + 24;
}

/* Most elements that each rank may send in a step; r = (N - 1) / N. */
static int64_t formula_bytes(const zr_zero_t *zero) {
  const zr_zero_options_t *o = &zero->options;
  const int64_t n = o->n_ranks, reductions = o->n_micro >> o->group;
  const int64_t tied = o->model.tie_word_embeddings ? zero->unit[0].flat_elems : 0;
  int64_t gathers = 1;
  if (o->stage == 3) gathers = o->order == ZR_ORDER_BREADTH ? 2 : 2 * o->n_micro;
  const int64_t elems =
      gathers * zero->n_params_padded + reductions * (zero->n_params_padded + tied);
  return elems / n * (n - 1) * 4 + (n - 1) * agreements_bytes();
}

static void check_states(const machine_t *m) {
  zr_account_t account;
  zr_cost_account(m->step, &account);
  const int64_t *bytes = account.persistent_bytes[ZR_TIER_DEVICE];
  const int64_t n = m->n_ranks, whole = m->zero->n_params_padded * 4;
  const int stage = m->options.stage;
  assert_int_equal(bytes[ZR_CATEGORY_PARAM] * (stage >= 3 ? n : 1), whole);
  assert_int_equal(bytes[ZR_CATEGORY_OPTIMIZER] * (stage >= 1 ? n : 1), 2 * whole);
  assert_int_equal(bytes[ZR_CATEGORY_GRAD], stage >= 2 ? 0 : whole);
}

/* What each rank reads of its peers in a step: as much as it sends of what is large. */
static int64_t large_bytes(const zr_plan_t *plan) {
  int64_t large = 0;
  for (size_t i = 0; i < plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    int64_t offered = zr_cost_sent_bytes(plan, op) / (plan->n_ranks - 1);
    if (op->shape.kind == ZR_OP_REDUCE_SCATTER) offered *= plan->n_ranks; /* the flat */
    if (offered > PAGE_BYTES) large += zr_cost_sent_bytes(plan, op);
  }
  return large;
}

static int64_t mpi_bytes, read_bytes; /* as they were before the run */
static bool is_shared;

static void check_links(const zr_plan_t *plan, int64_t sent) {
  const char *shared = getenv("ZR_COMM_SHARED");
  const int64_t by_mpi = zr_pmpi_sent_bytes() - mpi_bytes;
  if (by_mpi == 0 && (!shared || strcmp(shared, "0") != 0)) {
    is_shared = true;
    assert_int_equal(zr_vm_read_bytes() - read_bytes, N_STEPS * large_bytes(plan));
  } else { /* switched off, or refused here */
    assert_int_equal(by_mpi, N_STEPS * sent);
  }
}

static int64_t check(const machine_options_t *options) {
  machine_t m;
  machine_open(&m, options, &world);
  check_states(&m);
  zr_account_t account;
  zr_cost_account(m.step, &account);
  zr_exec_stats_t before, after;
  zr_exec_stats(m.exec, &before);
  mpi_bytes = zr_pmpi_sent_bytes();
  read_bytes = zr_vm_read_bytes();
  zr_step_record_t record[N_STEPS];
  machine_run(&m, N_STEPS, record);
  zr_exec_stats(m.exec, &after);
  check_links(m.step, account.sent_bytes);
  assert_int_equal(after.sent_bytes - before.sent_bytes, N_STEPS * account.sent_bytes);
  assert_true(account.sent_bytes <= formula_bytes(m.zero));
  assert_true(account.sent_bytes > 0);
  machine_close(&m);
  return account.sent_bytes;
}

static void test_bytes_sent_are_planned(void **state) {
  (void)state;
  machine_options_t options;
  machine_defaults(&options);
  options.n_leaves = 4 * world.n_ranks;
  int n_runs = 0;
  for (int arch = 0; arch < 2; arch++)
    for (options.stage = 0; options.stage < 4; options.stage++)
      for (options.order = 0; options.order < 2; options.order++)
        for (options.group = 0; options.group < 3; options.group++, n_runs++) {
          options.arch = (zr_arch_t)arch;
          options.prefetch = n_runs % 4;
          options.recompute = n_runs % 3;
          check(&options);
        }
  assert_int_equal(zr_pmpi_uncounted_calls(), 0);
  if (is_shared) assert_true(zr_vm_read_bytes() > 0);
  if (world.rank == 0) print_message("%d settings on %d ranks\n", n_runs, world.n_ranks);
}

/* The settings differ where they should. */
static void test_settings_differ_in_traffic(void **state) {
  (void)state;
  machine_options_t options;
  machine_defaults(&options);
  options.n_leaves = 4 * world.n_ranks;
  options.stage = 2;
  options.group = 0;
  const int64_t stage_2 = check(&options);
  options.group = 2;
  const int64_t large_group = check(&options);
  options.stage = 3;
  options.group = 0;
  const int64_t depth = check(&options);
  options.order = ZR_ORDER_BREADTH;
  const int64_t breadth = check(&options);
  assert_true(large_group < stage_2);
  assert_true(stage_2 < breadth && breadth < depth);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_sent_are_planned),
                                     cmocka_unit_test(test_settings_differ_in_traffic)};
  if (!zr_comm_mpi_launched()) {
    puts("skipped: needs mpirun with 2 or more ranks");
    return 77;
  }
  machine_world_open(&world);
  const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
  machine_world_close(&world);
  return n_failed;
}
