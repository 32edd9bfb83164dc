/* The control block: what changes from step to step. The plan never changes; kernels read this.
 *
 * One per tier that needs it, in a persistent buffer of the plan. Host code fills it before the
 * first step and reads it when the streams are drained, or through the records. Everything is 8
 * bytes wide so that ranges of it can be all-reduced as int64. The scalar rules below are one
 * implementation (kernels/control.c), used by every backend. */
#ifndef ZR_KERNELS_CONTROL_H
#define ZR_KERNELS_CONTROL_H

#include <stdint.h>

#include "runtime/base/exact_sum.h"

typedef enum {
  ZR_SCHEDULE_CONSTANT = 0,
  ZR_SCHEDULE_WARMUP, /* linear from warmup_min_lr to lr, then constant (DeepSpeed WarmupLR, linear)
                       */
  ZR_SCHEDULE_WARMUP_LOG,        /* DeepSpeed WarmupLR's default: logarithmic */
  ZR_SCHEDULE_WARMUP_LINEAR,     /* then linear to min_lr at total_steps (WarmupDecayLR) */
  ZR_SCHEDULE_WARMUP_COSINE,     /* then half a cosine to min_lr at total_steps */
  ZR_SCHEDULE_WARMUP_LOG_LINEAR, /* the two above with the logarithmic warm-up: DeepSpeed's */
  ZR_SCHEDULE_WARMUP_LOG_COSINE, /* default in WarmupDecayLR and WarmupCosineLR */
  ZR_SCHEDULE_ONE_CYCLE,         /* DeepSpeed's OneCycle: zr_one_cycle_t */
  ZR_SCHEDULE_WSD /* linear warm-up, constant, then down to min_lr in the last decay_steps before
                     total_steps */
} zr_schedule_t;

/* The last part of ZR_SCHEDULE_WSD over progress x from 0 to 1; Hugging Face's names. */
typedef enum {
  ZR_DECAY_LINEAR = 0, /* 1 - x */
  ZR_DECAY_COSINE,     /* (1 + cos(pi x)) / 2 */
  ZR_DECAY_1_SQRT      /* 1 - sqrt(x) */
} zr_decay_shape_t;

/* Update `step` stands at n = step - 1 of the cycle, as DeepSpeed runs it: it rises from
 * schedule.min_lr to schedule.lr in first_steps, falls back in second_steps, and then goes on as
 * min_lr / (1 + decay_rate (n - first_steps - second_steps) / decay_steps), or stays if one of the
 * two is 0. With stairs, a half moves in so many jumps. With cycle_momentum, beta1 runs the other
 * way, from max_momentum to min_momentum and back where it stays, and beta2 is 0.99. */
typedef struct {
  double first_steps, second_steps; /* > 0 */
  int64_t first_stairs, second_stairs;
  double decay_steps, decay_rate;
  int64_t cycle_momentum;
  double min_momentum, max_momentum;
} zr_one_cycle_t;

/* The learning rate of update `step` (from 1), in double. Pure. DeepSpeed's warm-up and decay with
 * their last_batch_iteration = step, so that the first update is not lost to a rate of zero.
 * Edges: warmup_steps 0 is none, and 1 is none too, for update 1 ends it (DeepSpeed takes 2 for
 * both: so does the configuration of its types). A decay has reached min_lr at total_steps, at
 * once where the warm-up is as long as the run, and stays there. */
typedef struct {
  int64_t kind; /* zr_schedule_t */
  double lr, min_lr, warmup_min_lr;
  int64_t warmup_steps, total_steps;
  int64_t decay_steps, decay_shape; /* WSD; zr_decay_shape_t */
  int64_t cosine_ahead; /* 1: the cosine is one step ahead, as in DeepSpeed's WarmupCosineLR: min_lr
                           at total_steps - 1 */
  zr_one_cycle_t cycle;
} zr_schedule_params_t;
double zr_schedule_lr(const zr_schedule_params_t *schedule, int64_t step);
/* The betas of update `step`: those given, unless the schedule has its own. */
void zr_schedule_betas(const zr_schedule_params_t *schedule, int64_t step, double *beta1,
                       double *beta2);

/* Loss scaling for fp16: gradients are those of loss * scale. DeepSpeed's rules (DynamicLossScaler)
 * and, in brackets, its defaults. A step whose loss or gradient is not finite is skipped. Each such
 * step halves the scale, never below `min`, once `hysteresis` - 1 of them have been let pass. The
 * scale doubles at the good step that has `window` good ones, or a multiple, between itself and the
 * last skipped one; then the full hysteresis is due again (with `consecutive_hysteresis`, after any
 * good step). */
