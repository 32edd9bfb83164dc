/* Waits against a race checker that knows nothing but reachability. */
#include <string.h>

#include "runtime/plan/place_internal.h"
#include "runtime/plan/wait.h"
#include "tests/plan/plan_make.h"

enum { STEPS = 3, MAX_OPS = 64, MAX_NODES = STEPS * MAX_OPS };

static bool conflict(const zr_plan_t *plan, const zr_op_t *x, const zr_op_t *y) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
      const zr_operand_t *a = &x->operand[i], *b = &y->operand[j];
      if (a->buffer < 0 || b->buffer < 0 || (a->access == ZR_READ && b->access == ZR_READ))
        continue;
      if (plan->buffer[a->buffer].tier != plan->buffer[b->buffer].tier) continue;
      int64_t from_a = zr_plan_operand_begin(plan, a, 0),
              from_b = zr_plan_operand_begin(plan, b, 0);
      int64_t to_a = zr_plan_operand_begin(plan, a, plan->n_ranks - 1) + a->bytes;
      int64_t to_b = zr_plan_operand_begin(plan, b, plan->n_ranks - 1) + b->bytes;
      if (from_a < to_b && from_b < to_a) return true;
    }
  }
  return false;
}

/* Conflicting pairs that no path orders, over STEPS steps. before[i][j]: j is done before i. */
static int count_races(const zr_plan_t *plan) {
  static bool before[MAX_NODES][MAX_NODES];
  int n = (int)plan->n_ops, races = 0;
  assert_true(n <= MAX_OPS);
  memset(before, 0, sizeof before);
  for (int i = 0; i < STEPS * n; i++) {
    const zr_op_t *op = &plan->op[i % n];
    int edge[1 + ZR_N_STREAMS], n_edges = 0;
    for (int j = i - 1; j >= 0 && n_edges == 0; j--) {
      if (plan->op[j % n].stream == op->stream) edge[n_edges++] = j;
    }
    for (int w = 0; w < op->n_waits; w++) {
      int at = i / n * n - op->wait[w].back * n + op->wait[w].op;
      if (at >= 0) edge[n_edges++] = at;
    }
    for (int e = 0; e < n_edges; e++) {
      assert_true(edge[e] < i);
      before[i][edge[e]] = true;
      for (int j = 0; j < edge[e]; j++) before[i][j] |= before[edge[e]][j];
    }
    for (int j = 0; j < i; j++) races += !before[i][j] && conflict(plan, op, &plan->op[j % n]);
  }
  return races;
}

/* No race; and each wait is needed: without it there is one. */
static void check_waits(zr_plan_t *plan) {
  int n_waits = 0, n_placement = 0;
  assert_int_equal(count_races(plan), 0);
  for (size_t i = 0; i < plan->n_ops; i++) {
    zr_op_t *op = &plan->op[i];
    n_waits += op->n_waits;
    for (int w = 0; w < op->n_waits; w++) {
      zr_op_t kept = *op;
      n_placement += op->wait[w].placement_only;
      assert_int_not_equal(plan->op[op->wait[w].op].stream, op->stream);
      memmove(&op->wait[w], &op->wait[w + 1], (size_t)(op->n_waits - w - 1) * sizeof op->wait[0]);
      op->n_waits--;
      assert_true(count_races(plan) > 0);
      *op = kept;
    }
  }
  assert_int_equal(n_waits, plan->n_waits);
  assert_int_equal(n_placement, plan->n_placement_waits);
}

static void test_random_plans(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 150; seed++) {
    zr_plan_t *plan = make_random(seed, 30, 12);
    zr_place_options_t options;
    zr_place_defaults(&options);
    place_alone(plan, &options, NULL, 0);
    assert_ok(zr_wait_derive(plan, NULL));
    check_waits(plan);
    zr_plan_destroy(plan);
  }
}

/* Without reuse of space no wait is there for placement alone; with it, exactly those whose order
 * the values do not give. */
