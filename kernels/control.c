#include "kernels/control.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static int warms_up_log(const zr_schedule_params_t *schedule) {
  return schedule->kind == ZR_SCHEDULE_WARMUP_LOG ||
         schedule->kind == ZR_SCHEDULE_WARMUP_LOG_LINEAR ||
         schedule->kind == ZR_SCHEDULE_WARMUP_LOG_COSINE;
}

static bool is_warming_up(const zr_schedule_params_t *schedule, int64_t step) {
  return schedule->kind != ZR_SCHEDULE_CONSTANT && step < schedule->warmup_steps;
}

/* DeepSpeed's warm-up factors with its iteration count taken as `step`, so that no update is made
 * with the learning rate from before the first one. The logarithm is at its end a step early. */
static double warmup_lr(const zr_schedule_params_t *schedule, int64_t step) {
  double factor = (double)step / (double)schedule->warmup_steps;
  /* step < warmup_steps, so warmup_steps >= 2 and the logarithm is positive */
  if (warms_up_log(schedule))
    factor = log((double)step + 1.0) / log((double)schedule->warmup_steps);
  if (factor >= 1.0) return schedule->lr;
  return schedule->warmup_min_lr + (schedule->lr - schedule->warmup_min_lr) * factor;
}

/* 0 at step `begin`, 1 at step `end` and after it. */
static double progress(int64_t begin, int64_t end, int64_t step) {
  if (step >= end) return 1.0;
  return step <= begin ? 0.0 : (double)(step - begin) / (double)(end - begin);
}

/* What is left of the range of learning rates. */
static double left_at(zr_decay_shape_t shape, double x) {
  switch (shape) {
    case ZR_DECAY_COSINE:
      return 0.5 * (1.0 + cos(pi * x));
    case ZR_DECAY_1_SQRT:
      return 1.0 - sqrt(x);
    default:
      return 1.0 - x;
  }
}

/* --- one cycle ------------------------------------------------------------------------------- */

/* 0 at the ends of the cycle, 1 at its peak. */
static double cycle_height(const zr_one_cycle_t *cycle, double n) {
  bool rises = n <= cycle->first_steps;
  double height = rises ? n / cycle->first_steps
                        : (cycle->first_steps + cycle->second_steps - n) / cycle->second_steps;
  int64_t stairs = rises ? cycle->first_stairs : cycle->second_stairs;
  return stairs > 0 ? floor(height * (double)stairs) / (double)stairs : height;
}

static double cycle_lr(const zr_schedule_params_t *schedule, int64_t step) {
  const zr_one_cycle_t *cycle = &schedule->cycle;
  double n = (double)(step - 1), after = n - (cycle->first_steps + cycle->second_steps);
  if (after <= 0) {
    return schedule->min_lr + (schedule->lr - schedule->min_lr) * cycle_height(cycle, n);
  }
  if (cycle->decay_steps <= 0) return schedule->min_lr;
  return schedule->min_lr / (1.0 + cycle->decay_rate * (after / cycle->decay_steps));
}

void zr_schedule_betas(const zr_schedule_params_t *schedule, int64_t step, double *beta1,
                       double *beta2) {
  const zr_one_cycle_t *cycle = &schedule->cycle;
  if (schedule->kind != ZR_SCHEDULE_ONE_CYCLE || !cycle->cycle_momentum) return;
  double n = (double)(step - 1), height = 0;
  if (n <= cycle->first_steps + cycle->second_steps) height = cycle_height(cycle, n);
  *beta1 = cycle->max_momentum - (cycle->max_momentum - cycle->min_momentum) * height;
  *beta2 = 0.99;
}

