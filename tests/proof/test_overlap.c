/* Overlap is real: in virtual time (null backend, a fixed duration for each operation) a step of 8
 * units takes at most 1.02 x the bound at every stage; serial execution takes exactly the sum.
 *
 * Durations, in microseconds: a segment (one unit, one micro-batch) is 100 forward and 200
 * backward, spread evenly over its operations; the head's is both. The rest is the ratio under
 * test: from links that are fast beside the compute to one that is busy almost all the time.
 *
 * The norm must be agreed on between the last reduction and the first gather: nothing can hide
 * that, and no chain or busy stream by itself shows it. Where it is more than 2 % of the step, the
 * bound is agreement.h's, which knows it too. */
#include <stdlib.h>

#include "tests/proof/agreement.h"
#include "tests/proof/machine.h"

typedef struct {
  const char *name;
  int64_t
      strict_micro; /* from so many micro-batches of a rank on, zr_cost_bound alone is the bar */
  int64_t collective_us; /* all_gather, reduce_scatter of a unit */
  int64_t agree_us;      /* integer all_reduce */
  int64_t update_us;     /* a unit's update on one rank of one; a shard's is 1/N of it */
  int64_t small_us;      /* control, count, fetch, loss sum, fill */
  int64_t add_us;        /* adding two gradients, a norm */
} ratio_t;

static const ratio_t ratios[] = {
    {"fast link", 1, 15, 3, 8, 1, 2},        {"middling link", 2, 40, 5, 8, 1, 2},
    {"slow link", 3, 60, 5, 8, 1, 2},        {"busy link", 99, 95, 5, 8, 1, 2},
    {"slow agreement", 99, 40, 30, 8, 1, 2}, {"heavy update", 99, 40, 5, 60, 1, 5},
};

static bool is_model(int32_t kind) {
  return kind >= ZR_OP_EMBEDDING && kind <= ZR_OP_SWIGLU_GRAD;
}

static bool is_backward(int32_t kind) {
  return kind >= ZR_OP_EMBEDDING_GRAD && kind <= ZR_OP_SWIGLU_GRAD;
}

static bool same_segment(const zr_op_t *a, const zr_op_t *b) {
  return is_model(b->shape.kind) && a->unit == b->unit && a->micro == b->micro &&
         is_backward(a->shape.kind) == is_backward(b->shape.kind);
}

/* Its share of the segment's time, to the nanosecond. */
static int64_t model_ns(const zr_plan_t *plan, size_t at) {
  const zr_op_t *op = &plan->op[at];
  int64_t total_ns = is_backward(op->shape.kind) ? 200000 : 100000, n = 0, before = 0;
  for (size_t i = 0; i < plan->n_ops; i++) {
    if (!same_segment(op, &plan->op[i])) continue;
    before += i < at;
    n++;
  }
  return total_ns * (before + 1) / n - total_ns * before / n;
}

static int64_t duration_us(const ratio_t *r, int n_ranks, const zr_op_t *op) {
  switch (op->shape.kind) {
    case ZR_OP_ALL_GATHER:
    case ZR_OP_REDUCE_SCATTER:
      return r->collective_us;
    case ZR_OP_ALL_REDUCE:
      return r->agree_us;
    case ZR_OP_ADAMW:
      return op->shape.attr[ZR_ADAMW_FIRST_PER_RANK] > 0 ? (r->update_us + n_ranks - 1) / n_ranks
                                                         : r->update_us;
    case ZR_OP_ACCUMULATE:
    case ZR_OP_SHARD_ADD:
    case ZR_OP_BLOCK_NORM:
      return r->add_us;
    default:
      return r->small_us;
  }
}

static int64_t *durations(const ratio_t *ratio, int n_ranks, const zr_plan_t *plan) {
  int64_t *ns = calloc(plan->n_ops, sizeof *ns);
  assert_non_null(ns);
  for (size_t i = 0; i < plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    ns[i] = is_model(op->shape.kind) ? model_ns(plan, i) : 1000 * duration_us(ratio, n_ranks, op);
  }
  return ns;
}

static int64_t run_until(machine_t *m, int64_t iteration) {
  while (m->iteration < iteration) assert_ok(zr_exec_start(m->exec, MACHINE_STEP, ++m->iteration));
  return m->hal_ops->time_ns(m->hal);
}

/* A step's time once the first steps have worn off. */
static int64_t steady_ns(machine_t *m, const int64_t *duration_ns) {
  machine_start_virtual(m, duration_ns);
  const int64_t begin_ns = run_until(m, 8);
  return (run_until(m, 16) - begin_ns) / 8;
}

static void check_serial(machine_t *m, const int64_t *duration_ns, const zr_bound_t *bound) {
  m->options.serial = true;
  machine_start_virtual(m, duration_ns);
  const int64_t begin_ns = run_until(m, 2);
  assert_int_equal(run_until(m, 5) - begin_ns, 3 * bound->serial_ns);
  m->options.serial = false;
}

