/* The schedule of the learning rate, from the parameters of its type. */
#include <math.h>
#include <string.h>

#include "runtime/train/config_put.h"

#define PARAM(name) "scheduler.params." name

enum { /* sets of types */
       WARMUP = 1 << ZR_SCHEDULER_WARMUP_LR,
       WARMUP_DECAY = 1 << ZR_SCHEDULER_WARMUP_DECAY_LR,
       WARMUP_COSINE = 1 << ZR_SCHEDULER_WARMUP_COSINE_LR,
       WSD = 1 << ZR_SCHEDULER_WSD,
       ONE_CYCLE = 1 << ZR_SCHEDULER_ONE_CYCLE,
       DEEPSPEEDS = WARMUP | WARMUP_DECAY | WARMUP_COSINE,
       OURS = 1 << ZR_SCHEDULER_COSINE | 1 << ZR_SCHEDULER_LINEAR | WSD,
       DECAYS = WARMUP_DECAY | WARMUP_COSINE | OURS
};

static const struct {
  const char *key;
  int types;
} owners[] = {
    {PARAM("warmup_min_lr"), WARMUP | WARMUP_DECAY | OURS},
    {PARAM("warmup_max_lr"), WARMUP | WARMUP_DECAY},
    {PARAM("warmup_num_steps"), DEEPSPEEDS | OURS},
    {PARAM("warmup_type"), DEEPSPEEDS},
    {PARAM("warmup_min_ratio"), WARMUP_COSINE},
    {PARAM("cos_min_ratio"), WARMUP_COSINE},
    {PARAM("min_lr"), OURS},
    {PARAM("total_num_steps"), DECAYS},
    {PARAM("decay_num_steps"), WSD},
    {PARAM("decay_type"), WSD},
    {PARAM("cycle_min_lr"), ONE_CYCLE},
    {PARAM("cycle_max_lr"), ONE_CYCLE},
    {PARAM("cycle_first_step_size"), ONE_CYCLE},
    {PARAM("cycle_second_step_size"), ONE_CYCLE},
    {PARAM("cycle_first_stair_count"), ONE_CYCLE},
    {PARAM("cycle_second_stair_count"), ONE_CYCLE},
    {PARAM("decay_step_size"), ONE_CYCLE},
    {PARAM("decay_lr_rate"), ONE_CYCLE},
    {PARAM("cycle_momentum"), ONE_CYCLE},
    {PARAM("cycle_min_mom"), ONE_CYCLE},
    {PARAM("cycle_max_mom"), ONE_CYCLE},
};

/* What the file or the command line says; what is resolved is the program's. */
static bool is_users(const zr_config_file_t *config, const char *key) {
  size_t row = (size_t)zr_options_find(config->options, key);
  zr_option_source_t source = zr_options_source(config->options, row);
  return source == ZR_OPTION_FROM_FILE || source == ZR_OPTION_FROM_COMMAND_LINE;
}

void zr_config_schedule_needless(const zr_config_file_t *config, zr_config_needless_fn_t fn,
                                 void *context) {
  const zr_config_t *v = &config->values;
  int type = 1 << v->scheduler;
  for (size_t i = 0; i < sizeof owners / sizeof owners[0]; ++i) {
    if (owners[i].types & type || !is_users(config, owners[i].key)) continue;
    fn(context, owners[i].key, "this scheduler.type has no such parameter");
  }
  static const char lr[] = "optimizer.params.lr";
  if (v->schedule.lr == v->lr || !zr_config_is_given(config, lr)) return;
  fn(context, lr,
     type == ONE_CYCLE ? "this scheduler takes cycle_min_lr and cycle_max_lr, as in DeepSpeed"
                       : "this scheduler takes warmup_max_lr, as in DeepSpeed");
}

static zr_status_t resolve_peak(zr_config_file_t *config) {
  static const char max_key[] = PARAM("warmup_max_lr");
  zr_config_t *v = &config->values;
  if (isnan(v->warmup_min_lr)) ZR_TRY(zr_config_put(config, PARAM("warmup_min_lr"), "0"));
  if (!((WARMUP | WARMUP_DECAY) & 1 << v->scheduler)) return ZR_OK;
  if (!zr_config_is_given(config, max_key)) {
    return zr_config_put(config, max_key, "0.001"); /* DeepSpeed's default */
  }
  return isnan(v->warmup_max_lr) ? zr_config_put_double(config, max_key, v->lr) : ZR_OK;
}

static zr_status_t resolve_decay(zr_config_file_t *config) {
  static const char decay_key[] = PARAM("decay_num_steps");
  zr_config_t *v = &config->values;
  if (v->scheduler != ZR_SCHEDULER_WSD) return ZR_OK;
  if (v->decay_steps == ZR_OPTION_AUTO_INT) {
    int64_t rest = v->total_steps - v->warmup_steps, tenth = (v->total_steps + 9) / 10;
    ZR_TRY(zr_config_put_int(config, decay_key, tenth < rest ? tenth : rest));
  }
  if (v->warmup_steps + v->decay_steps > v->total_steps) {
    return zr_options_complain(config->options, decay_key,
                               "= %lld and warmup_num_steps = %lld are together more than "
                               "total_num_steps = %lld",
                               (long long)v->decay_steps, (long long)v->warmup_steps,
                               (long long)v->total_steps);
  }
  return ZR_OK;
}

