/* The optimizers' formulas: torch.optim's numbers over several steps, the split master, and the
 * stochastic rounding of bf16 states. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/optimizer.h"
#include "tests/support/cmocka_all.h"

enum { N = 5, STEPS = 6 };

/* A row of the golden file: what the optimizer was made with, and parameters after each step. */
typedef struct {
  const char *name;
  int32_t kind;
  double lr, beta1, beta2, eps, weight_decay, momentum, dampening;
  int nesterov;
  double lr_decay, initial_accumulator;
  int l2;
  double p[STEPS][N];
} golden_t;

static const golden_t golden[] = {
#include "tests/golden/optimizers.inc"
};
enum { N_GOLDEN = sizeof golden / sizeof golden[0] };
static const float first_p[N] = {0.5f, -1.0f, 2.0f, 0.25f, 1e-3f};

static float gradient(int step, int i) {
  return i == 3 ? 0.0f : (float)sin(1.7 * step + 0.9 * i);
}

static zr_control_t control_of(const golden_t *g) {
  zr_control_t ctl;
  memset(&ctl, 0, sizeof ctl);
  ctl.schedule = (zr_schedule_params_t){.kind = ZR_SCHEDULE_CONSTANT, .lr = g->lr};
  ctl.beta1 = g->beta1, ctl.beta2 = g->beta2, ctl.eps = g->eps, ctl.weight_decay = g->weight_decay;
  ctl.momentum = g->momentum, ctl.dampening = g->dampening, ctl.nesterov = g->nesterov;
  ctl.lr_decay = g->lr_decay, ctl.l2 = g->l2;
  ctl.bias_correction = g->kind == ZR_OP_ADAMW;
  return ctl;
}

/* The next update's numbers; skip: it is tried in vain first. */
static void next_step(zr_control_t *ctl, bool skip) {
  zr_control_begin(ctl);
  if (skip) zr_exact_add(&ctl->norm, INFINITY);
  zr_control_update(ctl);
  zr_control_end(ctl);
  assert_int_equal(ctl->skip, skip);
}

static void follows_torch(void **state) {
  (void)state;
  assert_true(N_GOLDEN >= 10);
  for (int n = 0; n < N_GOLDEN; ++n) {
    const golden_t *g = &golden[n];
    zr_control_t ctl = control_of(g);
    float p[N], s[ZR_MAX_STATES][N];
    memcpy(p, first_p, sizeof p);
    for (int i = 0; i < N; ++i) s[0][i] = (float)g->initial_accumulator, s[1][i] = 0;
    for (int t = 0; t < STEPS; ++t) {
      if (t % 2 == 1) next_step(&ctl, true); /* a skipped step moves nothing */
      next_step(&ctl, false);
      for (int i = 0; i < N; ++i) {
        float *at[] = {g->kind == ZR_OP_SGD && g->momentum == 0 ? NULL : &s[0][i], &s[1][i]};
        zr_optimizer_element(g->kind, &ctl, 1, gradient(t + 1, i), &p[i], at);
        if (!(fabs((double)p[i] - g->p[t][i]) <= 4e-6 * fmax(fabs(g->p[t][i]), 0.1)))
          print_error("%s, step %d, element %d: %.9g, not %.9g\n", g->name, t + 1, i, (double)p[i],
                      g->p[t][i]);
        assert_true(fabs((double)p[i] - g->p[t][i]) <= 4e-6 * fmax(fabs(g->p[t][i]), 0.1));
      }
    }
  }
}

/* Zeros stay zeros: padding, and a gradient that is all zero, are no NaN. */
static void zero_stays_zero(void **state) {
  (void)state;
  for (int n = 0; n < N_GOLDEN; ++n) {
    zr_control_t ctl = control_of(&golden[n]);
    next_step(&ctl, false);
    float p = 0, s[ZR_MAX_STATES] = {0, 0}, *at[] = {&s[0], &s[1]};
    zr_optimizer_element(golden[n].kind, &ctl, 1, 0, &p, at);
    assert_true(p == 0 && s[0] == 0 && s[1] == 0);
  }
}

static void a_tensor_that_does_not_decay(void **state) {
  (void)state;
  for (int n = 0; n < N_GOLDEN; ++n) {
    zr_control_t ctl = control_of(&golden[n]), plain = ctl;
    plain.weight_decay = 0;
    next_step(&ctl, false);
    next_step(&plain, false);
    float p[2] = {2, 2}, s[2][ZR_MAX_STATES] = {{0.5f, 0.5f}, {0.5f, 0.5f}};
    for (int k = 0; k < 2; ++k) {
      float *at[] = {&s[k][0], &s[k][1]};
      zr_optimizer_element(golden[n].kind, k ? &plain : &ctl, k, 0.25f, &p[k], at);
    }
    assert_true(p[0] == p[1] && s[0][0] == s[1][0] && s[0][1] == s[1][1]);
  }
}

