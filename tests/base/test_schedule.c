/* Schedules against DeepSpeed's lr_schedules.py, its formulas restated one by one, and against what
 * their definitions say at the edges. Update `step` is DeepSpeed's last_batch_iteration = step. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/control.h"
#include "tests/support/cmocka_all.h"

static const double pi = 3.14159265358979323846;

static void near(const zr_schedule_params_t *s, int64_t step, double want) {
  double got = zr_schedule_lr(s, step);
  if (fabs(got - want) <= 1e-14 * fabs(want) + 1e-18) return;
  print_error("kind %d, warm-up %d, total %d, step %d: %.17g, not %.17g\n", (int)s->kind,
              (int)s->warmup_steps, (int)s->total_steps, (int)step, got, want);
  assert_true(false);
}

/* What the class is made with. */
typedef struct {
  bool log;
  int64_t warmup, total;
  double min_lr, max_lr, warmup_min_ratio, cos_min_ratio;
} deepspeed_t;

static double rise(const deepspeed_t *d, int64_t at) {
  int64_t warmup = d->warmup > 2 ? d->warmup : 2;
  return d->log ? 1.0 / log((double)warmup) * log((double)at + 1) : (double)at / (double)warmup;
}

static double warmup_lr(const deepspeed_t *d, int64_t at) {
  int64_t warmup = d->warmup > 2 ? d->warmup : 2;
  double gamma = at < warmup ? rise(d, at) : 1.0;
  return d->min_lr + (d->max_lr - d->min_lr) * gamma;
}

static double warmup_decay_lr(const deepspeed_t *d, int64_t at) {
  int64_t warmup = d->warmup > 2 ? d->warmup : 2;
  double gamma = at < warmup
                     ? rise(d, at)
                     : fmax(0.0, (double)(d->total - at) / fmax(1.0, (double)(d->total - warmup)));
  return d->min_lr + (d->max_lr - d->min_lr) * gamma;
}

static double warmup_cosine_lr(const deepspeed_t *d, int64_t at) {
  int64_t warmup = d->warmup > 2 ? d->warmup : 2;
  if (at < warmup) {
    return d->max_lr * (d->warmup_min_ratio + rise(d, at) * (1.0 - d->warmup_min_ratio));
  }
  double real_last_step = (double)(at - warmup + 1);
  double real_total_steps = fmax(1.0, (double)(d->total - warmup));
  double ratio = (1 + cos(pi * fmin(1.0, real_last_step / real_total_steps))) / 2;
  return d->max_lr * fmax(0.0, d->cos_min_ratio + (1.0 - d->cos_min_ratio) * ratio);
}

/* As the configuration makes them of the three types. */
static zr_schedule_params_t params_of(const deepspeed_t *d, zr_schedule_t linear,
                                      zr_schedule_t log_) {
  return (zr_schedule_params_t){.kind = d->log ? log_ : linear,
                                .lr = d->max_lr,
                                .warmup_min_lr = d->min_lr,
                                .warmup_steps = d->warmup > 2 ? d->warmup : 2,
                                .total_steps = d->total};
}

static void check_deepspeed(const deepspeed_t *d) {
  zr_schedule_params_t s = params_of(d, ZR_SCHEDULE_WARMUP, ZR_SCHEDULE_WARMUP_LOG);
  zr_schedule_params_t l = params_of(d, ZR_SCHEDULE_WARMUP_LINEAR, ZR_SCHEDULE_WARMUP_LOG_LINEAR);
  zr_schedule_params_t c = params_of(d, ZR_SCHEDULE_WARMUP_COSINE, ZR_SCHEDULE_WARMUP_LOG_COSINE);
  l.min_lr = d->min_lr;
  c.warmup_min_lr = d->warmup_min_ratio * d->max_lr;
  c.min_lr = d->cos_min_ratio * d->max_lr;
  c.cosine_ahead = 1;
  for (int64_t step = 1; step <= d->total + 40; ++step) {
    near(&s, step, warmup_lr(d, step));
    near(&l, step, warmup_decay_lr(d, step));
    near(&c, step, warmup_cosine_lr(d, step));
  }
}

