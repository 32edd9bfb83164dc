/* Real training programs: the same records, digests included, at every stage and in every mode; and
 * virtual time. Also run under mpirun: one process opens MPI once, so all cases share it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/exec/exec.h"
#include "runtime/plan/cost.h"
#include "runtime/zero/zero.h"
#include "tests/support/cmocka_all.h"

#define assert_ok(expr)                                                                   \
  do {                                                                                    \
    const zr_status_t ok_status_ = (expr);                                                \
    if (ok_status_ != ZR_OK) fail_msg("%s: %s", zr_status_name(ok_status_), zr_detail()); \
  } while (0)

static const zr_comm_ops_t *shared_ops; /* of the job */
static zr_comm_t *shared_comm;
static zr_comm_info_t info = {.n_ranks = 1};

typedef struct {
  zr_alloc_t alloc;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  zr_zero_options_t zero_options;
  zr_zero_t *zero;
  int step;
  zr_exec_options_t options;
  zr_exec_t *exec;
} run_t;

static void open_run(run_t *run, int n_layers, int stage, int n_ranks, int order) {
  memset(run, 0, sizeof *run);
  zr_alloc_init(&run->alloc);
  assert_ok(zr_kern_ref_open(&run->alloc, ZR_F32, &run->kern_ops, &run->kern));
  zr_zero_options_t *z = &run->zero_options;
  zr_zero_defaults(z);
  zr_model_defaults(ZR_ARCH_LLAMA, &z->model);
  z->model.vocab_size = 65;
  z->model.hidden_size = 32;
  z->model.n_layers = n_layers;
  z->model.n_heads = 4;
  z->model.n_kv_heads = 2;
  z->model.intermediate_size = 64;
  z->model.max_positions = 32;
  z->run = (zr_model_run_t){.micro_batch = 2, .seq_len = 8};
  z->stage = stage;
  z->n_ranks = n_ranks;
  z->n_micro = 2;
  z->order = order;
  z->digest = true;
  z->kern_ops = run->kern_ops;
  z->kern = run->kern;
  assert_ok(zr_zero_compile(&run->alloc, z, &run->zero));
  for (int p = 0; p < run->zero->program->n_plans; p++) {
    if (!strcmp(run->zero->program->plan[p]->name, "step")) run->step = p;
  }
  zr_exec_defaults(&run->options);
  run->options.program = run->zero->program;
  run->options.kern_ops = run->kern_ops;
  run->options.kern = run->kern;
  run->options.control_buffer[run->step] = run->zero->control;
}

static void close_run(run_t *run) {
  zr_exec_destroy(run->exec);
  run->hal_ops->close(run->hal);
  if (run->comm_ops && run->comm != shared_comm) run->comm_ops->close(run->comm);
  zr_zero_destroy(run->zero);
  run->kern_ops->close(run->kern);
  assert_int_equal(run->alloc.live_count, 0);
}

/* --- virtual time --- */

static void open_virtual(run_t *run) {
  assert_ok(zr_hal_null_open(&run->alloc, false, &run->hal_ops, &run->hal));
  assert_ok(
      zr_comm_null_open(&run->alloc, 0, run->zero_options.n_ranks, &run->comm_ops, &run->comm));
  run->options.hal_ops = run->hal_ops;
  run->options.hal = run->hal;
  run->options.comm_ops = run->comm_ops;
  run->options.comm = run->comm;
}

/* Fixed by kind; a gather or reduction of a unit takes less than the unit's compute. */
static int64_t duration_of(const zr_op_t *op) {
  switch (op->shape.kind) {
    case ZR_OP_ALL_GATHER:
    case ZR_OP_REDUCE_SCATTER:
      return 3000;
    case ZR_OP_LINEAR:
    case ZR_OP_LINEAR_GRAD_X:
    case ZR_OP_LINEAR_GRAD_W:
    case ZR_OP_ATTENTION:
    case ZR_OP_ATTENTION_GRAD:
    case ZR_OP_HEAD_LOSS:
      return 1000;
    default:
      return 50;
  }
}