double zr_schedule_lr(const zr_schedule_params_t *schedule, int64_t step) {
  if (schedule->kind == ZR_SCHEDULE_ONE_CYCLE) return cycle_lr(schedule, step);
  if (is_warming_up(schedule, step)) return warmup_lr(schedule, step);
  double range = schedule->lr - schedule->min_lr;
  int64_t begin = schedule->warmup_steps, end = schedule->total_steps;
  switch ((zr_schedule_t)schedule->kind) {
    case ZR_SCHEDULE_WARMUP_LINEAR:
    case ZR_SCHEDULE_WARMUP_LOG_LINEAR:
      return schedule->min_lr + range * left_at(ZR_DECAY_LINEAR, progress(begin, end, step));
    case ZR_SCHEDULE_WARMUP_COSINE:
    case ZR_SCHEDULE_WARMUP_LOG_COSINE:
      step += schedule->cosine_ahead;
      return schedule->min_lr + range * left_at(ZR_DECAY_COSINE, progress(begin, end, step));
    case ZR_SCHEDULE_WSD:
      if (end - schedule->decay_steps > begin) begin = end - schedule->decay_steps;
      return schedule->min_lr +
             range * left_at((zr_decay_shape_t)schedule->decay_shape, progress(begin, end, step));
    default:
      return schedule->lr;
  }
}

void zr_control_begin(zr_control_t *ctl) {
  ctl->iteration += 1;
  ctl->count_local = 0;
  memset(&ctl->norm, 0, sizeof ctl->norm);
  memset(&ctl->loss, 0, sizeof ctl->loss);
  memset(ctl->digest_sum, 0, sizeof ctl->digest_sum);
  ctl->n_bad_params = 0;
  ctl->flags = 0;
}

zr_loss_scale_params_t zr_loss_scale_defaults(void) {
  return (zr_loss_scale_params_t){
      .dynamic = 1, .initial = 65536, .min = 1, .window = 1000, .hysteresis = 2};
}

void zr_control_scale_init(zr_control_t *ctl) {
  ctl->loss_scale = ctl->scale_params.initial > 0 ? ctl->scale_params.initial : 1.0;
  ctl->scale_chances = ctl->scale_params.hysteresis;
  ctl->scale_last_skipped = 0;
}

static void scale_after_overflow(zr_control_t *ctl) {
  const zr_loss_scale_params_t *params = &ctl->scale_params;
  ctl->scale_last_skipped = ctl->iteration;
  if (ctl->scale_chances > 1) {
    ctl->scale_chances -= 1;
    return;
  }
  ctl->scale_at_min = ctl->loss_scale <= params->min;
  double half = ctl->loss_scale / 2;
  if (!ctl->scale_at_min) ctl->loss_scale = half > params->min ? half : params->min;
}

static void scale_after_good_step(zr_control_t *ctl) {
  const zr_loss_scale_params_t *params = &ctl->scale_params;
  if (params->consecutive_hysteresis) ctl->scale_chances = params->hysteresis;
  /* DeepSpeed counts the good steps before this one: the first doubling comes one step late. */
  int64_t n_before = ctl->iteration - ctl->scale_last_skipped - 1;
  if (params->window <= 0 || n_before <= 0 || n_before % params->window != 0) return;
  ctl->scale_chances = params->hysteresis;
  ctl->loss_scale *= 2;
}

/* The scale of the next step. */
static void move_scale(zr_control_t *ctl) {
  ctl->scale_at_min = 0;
  if (!ctl->scale_params.dynamic) return;
  if (ctl->skip) {
    scale_after_overflow(ctl);
  } else {
    scale_after_good_step(ctl);
  }
}

static double scale_of(const zr_control_t *ctl) {
  return ctl->loss_scale > 0 ? ctl->loss_scale : 1.0;
}

void zr_control_count(zr_control_t *ctl) {
  double count = (double)ctl->count_local;
  ctl->inv_tokens = ctl->count_local > 0 ? (float)(scale_of(ctl) / count) : 0.0f;
}

