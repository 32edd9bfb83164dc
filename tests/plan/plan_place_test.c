/* The placer against marking every live byte by hand. */
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/place.h"
#include "tests/plan/plan_make.h"

enum { MAX_OPS = 64, MAX_BUFFERS = 64 };

/* live[b][p]: buffer b needs its bytes at position p; lags as place.h says, done phase by phase. */
static void mark_live(const zr_plan_t *plan, const int32_t *lag, bool live[MAX_BUFFERS][MAX_OPS]) {
  int n = (int)plan->n_ops, phase[MAX_OPS], n_phases = 0;
  assert_true(n <= MAX_OPS);
  for (int i = 0; i < n; i++) {
    if (i > 0 && plan->op[i].phase != plan->op[i - 1].phase) n_phases++;
    phase[i] = n_phases;
  }
  n_phases++;
  memset(live, 0, sizeof(bool) * MAX_BUFFERS * MAX_OPS);
  for (int b = 0; b < (int)plan->n_buffers; b++) {
    /* marked over three turns of the circle, then folded */
    bool wide[3 * MAX_OPS] = {false};
    for (int i = 0; i < n; i++) {
      int reach = lag != NULL ? lag[plan->op[i].stream] : 0;
      for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
        if (plan->op[i].operand[j].buffer != b) continue;
        for (int q = 0; q < 3 * n; q++) {
          int distance = phase[q % n] + (q / n - 1) * n_phases - phase[i];
          if (reach > 0 ? abs(distance) <= reach : q == n + i) wide[q] = true;
        }
      }
    }
    int first = 0, last = 3 * n - 1;
    while (first < 3 * n && !wide[first]) first++;
    while (last >= 0 && !wide[last]) last--;
    for (int q = first; q <= last; q++) live[b][q % n] = true;
    for (int p = 0; p < n && plan->buffer[b].persistent; p++) live[b][p] = true;
  }
}