/* One step in the long run. */
static int64_t step_time_ns(run_t *run, bool serial) {
  enum { WARM = 3, MEASURED = 5 };
  open_virtual(run);
  run->options.serial = serial;
  assert_ok(zr_exec_create(&run->alloc, &run->options, &run->exec));
  for (int64_t i = 1; i <= WARM; i++) assert_ok(zr_exec_start(run->exec, run->step, i));
  const int64_t before_ns = run->hal_ops->time_ns(run->hal);
  for (int64_t i = 1; i <= MEASURED; i++) assert_ok(zr_exec_start(run->exec, run->step, i));
  assert_ok(zr_exec_wait(run->exec));
  const int64_t total_ns = run->hal_ops->time_ns(run->hal) - before_ns;
  return (total_ns + MEASURED - 1) / MEASURED;
}

/* Serial is the sum, to the nanosecond; concurrent lies between the bound and the sum; placement
 * costs nothing. */
static void check_virtual(int stage, int order) {
  for (int serial = 0; serial < 2; serial++) {
    run_t run;
    open_run(&run, 6, stage, 2, order); /* with embedding and head: 8 units */
    assert_int_equal(run.zero->n_units, 8);
    const zr_plan_t *plan = run.zero->program->plan[run.step];
    assert_int_equal(plan->n_placement_waits, 0);
    int64_t *duration_ns = calloc(plan->n_ops, sizeof *duration_ns);
    assert_non_null(duration_ns);
    for (size_t i = 0; i < plan->n_ops; i++) duration_ns[i] = duration_of(&plan->op[i]);
    run.options.duration_ns[run.step] = duration_ns;
    zr_bound_t bound;
    assert_ok(zr_cost_bound(plan, duration_ns, &bound));
    const int64_t ns = step_time_ns(&run, serial);
    if (serial) {
      assert_int_equal(ns, bound.serial_ns);
    } else {
      print_message("stage %d order %d: %.3f of the bound\n", stage, order,
                    (double)ns / (double)bound.bound_ns);
      assert_true(ns >= bound.bound_ns && ns < bound.serial_ns);
    }
    free(duration_ns);
    close_run(&run);
  }
}

static void test_virtual_time_at_every_stage(void **state) {
  (void)state;
  for (int order = 0; order < 2; order++) {
    for (int stage = 0; stage < 4; stage++) check_virtual(stage, order);
  }
}

/* --- real runs --- */

/* The same samples for a leaf wherever it is computed. */
static zr_status_t fetch(void *context, int plan, int64_t iteration, int64_t micro,
                         int32_t *out_tokens, int32_t *out_targets, int32_t *out_starts,
                         int64_t rows) {
  const run_t *run = context;
  const int64_t leaf = zr_zero_leaf(&run->zero->options, info.rank, micro);
  (void)plan;
  (void)out_starts;
  for (int64_t t = 0; t < rows; t++) {
    const uint64_t at = (uint64_t)((iteration * 1000 + leaf) * rows + t);
    out_tokens[t] = (int32_t)(zr_mix64(at) % 65);
    out_targets[t] = at % 7 == 0 ? -1 : (int32_t)(zr_mix64(at + 1) % 65);
  }
  return ZR_OK;
}

static float initial(size_t unit, int64_t element) {
  return 0.05f * (float)zr_rng_normal(unit + 1, (uint64_t)element);
}

static void upload_unit(run_t *run, size_t u) {
  const zr_zero_unit_t *unit = &run->zero->unit[u];
  float *flat = calloc((size_t)unit->flat_elems, sizeof *flat);
  assert_non_null(flat);
  for (int32_t i = 0; i < unit->n_tensors; i++) {
    const zr_flat_tensor_t *tensor = &run->zero->flat_tensor[unit->first_tensor + i];
    for (int64_t e = 0; e < tensor->elems; e++) {
      flat[tensor->begin + e] = initial(u, tensor->begin + e);
    }
  }
  const int64_t first = unit->param_sharded ? info.rank * unit->shard_elems : 0;
  const int64_t n = unit->param_sharded ? unit->shard_elems : unit->flat_elems;
  assert_ok(zr_exec_upload(run->exec, unit->param, 0, flat + first, n * 4));
  free(flat);
  zr_kern_layout_t *layout = NULL;
  int64_t bytes = 0;
  assert_ok(zr_zero_layout(run->zero, u, &layout, &bytes));
  assert_ok(zr_exec_upload(run->exec, unit->layout, 0, layout, bytes));
  zr_alloc_free(&run->alloc, layout);
}

