/* The simulator on plans small enough to do by hand. */
#include "runtime/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/control.h"
#include "runtime/base/rng.h"
#include "runtime/plan/wait.h"
#include "tests/plan/plan_make.h"

enum { MAX_OPS = 256 };

typedef struct {
  zr_plan_t *plan;
  zr_cost_demand_t demand[MAX_OPS];
  zr_sim_options_t options;
  zr_sim_result_t result;
} sim_case_t;

static void begin_case(sim_case_t *c, zr_plan_t *plan) {
  *c = (sim_case_t){.plan = plan};
  if (plan == NULL) assert_ok(zr_plan_create(NULL, "step", 1, &c->plan));
  c->options =
      (zr_sim_options_t){.n_cores = 16, .crowded_cores = 1, .mixed_drive = 1, .n_executions = 8};
}

/* Every operation on as many cores as is said, nothing of the memory. */
static void take(sim_case_t *c, const int64_t *ns, const double *cores) {
  assert_true(c->plan->n_ops <= MAX_OPS);
  for (size_t i = 0; i < c->plan->n_ops; i++) {
    c->demand[i] = (zr_cost_demand_t){.alone_ns = ns[i], .cores = cores == NULL ? 0 : cores[i]};
  }
}

static void place(sim_case_t *c) {
  zr_place_options_t options = {0};
  if (!c->plan->finished) assert_ok(zr_plan_finish(c->plan));
  place_alone(c->plan, &options, NULL, 0);
  assert_ok(zr_wait_derive(c->plan, NULL));
}

static int64_t run(sim_case_t *c) {
  c->options.demand = c->demand;
  assert_ok(zr_sim_run(c->plan, &c->options, &c->result));
  return c->result.step_ns;
}

static void end_case(sim_case_t *c) {
  zr_plan_destroy(c->plan);
}

/* p -> x -> p over two streams: a chain through the step boundary; all of it is exposed. */
static void test_a_chain_takes_its_sum(void **state) {
  (void)state;
  sim_case_t c;
  begin_case(&c, NULL);
  int32_t p = make_buffer(c.plan, "p", 16, true), x = make_buffer(c.plan, "x", 16, false);
  make_op(c.plan, ZR_OP_ADD, ZR_STREAM_H2D, 0, 16, 3, p, p, x);
  make_op(c.plan, ZR_OP_ADD, ZR_STREAM_COMPUTE, 0, 16, 3, x, x, p);
  place(&c);
  take(&c, (const int64_t[]){10, 20}, NULL);
  assert_int_equal(run(&c), 30);
  assert_int_equal(c.result.first_ns, 30);
  assert_int_equal(c.result.busy_ns[ZR_STREAM_H2D], 10);
  assert_int_equal(c.result.busy_ns[ZR_STREAM_COMPUTE], 20);
  assert_int_equal(c.result.exposed_ns[ZR_STREAM_H2D], 10);
  assert_int_equal(c.result.exposed_ns[ZR_STREAM_READ], 0);
  assert_int_equal(c.result.idle_ns, 0);
  assert_int_equal(c.result.crowded_ns, 0);
  end_case(&c);
}

/* Two streams with values of their own, which begin each step together: a third waits for both. */
static void two_streams(sim_case_t *c, zr_stream_id_t first, zr_stream_id_t second) {
  begin_case(c, NULL);
  int32_t a = make_buffer(c->plan, "a", 16, true), b = make_buffer(c->plan, "b", 16, true);
  make_op(c->plan, ZR_OP_ADD, first, 0, 16, 3, a, a, a);
  make_op(c->plan, ZR_OP_ADD, second, 0, 16, 3, b, b, b);
  make_op(c->plan, ZR_OP_ADD, ZR_STREAM_HOST, 0, 16, 3, a, b, make_buffer(c->plan, "j", 16, true));
  place(c);
}

/* read -> h2d -> compute, each waiting for the one before it: compute's wait is blamed on the read
 * until the copy begins, and on the copy then. */
