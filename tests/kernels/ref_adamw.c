/* The oracle's AdamW: torch's definition, cuts that change no bit, padding, skips, digests. */
#include <math.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "tests/kernels/case_call.h"
#include "tests/kernels/check.h"

typedef struct {
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  kern_call_t before, after;
} update_t;

enum { P = 0, G = 1, M = 2, V = 3, LAYOUT = 4, CTL = 5 };

static void begin(update_t *u, const kern_case_t *one) {
  assert_int_equal(zr_kern_ref_open(NULL, ZR_F32, &u->ops, &u->kern), ZR_OK);
  kern_call_init(&u->before, one, ZR_F32, KERN_POISON_NAN);
  kern_call_init(&u->after, one, ZR_F32, KERN_POISON_NAN);
  kern_call_fill(&u->before, 21);
  kern_call_fill(&u->after, 21);
}

static void run(update_t *u) {
  assert_int_equal(kern_call_run(&u->after, u->ops, u->kern, NULL), ZR_OK);
}

static void end(update_t *u) {
  kern_call_fini(&u->before);
  kern_call_fini(&u->after);
  u->ops->close(u->kern);
}

static const zr_control_t *control(const kern_call_t *call) {
  return call->call.operand[CTL];
}

/* The tensor of operand element i; NULL in padding. */
static const zr_kern_tensor_t *tensor_of(const kern_call_t *call, int64_t i, int64_t *out_flat) {
  const zr_kern_layout_t *layout = call->call.operand[LAYOUT];
  const int64_t *a = call->shape.attr;
  *out_flat = a[ZR_ADAMW_FIRST] + KERN_CASE_RANK * a[ZR_ADAMW_FIRST_PER_RANK] + i;
  for (int64_t n = 0; n < layout->n_tensors; n++)
    if (layout->tensor[n].begin <= *out_flat && *out_flat < layout->tensor[n].end)
      return &layout->tensor[n];
  return NULL;
}

/* torch.optim.AdamW (or Adam with its L2 decay) in double, from the host's settings. */
static void check_against_torch(uint32_t settings) {
  update_t u;
  begin(&u, &(kern_case_t){.kind = ZR_OP_ADAMW, .attr = {4096, 0, 0, 1024}, .control = settings});
  run(&u);
  const zr_control_t *ctl = control(&u.before);
  for (int64_t i = 0; i < 4096; i++) {
    int64_t flat = 0;
    const zr_kern_tensor_t *tensor = tensor_of(&u.before, i, &flat);
    double p = kern_call_get(&u.before, P, i), g = 0.7 * kern_call_get(&u.before, G, i);
    double m = kern_call_get(&u.before, M, i), v = kern_call_get(&u.before, V, i);
    bool decays = tensor != NULL && tensor->decays;
    if (decays && settings & KERN_CTL_L2) g += ctl->weight_decay * p;
    if (decays && !(settings & KERN_CTL_L2)) p *= 1 - ctl->lr_now * ctl->weight_decay;
    m = ctl->beta1 * m + (1 - ctl->beta1) * g;
    v = ctl->beta2 * v + (1 - ctl->beta2) * g * g;
    double step = (double)ctl->step;
    double denominator = sqrt(v) / sqrt(1 - pow(ctl->beta2, step)) + ctl->eps;
    p -= ctl->lr_now / (1 - pow(ctl->beta1, step)) * m / denominator;
    assert_true(fabs(kern_call_get(&u.after, P, i) - p) <= 3e-7);
    assert_true(fabs(kern_call_get(&u.after, M, i) - m) <= 3e-7);
    assert_true(fabs(kern_call_get(&u.after, V, i) - v) <= 3e-7);
  }
  end(&u);
}

static void adamw_meets_torch(void **state) {
  (void)state;
  check_against_torch(0);
}

static void adam_with_l2_meets_torch(void **state) {
  (void)state;
  check_against_torch(KERN_CTL_L2);
}

