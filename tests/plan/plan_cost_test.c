/* Accounting and bound on plans small enough to do by hand. */
#include <stdlib.h>

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

static int32_t make_copy(zr_plan_t *plan, int32_t kind, int32_t src, int32_t dst) {
  zr_op_desc_t desc = {.kind = kind, .unit = -1, .micro = -1, .n_operands = 2};
  desc.attr[ZR_COPY_BYTES] = plan->buffer[dst].bytes;
  desc.operand[0] = zr_operand_all(plan, src, ZR_READ);
  desc.operand[1] = zr_operand_all(plan, dst, ZR_WRITE);
  int32_t op = -1;
  assert_ok(zr_plan_add_op(plan, &desc, &op));
  return op;
}

/* Disk -> host -> device -> sum -> host -> disk: each on a stream of its own. */
static zr_plan_t *make_round_trip(void) {
  zr_plan_t *plan = NULL;
  int32_t disk, host, device, sum, out, back;
  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  assert_ok(
      zr_plan_add_buffer(plan, "disk", ZR_TIER_DISK, ZR_CATEGORY_PARAM, ZR_F32, 8192, true, &disk));
  assert_ok(
      zr_plan_add_buffer(plan, "back", ZR_TIER_DISK, ZR_CATEGORY_GRAD, ZR_F32, 4096, true, &back));
  sum = make_buffer(plan, "sum", 1024, true);
  assert_ok(zr_plan_add_buffer(plan, "host", ZR_TIER_HOST, ZR_CATEGORY_GATHERED, ZR_F32, 8192,
                               false, &host));
  assert_ok(zr_plan_add_buffer(plan, "out", ZR_TIER_HOST, ZR_CATEGORY_GATHERED, ZR_F32, 4096, false,
                               &out));
  device = make_buffer(plan, "device", 2048, false);
  make_copy(plan, ZR_OP_DISK_READ, disk, host);
  make_copy(plan, ZR_OP_H2D, host, device);
  make_op(plan, ZR_OP_ADD, ZR_STREAM_COMPUTE, 0, 2048, 3, device, device, device);
  make_copy(plan, ZR_OP_D2H, sum, out);
  make_copy(plan, ZR_OP_DISK_WRITE, out, back);
  return plan;
}

static void test_bytes_of_each_link(void **state) {
  (void)state;
  zr_plan_t *plan = make_round_trip();
  zr_account_t account;
  zr_cost_account(plan, &account);
  assert_int_equal(account.disk_read_bytes, 8192);
  assert_int_equal(account.h2d_bytes, 8192);
  assert_int_equal(account.d2h_bytes, 4096);
  assert_int_equal(account.disk_write_bytes, 4096);
  assert_int_equal(account.sent_bytes, 0);
  zr_plan_destroy(plan);
}

/* Two workers and two copies on two cores; a drive that serves 1.5 of both at once. */
static void test_bound_of_what_is_shared(void **state) {
  (void)state;
  zr_plan_t *plan = make_round_trip();
  const int64_t ns[] = {600, 100, 400, 200, 450};
  zr_bound_machine_t machine = {.n_workers = 2, .n_cores = 2, .mixed_drive = 1};
  zr_bound_t bound;
  assert_ok(zr_cost_bound_on(plan, ns, &machine, &bound));
  assert_int_equal(bound.cores_ns, 400 + (100 + 200) / 2);
  assert_int_equal(bound.drive_ns, 1050);
  assert_int_equal(bound.busy_ns, 600);
  assert_int_equal(bound.bound_ns, 1050);
  machine.mixed_drive = 1.5;
  assert_ok(zr_cost_bound_on(plan, ns, &machine, &bound));
  assert_int_equal(bound.drive_ns, 700);
  machine.mixed_drive = 2;
  assert_ok(zr_cost_bound_on(plan, ns, &machine, &bound));
  assert_int_equal(bound.bound_ns, 600); /* the reads alone */
  machine.n_cores = 4;
  assert_ok(zr_cost_bound_on(plan, ns, &machine, &bound));
  assert_int_equal(bound.cores_ns, (2 * 400 + 100 + 200) / 4);
  zr_plan_destroy(plan);
}

static void test_times_of_a_profile(void **state) {
  (void)state;
  zr_profile_t *profile = calloc(1, sizeof *profile);
  zr_plan_t *plan = make_round_trip();
  int64_t ns[5];
  assert_non_null(profile);
  zr_profile_defaults(profile);
  assert_false(profile->is_measured);
  profile->overhead_ns = 7;
  profile->n_workers = 3;
  zr_profile_curve_t *add = profile->curve[ZR_PROFILE_ONE][ZR_OP_ADD];
  assert_true(zr_profile_curve_add(&add[ZR_PROFILE_F32], 8 * 24576, 8000));
  assert_true(zr_profile_curve_add(&add[ZR_PROFILE_F32], 24576, 3000)); /* 3 x 8192 bytes */
  assert_false(zr_profile_curve_add(&add[ZR_PROFILE_F32], 24576, 3001));
  assert_false(zr_profile_curve_add(&add[ZR_PROFILE_F32], 0, 1));
  zr_cost_times(plan, profile, 1, ns);
  assert_int_equal(ns[2], 3007);
  assert_int_equal(ns[1], 7 + 2 * 8192 / 8); /* the built-in rate: read and written */
  add = profile->curve[ZR_PROFILE_ALL][ZR_OP_ADD];
  assert_true(zr_profile_curve_add(&add[ZR_PROFILE_F32], 24576, 1000));
  zr_cost_times(plan, profile, 3, ns);
  assert_int_equal(ns[2], 1007);
  zr_cost_times(plan, profile, 2, ns); /* half way in rate */
  assert_int_equal(ns[2], 1507);
  zr_cost_demand_t demand[5];
  zr_cost_demands(plan, profile, 2, demand);
  const double cores[] = {0, 1, 2, 1, 0};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(demand[i].alone_ns, ns[i]);
    assert_true(demand[i].cores == cores[i]);
  }
  free(profile);
  zr_plan_destroy(plan);
}

static void test_curve_between_and_beyond_points(void **state) {
  (void)state;
  zr_profile_curve_t curve = {0};
  assert_true(zr_profile_curve_add(&curve, 100, 10));
  assert_true(zr_profile_curve_add(&curve, 10000, 250));
  const double work[] = {25, 100, 1000, 10000, 30000}, ns[] = {10, 10, 50, 250, 750};
  for (int i = 0; i < 5; i++) {
    double got = zr_profile_curve_ns(&curve, work[i]);
    assert_true(got > 0.999 * ns[i] && got < 1.001 * ns[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_account),
      cmocka_unit_test(test_sent_bytes),
      cmocka_unit_test(test_bound_of_gathers),
      cmocka_unit_test(test_bound_of_a_cycle),
      cmocka_unit_test(test_bound_of_parts),
      cmocka_unit_test(test_bound_of_random_plans),
      cmocka_unit_test(test_bytes_of_each_link),
      cmocka_unit_test(test_bound_of_what_is_shared),
      cmocka_unit_test(test_times_of_a_profile),
      cmocka_unit_test(test_curve_between_and_beyond_points),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
