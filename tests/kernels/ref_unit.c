/* The oracle against small results known in closed form, and the rules of the backend's table. */
#include <math.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "tests/kernels/case_call.h"
#include "tests/kernels/check.h"

#define V(...) ((const double[]){__VA_ARGS__})
#define NEAR 1e-14

typedef struct {
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  kern_call_t call;
} one_t;

static void begin(one_t *t, const kern_case_t *one, zr_dtype_t real) {
  assert_int_equal(zr_kern_ref_open(NULL, real, &t->ops, &t->kern), ZR_OK);
  kern_call_init(&t->call, one, real, KERN_POISON_NAN);
  kern_call_fill(&t->call, 3);
}

static void run(one_t *t) {
  assert_int_equal(kern_call_run(&t->call, t->ops, t->kern, NULL), ZR_OK);
}

static void end(one_t *t) {
  kern_call_fini(&t->call);
  t->ops->close(t->kern);
}

static void set(one_t *t, int operand, const double *value) {
  for (int64_t i = 0; i < kern_call_n_elems(&t->call, operand); i++)
    kern_call_set(&t->call, operand, i, value[i]);
}

static void expect(one_t *t, int operand, const double *value) {
  for (int64_t i = 0; i < kern_call_n_elems(&t->call, operand); i++) {
    double got = kern_call_get(&t->call, operand, i);
    if (!(fabs(got - value[i]) <= NEAR))
      fail_msg("operand %d, element %d: %.17g, not %.17g", operand, (int)i, got, value[i]);
  }
}

static void embedding_adds_positions(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_EMBEDDING, .attr = {4, 2, 3, 2, 2}}, ZR_F64);
  set(&t, 0, V(2, 0, 1, 2));
  set(&t, 1, V(1, 2, 3, 4, 5, 6));
  set(&t, 2, V(10, 20, 30, 40));
  run(&t);
  expect(&t, 3, V(15, 26, 31, 42, 13, 24, 35, 46));
  end(&t);
}

static void embedding_grad_sums_repeated_tokens(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_EMBEDDING_GRAD, .attr = {4, 1, 3, 2, 3}}, ZR_F64);
  set(&t, 0, V(2, 0, 2, 2));
  set(&t, 1, V(1, 2, 4, 8));
  run(&t);
  expect(&t, 2, V(2, 0, 13));
  expect(&t, 3, V(5, 10, 0));
  end(&t);
}

static void linear_both_layouts(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_LINEAR, .attr = {1, 2, 3, 2, 3, 0}}, ZR_F64);
  set(&t, 0, V(1, 2));
  set(&t, 1, V(1, 2, 3, 4, 5, 6)); /* rows are outputs */
  set(&t, 2, V(100, 200, 300));
  run(&t);
  expect(&t, 3, V(105, 211, 317));
  end(&t);
  begin(&t, &(kern_case_t){.kind = ZR_OP_LINEAR, .attr = {1, 2, 3, 2, 3, 1}}, ZR_F64);
  set(&t, 0, V(1, 2));
  set(&t, 1, V(1, 2, 3, 4, 5, 6)); /* rows are inputs */
  set(&t, 2, V(100, 200, 300));
  run(&t);
  expect(&t, 3, V(109, 212, 315));
  end(&t);
}

static void norms_of_two_numbers(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_LAYERNORM, .attr = {1, 2}, .real = 3}, ZR_F64);
  set(&t, 0, V(1, 3));
  set(&t, 1, V(2, 4));
  set(&t, 2, V(10, 20));
  run(&t); /* variance 1 + eps 3: rstd 1/2 */
  expect(&t, 3, V(9, 22));
  expect(&t, 4, V(2, 0.5));
  end(&t);
  begin(&t, &(kern_case_t){.kind = ZR_OP_RMSNORM, .attr = {1, 2}, .real = 0.5}, ZR_F64);
  set(&t, 0, V(2, sqrt(3)));
  set(&t, 1, V(2, 1));
  run(&t); /* mean square 3.5 + eps 0.5: rstd 1/2 */
  expect(&t, 2, V(2, sqrt(3) / 2));
  expect(&t, 3, V(0.5));
  end(&t);
}

static void rope_turns_pairs_half_a_head_apart(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_ROPE_TABLE, .attr = {0, 2, 0, 4}, .real = 100}, ZR_F64);
  run(&t);
  expect(&t, 0, V(1, 0, 1, 0, cos(1), sin(1), cos(0.1), sin(0.1)));
  end(&t);
  kern_case_t rope = {.kind = ZR_OP_ROPE, .attr = {2, 2, 1, 4, 4, 0}};
  for (int inverse = 0; inverse < 2; inverse++) {
    rope.attr[ZR_ROPE_INVERSE] = inverse;
    begin(&t, &rope, ZR_F64);
    set(&t, 0, V(1, 0, 1, 0, 0, 1, 0.6, 0.8)); /* the second row by 90 degrees, and 3-4-5 */
    set(&t, 1, V(1, 2, 3, 4, 1, 2, 3, 4));
    run(&t);
    double s = inverse ? -1 : 1;
    expect(&t, 1, V(1, 2, 3, 4, -s * 3, 1.2 - s * 3.2, s * 1, 2.4 + s * 1.6));
    end(&t);
  }
}