static int64_t aligned(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

static int64_t most_live(const zr_plan_t *plan, bool live[MAX_BUFFERS][MAX_OPS]) {
  int64_t most = 0;
  for (size_t p = 0; p < plan->n_ops; p++) {
    int64_t sum = 0;
    for (size_t b = 0; b < plan->n_buffers; b++)
      sum += live[b][p] ? aligned(plan->buffer[b].bytes) : 0;
    if (sum > most) most = sum;
  }
  return most;
}

static void check_placement(const zr_plan_t *plan, const int32_t *lag) {
  static bool live[MAX_BUFFERS][MAX_OPS];
  int64_t peak = 0;
  mark_live(plan, lag, live);
  for (size_t a = 0; a < plan->n_buffers; a++) {
    const zr_buffer_t *x = &plan->buffer[a];
    assert_true(x->offset >= 0 && x->offset % 64 == 0);
    if (x->offset + x->bytes > peak) peak = x->offset + aligned(x->bytes);
    for (size_t b = 0; b < a; b++) {
      const zr_buffer_t *y = &plan->buffer[b];
      bool share = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
      for (size_t p = 0; p < plan->n_ops && share; p++) assert_false(live[a][p] && live[b][p]);
    }
  }
  assert_true(plan->peak_bytes[0] >= peak);
  assert_true(plan->arena_bytes[0] >= plan->peak_bytes[0]);
  assert_true(plan->peak_bytes[0] >= plan->lower_bound_bytes[0]);
  mark_live(plan, NULL, live);
  assert_int_equal(plan->lower_bound_bytes[0], most_live(plan, live));
}

static void test_random_plans(void **state) {
  (void)state;
  int64_t peaks = 0, bounds = 0;
  for (uint64_t seed = 1; seed <= 1500; seed++) {
    zr_plan_t *plan = make_random(seed, 40, 24);
    zr_place_options_t options;
    zr_place_defaults(&options);
    options.lag_phases[ZR_STREAM_COMPUTE] = (int32_t)(seed % 3 == 2);
    options.lag_phases[ZR_STREAM_HOST] = (int32_t)(seed % 5);
    if (seed % 4 == 0) memset(options.lag_phases, 0, sizeof options.lag_phases);
    place_alone(plan, &options, NULL, 0);
    check_placement(plan, options.lag_phases);
    int64_t bytes[ZR_N_CATEGORIES], sum = 0;
    int32_t op;
    zr_place_peak(plan, ZR_TIER_DEVICE, &op, bytes);
    for (int i = 0; i < ZR_N_CATEGORIES; i++) sum += bytes[i];
    assert_int_equal(sum, plan->lower_bound_bytes[0]);
    assert_true(op >= 0 && op < (int32_t)plan->n_ops);
    if (seed % 4 == 0) {
      peaks += plan->peak_bytes[0];
      bounds += plan->lower_bound_bytes[0];
    }
    zr_plan_destroy(plan);
  }
  print_message("random plans without lags: peaks are %.4f x the lower bounds\n",
                (double)peaks / (double)bounds);
}

/* Forward keeps, backward drops in the other order: a stack. */
static void test_lifo_reaches_the_bound(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  int32_t kept[8], sum;
  char name[16];
  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  sum = make_buffer(plan, "sum", 16, true);
  for (int i = 0; i < 8; i++) {
    snprintf(name, sizeof name, "h%d", i);
    kept[i] = make_buffer(plan, name, 16 * (i + 1), false);
    make_fill(plan, ZR_STREAM_COMPUTE, i, kept[i]);
    snprintf(name, sizeof name, "t%d", i);
    make_fill(plan, ZR_STREAM_COMPUTE, i, make_buffer(plan, name, 48, false));
  }
  for (int i = 7; i >= 0; i--) {
    zr_op_desc_t desc = {.kind = ZR_OP_ACCUMULATE,
                         .unit = -1,
                         .micro = -1,
                         .phase = 16 - i,
                         .attr = {16},
                         .n_operands = 2};
    desc.operand[0] = zr_operand_part(kept[i], 0, 64, ZR_READ);
    desc.operand[1] = zr_operand_all(plan, sum, ZR_ACCUMULATE);
    assert_ok(zr_plan_add_op(plan, &desc, NULL));
  }
  assert_ok(zr_plan_finish(plan));
  zr_place_options_t options = {0};
  place_alone(plan, &options, NULL, 0);
  check_placement(plan, NULL);
  assert_int_equal(plan->lower_bound_bytes[0], 64 + 64 * 36 + 192);
  assert_int_equal(plan->peak_bytes[0], plan->lower_bound_bytes[0]);
  zr_plan_destroy(plan);
}

/* A buffer that is only ever used at the end, with a lag, meets one that is used at the start. */
static void test_life_over_the_boundary(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  int32_t first = make_buffer(plan, "first", 16, false);
  int32_t middle = make_buffer(plan, "middle", 16, false);
  int32_t last = make_buffer(plan, "last", 16, false);
  make_fill(plan, ZR_STREAM_COMPUTE, 0, first);
  make_fill(plan, ZR_STREAM_COMPUTE, 1, middle);
  make_fill(plan, ZR_STREAM_COMPUTE, 2, middle);
  make_fill(plan, ZR_STREAM_COMPUTE, 3, middle);
  make_fill(plan, ZR_STREAM_COMM, 4, last);
  assert_ok(zr_plan_finish(plan));
  zr_place_options_t options = {0};
  place_alone(plan, &options, NULL, 0);
  assert_int_equal(plan->peak_bytes[0], 64);
  options.lag_phases[ZR_STREAM_COMM] = 1;
  place_alone(plan, &options, NULL, 0);
  assert_int_equal(plan->buffer[first].offset, plan->buffer[middle].offset);
  assert_int_not_equal(plan->buffer[first].offset, plan->buffer[last].offset);
  assert_int_equal(plan->peak_bytes[0], 128);
  assert_int_equal(plan->lower_bound_bytes[0], 64);
  zr_plan_destroy(plan);
}

static void test_apart(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    zr_plan_t *plan = make_random(seed, 40, 24);
    zr_place_options_t options;
    zr_place_defaults(&options);
    int32_t n = (int32_t)plan->n_buffers, third = n / 3;
    zr_apart_t pair[2] = {{n - 1, n - 2}, {third, third}};
    place_alone(plan, &options, pair, 2);
    check_placement(plan, options.lag_phases);
    for (int32_t i = 0; i < n; i++) {
      for (int32_t j = 0; j < i; j++) {
        bool must = i == third || j == third || (i == n - 1 && j == n - 2);
        const zr_buffer_t *x = &plan->buffer[i], *y = &plan->buffer[j];
        if (must)
          assert_true(x->offset >= y->offset + y->bytes || y->offset >= x->offset + x->bytes);
      }
    }
    zr_plan_destroy(plan);
  }
}

static void test_program_shares_the_persistent_layout(void **state) {
  (void)state;
  zr_program_t *program = NULL;
  assert_ok(zr_program_create(NULL, &program));
  zr_plan_t *eval = make_gathers(NULL, 2, 3, 16), *other = make_gathers(NULL, 2, 4, 16);
  snprintf(eval->name, sizeof eval->name, "eval");
  assert_ok(zr_program_add(program, make_gathers(NULL, 2, 3, 16)));
  assert_ok(zr_program_add(program, eval));
  snprintf(other->name, sizeof other->name, "other");
  assert_int_equal(zr_program_add(program, other), ZR_ERR_INTERNAL);
  assert_int_equal(zr_program_add(program, make_gathers(NULL, 2, 3, 16)), ZR_ERR_INTERNAL);
  assert_int_equal(program->n_plans, 2);
  assert_int_equal(program->n_persistent, 4);
  assert_ptr_equal(zr_program_find(program, "eval"), eval);
  assert_null(zr_program_find(program, "load"));
  zr_place_options_t options;
  zr_place_defaults(&options);
  assert_ok(zr_program_compile(program, &options));
  for (int i = 0; i < 4; i++)
    assert_int_equal(program->plan[0]->buffer[i].offset, eval->buffer[i].offset);
  assert_int_equal(program->plan[0]->arena_bytes[0], eval->arena_bytes[0]);
  zr_program_destroy(program);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_plans),
      cmocka_unit_test(test_lifo_reaches_the_bound),
      cmocka_unit_test(test_life_over_the_boundary),
      cmocka_unit_test(test_apart),
      cmocka_unit_test(test_program_shares_the_persistent_layout),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
