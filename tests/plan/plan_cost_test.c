/* Accounting and bound on plans small enough to do by hand. */
#include "runtime/plan/cost.h"
#include "tests/plan/plan_make.h"

static void test_account(void **state) {
  (void)state;
  zr_plan_t *plan = make_gathers(NULL, 4, 3, 16);
  zr_account_t account;
  zr_cost_account(plan, &account);
  assert_int_equal(account.persistent_bytes[0][ZR_CATEGORY_PARAM], 3 * 64 + 256);
  assert_int_equal(account.category_bytes[0][ZR_CATEGORY_PARAM], 3 * 64 + 256);
  assert_int_equal(account.category_bytes[0][ZR_CATEGORY_ACTIVATION], 3 * 256);
  assert_int_equal(account.persistent_bytes[0][ZR_CATEGORY_ACTIVATION], 0);
  assert_int_equal(account.sent_bytes, 3 * 3 * 64); /* three gathers, three peers, a shard each */
  assert_int_equal(account.touched_bytes, 3 * 3 * 256); /* src read, dst read and written */
  assert_int_equal(account.flops, 0);
  zr_plan_destroy(plan);
}

static void test_sent_bytes(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 3, &plan));
  int32_t data = make_buffer(plan, "data", 16, true);
  make_op(plan, ZR_OP_ALL_REDUCE, ZR_STREAM_COMM, 0, 64, 1, data);
  make_op(plan, ZR_OP_BROADCAST, ZR_STREAM_COMM, 0, 64, 1, data);
  make_op(plan, ZR_OP_BARRIER, ZR_STREAM_COMM, 0, 0, 0);
  assert_int_equal(zr_cost_sent_bytes(plan, &plan->op[0]), 2 * 64);
  assert_int_equal(zr_cost_sent_bytes(plan, &plan->op[1]), 2 * 64);
  assert_int_equal(zr_cost_sent_bytes(plan, &plan->op[2]), 0);
  zr_plan_destroy(plan);
}

static void check_bound(const zr_plan_t *plan, const int64_t *duration_ns, int64_t busy_ns,
                        int64_t chain_ns, int64_t serial_ns) {
  zr_bound_t bound;
  assert_ok(zr_cost_bound(plan, duration_ns, &bound));
  assert_int_equal(bound.busy_ns, busy_ns);
  assert_int_equal(bound.chain_ns, chain_ns);
  assert_int_equal(bound.serial_ns, serial_ns);
  assert_int_equal(bound.bound_ns, busy_ns > chain_ns ? busy_ns : chain_ns);
}

/* Gathers carry nothing from step to step; the sums do. */
static void test_bound_of_gathers(void **state) {
  (void)state;
  zr_plan_t *plan = make_gathers(NULL, 2, 3, 16);
  const int64_t duration_ns[] = {100, 7, 200, 11, 300, 13};
  check_bound(plan, duration_ns, 600, 7 + 11 + 13, 631);
  zr_plan_destroy(plan);
}

/* p -> x -> p over three streams: nothing overlaps; a reader beside it does not count, and an
 * overwritten value does not wait for its readers. */
static void test_bound_of_a_cycle(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  int32_t p = make_buffer(plan, "p", 16, true), x = make_buffer(plan, "x", 16, false);
  int32_t y = make_buffer(plan, "y", 16, false);
  make_op(plan, ZR_OP_ADD, ZR_STREAM_H2D, 0, 16, 3, p, p, x);
  make_op(plan, ZR_OP_ADD, ZR_STREAM_COMM, 0, 16, 3, x, p, y); /* beside */
  make_op(plan, ZR_OP_ADD, ZR_STREAM_COMPUTE, 0, 16, 3, x, x, p);
  const int64_t duration_ns[] = {10, 25, 20};
  check_bound(plan, duration_ns, 25, 30, 55);
  /* Broken by an overwrite, nothing is carried. */
  make_fill(plan, ZR_STREAM_HOST, 0, p);
  const int64_t cut_ns[] = {10, 25, 20, 1};
  check_bound(plan, cut_ns, 25, 0, 56);
  zr_plan_destroy(plan);
}

/* Two parts of one buffer are two values. */
static void test_bound_of_parts(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  int32_t p = make_buffer(plan, "p", 32, true);
  for (int i = 0; i < 2; i++) {
    zr_op_desc_t desc = {
        .kind = ZR_OP_ACCUMULATE, .unit = -1, .micro = -1, .attr = {16}, .n_operands = 2};
    desc.operand[0] = zr_operand_part(p, 64 * i, 64, ZR_READ);
    desc.operand[1] = zr_operand_part(p, 64 * i, 64, ZR_ACCUMULATE);
    int32_t op;
    assert_ok(zr_plan_add_op(plan, &desc, &op));
    plan->op[op].stream = (uint8_t)i;
  }
  const int64_t duration_ns[] = {10, 30};
  check_bound(plan, duration_ns, 30, 30, 40);
  zr_plan_destroy(plan);
}

/* Every duration scaled scales the bound; the chain is at most the sum. */
static void test_bound_of_random_plans(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    zr_plan_t *plan = make_random(seed, 40, 24);
    int64_t one[64], many[64];
    zr_bound_t a, b;
    for (size_t i = 0; i < plan->n_ops; i++) {
      one[i] = 4 * (int64_t)(1 + (seed * 7 + i * 13) % 29);
      many[i] = 8 * one[i];
    }
    assert_ok(zr_cost_bound(plan, one, &a));
    assert_ok(zr_cost_bound(plan, many, &b));
    assert_int_equal(b.busy_ns, 8 * a.busy_ns);
    assert_int_equal(b.serial_ns, 8 * a.serial_ns);
    assert_true(b.chain_ns >= 8 * a.chain_ns && b.chain_ns < 8 * a.chain_ns + 8);
    assert_true(a.chain_ns <= a.serial_ns && a.bound_ns <= a.serial_ns);
    zr_plan_destroy(plan);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_account),          cmocka_unit_test(test_sent_bytes),
      cmocka_unit_test(test_bound_of_gathers), cmocka_unit_test(test_bound_of_a_cycle),
      cmocka_unit_test(test_bound_of_parts),   cmocka_unit_test(test_bound_of_random_plans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