typedef struct {
  int64_t dynamic;                /* 0: the scale stays at `initial` (static), whatever happens */
  double initial;                 /* [65536]; > 0 */
  double min;                     /* [1] */
  int64_t window;                 /* [1000] */
  int64_t hysteresis;             /* [2] */
  int64_t consecutive_hysteresis; /* [0] */
} zr_loss_scale_params_t;
/* DeepSpeed's defaults with loss_scale: 0, dynamic. */
zr_loss_scale_params_t zr_loss_scale_defaults(void);

enum { ZR_CONTROL_RECORDS = 4 };

/* What the log line of a step needs; written by control_end. */
typedef struct {
  int64_t iteration;   /* steps tried so far, this one included (from 1) */
  int64_t step;        /* updates done so far (a skipped step repeats the last one's number) */
  int64_t skipped_now; /* 1: this step's update was skipped */
  int64_t skipped;     /* so far */
  int64_t skipped_in_row;
  int64_t step_tokens; /* counted in this step, all ranks */
  int64_t tokens;      /* counted so far */
  int64_t
      n_bad_params; /* parameters that this update made non-finite (own shard; > 0 ends the run) */
  double loss;      /* sum of losses / step_tokens */
  double grad_norm; /* before clipping, of the gradient without the loss scale */
  double clip_coef;
  double lr;
  double loss_scale;    /* of this step; 1 when unused */
  int64_t scale_at_min; /* 1: was to be halved and can not: DeepSpeed ends the run */
  uint64_t digest_params, digest_states;
  int64_t flags; /* as the all-reduce left them: how many ranks asked to save, to stop */
} zr_step_record_t;

typedef struct {
  /* set by the host before the first step */
  int64_t rank, n_ranks;
  int64_t digest; /* 0 none, 1 params, 2 params and states */
  zr_schedule_params_t schedule;
  double beta1, beta2, eps, weight_decay;
  double max_grad_norm;    /* 0: no clipping */
  int64_t bias_correction; /* 1: as torch */
  int64_t l2; /* 1: weight decay is added to the gradient (Adam, SGD, Adagrad), 0: decoupled */
  double momentum, dampening; /* SGD */
  int64_t nesterov;           /* SGD */
  double lr_decay;            /* Adagrad */
  uint64_t seed;              /* of the rounding of 16-bit states */
  zr_loss_scale_params_t scale_params;

  /* persistent counters: saved in checkpoints */
  int64_t iteration, step, skipped, skipped_in_row, tokens;
  int64_t param_digest_valid; /* 0 until an update has taken digests */
  uint64_t last_digest[2];    /* what a skipped step repeats */
  double loss_scale;          /* of the next step; 0 means unused, as 1 does */
  int64_t scale_chances;      /* overflows until the scale is halved, that one included */
  int64_t scale_last_skipped; /* iteration, 0: none yet */

  /* all-reduce 1: before the backward */
  int64_t count_local; /* becomes the sum over ranks */
  /* all-reduce 2: after it */
  zr_exact_sum_t norm; /* sum of squares of this rank's share of the gradient */
  zr_exact_sum_t loss;
  int64_t flags; /* ranks that ask for: low 32 bits save, high 32 bits stop */
  /* all-reduce 3: after the update */
  uint64_t digest_sum[2]; /* parameters; states of the optimizer */
  int64_t n_bad_params;

  /* derived; fp32 values are what kernels use */
  float inv_tokens, pad0_; /* (float)(loss scale / count_local) */
  double loss_value, grad_norm, clip, lr_now, scale_now;
  int64_t scale_at_min;
  float clip_coef;         /* (float)(clip / scale_now): what gradients are multiplied with */
  float lr_f32, decay_mul; /* decay_mul = (float)(1 - lr wd) computed in double */
  float step_size; /* (float)(lr / (1 - beta1^t)); Adagrad: (float)(lr / (1 + (t - 1) lr_decay)) */
  float inv_sqrt_bias2; /* (float)(1 / sqrt(1 - beta2^t)) */
  float beta1_f32, beta2_f32, one_minus_beta1, one_minus_beta2, eps_f32;
  float momentum_f32;
  float gain;   /* (float)(1 - dampening); 1 at update 1: torch's buffer begins as a gradient */
  int64_t skip; /* 1: non-finite norm or loss */
  zr_step_record_t record[ZR_CONTROL_RECORDS]; /* of iteration i in slot i % ZR_CONTROL_RECORDS */
} zr_control_t;

/* Before the first step of a new run: the scale and its counters from scale_params. A resumed run
 * sets the three persistent fields as they were instead. */
void zr_control_scale_init(zr_control_t *ctl);

/* Scalar rules, called by every backend's `run` for the control kinds. */
void zr_control_begin(zr_control_t *ctl);
void zr_control_count(zr_control_t *ctl);
void zr_control_update(zr_control_t *ctl);
void zr_control_end(zr_control_t *ctl);

/* The formulas that read it: kernels/adamw.h, kernels/optimizer.h. */

#endif