static void test_placement_only(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    zr_plan_t *plan = make_random(seed, 30, 12);
    zr_place_options_t options = {0};
    zr_apart_t alone[64];
    for (int32_t i = 0; i < (int32_t)plan->n_buffers; i++) alone[i] = (zr_apart_t){i, i};
    place_alone(plan, &options, alone, plan->n_buffers);
    assert_ok(zr_wait_derive(plan, NULL));
    assert_int_equal(plan->n_placement_waits, 0);
    check_waits(plan);
    zr_plan_destroy(plan);
  }
}

/* Placed so that bytes are reused only where the values order it: next to no wait is for placement
 * (parts of a buffer that several streams write first are the exception), in less space than apart.
 */
static void test_quiet_placement(void **state) {
  (void)state;
  int n_waits = 0, n_placement = 0;
  int64_t quiet_bytes = 0, apart_bytes = 0;
  for (uint64_t seed = 1; seed <= 150; seed++) {
    zr_plan_t *plan = make_random(seed, 30, 12);
    zr_program_t program = {.alloc = plan->alloc, .n_plans = 1, .plan = {plan}};
    zr_quiet_t quiet;
    assert_ok(zr_quiet_init(&quiet, plan));
    zr_place_mode_t mode = {.quiet = &quiet};
    assert_ok(zr_place_plan(plan, &mode, NULL, 0));
    zr_place_arenas(&program);
    assert_ok(zr_wait_derive(plan, NULL));
    check_waits(plan);
    n_waits += plan->n_waits;
    n_placement += plan->n_placement_waits;
    quiet_bytes += plan->peak_bytes[0];
    for (size_t i = 0; i < plan->n_buffers; i++) apart_bytes += plan->buffer[i].bytes;
    zr_quiet_fini(&quiet);
    zr_plan_destroy(plan);
  }
  print_message("quiet placement: %d of %d waits for space; %.3f x the bytes of all buffers\n",
                n_placement, n_waits, (double)quiet_bytes / (double)apart_bytes);
  assert_int_equal(n_placement, 0);
}

static void expect_wait(const zr_plan_t *plan, int32_t op, int w, int32_t on, int back,
                        bool placement) {
  assert_true(w < plan->op[op].n_waits);
  assert_int_equal(plan->op[op].wait[w].op, on);
  assert_int_equal(plan->op[op].wait[w].back, back);
  assert_int_equal(plan->op[op].wait[w].placement_only, placement);
}

/*  h2d      fill x0 .......... fill x1
 *  compute          s += x0            s += x1       x1 takes x0's space: a placement wait */
static void test_reuse_by_hand(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  zr_apart_list_t pairs = {0};
  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  int32_t sum = make_buffer(plan, "sum", 16, true);
  int32_t x0 = make_buffer(plan, "x0", 16, false), x1 = make_buffer(plan, "x1", 16, false);
  make_fill(plan, ZR_STREAM_H2D, 0, x0);
  make_accumulate(plan, ZR_STREAM_COMPUTE, 0, x0, sum);
  make_fill(plan, ZR_STREAM_H2D, 1, x1);
  make_accumulate(plan, ZR_STREAM_COMPUTE, 1, x1, sum);
  assert_ok(zr_plan_finish(plan));
  zr_place_options_t options = {0};
  place_alone(plan, &options, NULL, 0);
  assert_int_equal(plan->buffer[x0].offset, plan->buffer[x1].offset);
  assert_ok(zr_wait_derive(plan, &pairs));
  assert_int_equal(plan->n_waits, 4);
  assert_int_equal(plan->n_placement_waits, 2);
  expect_wait(plan, 0, 0, 3, 1, true);
  expect_wait(plan, 1, 0, 0, 0, false);
  expect_wait(plan, 2, 0, 1, 0, true);
  expect_wait(plan, 3, 0, 2, 0, false);
  assert_int_equal(pairs.n_pairs, 2);
  assert_int_equal(pairs.pair[0].a, x0);
  assert_int_equal(pairs.pair[0].b, x1);
  check_waits(plan);
  /* Apart, each waits for its own last use, a step ago: the same number, no placement. */
  place_alone(plan, &options, pairs.pair, 1);
  assert_ok(zr_wait_derive(plan, NULL));
  assert_int_equal(plan->n_placement_waits, 0);
  expect_wait(plan, 0, 0, 1, 1, false);
  expect_wait(plan, 2, 0, 3, 1, false);
  check_waits(plan);
  zr_alloc_free(plan->alloc, pairs.pair);
  zr_plan_destroy(plan);
}