/* With keys of zero every position weighs the same: means of the values so far. */
static void attention_of_equal_scores_is_a_causal_mean(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_ATTENTION, .attr = {1, 3, 4, 2, 1}, .real = 1}, ZR_F64);
  set(&t, 0,
      V(1, 2, 3, 4, 0, 0, 6, 60,    /* q x 4, k x 2, v x 2 */
        5, 6, 7, 8, 0, 0, 12, 120,  //
        1, 1, 1, 1, 0, 0, 0, 300)); /* heads 0, 1 see the first v, 2, 3 the second */
  run(&t);
  expect(&t, 1, V(6, 6, 60, 60, 9, 9, 90, 90, 6, 6, 160, 160));
  double two = log(2), three = log(3);
  expect(&t, 2, V(0, 0, 0, 0, two, two, two, two, three, three, three, three));
  end(&t);
}

static void activations_at_their_ends(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_GELU, .attr = {4}}, ZR_F64);
  set(&t, 0, V(0, 40, -40, 1));
  run(&t);
  expect(&t, 1, V(0, 40, 0, 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * 1.044715))));
  end(&t);
  begin(&t, &(kern_case_t){.kind = ZR_OP_SWIGLU, .attr = {4}}, ZR_F64);
  set(&t, 0, V(0, 800, -800, log(3)));
  set(&t, 1, V(7, 2, 2, 4));
  run(&t);
  expect(&t, 2, V(0, 1600, 0, 3 * log(3)));
  end(&t);
}

/* Weights of zero: each of 3 real words has probability 1/3, whatever the padding holds. */
static void head_masks_padding_and_skips_unwanted_targets(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_HEAD_LOSS, .attr = {2, 1, 3, 4, 1}}, ZR_F64);
  set(&t, 0, V(6, 5));
  set(&t, 1, V(0, 0, 0, 1e6));
  set(&t, 2, V(1, -1));
  ((zr_control_t *)t.call.call.operand[3])->inv_tokens = 0.5f;
  run(&t);
  expect(&t, 4, V(log(3), 0));
  expect(&t, 5, V(0, 0));
  expect(&t, 6, V(1, -2, 1, 0));
  end(&t);
}

static void count_and_loss_sum(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_COUNT, .attr = {5}}, ZR_F32);
  set(&t, 0, V(0, -1, 7, -1, 2));
  run(&t);
  zr_control_t *ctl = t.call.call.operand[1];
  assert_int_equal(ctl->count_local, 37 + 3);
  end(&t);
  begin(&t, &(kern_case_t){.kind = ZR_OP_LOSS_SUM, .attr = {4}}, ZR_F32);
  set(&t, 0, V(0x1p60, 1, -0x1p60, 0x1p-60)); /* no double holds a partial sum of these */
  run(&t);
  ctl = t.call.call.operand[1];
  assert_true(zr_exact_value(&ctl->loss) == 1.0);
  end(&t);
}

static double norm_of(const double *block, int n_blocks, int64_t *out_n_nonfinite) {
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_BLOCK_NORM, .attr = {ZR_BLOCK_ELEMS * n_blocks}}, ZR_F32);
  for (int64_t i = 0; i < ZR_BLOCK_ELEMS * n_blocks; i++)
    kern_call_set(&t.call, 0, i, block[i / ZR_BLOCK_ELEMS] * (i % ZR_BLOCK_ELEMS == 7 ? 1 : 0.5));
  run(&t);
  const zr_control_t *ctl = t.call.call.operand[1];
  double value = zr_exact_value(&ctl->norm);
  *out_n_nonfinite = ctl->norm.n_nonfinite;
  end(&t);
  return value;
}

static void block_norm_is_exact_over_blocks(void **state) {
  (void)state;
  int64_t n = 0;
  assert_true(norm_of(V(2), 1, &n) == 4 + 1023);
  assert_int_equal(n, 0);
  double up = norm_of(V(1e-20, 1, 1e20, 3e-7), 4, &n),
         down = norm_of(V(3e-7, 1e20, 1, 1e-20), 4, &n);
  assert_true(up == down);
  assert_true(isfinite(norm_of(V(3e38), 1, &n)) && n == 0);
  norm_of(V(1, INFINITY), 2, &n);
  assert_int_equal(n, 1);
  norm_of(V(NAN, 1), 2, &n);
  assert_int_equal(n, 1);
}

