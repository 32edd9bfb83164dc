/* Updates on the host and what they move hide behind the next step's forward: in virtual time (a
 * fixed duration for each operation) a step with states on the host or on disk takes little more
 * than its bound, the longest chain of values or the busiest stream, and much less than its
 * operations one after the other. One rank; the units' forward is 100 us a micro-batch, the
 * backward 200, spread over their operations; an update, a copy or a transfer of a whole unit takes
 * what the ratio says, its chunks their share. Where the drive is the bottleneck the step comes to
 * the bound with slots enough that reads go on during the backward. */
#include <stdlib.h>

#include "tests/proof/machine.h"

typedef struct {
  const char *name;
  int64_t update_us, copy_us, disk_us; /* of a unit */
} ratio_t;

static const ratio_t ratios[] = {
    {"fast", 40, 10, 20},
    {"update as long as the forward", 95, 20, 20},
    {"drive as long as the forward", 40, 20, 90},
    {"all", 80, 60, 80},
    {"drive is the bottleneck", 40, 20, 400},
};

static bool is_model(int32_t kind) {
  return kind >= ZR_OP_EMBEDDING && kind <= ZR_OP_SWIGLU_GRAD;
}

static bool is_backward(int32_t kind) {
  return kind >= ZR_OP_EMBEDDING_GRAD && kind <= ZR_OP_SWIGLU_GRAD;
}

static bool same_work(const zr_op_t *a, const zr_op_t *b) {
  if (a->unit != b->unit) return false;
  if (!is_model(a->shape.kind)) return a->shape.kind == b->shape.kind;
  return is_model(b->shape.kind) && a->micro == b->micro &&
         is_backward(a->shape.kind) == is_backward(b->shape.kind);
}

static int64_t total_us(const ratio_t *r, const zr_op_t *op) {
  if (is_model(op->shape.kind)) return is_backward(op->shape.kind) ? 200 : 100;
  if (op->unit < 0) return 0;
  switch (op->shape.kind) {
    case ZR_OP_ADAMW:
      return r->update_us;
    case ZR_OP_H2D:
    case ZR_OP_D2H:
      return r->copy_us;
    case ZR_OP_DISK_READ:
    case ZR_OP_DISK_WRITE:
      return r->disk_us;
    default:
      return 2;
  }
}

/* By elements or bytes where there are some, else evenly. */
static int64_t weight(const zr_op_t *op) {
  const bool sized = op->shape.kind == ZR_OP_ADAMW || zr_kern_is_copy(op->shape.kind);
  return sized ? op->shape.attr[0] : 1;
}

static int64_t *durations(const ratio_t *r, const zr_plan_t *plan) {
  int64_t *ns = calloc(plan->n_ops, sizeof *ns);
  assert_non_null(ns);
  for (size_t i = 0; i < plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    int64_t all = 0;
    for (size_t k = 0; k < plan->n_ops; k++)
      if (same_work(op, &plan->op[k])) all += weight(&plan->op[k]);
    ns[i] = 1000 * total_us(r, op) * weight(op) / (all > 0 ? all : 1);
    if (ns[i] == 0) ns[i] = 500;
  }
  return ns;
}

static int64_t run_until(machine_t *m, int64_t iteration) {
  while (m->iteration < iteration) assert_ok(zr_exec_start(m->exec, MACHINE_STEP, ++m->iteration));
  return m->hal_ops->time_ns(m->hal);
}

static int64_t steady_ns(machine_t *m, const int64_t *duration_ns) {
  machine_start_virtual(m, duration_ns);
  const int64_t begin_ns = run_until(m, 6);
  return (run_until(m, 14) - begin_ns) / 8;
}

static void check(machine_t *m, const ratio_t *ratio, const char *what) {
  int64_t *ns = durations(ratio, m->step);
  zr_bound_t bound;
  assert_ok(zr_cost_bound(m->step, ns, &bound));
  const int64_t step_ns = steady_ns(m, ns);
  print_message(
      "%-28s %-30s %2d slots: step %.3f x the bound (%s %.0f us, chain %.0f), serial %.2f x\n",
      what, ratio->name, (int)m->options.n_slots, (double)step_ns / (double)bound.bound_ns,
      zr_stream_name((zr_stream_id_t)bound.busiest), (double)bound.busy_ns * 1e-3,
      (double)bound.chain_ns * 1e-3, (double)bound.serial_ns / (double)bound.bound_ns);
  assert_true(step_ns >= bound.bound_ns);
  if (ratio->disk_us < 200)
    assert_true((double)step_ns <= 1.10 * (double)bound.bound_ns);
  else if (m->options.n_slots >= 64 && m->options.home.param != ZR_TIER_DISK)
    assert_true((double)step_ns <= 1.03 * (double)bound.bound_ns);
  free(ns);
}

typedef struct {
  const char *name;
  zr_homes_t home;
  int order;
  int64_t n_micro;
} case_t;

static void test_updates_hide(void **state) {
  (void)state;
  static const case_t cases[] = {
      {"optimizer on host", {.optimizer = 1}, 0, 1},
      {"optimizer on disk", {.optimizer = 2}, 0, 1},
      {"opt disk, grad host", {.optimizer = 2, .grad = 1}, 0, 1},
      {"opt disk, grad host, G 4", {.optimizer = 2, .grad = 1}, 0, 4},
      {"param, grad, opt host", {.param = 1, .optimizer = 1, .grad = 1}, 0, 1},
      {"param host, opt disk", {.param = 1, .optimizer = 2, .grad = 1}, 0, 1},
      {"param host, opt disk, G 4 b", {.param = 1, .optimizer = 2, .grad = 1}, 1, 4},
      {"all on disk", {.param = 2, .optimizer = 2, .grad = 2}, 0, 1},
      {"all on disk, G 4 breadth", {.param = 2, .optimizer = 2, .grad = 2, .activation = 2}, 1, 4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    machine_options_t options;
    machine_defaults(&options);
    options.plain = true;
    options.regular = true;
    options.n_layers = 6;
    options.home = cases[i].home;
    options.order = cases[i].order;
    options.n_leaves = cases[i].n_micro;
    options.chunk_elems = 8192;
    for (options.n_slots = 4; options.n_slots <= 64; options.n_slots *= 16) {
      machine_t m;
      machine_open_virtual(&m, &options, 1);
      for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++)
        check(&m, &ratios[r], cases[i].name);
      machine_close(&m);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_updates_hide)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
