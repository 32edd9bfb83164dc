/* Every gradient rule of the table of kinds (runtime/plan/op.h) against central differences, with
 * the double kernels: the loss is a fixed random combination of a kind's outputs; the rule's
 * backward operations must give its derivative by each input within 1e-6 of the tensor's largest.
 *
 * Differences are of fourth order with step 1e-3: truncation about 1e-13 of the fifth derivative,
 * rounding about 1e-13 of the loss. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/plan/op.h"
#include "tests/kernels/case_call.h"
#include "tests/kernels/check.h"

#define BOUND 1e-6
#define STEP 1e-3

#define B(i) (1u << (i))

static const kern_case_t rules[] = {
    {"embedding", ZR_OP_EMBEDDING, 0, .attr = {12, 5, 9, 4, 6}},
    {"embedding no pos", ZR_OP_EMBEDDING, 0, .attr = {7, 3, 4, 7, 0}, .absent = B(2)},
    {"embedding documents", ZR_OP_EMBEDDING, 0, .attr = {24, 3, 9, 8, 9}, .documents = true},
    {"linear", ZR_OP_LINEAR, 0, .attr = {5, 7, 6, 7, 6, 0}},
    {"linear io", ZR_OP_LINEAR, 0, .attr = {5, 7, 6, 7, 6, 1}},
    {"linear ld", ZR_OP_LINEAR, 0, .attr = {4, 5, 3, 11, 8, 0}, .absent = B(2), .offset = B(3)},
    {"linear ld io", ZR_OP_LINEAR, 0, .attr = {4, 5, 3, 11, 8, 1}, .offset = B(0)},
    {"layernorm", ZR_OP_LAYERNORM, 0, .attr = {5, 12}, .real = 1e-5},
    {"layernorm large eps", ZR_OP_LAYERNORM, 0, .attr = {3, 7}, .real = 0.5},
    {"rmsnorm", ZR_OP_RMSNORM, 0, .attr = {5, 12}, .real = 1e-6},
    {"rmsnorm large eps", ZR_OP_RMSNORM, 0, .attr = {3, 7}, .real = 0.5},
    {"head_norm", ZR_OP_HEAD_NORM, 0, .attr = {4, 3, 6, 23}, .real = 1e-6},
    {"head_norm large eps", ZR_OP_HEAD_NORM, 0, .attr = {3, 2, 5, 10}, .real = 0.5},
    {"rope", ZR_OP_ROPE, 0, .attr = {8, 4, 3, 6, 18, 0}},
    {"rope ld inverse", ZR_OP_ROPE, 0, .attr = {8, 4, 2, 6, 31, 1}},
    {"attention", ZR_OP_ATTENTION, 0, .attr = {2, 5, 2, 2, 4}, .real = 0.5},
    {"attention grouped", ZR_OP_ATTENTION, 0, .attr = {2, 6, 6, 2, 4}, .real = 0.5},
    {"attention one kv", ZR_OP_ATTENTION, 0, .attr = {1, 9, 3, 1, 6}, .real = 2},
    {"attention window", ZR_OP_ATTENTION, 0, .attr = {2, 7, 4, 2, 4, 3}, .real = 0.5},
    {"attention documents", ZR_OP_ATTENTION, 0, .attr = {2, 9, 4, 2, 4}, .real = 0.5,
     .documents = true},
    {"gelu", ZR_OP_GELU, 0, .attr = {60}},
    {"gelu erf", ZR_OP_GELU, 0, .attr = {60, ZR_ACT_GELU_ERF}},
    {"gelu silu", ZR_OP_GELU, 0, .attr = {60, ZR_ACT_SILU}},
    {"gelu relu", ZR_OP_GELU, 0, .attr = {60, ZR_ACT_RELU}},
    {"swiglu", ZR_OP_SWIGLU, 0, .attr = {60}},
    {"swiglu tanh", ZR_OP_SWIGLU, 0, .attr = {60, ZR_ACT_GELU_TANH}},
    {"swiglu erf", ZR_OP_SWIGLU, 0, .attr = {60, ZR_ACT_GELU_ERF}},
    {"swiglu relu", ZR_OP_SWIGLU, 0, .attr = {60, ZR_ACT_RELU}},
    {"add", ZR_OP_ADD, 0, .attr = {30}},
    {"head_loss", ZR_OP_HEAD_LOSS, 0, .attr = {9, 6, 11, 16, 4}},
    {"head_loss no padding", ZR_OP_HEAD_LOSS, 0, .attr = {6, 5, 17, 17, 6}},
};

typedef struct {
  const kern_case_t *rule;
  const zr_op_row_t *row;
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  kern_call_t forward;
  double *value[ZR_MAX_OPERANDS];  /* inputs */
  double *weight[ZR_MAX_OPERANDS]; /* the loss is sum weight x output; NULL: not part of it */
  double *grad[ZR_MAX_OPERANDS];   /* by the rule */
} gradient_t;