/* Warm-ups of 0, 1 and 2, as long as the run and longer; the run's end and what is beyond it. */
static void warm_ups_are_deepspeeds(void **state) {
  (void)state;
  static const int64_t warmups[] = {0, 1, 2, 3, 10, 59, 60, 61, 100};
  for (int n = 0; n < 36; ++n) {
    deepspeed_t d = {.log = n % 2,
                     .warmup = warmups[n / 2 % 9],
                     .total = 60,
                     .min_lr = n / 18 ? 1e-5 : 0,
                     .max_lr = 3e-4,
                     .warmup_min_ratio = n / 18 ? 0.25 : 0,
                     .cos_min_ratio = n / 18 ? 0.1 : 1e-4};
    check_deepspeed(&d);
  }
  deepspeed_t one = {.warmup = 1, .total = 1, .max_lr = 1};
  check_deepspeed(&one);
}

/* The states' edges, in numbers. */
static void edges(void **state) {
  (void)state;
  zr_schedule_params_t s = {.kind = ZR_SCHEDULE_WARMUP_LINEAR, .lr = 1, .total_steps = 10};
  near(&s, 1, 0.9); /* no warm-up: the decay has begun */
  s.warmup_steps = 1;
  near(&s, 1, 1);
  near(&s, 9, 1.0 / 9);
  near(&s, 10, 0);
  near(&s, 11, 0);
  s.kind = ZR_SCHEDULE_WARMUP_COSINE;
  s.min_lr = 0.5;
  near(&s, 10, 0.5);
  near(&s, 1000000, 0.5);
  s.cosine_ahead = 1;
  near(&s, 9, 0.5);
  s = (zr_schedule_params_t){.kind = ZR_SCHEDULE_WARMUP_LINEAR, .lr = 1, .warmup_steps = 10};
  s.total_steps = 10;
  near(&s, 9, 0.9);
  near(&s, 10, 0); /* the warm-up is the run */
}

/* --- OneCycle --------------------------------------------------------------------------------- */

typedef struct {
  double min_lr, max_lr, decay_lr_rate, first, second, decay_step, min_mom, max_mom;
  double first_stairs, second_stairs;
} cycle_t;

/* get_lr and get_mom of the class for batch_iteration = n. */
static double scale_factor(const cycle_t *c, double n) {
  double total = c->first + c->second, ratio = c->first / total;
  double cycle = floor(1 + n / total), x = 1.0 + n / total - cycle;
  double scale = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  double stairs = x <= ratio ? c->first_stairs : c->second_stairs;
  if (stairs <= 0) return scale;
  double at = fmod(n, total);
  return (at <= c->first ? floor(at * stairs / c->first)
                         : floor((total - at) * stairs / c->second)) /
         stairs;
}

static void check_cycle(const cycle_t *c) {
  zr_schedule_params_t s = {.kind = ZR_SCHEDULE_ONE_CYCLE,
                            .lr = c->max_lr,
                            .min_lr = c->min_lr,
                            .cycle = {.first_steps = c->first,
                                      .second_steps = c->second,
                                      .first_stairs = (int64_t)c->first_stairs,
                                      .second_stairs = (int64_t)c->second_stairs,
                                      .decay_steps = c->decay_step,
                                      .decay_rate = c->decay_lr_rate,
                                      .cycle_momentum = 1,
                                      .min_momentum = c->min_mom,
                                      .max_momentum = c->max_mom}};
  double total = c->first + c->second;
  for (int64_t step = 1; step <= (int64_t)total + 30; ++step) {
    double n = (double)(step - 1), last = n - 1, lr, mom, beta1 = 0.5, beta2 = 0.5;
    zr_schedule_betas(&s, step, &beta1, &beta2);
    if (last < total) {
      lr = c->min_lr + (c->max_lr - c->min_lr) * scale_factor(c, n);
      mom = c->max_mom - (c->max_mom - c->min_mom) * scale_factor(c, n);
    } else {
      bool skips = c->decay_step == 0 || c->decay_lr_rate == 0;
      lr = skips ? c->min_lr
                 : c->min_lr / (1 + c->decay_lr_rate * ((last - total + 1) / c->decay_step));
      mom = c->max_mom;
    }
    if (!(fabs(zr_schedule_lr(&s, step) - lr) <= 1e-12 * c->max_lr))
      print_error("step %d: %.17g, not %.17g\n", (int)step, zr_schedule_lr(&s, step), lr);
    assert_true(fabs(zr_schedule_lr(&s, step) - lr) <= 1e-12 * c->max_lr);
    assert_true(fabs(beta1 - mom) <= 1e-12 && beta2 == 0.99);
  }
}

