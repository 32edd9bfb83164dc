/* Compiling: budgets, placement waits, failing memory, and how long it takes. */
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/plan/place.h"
#include "runtime/plan/verify.h"
#include "runtime/plan/wait.h"
#include "tests/plan/plan_make.h"

static zr_status_t compile(zr_plan_t *plan, const zr_place_options_t *options,
                           zr_program_t **out_program) {
  ZR_TRY(zr_program_create(plan->alloc, out_program));
  zr_status_t status = zr_program_add(*out_program, plan);
  return status == ZR_OK ? zr_program_compile(*out_program, options) : status;
}

/* With room for all flats no gather waits for space; with less, it does, and the plan still fits.
 */
static void test_placement_waits_against_budget(void **state) {
  (void)state;
  zr_place_options_t options;
  zr_program_t *program = NULL;
  zr_place_defaults(&options);
  assert_ok(compile(make_gathers(NULL, 2, 8, 1024), &options, &program));
  const zr_plan_t *plan = program->plan[0];
  assert_int_equal(plan->n_placement_waits, 0);
  int64_t persistent = 8 * 4096 + 8192;
  assert_int_equal(plan->peak_bytes[0], persistent + 8 * 8192);
  zr_program_destroy(program);

  options.keep_placement_waits = true;
  assert_ok(compile(make_gathers(NULL, 2, 8, 1024), &options, &program));
  assert_true(program->plan[0]->n_placement_waits > 0);
  assert_true(program->plan[0]->peak_bytes[0] < persistent + 8 * 8192);
  zr_program_destroy(program);

  for (int flats = 1; flats <= 8; flats++) {
    zr_place_defaults(&options);
    options.budget_bytes[0] = persistent + flats * 8192;
    assert_ok(compile(make_gathers(NULL, 2, 8, 1024), &options, &program));
    plan = program->plan[0];
    assert_true(plan->arena_bytes[0] <= options.budget_bytes[0]);
    if (flats < 8) assert_true(plan->n_placement_waits > 0);
    assert_ok(zr_verify(plan, options.budget_bytes, NULL));
    zr_program_destroy(program);
  }

  options.budget_bytes[0] = persistent + 8192 - 64;
  assert_int_equal(compile(make_gathers(NULL, 2, 8, 1024), &options, &program),
                   ZR_ERR_OUT_OF_MEMORY);
  assert_non_null(strstr(zr_detail(), "plan step does not fit: device needs 49152 bytes"));
  assert_non_null(strstr(zr_detail(), "64 are missing"));
  assert_non_null(strstr(zr_detail(), "param 40960, activation 8192"));
  zr_program_destroy(program);
}

/* y's halves are first written by compute and by comm: where compute may reuse x's bytes, comm may
 * not yet. One of the two gets bytes of its own. */
static void test_halves_of_two_streams(void **state) {
  (void)state;
  for (int budget = 0; budget < 2; budget++) {
    zr_plan_t *plan = NULL;
    zr_program_t *program = NULL;
    zr_place_options_t options;
    assert_ok(zr_plan_create(NULL, "step", 2, &plan));
    int32_t p = make_buffer(plan, "p", 16, true), sum = make_buffer(plan, "sum", 48, true);
    int32_t x = make_buffer(plan, "x", 48, false), y = make_buffer(plan, "y", 48, false);
    make_fill(plan, ZR_STREAM_COMPUTE, 0, x);
    make_accumulate(plan, ZR_STREAM_COMPUTE, 0, x, sum);
    zr_op_desc_t desc = {
        .kind = ZR_OP_FILL, .unit = -1, .micro = -1, .attr = {16}, .n_operands = 1};
    desc.operand[0] = zr_operand_part(y, 0, 64, ZR_WRITE);
    assert_ok(zr_plan_add_op(plan, &desc, NULL));
    desc = (zr_op_desc_t){
        .kind = ZR_OP_ALL_GATHER, .unit = -1, .micro = -1, .attr = {64}, .n_operands = 2};
    desc.operand[0] = zr_operand_all(plan, p, ZR_READ);
    desc.operand[1] = zr_operand_part(y, 64, 128, ZR_WRITE);
    assert_ok(zr_plan_add_op(plan, &desc, NULL));
    make_accumulate(plan, ZR_STREAM_COMPUTE, 0, y, sum);
    zr_place_defaults(&options);
    if (budget) options.budget_bytes[0] = 64 + 192 + 192;
    assert_ok(compile(plan, &options, &program));
    assert_int_equal(plan->n_placement_waits, budget);
    assert_int_equal(plan->peak_bytes[0], 64 + 192 + (budget ? 192 : 384));
    zr_program_destroy(program);
  }
}