/* The stated order with explicit fused operations, as a vector backend may do it. */
static void block_norm_order_is_the_stated_one(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_BLOCK_NORM, .attr = {ZR_BLOCK_ELEMS}}, ZR_F32);
  const float *g = t.call.call.operand[0];
  double lane[16] = {0};
  for (int i = 0; i < ZR_BLOCK_ELEMS; i++)
    lane[i % 16] = fma((double)g[i], (double)g[i], lane[i % 16]);
  for (int l = 0; l < 8; l++) lane[l] += lane[l + 8];
  for (int l = 0; l < 4; l++) lane[l] += lane[l + 4];
  double want = (lane[0] + lane[2]) + (lane[1] + lane[3]);
  double one_chain = 0;
  for (int i = 0; i < ZR_BLOCK_ELEMS; i++) one_chain += (double)g[i] * (double)g[i];
  run(&t);
  const zr_control_t *ctl = t.call.call.operand[1];
  assert_true(zr_exact_value(&ctl->norm) == want);
  assert_true(one_chain != want); /* the inputs tell orders apart */
  end(&t);
}

static void a_bad_index_is_an_error(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_EMBEDDING, .attr = {2, 1, 3, 2, 2}}, ZR_F32);
  set(&t, 0, V(1, 3));
  assert_int_equal(kern_call_run(&t.call, t.ops, t.kern, NULL), ZR_ERR_DATA);
  set(&t, 0, V(-1, 0));
  assert_int_equal(kern_call_run(&t.call, t.ops, t.kern, NULL), ZR_ERR_DATA);
  end(&t);
}

static void wrong_types_and_kinds_are_refused(void **state) {
  (void)state;
  one_t t;
  begin(&t, &(kern_case_t){.kind = ZR_OP_ADD, .attr = {4}}, ZR_F32);
  zr_kern_shape_t shape = t.call.shape;
  void *prepared = NULL;
  shape.dtype[1] = ZR_F64;
  assert_int_equal(t.ops->prepare(t.kern, &shape, 1, &prepared), ZR_ERR_UNSUPPORTED);
  shape = t.call.shape;
  shape.present = 3;
  assert_int_equal(t.ops->prepare(t.kern, &shape, 1, &prepared), ZR_ERR_INVALID_ARGUMENT);
  shape = t.call.shape;
  shape.kind = ZR_OP_ALL_GATHER;
  assert_int_equal(t.ops->prepare(t.kern, &shape, 1, &prepared), ZR_ERR_UNSUPPORTED);
  end(&t);
  begin(&t, &(kern_case_t){.kind = ZR_OP_HEAD_EVAL, .attr = {2, 1, 3, 4, 1}}, ZR_F32);
  t.call.shape.present &= (uint8_t) ~(1u << 4); /* scratch that the kind needs */
  assert_int_equal(t.ops->prepare(t.kern, &t.call.shape, 1, &prepared), ZR_ERR_INVALID_ARGUMENT);
  end(&t);
  assert_int_equal(zr_kern_ref_open(NULL, ZR_BF16, &t.ops, &t.kern), ZR_ERR_UNSUPPORTED);
}

static void open_fails_cleanly_and_runs_allocate_nothing(void **state) {
  (void)state;
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  one_t t = {0};
  alloc.fail_at = 1;
  assert_int_equal(zr_kern_ref_open(&alloc, ZR_F32, &t.ops, &t.kern), ZR_ERR_OUT_OF_MEMORY);
  assert_null(t.kern);
  alloc.fail_at = 0;
  assert_int_equal(zr_kern_ref_open(&alloc, ZR_F32, &t.ops, &t.kern), ZR_OK);
  int64_t n_calls = alloc.n_calls;
  for (int i = 0; i < kern_n_cases; i++) {
    kern_call_init(&t.call, &kern_cases[i], ZR_F32, KERN_POISON_NAN);
    kern_call_fill(&t.call, 9);
    run(&t);
    kern_call_fini(&t.call);
  }
  assert_int_equal(alloc.n_calls, n_calls);
  t.ops->close(t.kern);
  assert_int_equal(alloc.live_count, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(embedding_adds_positions),
      cmocka_unit_test(embedding_grad_sums_repeated_tokens),
      cmocka_unit_test(linear_both_layouts),
      cmocka_unit_test(norms_of_two_numbers),
      cmocka_unit_test(rope_turns_pairs_half_a_head_apart),
      cmocka_unit_test(attention_of_equal_scores_is_a_causal_mean),
      cmocka_unit_test(activations_at_their_ends),
      cmocka_unit_test(head_masks_padding_and_skips_unwanted_targets),
      cmocka_unit_test(count_and_loss_sum),
      cmocka_unit_test(block_norm_is_exact_over_blocks),
      cmocka_unit_test(block_norm_order_is_the_stated_one),
      cmocka_unit_test(a_bad_index_is_an_error),
      cmocka_unit_test(wrong_types_and_kinds_are_refused),
      cmocka_unit_test(open_fails_cleanly_and_runs_allocate_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