static void test_who_compute_waited_for(void **state) {
  (void)state;
  sim_case_t c;
  begin_case(&c, NULL);
  int32_t p = make_buffer(c.plan, "p", 16, true), x = make_buffer(c.plan, "x", 16, false);
  int32_t y = make_buffer(c.plan, "y", 16, false);
  make_op(c.plan, ZR_OP_ADD, ZR_STREAM_READ, 0, 16, 3, p, p, x);
  make_op(c.plan, ZR_OP_ADD, ZR_STREAM_H2D, 0, 16, 3, x, x, y);
  make_op(c.plan, ZR_OP_ADD, ZR_STREAM_COMPUTE, 0, 16, 3, y, y, p);
  place(&c);
  take(&c, (const int64_t[]){40, 10, 20}, NULL);
  assert_int_equal(run(&c), 70);
  assert_int_equal(c.result.exposed_ns[ZR_STREAM_READ], 40);
  assert_int_equal(c.result.exposed_ns[ZR_STREAM_H2D], 10);
  end_case(&c);
}

static void test_overlap_takes_the_longer(void **state) {
  (void)state;
  sim_case_t c;
  two_streams(&c, ZR_STREAM_COMPUTE, ZR_STREAM_COMM);
  take(&c, (const int64_t[]){100, 70, 0}, NULL);
  assert_int_equal(run(&c), 100);
  take(&c, (const int64_t[]){100, 170, 0}, NULL);
  assert_int_equal(run(&c), 170);
  end_case(&c);
}

/* A read of 100 and a write of 60 that take turns: both at half speed until the write is done at
 * 120, the rest of the read alone: 160 in all. */
static void test_a_drive_is_shared(void **state) {
  (void)state;
  sim_case_t c;
  two_streams(&c, ZR_STREAM_READ, ZR_STREAM_WRITE);
  take(&c, (const int64_t[]){100, 60, 0}, NULL);
  assert_int_equal(run(&c), 160);
  c.options.mixed_drive = 2; /* both directions at full speed */
  assert_int_equal(run(&c), 100);
  c.options.mixed_drive = 0.8; /* worse together than in turns: 0.4 each until 150 */
  assert_int_equal(run(&c), 190);
  end_case(&c);
}

/* Two workers on two cores, and a copy: 2/3 of the speed for both while the copy runs. */
static void test_cores_are_shared(void **state) {
  (void)state;
  sim_case_t c;
  begin_case(&c, NULL);
  int32_t p = make_buffer(c.plan, "p", 16, true), x = make_buffer(c.plan, "x", 16, true);
  make_op(c.plan, ZR_OP_ADD, ZR_STREAM_COMPUTE, 0, 16, 3, p, p, p);
  make_op(c.plan, ZR_OP_ADD, ZR_STREAM_D2H, 0, 16, 3, p, p, x);
  place(&c);
  c.options.n_cores = 2;
  /* compute 300 and copy 100: the next step's compute waits for the copy of p: no overlap at all */
  take(&c, (const int64_t[]){300, 100}, (const double[]){2, 1});
  assert_int_equal(run(&c), 400);
  assert_int_equal(c.result.exposed_ns[ZR_STREAM_D2H], 100);
  end_case(&c);
  two_streams(&c, ZR_STREAM_COMPUTE, ZR_STREAM_D2H);
  c.options.n_cores = 2;
  /* (2 x 300 + 150) / 2 cores: the copy is done after 225, the rest of compute needs 150 */
  take(&c, (const int64_t[]){300, 150, 0}, (const double[]){2, 1, 1});
  assert_int_equal(run(&c), 375);
  assert_int_equal(c.result.crowded_ns, 75);
  c.options.n_cores = 3;
  assert_int_equal(run(&c), 300);
  assert_int_equal(c.result.crowded_ns, 0);
  c.options.n_cores = 2;
  c.options.crowded_cores = 0.5;  /* two cores do the work of one when three threads want them */
  assert_int_equal(run(&c), 600); /* 1/3 each until 450, and 150 of compute */
  end_case(&c);
}