/* One call over 8,192 elements, and odd pieces of it: the same bits, digests and counts. */
static void cuts_change_no_bit(void **state) {
  (void)state;
  enum { ELEMS = 8192 };
  static const int64_t cut[] = {0, 1, 64, 131, 2048, 3333, 5000, 8000, ELEMS};
  update_t u;
  begin(&u, &(kern_case_t){.kind = ZR_OP_ADAMW, .attr = {ELEMS, 0, 0, 2048}});
  run(&u);
  for (int c = 0; c + 1 < (int)(sizeof cut / sizeof cut[0]); c++) {
    zr_kern_shape_t shape = u.before.shape;
    zr_kern_call_t call = u.before.call;
    shape.attr[ZR_ADAMW_FIRST] = cut[c];
    shape.attr[ZR_ADAMW_ELEMS] = cut[c + 1] - cut[c];
    call.shape = &shape;
    for (int i = P; i <= V; i++) call.operand[i] = (float *)call.operand[i] + cut[c];
    assert_int_equal(u.ops->run(u.kern, &call), ZR_OK);
  }
  for (int i = P; i <= CTL; i++) assert_true(kern_call_equal(&u.before, &u.after, i));
  assert_true(control(&u.after)->digest_sum[0] != 0 && control(&u.after)->digest_sum[1] != 0);
  end(&u);
}

static void digests_count_own_logical_elements_once(void **state) {
  (void)state;
  update_t u;
  begin(&u, &(kern_case_t){.kind = ZR_OP_ADAMW, .attr = {8192, 0, 0, 2048}});
  run(&u);
  uint64_t want[2] = {0, 0};
  int64_t n_padding = 0;
  for (int64_t i = 0; i < 8192; i++) {
    int64_t flat = 0;
    const zr_kern_tensor_t *tensor = tensor_of(&u.after, i, &flat);
    if (tensor == NULL) {
      for (int o = P; o <= V; o++) assert_true(kern_call_get(&u.after, o, i) == 0);
      n_padding++;
    } else if (flat / 2048 == KERN_CASE_RANK) {
      uint64_t index = (uint64_t)(flat - tensor->begin);
      want[0] +=
          zr_digest_element(tensor->digest_key[0], index, (float)kern_call_get(&u.after, P, i));
      want[1] +=
          zr_digest_element(tensor->digest_key[1], index, (float)kern_call_get(&u.after, M, i));
      want[1] +=
          zr_digest_element(tensor->digest_key[2], index, (float)kern_call_get(&u.after, V, i));
    }
  }
  assert_true(n_padding > 0);
  assert_true(control(&u.after)->digest_sum[0] == want[0]);
  assert_true(control(&u.after)->digest_sum[1] == want[1]);
  assert_int_equal(control(&u.after)->n_bad_params, 0);
  end(&u);
}

static void a_skipped_update_changes_nothing(void **state) {
  (void)state;
  update_t u;
  begin(&u, &(kern_case_t){
                .kind = ZR_OP_ADAMW, .attr = {2048, 0, 2048, 2048}, .control = KERN_CTL_SKIP});
  kern_call_set(&u.before, G, 5, (double)NAN);
  kern_call_set(&u.after, G, 5, (double)NAN);
  run(&u);
  for (int i = P; i <= CTL; i++) assert_true(kern_call_equal(&u.before, &u.after, i));
  end(&u);
}

static void non_finite_parameters_are_counted_by_their_owner(void **state) {
  (void)state;
  update_t u;
  begin(&u, &(kern_case_t){.kind = ZR_OP_ADAMW, .attr = {8192, 0, 0, 2048}});
  kern_call_set(&u.after, P, 4096 + 200, (double)INFINITY); /* rank 2's */
  kern_call_set(&u.after, P, 6143, (double)NAN);            /* its last */
  kern_call_set(&u.after, P, 100, (double)INFINITY);        /* rank 0's */
  int64_t flat = 0;
  assert_non_null(tensor_of(&u.after, 4096 + 200, &flat));
  assert_non_null(tensor_of(&u.after, 6143, &flat));
  run(&u);
  assert_int_equal(control(&u.after)->n_bad_params, 2);
  end(&u);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adamw_meets_torch),
      cmocka_unit_test(adam_with_l2_meets_torch),
      cmocka_unit_test(cuts_change_no_bit),
      cmocka_unit_test(digests_count_own_logical_elements_once),
      cmocka_unit_test(a_skipped_update_changes_nothing),
      cmocka_unit_test(non_finite_parameters_are_counted_by_their_owner),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