static double worst, worst_strict;
static int n_over, n_cases, n_strict, n_space_waits;

/* Stage 3: a step's first gather stands in line behind the digests of the step before, which wait
 * for all updates. It can not come earlier: the list begins with it. */
static int64_t behind_digests_ns(const machine_t *m, const ratio_t *r) {
  if (m->options.stage < 3) return 0;
  const int64_t updates_us = (int64_t)(m->zero->n_units - 1) * r->update_us / m->n_ranks;
  return 1000 * (r->agree_us + r->small_us +
                 (r->collective_us < updates_us ? r->collective_us : updates_us));
}

static int64_t bar_ns(const machine_t *m, const ratio_t *ratio, const int64_t *ns,
                      const zr_bound_t *bound) {
  const int64_t agreement_ns = agreement_bound_ns(m->step, ns);
  const int64_t best_ns = agreement_ns > bound->bound_ns ? agreement_ns : bound->bound_ns;
  return best_ns + behind_digests_ns(m, ratio);
}

static void check_ratio(machine_t *m, const ratio_t *ratio) {
  int64_t *ns = durations(ratio, m->n_ranks, m->step);
  zr_bound_t bound;
  assert_ok(zr_cost_bound(m->step, ns, &bound));
  const int64_t step_ns = steady_ns(m, ns);
  const bool strict = m->zero->options.n_micro >= ratio->strict_micro;
  const int64_t limit_ns = strict ? bound.bound_ns : bar_ns(m, ratio, ns, &bound);
  const double over = (double)step_ns / (double)limit_ns;
  assert_true(step_ns >= bound.bound_ns && step_ns >= agreement_bound_ns(m->step, ns));
  if (!strict && over > worst) worst = over;
  if (strict && over > worst_strict) worst_strict = over;
  n_strict += strict;
  n_cases++;
  if (over > 1.02) {
    n_over++;
    print_message("%s: %.3f x %.0f us (busy %.0f %s, chain %.0f): ", ratio->name, over,
                  (double)limit_ns * 1e-3, (double)bound.busy_ns * 1e-3,
                  zr_stream_name((zr_stream_id_t)bound.busiest), (double)bound.chain_ns * 1e-3);
    machine_print_options(&m->options, m->n_ranks);
  }
  check_serial(m, ns, &bound);
  free(ns);
}

/* Where the link is the bottleneck the bound says so, and there is little left to hide. */
static void check_saturated(machine_t *m) {
  static const ratio_t saturated = {"saturated link", 99, 1000, 10, 8, 1, 2};
  int64_t *ns = durations(&saturated, m->n_ranks, m->step);
  zr_bound_t bound;
  assert_ok(zr_cost_bound(m->step, ns, &bound));
  assert_int_equal(bound.busiest, ZR_STREAM_COMM);
  assert_int_equal(bound.bound_ns, bound.busy_ns);
  const int64_t step_ns = steady_ns(m, ns);
  assert_true(step_ns >= bound.bound_ns && step_ns < bound.serial_ns);
  free(ns);
}

static void check_machine(const machine_options_t *options, int n_ranks) {
  machine_t m;
  machine_open_virtual(&m, options, n_ranks);
  assert_int_equal(m.zero->n_units, 8);
  n_space_waits += m.step->n_placement_waits;
  if (m.step->n_placement_waits > 0) {
    print_message("%d waits for space: ", m.step->n_placement_waits);
    machine_print_options(options, n_ranks);
  }
  for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++) check_ratio(&m, &ratios[r]);
  check_saturated(&m);
  machine_close(&m);
}

static void check_groups(machine_options_t *options, int n_ranks, int64_t n_micro) {
  options->n_leaves = n_micro * n_ranks;
  for (int64_t a = 0; n_micro % ((int64_t)1 << a) == 0; a++) {
    options->group = a;
    check_machine(options, n_ranks);
  }
}

static void test_a_step_takes_what_it_must(void **state) {
  (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  static const int64_t micros[] = {2};
#else
  static const int64_t micros[] = {1, 2, 3, 4};
#endif
  machine_options_t options;
  machine_defaults(&options);
  options.plain = true;
  options.regular = true;
  options.n_layers = 6;
  for (int arch = 0; arch < 2; arch++)
    for (options.stage = 0; options.stage < 4; options.stage++)
      for (options.order = 0; options.order < 2; options.order++)
        for (int n_ranks = 2; n_ranks <= 4; n_ranks += 2)
          for (size_t g = 0; g < sizeof micros / sizeof *micros; g++) {
            options.arch = (zr_arch_t)arch;
            check_groups(&options, n_ranks, micros[g]);
          }
  print_message(
      "%d cases: the longest step is %.4f x the bound; %d where the agreement shows: %.4f\n",
      n_strict, worst_strict, n_cases - n_strict, worst);
  assert_int_equal(n_over, 0);
  assert_int_equal(n_space_waits, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_step_takes_what_it_must)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