/* Memory: 6 + 6 of 8 bytes a nanosecond; a third operation that needs none is not slowed. */
static void test_memory_is_shared(void **state) {
  (void)state;
  sim_case_t c;
  begin_case(&c, NULL);
  int32_t x[3];
  const zr_stream_id_t on[] = {ZR_STREAM_H2D, ZR_STREAM_D2H, ZR_STREAM_COMPUTE};
  for (int i = 0; i < 3; i++) {
    x[i] = make_buffer(c.plan, (const char *[]){"a", "b", "c"}[i], 16, true);
    make_op(c.plan, ZR_OP_ADD, on[i], 0, 16, 3, x[i], x[i], x[i]);
  }
  place(&c);
  take(&c, (const int64_t[]){200, 200, 50}, NULL);
  c.demand[0].memory_bytes_per_ns = c.demand[1].memory_bytes_per_ns = 6;
  c.options.memory_bytes_per_ns = 8;
  assert_int_equal(run(&c), 300);
  assert_int_equal(c.result.busy_ns[ZR_STREAM_COMPUTE], 50);
  end_case(&c);
}

/* A step's record is written early; the loop starts the step after the next one only then. */
static void test_steps_ahead(void **state) {
  (void)state;
  sim_case_t c;
  begin_case(&c, NULL);
  int32_t a = make_buffer(c.plan, "a", 16, true), ctl;
  assert_ok(zr_plan_add_buffer(c.plan, "ctl", ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_U8,
                               (int64_t)sizeof(zr_control_t), true, &ctl));
  make_op(c.plan, ZR_OP_ADD, ZR_STREAM_COMPUTE, 0, 16, 3, a, a, a);
  zr_op_desc_t desc = {.kind = ZR_OP_CONTROL_END, .unit = -1, .micro = -1, .n_operands = 1};
  desc.operand[0] = zr_operand_all(c.plan, ctl, ZR_ACCUMULATE);
  assert_ok(zr_plan_add_op(c.plan, &desc, NULL));
  place(&c);
  take(&c, (const int64_t[]){10, 100}, NULL);
  assert_int_equal(run(&c), 100);
  c.options.ahead = 1;
  assert_int_equal(run(&c), 100);
  assert_int_equal(c.result.busy_ns[ZR_STREAM_COMPUTE], 10);
  end_case(&c);
}

/* --- the same without sharing: the executor's rules on a clock of our own -------------------- */

/* Ends of each operation of n executions when nothing is shared, by the definition alone. */
static int64_t steady_by_definition(const zr_plan_t *plan, const zr_cost_demand_t *demand,
                                    int n_executions) {
  int64_t *end[2], stream_ns[ZR_N_STREAMS] = {0}, latest[64];
  for (int b = 0; b < 2; b++) end[b] = calloc(plan->n_ops, sizeof(int64_t));
  for (int e = 0; e < n_executions; e++) {
    latest[e] = 0;
    for (size_t i = 0; i < plan->n_ops; i++) {
      const zr_op_t *op = &plan->op[i];
      int64_t begin_ns = stream_ns[op->stream];
      for (int w = 0; w < op->n_waits; w++) {
        const zr_wait_t *wait = &op->wait[w];
        if (e < wait->back) continue;
        int64_t ns = end[(e - wait->back) % 2][wait->op];
        if (ns > begin_ns) begin_ns = ns;
      }
      end[e % 2][i] = stream_ns[op->stream] = begin_ns + demand[i].alone_ns;
      if (stream_ns[op->stream] > latest[e]) latest[e] = stream_ns[op->stream];
    }
  }
  for (int b = 0; b < 2; b++) free(end[b]);
  int half = n_executions / 2;
  return (latest[n_executions - 1] - latest[half - 1]) / (n_executions - half);
}

