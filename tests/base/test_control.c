#include <math.h>
#include <string.h>

#include "kernels/adamw.h"
#include "kernels/control.h"
#include "tests/support/cmocka_all.h"

static void near(double a, double b, double relative) {
  if (!(fabs(a - b) <= relative * fabs(b))) print_error("%.17g is not %.17g\n", a, b);
  assert_true(fabs(a - b) <= relative * fabs(b));
}

static void schedules(void **state) {
  (void)state;
  zr_schedule_params_t s = {
      .lr = 1e-3, .min_lr = 1e-4, .warmup_min_lr = 1e-5, .warmup_steps = 10, .total_steps = 110};
  s.kind = ZR_SCHEDULE_CONSTANT;
  assert_true(zr_schedule_lr(&s, 1) == 1e-3 && zr_schedule_lr(&s, 1000) == 1e-3);
  s.kind = ZR_SCHEDULE_WARMUP;
  near(zr_schedule_lr(&s, 5), 1e-5 + (1e-3 - 1e-5) / 2, 1e-15);
  assert_true(zr_schedule_lr(&s, 10) == 1e-3 && zr_schedule_lr(&s, 1000) == 1e-3);
  s.kind = ZR_SCHEDULE_WARMUP_LOG;
  near(zr_schedule_lr(&s, 4), 1e-5 + (1e-3 - 1e-5) * log(5) / log(10), 1e-15);
  assert_true(zr_schedule_lr(&s, 9) == 1e-3 && zr_schedule_lr(&s, 10) == 1e-3);
  s.kind = ZR_SCHEDULE_WARMUP_LINEAR;
  near(zr_schedule_lr(&s, 1), 1e-5 + (1e-3 - 1e-5) / 10, 1e-15);
  assert_true(zr_schedule_lr(&s, 10) == 1e-3);
  near(zr_schedule_lr(&s, 60), (1e-3 + 1e-4) / 2, 1e-15);
  near(zr_schedule_lr(&s, 110), 1e-4, 1e-15);
  near(zr_schedule_lr(&s, 500), 1e-4, 1e-15);
  s.kind = ZR_SCHEDULE_WARMUP_LOG_LINEAR;
  near(zr_schedule_lr(&s, 4), 1e-5 + (1e-3 - 1e-5) * log(5) / log(10), 1e-15);
  near(zr_schedule_lr(&s, 60), (1e-3 + 1e-4) / 2, 1e-15);
  s.kind = ZR_SCHEDULE_WARMUP_LOG_COSINE;
  near(zr_schedule_lr(&s, 4), 1e-5 + (1e-3 - 1e-5) * log(5) / log(10), 1e-15);
  near(zr_schedule_lr(&s, 35), 1e-4 + 9e-4 * (1 + sqrt(0.5)) / 2, 1e-14);
  s.kind = ZR_SCHEDULE_WARMUP_COSINE;
  near(zr_schedule_lr(&s, 10), 1e-3, 1e-15);
  near(zr_schedule_lr(&s, 35), 1e-4 + 9e-4 * (1 + sqrt(0.5)) / 2, 1e-14);
  near(zr_schedule_lr(&s, 60), (1e-3 + 1e-4) / 2, 1e-14);
  near(zr_schedule_lr(&s, 110), 1e-4, 1e-14);
  for (int64_t step = 11; step < 110; ++step) {
    assert_true(zr_schedule_lr(&s, step + 1) < zr_schedule_lr(&s, step));
  }
}

static void schedules_without_warmup_or_length(void **state) {
  (void)state;
  for (int64_t kind = ZR_SCHEDULE_CONSTANT; kind <= ZR_SCHEDULE_WARMUP_LOG_COSINE; ++kind) {
    for (int64_t warmup = 0; warmup <= 2; ++warmup) {
      zr_schedule_params_t s = {.kind = kind, .lr = 1, .warmup_steps = warmup, .total_steps = 1};
      for (int64_t step = 1; step < 5; ++step) {
        double lr = zr_schedule_lr(&s, step);
        assert_true(isfinite(lr) && lr >= 0 && lr <= 1);
      }
    }
  }
}

static zr_control_t fresh(void) {
  zr_control_t ctl;
  memset(&ctl, 0, sizeof ctl);
  ctl.schedule = (zr_schedule_params_t){.kind = ZR_SCHEDULE_WARMUP, .lr = 0.1, .warmup_steps = 10};
  ctl.beta1 = 0.9;
  ctl.beta2 = 0.999;
  ctl.eps = 1e-8;
  ctl.weight_decay = 0.01;
  ctl.max_grad_norm = 1;
  ctl.bias_correction = 1;
  ctl.digest = 2;
  return ctl;
}

static void one_step(zr_control_t *ctl, int64_t count, double loss, double squares) {
  zr_control_begin(ctl);
  ctl->count_local = count;
  zr_control_count(ctl);
  zr_exact_add(&ctl->loss, loss);
  zr_exact_add(&ctl->norm, squares);
  zr_control_update(ctl);
  if (!ctl->skip) {
    ctl->digest_sum[0] += 100 + (uint64_t)ctl->step;
    ctl->digest_sum[1] += 200 + (uint64_t)ctl->step;
  }
  zr_control_end(ctl);
}