static double *numbers(int64_t n) {
  double *array = calloc((size_t)n + 1, sizeof(double));
  assert_non_null(array);
  return array;
}

static bool is_real_input(const gradient_t *g, int i) {
  kern_role_t role = g->forward.desc[i].role;
  return (role == KERN_READ || role == KERN_MODIFY) && g->forward.desc[i].type == KERN_REAL;
}

/* Runs the forward kernel on `value` and returns the loss. */
static double loss_of(gradient_t *g) {
  double loss = 0;
  for (int i = 0; i < ZR_MAX_OPERANDS; i++)
    for (int64_t n = 0; g->value[i] != NULL && n < kern_call_n_elems(&g->forward, i); n++)
      kern_call_set(&g->forward, i, n, g->value[i][n]);
  assert_int_equal(kern_call_run(&g->forward, g->ops, g->kern, NULL), ZR_OK);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++)
    for (int64_t n = 0; g->weight[i] != NULL && n < kern_call_n_elems(&g->forward, i); n++)
      loss += g->weight[i][n] * kern_call_get(&g->forward, i, n);
  return loss;
}

/* Outputs that the rule has a gradient of enter the loss with random weights; the losses of a kind
 * that computes gradients itself with the control block's 1 / tokens. */
static void weigh_output(gradient_t *g, int i, double constant) {
  if (g->weight[i] != NULL) return;
  int64_t n_elems = kern_call_n_elems(&g->forward, i);
  g->weight[i] = numbers(n_elems);
  for (int64_t n = 0; n < n_elems; n++) {
    uint64_t bits = zr_mix64((uint64_t)(1000 * i + n + 1));
    g->weight[i][n] = constant != 0 ? constant : (double)(int64_t)bits * 0x1p-63;
  }
}

static void weigh_outputs(gradient_t *g) {
  for (int s = 0; s < 4 && g->row->grad[s].kind != ZR_OP_NOP; s++)
    for (int k = 0; k < ZR_MAX_OPERANDS; k++) {
      zr_grad_operand_t from = g->row->grad[s].operand[k];
      if (from.source == ZR_GRAD_OF && kern_call_is_output(&g->forward, from.index))
        weigh_output(g, from.index, 0);
    }
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (g->row->grad_alias != 0 && kern_call_is_output(&g->forward, i)) weigh_output(g, i, 0);
    if (g->forward.desc[i].type != KERN_CONTROL) continue;
    const zr_control_t *ctl = g->forward.call.operand[i];
    weigh_output(g, 4, (double)ctl->inv_tokens); /* head_loss: {x, w, targets, ctl, loss, ...} */
  }
}

static void copy_from(kern_call_t *to, int operand, const double *array) {
  for (int64_t n = 0; n < kern_call_n_elems(to, operand); n++)
    kern_call_set(to, operand, n, array[n]);
}