static void test_random_plans(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    sim_case_t c;
    begin_case(&c, make_random(seed, 60, 24));
    int64_t ns[MAX_OPS];
    for (size_t i = 0; i < c.plan->n_ops; i++) {
      ns[i] = (int64_t)(1 + zr_rng_u64(seed, i) % 1000) * 8;
    }
    take(&c, ns, NULL);
    place(&c);
    c.options.mixed_drive = 2;
    zr_bound_t bound;
    assert_ok(zr_cost_bound(c.plan, ns, &bound));
    int64_t step_ns = run(&c), first_ns = c.result.first_ns,
            by_definition_ns = steady_by_definition(c.plan, c.demand, 8);
    assert_in_range(step_ns, by_definition_ns, by_definition_ns + 1);
    assert_true(step_ns >= bound.busy_ns);
    /* shared, it is longer; and the same each time */
    double cores[MAX_OPS];
    for (size_t i = 0; i < c.plan->n_ops; i++) cores[i] = (double)(1 + (i * seed) % 3);
    take(&c, ns, cores);
    c.options.n_cores = 3;
    c.options.mixed_drive = 1;
    (void)run(&c);
    assert_true(c.result.first_ns + 1 >= first_ns);
    zr_sim_result_t first = c.result;
    (void)run(&c);
    assert_memory_equal(&first, &c.result, sizeof first);
    end_case(&c);
  }
}

/* What moves and what is touched is the plan's. */
static void test_bytes_are_the_plans(void **state) {
  (void)state;
  sim_case_t c;
  begin_case(&c, make_gathers(NULL, 4, 3, 1024));
  place(&c);
  take(&c, (const int64_t[]){10, 7, 20, 11, 30, 13}, NULL);
  (void)run(&c);
  zr_account_t account;
  zr_cost_account(c.plan, &account);
  assert_int_equal(c.result.sent_bytes, account.sent_bytes);
  assert_int_equal(c.result.h2d_bytes, account.h2d_bytes);
  assert_int_equal(c.result.d2h_bytes, account.d2h_bytes);
  assert_int_equal(c.result.disk_read_bytes, account.disk_read_bytes);
  assert_int_equal(c.result.disk_write_bytes, account.disk_write_bytes);
  for (int t = 0; t < ZR_N_TIERS; t++) {
    assert_int_equal(c.result.peak_bytes[t], c.plan->peak_bytes[t]);
  }
  end_case(&c);
}

/* --- bad input ------------------------------------------------------------------------------- */

static void test_a_circle_is_an_error(void **state) {
  (void)state;
  sim_case_t c;
  two_streams(&c, ZR_STREAM_COMPUTE, ZR_STREAM_COMM);
  take(&c, (const int64_t[]){10, 10, 0}, NULL);
  for (int i = 0; i < 2; i++) {
    c.plan->op[i].n_waits = 1;
    c.plan->op[i].wait[0] = (zr_wait_t){.op = 1 - i};
  }
  c.options.demand = c.demand;
  assert_int_equal(zr_sim_run(c.plan, &c.options, &c.result), ZR_ERR_INTERNAL);
  c.options.n_executions = 3;
  assert_int_equal(zr_sim_run(c.plan, &c.options, &c.result), ZR_ERR_INVALID_ARGUMENT);
  end_case(&c);
}

static void test_no_memory(void **state) {
  (void)state;
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  sim_case_t c;
  begin_case(&c, make_gathers(&alloc, 2, 3, 16));
  place(&c);
  take(&c, (const int64_t[]){10, 7, 20, 11, 30, 13}, NULL);
  c.options.demand = c.demand;
  int64_t live = alloc.live_count, before = alloc.n_calls;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  for (int n = 1; status != ZR_OK; n++) {
    alloc.fail_at = alloc.n_calls + n;
    status = zr_sim_run(c.plan, &c.options, &c.result);
    assert_true(status == ZR_OK || status == ZR_ERR_OUT_OF_MEMORY);
    assert_int_equal(alloc.live_count, live);
    assert_true(n < 100);
  }
  assert_true(alloc.n_calls > before);
  alloc.fail_at = 0;
  end_case(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_chain_takes_its_sum),
      cmocka_unit_test(test_who_compute_waited_for),
      cmocka_unit_test(test_overlap_takes_the_longer),
      cmocka_unit_test(test_a_drive_is_shared),
      cmocka_unit_test(test_cores_are_shared),
      cmocka_unit_test(test_memory_is_shared),
      cmocka_unit_test(test_steps_ahead),
      cmocka_unit_test(test_random_plans),
      cmocka_unit_test(test_bytes_are_the_plans),
      cmocka_unit_test(test_a_circle_is_an_error),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