static void a_good_step(void **state) {
  (void)state;
  zr_control_t ctl = fresh();
  ctl.flags = 5;
  one_step(&ctl, 8, 20, 16);
  assert_true(ctl.inv_tokens == 0.125f);
  zr_step_record_t r = ctl.record[1];
  assert_int_equal(r.iteration, 1);
  assert_int_equal(r.step, 1);
  assert_int_equal(r.skipped_now, 0);
  assert_int_equal(r.step_tokens, 8);
  assert_int_equal(r.tokens, 8);
  assert_true(r.loss == 2.5 && r.grad_norm == 4);
  assert_true(r.clip_coef == 1 / (4 + 1e-6) && ctl.clip_coef == (float)(1 / (4 + 1e-6)));
  near(r.lr, 0.01, 1e-15);
  assert_int_equal(r.digest_params, 101);
  assert_int_equal(r.digest_states, 201);
  assert_int_equal(ctl.flags, 0);
  near(ctl.step_size, 0.01 / (1 - 0.9), 1e-7);
  near(ctl.inv_sqrt_bias2, 1 / sqrt(1 - 0.999), 1e-7);
  assert_true(ctl.decay_mul == (float)(1 - r.lr * 0.01));
  one_step(&ctl, 4, 2, 0.01);
  assert_true(ctl.clip_coef == 1.0f);
  assert_int_equal(ctl.record[2].tokens, 12);
  near(ctl.record[2].lr, 0.02, 1e-15);
}

static void a_bad_step_changes_nothing_but_counters(void **state) {
  (void)state;
  zr_control_t ctl = fresh();
  one_step(&ctl, 8, 20, 16);
  static const double bad[][2] = {{NAN, 1}, {1, INFINITY}};
  for (int i = 0; i < 2; ++i) {
    one_step(&ctl, 8, bad[i][0], bad[i][1]);
    zr_step_record_t r = ctl.record[2 + i];
    assert_int_equal(r.iteration, 2 + i);
    assert_int_equal(r.step, 1);
    assert_int_equal(r.skipped_now, 1);
    assert_int_equal(r.skipped, i + 1);
    assert_int_equal(r.skipped_in_row, i + 1);
    assert_int_equal(r.tokens, 8);
    near(r.lr, 0.02, 1e-15);
    assert_int_equal(r.digest_params, 101);
    assert_int_equal(r.digest_states, 201);
  }
  assert_true(isnan(ctl.record[2].loss));
  one_step(&ctl, 8, 20, 16);
  assert_int_equal(ctl.record[0].step, 2); /* iteration 4: the ring has four places */
  assert_int_equal(ctl.record[0].skipped, 2);
  assert_int_equal(ctl.record[0].skipped_in_row, 0);
  near(ctl.record[0].lr, 0.02, 1e-15);
}

static void no_counted_token_is_still_a_step(void **state) {
  (void)state;
  zr_control_t ctl = fresh();
  one_step(&ctl, 0, 0, 0);
  assert_true(ctl.inv_tokens == 0 && ctl.record[1].loss == 0 && ctl.record[1].grad_norm == 0);
  assert_int_equal(ctl.step, 1);
  assert_int_equal(ctl.skip, 0);
}

/* torch.optim.AdamW in double, by its documentation. */
typedef struct {
  double p, m, v;
} oracle_t;

static void oracle_step(oracle_t *o, const zr_control_t *ctl, double lr, int t, double g) {
  g *= ctl->clip;
  if (ctl->l2) {
    g += ctl->weight_decay * o->p;
  } else {
    o->p *= 1 - lr * ctl->weight_decay;
  }
  o->m = ctl->beta1 * o->m + (1 - ctl->beta1) * g;
  o->v = ctl->beta2 * o->v + (1 - ctl->beta2) * g * g;
  double m_hat = o->m / (1 - pow(ctl->beta1, t)), v_hat = o->v / (1 - pow(ctl->beta2, t));
  o->p -= lr * m_hat / (sqrt(v_hat) + ctl->eps);
}

static void adamw_follows_its_definition(void **state) {
  (void)state;
  for (int l2 = 0; l2 < 2; ++l2) {
    zr_control_t ctl = fresh();
    ctl.l2 = l2;
    oracle_t oracle = {.p = 0.5f};
    float p = 0.5f, m = 0, v = 0;
    for (int t = 1; t <= 20; ++t) {
      float g = (float)sin(t * 1.7);
      one_step(&ctl, 8, 20, t % 3 ? 0.5 : 4);
      oracle_step(&oracle, &ctl, ctl.lr_now, t, g);
      zr_adamw_element(&ctl, 1, g, &p, &m, &v);
      near(p, oracle.p, 2e-6);
      near(m, oracle.m, 1e-5);
      near(v, oracle.v, 1e-5);
    }
    float q = 2, m0 = 0, v0 = 0; /* no gradient, no decay: nothing moves */
    zr_adamw_element(&ctl, 0, 0, &q, &m0, &v0);
    assert_true(q == 2 && m0 == 0 && v0 == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(schedules),
      cmocka_unit_test(schedules_without_warmup_or_length),
      cmocka_unit_test(a_good_step),
      cmocka_unit_test(a_bad_step_changes_nothing_but_counters),
      cmocka_unit_test(no_counted_token_is_still_a_step),
      cmocka_unit_test(adamw_follows_its_definition),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