static void start_training(run_t *run) {
  run->comm_ops = shared_ops;
  run->comm = shared_comm;
  if (!run->comm) assert_ok(zr_comm_self_open(&run->alloc, &run->comm_ops, &run->comm));
  assert_ok(zr_hal_cpu_open(&run->alloc, &run->hal_ops, &run->hal));
  run->options.hal_ops = run->hal_ops;
  run->options.hal = run->hal;
  run->options.comm_ops = run->comm_ops;
  run->options.comm = run->comm;
  run->options.fetch = fetch;
  run->options.fetch_context = run;
  assert_ok(zr_exec_create(&run->alloc, &run->options, &run->exec));
  const zr_control_t control = {.rank = info.rank,
                                .n_ranks = info.n_ranks,
                                .digest = 2,
                                .schedule = {.kind = ZR_SCHEDULE_CONSTANT, .lr = 0.01},
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .eps = 1e-8,
                                .weight_decay = 0.1,
                                .max_grad_norm = 1.0,
                                .bias_correction = 1};
  assert_ok(zr_exec_upload(run->exec, run->zero->control, 0, &control, (int64_t)sizeof control));
  for (size_t u = 0; u < run->zero->n_units; u++) upload_unit(run, u);
}

enum { STEPS = 4 };

static void train(int stage, int order, uint64_t delay_seed, bool serial,
                  zr_step_record_t out_record[STEPS]) {
  run_t run;
  open_run(&run, 2, stage, info.n_ranks, order);
  run.options.serial = serial;
  run.options.delay_seed = delay_seed;
  run.options.delay_max_ns = 100000;
  run.options.poison = delay_seed % 2 ? 255 : -1;
  start_training(&run);
  assert_ok(zr_exec_start(run.exec, 0, 0)); /* load */
  for (int64_t i = 1; i <= STEPS; i++) {
    assert_ok(zr_exec_start(run.exec, run.step, i));
    if (i > 1) assert_ok(zr_exec_record(run.exec, i - 1, &out_record[i - 2]));
  }
  assert_ok(zr_exec_record(run.exec, STEPS, &out_record[STEPS - 1]));
  assert_ok(zr_exec_wait(run.exec));
  zr_exec_stats_t stats;
  zr_exec_stats(run.exec, &stats);
  zr_account_t account;
  zr_cost_account(run.zero->program->plan[run.step], &account);
  assert_int_equal(stats.sent_bytes, STEPS * account.sent_bytes);
  close_run(&run);
}

static void test_stages_and_modes_agree(void **state) {
  (void)state;
  zr_step_record_t oracle[STEPS], other[STEPS];
  train(0, ZR_ORDER_DEPTH, 0, true, oracle);
  for (int i = 0; i < STEPS; i++) {
    assert_int_equal(oracle[i].step, i + 1);
    assert_true(oracle[i].loss > 0 && oracle[i].grad_norm > 0 && oracle[i].digest_params);
  }
  assert_true(oracle[0].digest_states != oracle[1].digest_states);
  for (int stage = 0; stage < 4; stage++) {
    for (int order = 0; order < 2; order++) {
      for (uint64_t seed = 0; seed < 3; seed++) {
        train(stage, order, seed, seed == 0 && stage == 2, other);
        if (memcmp(oracle, other, sizeof oracle) == 0) continue;
        fail_msg("stage %d order %d seed %d: loss %.17g, not %.17g", stage, order, (int)seed,
                 other[STEPS - 1].loss, oracle[STEPS - 1].loss);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_virtual_time_at_every_stage),
                                     cmocka_unit_test(test_stages_and_modes_agree)};
  if (zr_comm_mpi_launched()) {
    if (zr_comm_mpi_open(NULL, &shared_ops, &shared_comm) != ZR_OK) {
      fprintf(stderr, "skipped: %s\n", zr_detail());
      return 77;
    }
    info = shared_ops->info(shared_comm);
  }
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (shared_ops) shared_ops->close(shared_comm);
  return failed;
}