/* torch.nn.utils.clip_grad_norm_ */
static double clip_coefficient(double max_grad_norm, double grad_norm) {
  if (max_grad_norm <= 0) return 1.0;
  double coefficient = max_grad_norm / (grad_norm + 1e-6);
  return coefficient < 1.0 ? coefficient : 1.0;
}

/* What update number `step` reads; all in double, cast once. */
static void derive_update(zr_control_t *ctl, int64_t step) {
  double t = (double)step, lr = ctl->lr_now, beta1 = ctl->beta1, beta2 = ctl->beta2;
  zr_schedule_betas(&ctl->schedule, step, &beta1, &beta2);
  ctl->lr_f32 = (float)lr;
  ctl->decay_mul = ctl->l2 ? 1.0f : (float)(1.0 - lr * ctl->weight_decay);
  ctl->step_size = (float)(lr / (1.0 + (t - 1.0) * ctl->lr_decay));
  ctl->inv_sqrt_bias2 = 1.0f;
  if (ctl->bias_correction) {
    ctl->step_size = (float)(lr / (1.0 - pow(beta1, t)));
    ctl->inv_sqrt_bias2 = (float)(1.0 / sqrt(1.0 - pow(beta2, t)));
  }
  ctl->beta1_f32 = (float)beta1;
  ctl->beta2_f32 = (float)beta2;
  ctl->one_minus_beta1 = (float)(1.0 - beta1);
  ctl->one_minus_beta2 = (float)(1.0 - beta2);
  ctl->eps_f32 = (float)ctl->eps;
  ctl->momentum_f32 = (float)ctl->momentum;
  ctl->gain = step == 1 ? 1.0f : (float)(1.0 - ctl->dampening);
}

void zr_control_update(zr_control_t *ctl) {
  double count = (double)ctl->count_local;
  double loss_sum = zr_exact_value(&ctl->loss);
  ctl->loss_value = ctl->count_local > 0 ? loss_sum / count : loss_sum;
  ctl->scale_now = scale_of(ctl);
  ctl->grad_norm = sqrt(zr_exact_value(&ctl->norm)) / ctl->scale_now;
  ctl->lr_now = zr_schedule_lr(&ctl->schedule, ctl->step + 1);
  ctl->skip = !(isfinite(ctl->loss_value) && isfinite(ctl->grad_norm));
  ctl->clip = ctl->skip ? 1.0 : clip_coefficient(ctl->max_grad_norm, ctl->grad_norm);
  ctl->clip_coef = (float)(ctl->clip / ctl->scale_now);
  derive_update(ctl, ctl->step + 1);
  move_scale(ctl);
  if (ctl->skip) {
    ctl->skipped += 1;
    ctl->skipped_in_row += 1;
    return;
  }
  ctl->step += 1;
  ctl->skipped_in_row = 0;
  ctl->tokens += ctl->count_local;
}

void zr_control_end(zr_control_t *ctl) {
  if (ctl->digest && !ctl->skip) {
    ctl->last_digest[0] = ctl->digest_sum[0];
    ctl->last_digest[1] = ctl->digest > 1 ? ctl->digest_sum[1] : 0;
    ctl->param_digest_valid = 1;
  }
  ctl->record[ctl->iteration % ZR_CONTROL_RECORDS] = (zr_step_record_t){
      .iteration = ctl->iteration,
      .step = ctl->step,
      .skipped_now = ctl->skip,
      .skipped = ctl->skipped,
      .skipped_in_row = ctl->skipped_in_row,
      .step_tokens = ctl->count_local,
      .tokens = ctl->tokens,
      .n_bad_params = ctl->n_bad_params,
      .loss = ctl->loss_value,
      .grad_norm = ctl->grad_norm,
      .clip_coef = ctl->clip,
      .lr = ctl->lr_now,
      .loss_scale = ctl->scale_now,
      .scale_at_min = ctl->scale_at_min,
      .digest_params = ctl->last_digest[0],
      .digest_states = ctl->last_digest[1],
      .flags = ctl->flags,
  };
}