/* --- rounding --------------------------------------------------------------------------------- */

/* A value between two bf16 numbers becomes one of them, the nearer one more often: its mean is
 * right within five standard deviations. */
static void rounding_is_unbiased(void **state) {
  (void)state;
  static const float values[] = {1.0f, 1.001f, 1.0039f, -3.1415927f, 1e-20f, 0.1f, 7e-39f, -1e30f};
  enum { DRAWS = 20000 };
  for (size_t i = 0; i < sizeof values / sizeof values[0]; ++i) {
    float value = values[i];
    uint32_t bits = zr_f32_bits(value);
    double low = (double)zr_f32_of_bits(bits & 0xffff0000u);
    double high = (double)zr_f32_of_bits((bits & 0xffff0000u) + 0x10000u);
    double share = ((double)value - low) / (high - low);
    for (int half = 0; half < 2; ++half) {
      int n_high = 0;
      uint64_t key = zr_state_round_key(7, i + 1, half);
      for (uint64_t n = 0; n < DRAWS; ++n) {
        uint32_t word = zr_state_round_bits(key, n);
        double got =
            (double)zr_bf16_to_f32(zr_bf16_round_random(value, half ? word >> 16 : word & 0xffffu));
        assert_true(got == low || got == high);
        n_high += got == high && high != low;
      }
      double slack = 5 * sqrt(share * (1 - share) * DRAWS);
      assert_true(fabs(n_high - share * DRAWS) <= slack);
    }
  }
}

static void what_is_bf16_or_not_finite_stays(void **state) {
  (void)state;
  for (uint32_t high = 0; high < 0x10000u; ++high) {
    float value = zr_bf16_to_f32((uint16_t)high);
    uint16_t got = zr_bf16_round_random(value, 0xffffu);
    if (isnan(value)) {
      assert_true(isnan(zr_bf16_to_f32(got)));
    } else {
      assert_int_equal(got, high);
    }
  }
  assert_true(isnan(zr_bf16_to_f32(zr_bf16_round_random(zr_f32_of_bits(0x7f800001u), 0xffffu))));
  assert_int_equal(zr_bf16_round_random(INFINITY, 0xffffu), 0x7f80);
}

/* Each of the seed, the tensor, the step, the element and the state has random bits of its own. */
static void random_bits_differ(void **state) {
  (void)state;
  uint64_t base = zr_state_round_key(1, 2, 3);
  assert_true(base != zr_state_round_key(2, 2, 3) && base != zr_state_round_key(1, 3, 3) &&
              base != zr_state_round_key(1, 2, 4));
  int n_equal = 0, n_bits = 0;
  for (uint64_t i = 0; i < 4096; ++i) {
    uint32_t a = zr_state_round_bits(base, i), b = zr_state_round_bits(base, i + 1);
    n_equal += (a & 0xffffu) == a >> 16;
    n_bits += __builtin_popcount(a ^ b);
  }
  assert_true(n_equal <= 3);
  assert_true(abs(n_bits - 4096 * 16) <= 5 * 181); /* sqrt(4096 * 32 / 4) = 181 */
}

/* A second moment in bf16 that grows by less than half a unit each step still gets there. */
static void small_steps_are_not_lost(void **state) {
  (void)state;
  enum { ELEMS = 512 };
  zr_control_t ctl;
  memset(&ctl, 0, sizeof ctl);
  ctl.beta1 = 0.9, ctl.beta2 = 0.999;
  double mean = 0, nearest = 0;
  for (int i = 0; i < ELEMS; ++i) {
    uint16_t v = 0, rounded = 0;
    for (int t = 1; t <= 2000; ++t) {
      uint32_t random = zr_state_round_bits(zr_state_round_key(5, 6, t), (uint64_t)i) >> 16;
      v = zr_bf16_round_random(fmaf(0.001f, 1.0f, 0.999f * zr_bf16_to_f32(v)), random);
      rounded = zr_bf16_from_f32(fmaf(0.001f, 1.0f, 0.999f * zr_bf16_to_f32(rounded)));
    }
    mean += (double)zr_bf16_to_f32(v) / ELEMS;
    nearest = (double)zr_bf16_to_f32(rounded);
  }
  double want = 1 - pow(0.999, 2000); /* 0.865 */
  assert_true(fabs(mean - want) <= 0.01 * want);
  assert_true(nearest < 0.6 * want); /* rounding to nearest stops early */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(follows_torch),
      cmocka_unit_test(zero_stays_zero),
      cmocka_unit_test(a_tensor_that_does_not_decay),
      cmocka_unit_test(rounding_is_unbiased),
      cmocka_unit_test(what_is_bf16_or_not_finite_stays),
      cmocka_unit_test(random_bits_differ),
      cmocka_unit_test(small_steps_are_not_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