static void one_cycle_is_deepspeeds(void **state) {
  (void)state;
  static const cycle_t cycles[] = {
      {1e-4, 1e-2, 0, 10, 10, 0, 0.8, 0.9, 0, 0},  {1e-4, 1e-2, 0.5, 7, 13, 4, 0.85, 0.99, 0, 0},
      {1e-4, 1e-2, 0.5, 1, 1, 1, 0.8, 0.9, 0, 0},  {1e-3, 1e-2, 2, 16, 4, 0, 0.8, 0.9, 4, 4},
      {1e-4, 1e-2, 0, 9, 8, 3, 0.8, 0.9, 3, 2},    {0, 1, 0.1, 5, 20, 10, 0.9, 0.8, 5, 0},
      {1e-2, 1e-4, 0.1, 6, 6, 10, 0.8, 0.9, 0, 3},
  };
  for (size_t i = 0; i < sizeof cycles / sizeof cycles[0]; ++i) check_cycle(&cycles[i]);
  zr_schedule_params_t s = {.kind = ZR_SCHEDULE_ONE_CYCLE, .cycle = {10, 10, 0, 0, 0, 0, 0, 1, 1}};
  double beta1 = 0.5, beta2 = 0.25;
  zr_schedule_betas(&s, 5, &beta1, &beta2);
  assert_true(beta1 == 0.5 && beta2 == 0.25); /* not asked to */
}

/* The bias correction is that of torch's Adam with the betas of the moment. */
static void cycled_betas_reach_the_update(void **state) {
  (void)state;
  zr_control_t ctl;
  memset(&ctl, 0, sizeof ctl);
  ctl.schedule = (zr_schedule_params_t){.kind = ZR_SCHEDULE_ONE_CYCLE, .lr = 1, .min_lr = 0.5};
  ctl.schedule.cycle = (zr_one_cycle_t){4, 4, 0, 0, 0, 0, 1, 0.8, 0.9};
  ctl.beta1 = 0.5, ctl.beta2 = 0.5, ctl.bias_correction = 1;
  for (int t = 1; t <= 12; ++t) {
    double n = t - 1, height = n > 8 ? 0 : n <= 4 ? n / 4 : (8 - n) / 4, beta1 = 0.9 - 0.1 * height;
    zr_control_begin(&ctl);
    zr_control_update(&ctl);
    assert_true(ctl.step_size == (float)((0.5 + 0.5 * height) / (1 - pow(beta1, t))));
    assert_true(ctl.one_minus_beta1 == (float)(1 - beta1) && ctl.beta2_f32 == 0.99f);
    assert_true(ctl.inv_sqrt_bias2 == (float)(1 / sqrt(1 - pow(0.99, t))));
  }
}

/* --- WSD -------------------------------------------------------------------------------------- */

static void warmup_stable_decay(void **state) {
  (void)state;
  for (int shape = ZR_DECAY_LINEAR; shape <= ZR_DECAY_1_SQRT; ++shape) {
    zr_schedule_params_t s = {.kind = ZR_SCHEDULE_WSD,
                              .lr = 1,
                              .min_lr = 0.1,
                              .warmup_steps = 10,
                              .total_steps = 100,
                              .decay_steps = 20,
                              .decay_shape = shape};
    near(&s, 1, 0.1);
    near(&s, 5, 0.5);
    for (int64_t step = 10; step <= 80; ++step) near(&s, step, 1);
    for (int64_t step = 81; step < 100; ++step) {
      double x = (double)(step - 80) / 20;
      double left = shape == ZR_DECAY_LINEAR   ? 1 - x
                    : shape == ZR_DECAY_COSINE ? (1 + cos(pi * x)) / 2
                                               : 1 - sqrt(x);
      near(&s, step, 0.1 + 0.9 * left);
      assert_true(zr_schedule_lr(&s, step + 1) < zr_schedule_lr(&s, step));
    }
    near(&s, 100, 0.1);
    near(&s, 500, 0.1);
    s.decay_steps = 0;
    near(&s, 99, 1);
    near(&s, 100, 0.1);
    s.decay_steps = 90;
    s.decay_shape = ZR_DECAY_LINEAR;
    near(&s, 55, 0.55);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(warm_ups_are_deepspeeds), cmocka_unit_test(edges),
      cmocka_unit_test(one_cycle_is_deepspeeds), cmocka_unit_test(cycled_betas_reach_the_update),
      cmocka_unit_test(warmup_stable_decay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
