/* Numeric types: bf16, fp16 and its loss scale, the type of gradient sums. */
#include <math.h>
#include <stddef.h>

#include "runtime/train/config.h"

static const char *const dtype_names[] = {"fp32", "bf16", "fp16"};
static const zr_dtype_t dtypes[] = {ZR_F32, ZR_BF16, ZR_F16};

static zr_status_t put(zr_config_file_t *config, const char *key, const char *text) {
  return zr_options_set(config->options, key, text, ZR_OPTION_FROM_PROGRAM, "resolved");
}

static size_t row_of(const zr_config_file_t *config, const char *key) {
  return (size_t)zr_options_find(config->options, key);
}

static zr_status_t resolve_param(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  if (v->bf16 == 1 && v->fp16 == 1) {
    return zr_options_complain(config->options, "fp16.enabled",
                               "= true and 'bf16.enabled' = true (%s) exclude each other; keep one",
                               zr_options_where(config->options, row_of(config, "bf16.enabled")));
  }
  if (v->bf16 < 0) ZR_TRY(put(config, "bf16.enabled", "false"));
  if (v->fp16 < 0) ZR_TRY(put(config, "fp16.enabled", "false"));
  v->dtype = v->bf16 ? ZR_BF16 : v->fp16 ? ZR_F16 : ZR_F32;
  return ZR_OK;
}

static zr_status_t resolve_sums(zr_config_file_t *config) {
  static const char comm_key[] = "communication_data_type";
  zr_config_t *v = &config->values;
  const char *name = dtype_names[v->grad_accum_dtype];
  if (dtypes[v->grad_accum_dtype] == ZR_F16) {
    return zr_options_complain(config->options, "data_types.grad_accum_dtype",
                               "must be fp32 or bf16: sums of gradients leave the range of fp16");
  }
  bool given =
      zr_options_source(config->options, row_of(config, comm_key)) != ZR_OPTION_FROM_DEFAULT;
  if (given && v->comm_dtype != v->grad_accum_dtype) {
    return zr_options_complain(config->options, comm_key,
                               "= %s must be data_types.grad_accum_dtype = %s; leave it out",
                               dtype_names[v->comm_dtype], name);
  }
  v->grad_dtype = dtypes[v->grad_accum_dtype];
  return v->comm_dtype == v->grad_accum_dtype ? ZR_OK : put(config, comm_key, name);
}

/* --- the loss scale -------------------------------------------------------------------------- */

typedef struct {
  const char *key, *standard;
} scale_row_t;

static const scale_row_t scale_rows[] = {
    {"fp16.loss_scale", "0"},           {"fp16.initial_scale_power", "16"},
    {"fp16.loss_scale_window", "1000"}, {"fp16.hysteresis", "2"},
    {"fp16.min_loss_scale", "1"},       {"fp16.consecutive_hysteresis", "false"}};
enum { N_SCALE_ROWS = sizeof scale_rows / sizeof scale_rows[0] };

static bool is_auto(const zr_config_t *v, int row) {
  const bool autos[N_SCALE_ROWS] = {isnan(v->loss_scale) != 0,
                                    v->scale_power == ZR_OPTION_AUTO_INT,
                                    v->scale_window == ZR_OPTION_AUTO_INT,
                                    v->hysteresis == ZR_OPTION_AUTO_INT,
                                    isnan(v->min_loss_scale) != 0,
                                    v->consecutive_hysteresis == ZR_OPTION_AUTO_BOOL};
  return autos[row];
}

/* Without fp16 the scale's options go back to their defaults: they are recorded in checkpoints and
 * must not keep one from being continued. zr_config_needless still finds that they were given. */
static zr_status_t settle_scale(zr_config_file_t *config) {
  for (int i = 0; i < N_SCALE_ROWS; ++i) {
    const char *key = scale_rows[i].key;
    bool given = zr_options_source(config->options, row_of(config, key)) != ZR_OPTION_FROM_DEFAULT;
    if (is_auto(&config->values, i) || (given && !config->values.fp16)) {
      ZR_TRY(put(config, key, scale_rows[i].standard));
    }
  }
  return ZR_OK;
}

static zr_status_t resolve_scale(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  v->scaling = (zr_loss_scale_params_t){0};
  ZR_TRY(settle_scale(config));
  if (!v->fp16) return ZR_OK;
  bool dynamic = v->loss_scale == 0;
  v->scaling =
      (zr_loss_scale_params_t){.dynamic = dynamic,
                               .initial = dynamic ? ldexp(1.0, (int)v->scale_power) : v->loss_scale,
                               .min = v->min_loss_scale,
                               .window = v->scale_window,
                               .hysteresis = v->hysteresis,
                               .consecutive_hysteresis = v->consecutive_hysteresis};
  if (dynamic && v->scaling.initial < v->min_loss_scale) {
    return zr_options_complain(config->options, "fp16.min_loss_scale",
                               "= %g is more than the scale begins with, 2^%lld; lower it or raise "
                               "fp16.initial_scale_power",
                               v->min_loss_scale, (long long)v->scale_power);
  }
  return ZR_OK;
}

/* A dynamic scale that begins far too high is no failure: it may come down first. */
static zr_status_t resolve_patience(zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  if (v->max_skipped != ZR_OPTION_AUTO_INT) return ZR_OK;
  int64_t most = 20 + (v->scaling.dynamic ? v->scale_power + v->hysteresis : 0);
  char text[32];
  (void)snprintf(text, sizeof text, "%lld", (long long)most);
  return put(config, "run.max_skipped", text);
}

zr_status_t zr_config_types(zr_config_file_t *config) {
  ZR_TRY(resolve_param(config));
  ZR_TRY(resolve_sums(config));
  ZR_TRY(resolve_scale(config));
  return resolve_patience(config);
}