static void test_step_verifies(void **state) {
  (void)state;
  for (int layers = 1; layers <= 6; layers++) {
    zr_place_options_t options;
    zr_program_t *program = NULL;
    zr_plan_t *plan = NULL;
    zr_place_defaults(&options);
    options.keep_placement_waits = layers % 2 == 0;
    assert_ok(make_step(NULL, layers, 1 + layers % 3, &plan));
    assert_ok(compile(plan, &options, &program));
    assert_true(plan->peak_bytes[0] >= plan->lower_bound_bytes[0]);
    if (!options.keep_placement_waits) assert_int_equal(plan->n_placement_waits, 0);
    zr_program_destroy(program);
  }
}

static void test_same_input_same_hash(void **state) {
  (void)state;
  uint64_t hash[2];
  for (int i = 0; i < 2; i++) {
    zr_place_options_t options;
    zr_program_t *program = NULL;
    zr_plan_t *plan = NULL;
    zr_place_defaults(&options);
    assert_ok(make_step(NULL, 3, 2, &plan));
    assert_ok(compile(plan, &options, &program));
    hash[i] = zr_plan_hash(plan);
    zr_program_destroy(program);
  }
  assert_true(hash[0] == hash[1]);
}

static void test_failing_memory(void **state) {
  (void)state;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  int64_t n = 0;
  for (; status != ZR_OK; n++) {
    zr_alloc_t alloc;
    zr_program_t *program = NULL;
    zr_plan_t *plan = NULL;
    zr_place_options_t options;
    zr_place_defaults(&options);
    zr_alloc_init(&alloc);
    assert_ok(make_step(&alloc, 2, 2, &plan));
    alloc.fail_at = atomic_load(&alloc.n_calls) + n + 1;
    status = zr_program_create(&alloc, &program);
    if (status == ZR_OK)
      status = zr_program_add(program, plan);
    else
      zr_plan_destroy(plan);
    if (status == ZR_OK) status = zr_program_compile(program, &options);
    assert_true(status == ZR_OK || status == ZR_ERR_OUT_OF_MEMORY);
    zr_program_destroy(program);
    assert_int_equal(alloc.live_count, 0);
  }
  assert_true(n > 20);
}

static double seconds_since(int64_t start_ns) {
  return (double)(zr_clock_ns() - start_ns) * 1e-9;
}

/* 100 layers x 16 micro-batches: printed, not asserted. */
static void test_time_of_a_large_plan(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  zr_program_t *program = NULL;
  zr_place_options_t options;
  zr_place_defaults(&options);
  int64_t start_ns = zr_clock_ns();
  assert_ok(make_step(NULL, 100, 16, &plan));
  assert_ok(zr_plan_finish(plan));
  double build_s = seconds_since(start_ns);
  start_ns = zr_clock_ns();
  place_alone(plan, &options, NULL, 0);
  double place_s = seconds_since(start_ns);
  start_ns = zr_clock_ns();
  assert_ok(zr_wait_derive(plan, NULL));
  double wait_s = seconds_since(start_ns);
  start_ns = zr_clock_ns();
  assert_ok(zr_verify(plan, NULL, NULL));
  double verify_s = seconds_since(start_ns);
  print_message(
      "%zu operations, %zu buffers: build %.3f s, place %.3f s, wait %.3f s, verify %.3f "
      "s; peak %.4f x bound, %d waits, %d for placement\n",
      plan->n_ops, plan->n_buffers, build_s, place_s, wait_s, verify_s,
      (double)plan->peak_bytes[0] / (double)plan->lower_bound_bytes[0], plan->n_waits,
      plan->n_placement_waits);
  start_ns = zr_clock_ns();
  assert_ok(compile(plan, &options, &program));
  print_message("compile, with rounds: %.3f s; peak %.4f x bound, %d waits, %d for placement\n",
                seconds_since(start_ns),
                (double)plan->peak_bytes[0] / (double)plan->lower_bound_bytes[0], plan->n_waits,
                plan->n_placement_waits);
  zr_program_destroy(program);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_placement_waits_against_budget),
      cmocka_unit_test(test_halves_of_two_streams),
      cmocka_unit_test(test_step_verifies),
      cmocka_unit_test(test_same_input_same_hash),
      cmocka_unit_test(test_failing_memory),
      cmocka_unit_test(test_time_of_a_large_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
