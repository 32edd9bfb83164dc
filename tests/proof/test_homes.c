/* Offload changes nothing but time: wherever each state lives, a step gives the bits of everything
 * on the device, one rank, one thread, one operation after the other. The settings come from a
 * table in which every pair of values of two settings occurs; run under mpirun with 1, 2, 3 and 4
 * ranks. In the same runs the bytes over each link are the plan's, counted as they arrive. */
#include <math.h>

#include "tests/proof/machine.h"
#include "tests/proof/pairs.h"

enum {
  PARAM,
  GRAD,
  OPTIMIZER,
  ACTIVATION,
  STAGE,
  ORDER,
  PREFETCH,
  RECOMPUTE,
  SLOTS,
  CHUNK,
  TYPES,
  DISK,
  DEPTH,
  DELAY, /* none, operations, serial */
  N_SETTINGS,
  N_STEPS = 4,
  SKIPPED = 3,
  N_LEAVES = 12
};

typedef struct {
  const char *name;
  zr_dtype_t dtype, grad_dtype, state_dtype;
} types_t;

static const types_t all_types[] = {
    {"fp32", ZR_F32, ZR_F32, ZR_F32},
    {"bf16", ZR_BF16, ZR_F32, ZR_F32},
    {"bf16, sums and moments in bf16", ZR_BF16, ZR_BF16, ZR_BF16},
};
enum { N_TYPES = sizeof all_types / sizeof all_types[0] };

static machine_world_t world;
static double max_grad_norm[N_TYPES];
static zr_step_record_t want[N_TYPES][N_STEPS];

static void make_table(pairs_t *table) {
  static const int64_t tiers[] = {ZR_TIER_DEVICE, ZR_TIER_HOST, ZR_TIER_DISK};
  for (int s = PARAM; s <= ACTIVATION; s++) pairs_set(table, s, 3, tiers);
  pairs_set(table, STAGE, 4, (int64_t[]){0, 1, 2, 3});
  pairs_set(table, ORDER, 2, (int64_t[]){ZR_ORDER_DEPTH, ZR_ORDER_BREADTH});
  pairs_set(table, PREFETCH, 3, (int64_t[]){0, 1, 2});
  pairs_set(table, RECOMPUTE, 2, (int64_t[]){ZR_RECOMPUTE_NONE, ZR_RECOMPUTE_FULL});
  pairs_set(table, SLOTS, 4, (int64_t[]){1, 2, 3, 4});
  pairs_set(table, CHUNK, 3, (int64_t[]){1024, 3072, 1 << 20});
  pairs_set(table, TYPES, 3, (int64_t[]){0, 1, 2});
  pairs_set(table, DISK, 3, (int64_t[]){MACHINE_MEMORY, MACHINE_URING, MACHINE_POSIX});
  pairs_set(table, DEPTH, 2, (int64_t[]){1, 64});
  pairs_set(table, DELAY, 3, (int64_t[]){0, 1, 2});
  pairs_cover(table, N_SETTINGS);
}

/* A row that is not legal becomes the nearest one that is. */
static void make_legal(machine_options_t *o) {
  zr_homes_t *home = &o->home;
  if (home->optimizer == ZR_TIER_DEVICE && (home->param != 0 || home->grad != 0))
    home->optimizer = home->param != 0 ? home->param : home->grad;
  if (home->param != ZR_TIER_DEVICE && world.n_ranks > 1) o->stage = 3;
}

static void set_types(machine_options_t *o, int64_t types) {
  o->dtype = all_types[types].dtype;
  o->grad_dtype = all_types[types].grad_dtype;
  o->state_dtype = all_types[types].state_dtype;
  o->max_grad_norm = max_grad_norm[types];
  o->skipped_step = SKIPPED;
  o->n_leaves = N_LEAVES;
  o->group = world.n_ranks == 3 ? 2 : 0; /* three ranks: only whole groups are of the one tree */
}

static void options_of(const pairs_t *table, int row, machine_options_t *out_options) {
  machine_defaults(out_options);
  machine_options_t *o = out_options;
  set_types(o, pairs_value(table, row, TYPES));
  o->home = (zr_homes_t){
      (uint8_t)pairs_value(table, row, PARAM), (uint8_t)pairs_value(table, row, GRAD),
      (uint8_t)pairs_value(table, row, OPTIMIZER), (uint8_t)pairs_value(table, row, ACTIVATION)};
  o->stage = (int)pairs_value(table, row, STAGE);
  o->order = (int)pairs_value(table, row, ORDER);
  o->prefetch = pairs_value(table, row, PREFETCH);
  o->recompute = (int)pairs_value(table, row, RECOMPUTE);
  o->n_slots = pairs_value(table, row, SLOTS);
  o->chunk_elems = pairs_value(table, row, CHUNK);
  o->disk = (int)pairs_value(table, row, DISK);
  o->queue_depth = (int)pairs_value(table, row, DEPTH);
  o->serial = pairs_value(table, row, DELAY) == 2;
  o->delay_seed = pairs_value(table, row, DELAY) == 1 ? 21 + (uint64_t)(row * 16 + world.rank) : 0;
  o->n_threads = 1 + row % 3;
  make_legal(o);
  if (o->home.param == ZR_TIER_DEVICE && row % 4 == 1) o->ratio = 0.5;
}