/* In place: the shard lies in the flat, and the next gather must follow the last use. */
static void test_in_place_gather(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 4, &plan));
  int32_t flat = make_buffer(plan, "flat", 64, true), sum = make_buffer(plan, "sum", 64, true);
  zr_op_desc_t desc = {
      .kind = ZR_OP_ALL_GATHER, .unit = -1, .micro = -1, .attr = {64}, .n_operands = 2};
  desc.operand[0] = zr_operand_shard(flat, 64, ZR_READ);
  desc.operand[1] = zr_operand_all(plan, flat, ZR_WRITE);
  assert_ok(zr_plan_add_op(plan, &desc, NULL));
  make_accumulate(plan, ZR_STREAM_COMPUTE, 0, flat, sum);
  desc = (zr_op_desc_t){.kind = ZR_OP_FILL, .unit = -1, .micro = -1, .attr = {16}, .n_operands = 1};
  desc.operand[0] = zr_operand_shard(flat, 64, ZR_WRITE);
  assert_ok(zr_plan_add_op(plan, &desc, NULL));
  assert_ok(zr_plan_finish(plan));
  zr_place_options_t options = {0};
  place_alone(plan, &options, NULL, 0);
  assert_ok(zr_wait_derive(plan, NULL));
  assert_int_equal(plan->n_waits, 2);
  expect_wait(plan, 0, 0, 2, 1, false);
  expect_wait(plan, 1, 0, 0, 0, false);
  check_waits(plan);
  zr_plan_destroy(plan);
}

/* Shards with gaps between the ranks' places: two such pieces are not in each other's way. */
static void test_strided_pieces_do_not_meet(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 2, &plan));
  int32_t flat = make_buffer(plan, "flat", 64, true);
  for (int i = 0; i < 2; i++) {
    zr_op_desc_t desc = {
        .kind = ZR_OP_FILL, .unit = -1, .micro = -1, .attr = {16}, .n_operands = 1};
    desc.operand[0] = zr_operand_part(flat, 64 * i, 64, ZR_WRITE);
    desc.operand[0].rank_stride = 128;
    int32_t op;
    assert_ok(zr_plan_add_op(plan, &desc, &op));
    plan->op[op].stream = i == 0 ? ZR_STREAM_COMPUTE : ZR_STREAM_HOST;
  }
  assert_ok(zr_plan_finish(plan));
  zr_place_options_t options = {0};
  place_alone(plan, &options, NULL, 0);
  assert_ok(zr_wait_derive(plan, NULL));
  assert_int_equal(plan->n_waits, 0);
  zr_plan_destroy(plan);
}

static void test_scratch_counts_as_a_write(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 2, &plan));
  int32_t data = make_buffer(plan, "data", 16, true), scratch = make_buffer(plan, "s", 16, false);
  make_op(plan, ZR_OP_ALL_REDUCE, ZR_STREAM_COMM, 0, 64, 2, data, scratch);
  int32_t other = make_buffer(plan, "other", 16, false);
  make_fill(plan, ZR_STREAM_COMPUTE, 0, other);
  assert_ok(zr_plan_finish(plan));
  zr_place_options_t options = {0};
  place_alone(plan, &options, NULL, 0);
  assert_int_equal(plan->buffer[scratch].offset, plan->buffer[other].offset);
  assert_ok(zr_wait_derive(plan, NULL));
  assert_int_equal(plan->n_placement_waits, 2);
  check_waits(plan);
  zr_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_plans),
      cmocka_unit_test(test_placement_only),
      cmocka_unit_test(test_quiet_placement),
      cmocka_unit_test(test_reuse_by_hand),
      cmocka_unit_test(test_in_place_gather),
      cmocka_unit_test(test_strided_pieces_do_not_meet),
      cmocka_unit_test(test_scratch_counts_as_a_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