static double *copy_of(const kern_call_t *call, int operand) {
  double *array = numbers(kern_call_n_elems(call, operand));
  for (int64_t n = 0; n < kern_call_n_elems(call, operand); n++)
    array[n] = kern_call_get(call, operand, n);
  return array;
}

/* The backward operation's inputs: values of the forward operation, gradients of its outputs. */
static void feed(gradient_t *g, const zr_grad_step_t *step, kern_call_t *backward) {
  for (int k = 0; k < ZR_MAX_OPERANDS; k++) {
    zr_grad_operand_t from = step->operand[k];
    if (from.source == ZR_GRAD_NONE || backward->desc[k].role == KERN_ABSENT) continue;
    if (from.source == ZR_GRAD_OF) {
      bool is_input = backward->desc[k].role == KERN_READ || backward->desc[k].role == KERN_MODIFY;
      if (is_input) copy_from(backward, k, g->weight[from.index]);
      continue;
    }
    assert_int_equal(kern_call_n_elems(backward, k), kern_call_n_elems(&g->forward, from.index));
    double *array = copy_of(&g->forward, from.index);
    copy_from(backward, k, array);
    free(array);
  }
}

static void run_step(gradient_t *g, const zr_grad_step_t *step) {
  kern_case_t one = *g->rule;
  one.name = "backward", one.kind = step->kind, one.absent = 0, one.offset = 0;
  if (g->row->grad_flip_attr >= 0)
    one.attr[g->row->grad_flip_attr] = 1 - one.attr[g->row->grad_flip_attr];
  for (int k = 0; k < ZR_MAX_OPERANDS; k++)
    if (step->operand[k].source != ZR_GRAD_NONE &&
        g->forward.desc[step->operand[k].index].role == KERN_ABSENT)
      one.absent |= 1u << k;
  kern_call_t backward;
  kern_call_init(&backward, &one, ZR_F64, KERN_POISON_NAN);
  bool wanted = false;
  for (int k = 0; k < ZR_MAX_OPERANDS; k++) wanted = wanted || kern_call_is_output(&backward, k);
  feed(g, step, &backward);
  if (wanted) assert_int_equal(kern_call_run(&backward, g->ops, g->kern, NULL), ZR_OK);
  for (int k = 0; k < ZR_MAX_OPERANDS && wanted; k++)
    if (kern_call_is_output(&backward, k)) g->grad[step->operand[k].index] = copy_of(&backward, k);
  kern_call_fini(&backward);
}

static void differentiate(gradient_t *g) {
  for (int s = 0; s < 4 && g->row->grad[s].kind != ZR_OP_NOP; s++) run_step(g, &g->row->grad[s]);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    int by = g->row->eager_grad[i];
    if (by >= 0) g->grad[by] = copy_of(&g->forward, i);
    if (!(g->row->grad_alias >> i & 1)) continue;
    for (int o = 0; o < ZR_MAX_OPERANDS; o++)
      if (g->weight[o] != NULL) g->grad[i] = copy_of(&g->forward, i);
    for (int o = 0; o < ZR_MAX_OPERANDS; o++)
      for (int64_t n = 0; g->weight[o] != NULL && n < kern_call_n_elems(&g->forward, i); n++)
        g->grad[i][n] = g->weight[o][n];
  }
}

static double shifted(gradient_t *g, double *at, double by) {
  double keep = *at;
  *at = keep + by;
  double loss = loss_of(g);
  *at = keep;
  return loss;
}

static void compare(gradient_t *g, int i) {
  double worst = 0, largest = 0;
  for (int64_t n = 0; n < kern_call_n_elems(&g->forward, i); n++) {
    double *at = &g->value[i][n];
    double near = shifted(g, at, STEP) - shifted(g, at, -STEP);
    double far = shifted(g, at, 2 * STEP) - shifted(g, at, -2 * STEP);
    double slope = (8 * near - far) / (12 * STEP);
    double difference = fabs(slope - g->grad[i][n]);
    if (!(difference <= worst) && !isnan(worst)) worst = difference; /* a NaN stays */
    largest = fmax(largest, fabs(slope));
  }
  if (!(worst <= BOUND * largest))
    fail_msg("%s: gradient of %s is off by %g of %g", g->rule->name, g->row->operand[i].name, worst,
             largest);
}