static void reference(int64_t types) {
  machine_options_t options;
  machine_defaults(&options);
  set_types(&options, types);
  options.serial = true;
  options.max_grad_norm = 0;
  zr_step_record_t record[N_STEPS];
  memset(want[types], 0, sizeof want[types]);
  if (world.rank == 0) {
    machine_records(&options, NULL, N_STEPS, record, NULL);
    /* Between two norms, so that it clips one step and not the other. */
    max_grad_norm[types] = (record[0].grad_norm + record[1].grad_norm) / 2;
    options.max_grad_norm = max_grad_norm[types];
    machine_records(&options, NULL, N_STEPS, want[types], NULL);
    assert_true(want[types][SKIPPED - 1].skipped_now);
    assert_true((want[types][0].clip_coef < 1) != (want[types][1].clip_coef < 1));
  }
  assert_ok(world.ops->broadcast(world.comm, &max_grad_norm[types], sizeof(double), 0));
  assert_ok(world.ops->broadcast(world.comm, want[types], sizeof want[types], 0));
}

static void check_links(const machine_t *m, const zr_exec_stats_t *before,
                        const zr_exec_stats_t *after) {
  zr_account_t account;
  zr_cost_account(m->step, &account);
  const int64_t planned[ZR_N_LINKS] = {
      [ZR_LINK_H2D] = account.h2d_bytes,
      [ZR_LINK_D2H] = account.d2h_bytes,
      [ZR_LINK_DISK_READ] = account.disk_read_bytes,
      [ZR_LINK_DISK_WRITE] = account.disk_write_bytes,
  };
  for (int k = 0; k < ZR_N_LINKS; k++) {
    assert_int_equal(after->moved_bytes[k] - before->moved_bytes[k], planned[k] * N_STEPS);
    assert_int_equal(after->moving_bytes[k], 0);
  }
}

static void run_row(const machine_options_t *options, zr_step_record_t *record) {
  machine_t machine;
  machine_open(&machine, options, &world);
  zr_exec_stats_t before, after;
  zr_exec_stats(machine.exec, &before);
  machine_run(&machine, N_STEPS, record);
  zr_exec_stats(machine.exec, &after);
  check_links(&machine, &before, &after);
  machine_close(&machine);
}

static void check_row(const pairs_t *table, int row) {
  machine_options_t o;
  options_of(table, row, &o);
  const int64_t types = pairs_value(table, row, TYPES);
  zr_step_record_t record[N_STEPS];
  run_row(&o, record);
  if (machine_records_equal(record, want[types], N_STEPS)) return;
  machine_print_options(&o, world.n_ranks);
  print_message("row %d: homes %d %d %d %d ratio %g slots %d chunk %d disk %d depth %d\n", row,
                o.home.param, o.home.grad, o.home.optimizer, o.home.activation, o.ratio,
                (int)o.n_slots, (int)o.chunk_elems, o.disk, o.queue_depth);
  for (int k = 0; k < N_STEPS; k++)
    print_message(
        "rank %d step %d: loss %.17g not %.17g, norm %.17g not %.17g, digest %llx %llx "
        "not %llx %llx\n",
        world.rank, k + 1, record[k].loss, want[types][k].loss, record[k].grad_norm,
        want[types][k].grad_norm, (unsigned long long)record[k].digest_params,
        (unsigned long long)record[k].digest_states,
        (unsigned long long)want[types][k].digest_params,
        (unsigned long long)want[types][k].digest_states);
  _fail(__FILE__, __LINE__);
}

static void test_homes_change_no_bit(void **state) {
  (void)state;
  pairs_t table;
  make_table(&table);
  for (int types = 0; types < N_TYPES; types++) reference(types);
  for (int row = 0; row < table.n_rows; row++) check_row(&table, row);
  if (world.rank == 0)
    print_message("%d ranks: %d runs, each pair of settings, same bits, bytes as planned\n",
                  world.n_ranks, table.n_rows);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_homes_change_no_bit)};
  machine_world_open(&world);
  const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
  machine_world_close(&world);
  return n_failed;
}