static zr_status_t resolve_lengths(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  static const char warmup_key[] = PARAM("warmup_num_steps");
  if (!zr_config_is_given(config, warmup_key) || v->warmup_steps == ZR_OPTION_AUTO_INT) {
    bool deepspeeds = (DEEPSPEEDS & 1 << v->scheduler) != 0;
    ZR_TRY(zr_config_put_int(config, warmup_key, deepspeeds ? 1000 : 0));
  }
  if (!(DECAYS & 1 << v->scheduler)) return ZR_OK;
  if (v->total_steps == 0 || v->total_steps == ZR_OPTION_AUTO_INT) {
    if (v->steps == 0) return ZR_OK; /* not known yet */
    ZR_TRY(zr_config_put_int(config, PARAM("total_num_steps"), v->steps));
  }
  if (v->warmup_steps >= v->total_steps && v->warmup_steps > 0) {
    return zr_options_complain(config->options, warmup_key,
                               "= %lld must be less than total_num_steps = %lld",
                               (long long)v->warmup_steps, (long long)v->total_steps);
  }
  return resolve_decay(config);
}

static zr_status_t resolve_cycle(zr_config_file_t *config) {
  static const char second_key[] = PARAM("cycle_second_step_size");
  static const char stairs_key[] = PARAM("cycle_second_stair_count");
  zr_config_t *v = &config->values;
  if (v->scheduler != ZR_SCHEDULER_ONE_CYCLE) return ZR_OK;
  if (isnan(v->cycle_min_lr) || isnan(v->cycle_max_lr)) {
    return zr_options_complain(config->options, "scheduler.type",
                               "= OneCycle needs scheduler.params.cycle_min_lr and cycle_max_lr");
  }
  if (v->cycle_second_steps == ZR_OPTION_AUTO_INT) {
    ZR_TRY(zr_config_put_int(config, second_key, v->cycle_first_steps));
  }
  if (v->cycle_second_stairs != ZR_OPTION_AUTO_INT) return ZR_OK;
  return zr_config_put_int(config, stairs_key, v->cycle_first_stairs);
}

static void fill_cycle(const zr_config_t *v, zr_schedule_params_t *schedule) {
  bool has_betas = v->optimizer != ZR_OPTIMIZER_SGD && v->optimizer != ZR_OPTIMIZER_ADAGRAD;
  schedule->kind = ZR_SCHEDULE_ONE_CYCLE;
  schedule->lr = v->cycle_max_lr;
  schedule->min_lr = v->cycle_min_lr;
  schedule->cycle = (zr_one_cycle_t){.first_steps = (double)v->cycle_first_steps,
                                     .second_steps = (double)v->cycle_second_steps,
                                     .first_stairs = v->cycle_first_stairs,
                                     .second_stairs = v->cycle_second_stairs,
                                     .decay_steps = (double)v->cycle_decay_steps,
                                     .decay_rate = v->decay_lr_rate,
                                     .cycle_momentum = v->cycle_momentum && has_betas,
                                     .min_momentum = v->cycle_min_mom,
                                     .max_momentum = v->cycle_max_mom};
}

static void fill_deepspeeds(const zr_config_t *v, zr_schedule_params_t *schedule) {
  bool logarithmic = v->warmup_type == 0;
  if (schedule->warmup_steps < 2) schedule->warmup_steps = 2; /* as DeepSpeed */
  switch (v->scheduler) {
    case ZR_SCHEDULER_WARMUP_LR:
      schedule->kind = logarithmic ? ZR_SCHEDULE_WARMUP_LOG : ZR_SCHEDULE_WARMUP;
      schedule->lr = v->warmup_max_lr;
      break;
    case ZR_SCHEDULER_WARMUP_DECAY_LR:
      schedule->kind = logarithmic ? ZR_SCHEDULE_WARMUP_LOG_LINEAR : ZR_SCHEDULE_WARMUP_LINEAR;
      schedule->lr = v->warmup_max_lr;
      schedule->min_lr = v->warmup_min_lr;
      break;
    default:
      schedule->kind = logarithmic ? ZR_SCHEDULE_WARMUP_LOG_COSINE : ZR_SCHEDULE_WARMUP_COSINE;
      schedule->warmup_min_lr = v->warmup_min_ratio * v->lr;
      schedule->min_lr = v->cos_min_ratio * v->lr;
      schedule->cosine_ahead = 1;
      break;
  }
}

static void fill_schedule(zr_config_t *v) {
  zr_schedule_params_t schedule = {.kind = ZR_SCHEDULE_CONSTANT,
                                   .lr = v->lr,
                                   .warmup_steps = v->warmup_steps,
                                   .total_steps = v->total_steps,
                                   .warmup_min_lr = v->warmup_min_lr};
  int type = 1 << v->scheduler;
  if (type & DEEPSPEEDS) fill_deepspeeds(v, &schedule);
  if (type & ONE_CYCLE) fill_cycle(v, &schedule);
  if (type & OURS) {
    schedule.kind = v->scheduler == ZR_SCHEDULER_COSINE   ? ZR_SCHEDULE_WARMUP_COSINE
                    : v->scheduler == ZR_SCHEDULER_LINEAR ? ZR_SCHEDULE_WARMUP_LINEAR
                                                          : ZR_SCHEDULE_WSD;
    schedule.min_lr = v->min_lr;
  }
  if (type & WSD) {
    schedule.decay_steps = v->decay_steps;
    schedule.decay_shape = v->decay_shape;
  }
  v->schedule = schedule;
}

zr_status_t zr_config_schedule(zr_config_file_t *config) {
  ZR_TRY(resolve_peak(config));
  ZR_TRY(resolve_lengths(config));
  ZR_TRY(resolve_cycle(config));
  fill_schedule(&config->values);
  return ZR_OK;
}
