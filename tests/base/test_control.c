#include <math.h>
#include <string.h>

#include "kernels/adamw.h"
#include "kernels/control.h"
#include "runtime/base/rng.h"
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

static void the_scale_follows_its_rules(void **state) {
  (void)state;
  zr_control_t ctl = fresh();
  ctl.scale_params =
      (zr_loss_scale_params_t){.dynamic = 1, .initial = 16, .min = 4, .window = 3, .hysteresis = 2};
  zr_control_scale_init(&ctl);
  /* o: overflow, .: a good step; under each the scale that the next step has */
  static const char *steps = "....o.oo..o.ooo";
  static const double after[] = {16, 16, 16, 32, 32, 32, 16, 8, 8, 8, 4, 4, 4, 4, 4};
  double now = 16;
  for (int i = 0; steps[i] != 0; ++i) {
    one_step(&ctl, 8, 1, steps[i] == 'o' ? INFINITY : 1);
    const zr_step_record_t *r = &ctl.record[(i + 1) % ZR_CONTROL_RECORDS];
    assert_true(r->loss_scale == now && ctl.loss_scale == after[i]);
    assert_int_equal(r->scale_at_min, steps[i] == 'o' && now == 4);
    assert_int_equal(r->skipped_now, steps[i] == 'o');
    now = after[i];
  }
  assert_int_equal(ctl.step, 8); /* skipped ones are not counted, so no schedule moves */
}

/* DynamicLossScaler.update_scale, statement by statement, without its exception. */
typedef struct {
  double cur_scale, min_scale;
  int64_t cur_iter, last_overflow_iter, scale_window, delayed_shift, cur_hysteresis;
  int consecutive;
} deepspeed_t;

static void deepspeed_update_scale(deepspeed_t *s, int overflow) {
  if (overflow) {
    if (s->delayed_shift == 1 || s->cur_hysteresis == 1) {
      s->cur_scale = fmax(s->cur_scale / 2, s->min_scale);
    } else {
      s->cur_hysteresis -= 1;
    }
    s->last_overflow_iter = s->cur_iter;
  } else {
    if (s->consecutive) s->cur_hysteresis = s->delayed_shift;
    int64_t stable = s->cur_iter - s->last_overflow_iter - 1;
    if (stable > 0 && stable % s->scale_window == 0) {
      if (!s->consecutive) s->cur_hysteresis = s->delayed_shift;
      s->cur_scale *= 2;
    }
  }
  s->cur_iter += 1;
}

static void the_scale_moves_as_deepspeeds(void **state) {
  (void)state;
  for (int n = 0; n < 48; ++n) {
    zr_loss_scale_params_t params = {.dynamic = 1, .initial = n % 5 ? 65536 : 3, .min = n % 3 + 1};
    params.window = 1 + n % 7 * 2;
    params.hysteresis = 1 + n % 4;
    params.consecutive_hysteresis = n / 24;
    deepspeed_t s = {params.initial,    params.min,        0,     -1, params.window,
                     params.hysteresis, params.hysteresis, n / 24};
    zr_control_t ctl = fresh();
    ctl.scale_params = params;
    zr_control_scale_init(&ctl);
    for (uint64_t i = 0; i < 400; ++i) {
      int overflow = zr_mix64((uint64_t)n * 1000 + i) % 16 < (uint64_t)(i / 100 % 2 ? 1 : 5);
      one_step(&ctl, 3, overflow && i % 2 ? NAN : 1, overflow && i % 2 == 0 ? INFINITY : 1);
      deepspeed_update_scale(&s, overflow);
      assert_true(ctl.loss_scale == s.cur_scale);
      assert_int_equal(ctl.scale_chances, s.cur_hysteresis);
    }
  }
}

static void the_default_scale(void **state) {
  (void)state;
  zr_control_t ctl = fresh();
  ctl.scale_params = zr_loss_scale_defaults();
  zr_control_scale_init(&ctl);
  for (int i = 1; i <= 2002; ++i) {
    one_step(&ctl, 8, 1, 1);
    assert_true(ctl.loss_scale == (i <= 1000 ? 65536 : i <= 2000 ? 131072 : 262144));
  }
}

static void a_static_scale_stays(void **state) {
  (void)state;
  zr_control_t ctl = fresh();
  ctl.scale_params = (zr_loss_scale_params_t){.initial = 128, .window = 1, .hysteresis = 1};
  zr_control_scale_init(&ctl);
  for (int i = 0; i < 8; ++i) {
    one_step(&ctl, 8, 1, i % 3 ? 1 : INFINITY);
    assert_true(ctl.loss_scale == 128 && ctl.inv_tokens == 16 && ctl.skip == (i % 3 == 0));
    assert_int_equal(ctl.scale_at_min, 0);
  }
}

/* Scaled by a power of two and nothing lost to it, an update has the same bits. */
static void a_scaled_update_is_the_same_update(void **state) {
  (void)state;
  zr_control_t plain = fresh(), scaled = fresh();
  scaled.scale_params = zr_loss_scale_defaults();
  zr_control_scale_init(&scaled);
  float p[2] = {0.5f, 0.5f}, m[2] = {0, 0}, v[2] = {0, 0};
  for (int t = 1; t <= 20; ++t) {
    float g = (float)sin(t * 1.7);
    double norm = t % 3 ? 0.5 : 4; /* clipped every third step */
    one_step(&plain, 12, 20, norm);
    one_step(&scaled, 12, 20, norm * 0x1p32);
    assert_true(scaled.inv_tokens == plain.inv_tokens * 0x1p16f);
    zr_step_record_t a = plain.record[t % ZR_CONTROL_RECORDS];
    zr_step_record_t b = scaled.record[t % ZR_CONTROL_RECORDS];
    assert_true(a.loss_scale == 1 && b.loss_scale == 65536 && plain.loss_scale == 0);
    assert_true(a.grad_norm == b.grad_norm && a.clip_coef == b.clip_coef && a.loss == b.loss);
    assert_true(plain.clip_coef == (float)a.clip_coef);
    zr_adamw_element(&plain, 1, g, &p[0], &m[0], &v[0]);
    zr_adamw_element(&scaled, 1, g * 0x1p16f, &p[1], &m[1], &v[1]);
    assert_true(p[0] == p[1] && m[0] == m[1] && v[0] == v[1]);
  }
}

static void a_split_master_is_updated_as_a_whole_one(void **state) {
  (void)state;
  zr_control_t ctl = fresh();
  float p = 0.5f, m[2] = {0, 0}, v[2] = {0, 0};
  uint16_t high = 0;
  int16_t low = 0;
  zr_master_split(p, &high, &low);
  for (int t = 1; t <= 200; ++t) {
    float g = (float)sin(t * 1.7);
    one_step(&ctl, 8, 20, 0.5);
    zr_adamw_element(&ctl, 1, g, &p, &m[0], &v[0]);
    float master = zr_adamw_split(&ctl, 1, g, &high, &low, &m[1], &v[1]);
    assert_true(master == p && zr_master_join(high, low) == p && m[0] == m[1] && v[0] == v[1]);
    near(zr_bf16_to_f32(high), p, 0x1p-8);
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
      cmocka_unit_test(the_scale_follows_its_rules),
      cmocka_unit_test(the_scale_moves_as_deepspeeds),
      cmocka_unit_test(the_default_scale),
      cmocka_unit_test(a_static_scale_stays),
      cmocka_unit_test(a_scaled_update_is_the_same_update),
      cmocka_unit_test(a_split_master_is_updated_as_a_whole_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