static void check_rule(const kern_case_t *rule) {
  gradient_t g = {.rule = rule, .row = zr_op_row(rule->kind)};
  assert_non_null(g.row);
  assert_int_equal(zr_kern_ref_open(NULL, ZR_F64, &g.ops, &g.kern), ZR_OK);
  kern_call_init(&g.forward, rule, ZR_F64, KERN_POISON_NAN);
  kern_call_fill(&g.forward, 11);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++)
    if (is_real_input(&g, i)) g.value[i] = copy_of(&g.forward, i);
  weigh_outputs(&g);
  loss_of(&g);
  differentiate(&g);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (!is_real_input(&g, i)) continue;
    bool constant = rule->kind == ZR_OP_ROPE && i == 0;
    if (!constant && g.grad[i] == NULL)
      fail_msg("%s: the rule gives no gradient of %s", rule->name, g.row->operand[i].name);
    if (!constant) compare(&g, i);
  }
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    free(g.value[i]);
    free(g.weight[i]);
    free(g.grad[i]);
  }
  kern_call_fini(&g.forward);
  g.ops->close(g.kern);
}

static void rules_meet_differences(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) check_rule(&rules[i]);
}

/* No differentiable kind is left out of the list above. */
static void every_rule_is_checked(void **state) {
  (void)state;
  for (int32_t kind = 0; kind < ZR_N_OP_KINDS; kind++) {
    const zr_op_row_t *row = zr_op_row(kind);
    bool differentiable = row != NULL && (row->grad[0].kind != ZR_OP_NOP || row->grad_alias != 0);
    for (int i = 0; row != NULL && i < ZR_MAX_OPERANDS; i++)
      differentiable = differentiable || row->eager_grad[i] >= 0;
    bool listed = false;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
      listed = listed || rules[i].kind == kind;
    if (differentiable != listed) fail_msg("%s: rule without a check", row ? row->name : "?");
  }
}

static void check_operands(const kern_case_t *one) {
  const zr_op_row_t *row = zr_op_row(one->kind);
  if (row == NULL || row->name == NULL) fail_msg("%s: no row in the table", one->name);
  int64_t need[ZR_MAX_OPERANDS];
  kern_call_t call;
  kern_call_init(&call, one, ZR_F32, KERN_POISON_NAN);
  row->operand_bytes(&call.shape, need);
  for (int i = 0; i < row->n_operands; i++) {
    if (need[i] >= 0 && call.block[i] != NULL && need[i] != call.call.bytes[i])
      fail_msg("%s: operand %s has %lld bytes, the table says %lld", one->name,
               row->operand[i].name, (long long)call.call.bytes[i], (long long)need[i]);
    bool is_written = (row->operand[i].access & ZR_WRITE) != 0;
    if (call.block[i] != NULL && is_written != kern_call_is_output(&call, i))
      fail_msg("%s: operand %s: another access", one->name, row->operand[i].name);
    if (call.desc[i].role == KERN_ABSENT && !row->operand[i].optional)
      fail_msg("%s: operand %s is not optional", one->name, row->operand[i].name);
  }
  kern_call_fini(&call);
}

/* Operand descriptions of the cases agree with the table's byte counts. */
static void operands_are_as_the_table_says(void **state) {
  (void)state;
  for (int c = 0; c < kern_n_cases; c++) check_operands(&kern_cases[c]);
  for (int c = 0; c < kern_n_half_cases; c++) check_operands(&kern_half_cases[c]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules_meet_differences),
      cmocka_unit_test(every_rule_is_checked),
      cmocka_unit_test(operands_are_as_the_table_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
