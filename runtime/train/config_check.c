/* What options must satisfy together, and what they resolve to. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/config.h"

static bool is_given(const zr_config_file_t *config, const char *key) {
  int64_t row = zr_options_find(config->options, key);
  return row >= 0 && zr_options_source(config->options, (size_t)row) != ZR_OPTION_FROM_DEFAULT;
}

static zr_status_t put(zr_config_file_t *config, const char *key, const char *text) {
  return zr_options_set(config->options, key, text, ZR_OPTION_FROM_PROGRAM, "resolved");
}

static zr_status_t put_int(zr_config_file_t *config, const char *key, int64_t value) {
  char text[32];
  (void)snprintf(text, sizeof text, "%lld", (long long)value);
  return put(config, key, text);
}

/* --- what is not built yet ------------------------------------------------------------------- */

static zr_status_t refuse(const zr_config_file_t *config, const char *key, const char *value,
                          const char *instead) {
  zr_status_t status =
      zr_options_complain(config->options, key, "= %s is not built yet; %s", value, instead);
  return status == ZR_ERR_CONFIG ? ZR_ERR_UNSUPPORTED : status;
}

static zr_status_t refuse_rest(zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  if (v->model_path) return refuse(config, "model.path", v->model_path, "give model.* or a preset");
  if (v->scheduler == ZR_SCHEDULER_LR_RANGE_TEST) {
    return refuse(config, "scheduler.type", "LRRangeTest",
                  "there are Constant, WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, Cosine, "
                  "Linear, WSD");
  }
  if (v->reduce != 0) return refuse(config, "reduce", "fast", "use tree");
  if (v->device == 2) return refuse(config, "backend.device", "cuda", "use cpu");
  if (v->comm == 3) return refuse(config, "backend.comm", "nccl", "use mpi");
  if (v->save_async) return refuse(config, "checkpoint.async", "true", "use false");
  if (v->export_hf) return refuse(config, "checkpoint.export_hf", v->export_hf, "leave it out");
  if (v->tokenizer && strcmp(v->tokenizer, "byte") != 0) {
    return refuse(config, "data.tokenizer", v->tokenizer,
                  "use byte for plain text, or leave it out for token files");
  }
  return ZR_OK;
}

/* --- run -------------------------------------------------------------------------------------- */

/* "5" or "5-7". */
static zr_status_t parse_trace(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  if (v->trace == NULL) return ZR_OK;
  char *end;
  long long first = strtoll(v->trace, &end, 10), last = first;
  if (end != v->trace && *end == '-') {
    const char *begin = end + 1;
    last = strtoll(begin, &end, 10);
    if (end == begin) first = 0;
  }
  if (*end != 0 || first < 1 || last < first || last - first > 99) {
    return zr_options_complain(config->options, "run.trace",
                               "must be a step or up to 100 of them, like 5 or 5-7, not '%.40s'",
                               v->trace);
  }
  v->trace_first = first;
  v->trace_count = last - first + 1;
  return ZR_OK;
}

static zr_status_t resolve_run(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  int n_lengths = (v->steps > 0) + (v->tokens > 0) + (v->epochs > 0);
  if (n_lengths != 1) {
    return zr_fail(ZR_ERR_CONFIG, n_lengths == 0
                                      ? "the run's length is not given: set run.steps, run.tokens "
                                        "or run.epochs"
                                      : "run.steps, run.tokens and run.epochs exclude each other: "
                                        "keep one");
  }
  if (v->data_train.n_items == 0) {
    return zr_fail(ZR_ERR_CONFIG, "data.train is not given: name token files or text files");
  }
  if (v->tokenizer != NULL && v->data_format != 0) {
    return zr_options_complain(config->options, "data.format",
                               "is that of token files, and data.tokenizer makes the files text; "
                               "keep one");
  }
  if (!is_given(config, "run.dir")) ZR_TRY(put(config, "run.dir", v->run_dir));
  if (v->data_seed == ZR_OPTION_AUTO_INT) ZR_TRY(put_int(config, "data.seed", v->seed));
  if (v->stage == ZR_CHOICE_AUTO_STAGE) ZR_TRY(put(config, "zero_optimization.stage", "3"));
  if (v->eval_every > 0 && v->data_eval.n_items == 0) {
    return zr_options_complain(config->options, "run.eval_every",
                               "needs data.eval: name files to evaluate on");
  }
  if (v->headroom.share <= 0 && v->headroom.bytes < 0) {
    return zr_options_complain(config->options, "memory.headroom", "must be a size or a share");
  }
  return parse_trace(config);
}

zr_status_t zr_config_check(zr_config_file_t *config) {
  ZR_TRY(zr_config_types(config));
  ZR_TRY(refuse_rest(config));
  ZR_TRY(zr_config_model(config));
  ZR_TRY(zr_config_homes(config));
  ZR_TRY(zr_config_optimizer(config));
  return resolve_run(config);
}

/* --- batch ----------------------------------------------------------------------------------- */

static int64_t or_zero(int64_t value) {
  return value == ZR_OPTION_AUTO_INT ? 0 : value;
}

static zr_status_t disagree(const zr_config_file_t *config, int64_t total, int64_t micro,
                            int64_t accum, int64_t ranks) {
  return zr_options_complain(
      config->options, "train_batch_size",
      "= %lld is not train_micro_batch_size_per_gpu = %lld x gradient_accumulation_steps = %lld x "
      "%lld ranks = %lld; leave one of the three out, or make them agree",
      (long long)total, (long long)micro, (long long)accum, (long long)ranks,
      (long long)(micro * accum * ranks));
}

static zr_status_t not_divisible(const zr_config_file_t *config, int64_t total, const char *by,
                                 int64_t count, int64_t ranks) {
  return zr_options_complain(config->options, "train_batch_size",
                             "= %lld is not divisible by %s = %lld x %lld ranks = %lld",
                             (long long)total, by, (long long)count, (long long)ranks,
                             (long long)(count * ranks));
}

zr_status_t zr_config_batch(zr_config_file_t *config, int n_ranks) {
  static const char micro_key[] = "train_micro_batch_size_per_gpu";
  static const char accum_key[] = "gradient_accumulation_steps";
  const zr_config_t *v = &config->values;
  int64_t total = or_zero(v->train_batch_size), micro = or_zero(v->micro_batch_size);
  int64_t accum = or_zero(v->grad_accum_steps), ranks = n_ranks;
  const int64_t most = (int64_t)1 << 31;
  /* The file leaves all of it to the Hugging Face trainer, whose default is this. */
  bool is_auto = v->micro_batch_size == ZR_OPTION_AUTO_INT;
  if (total == 0 && is_auto) micro = 8;
  if (total > most || micro > most || accum > most) {
    return zr_fail(ZR_ERR_CONFIG, "a batch size is larger than 2^31");
  }
  if (total == 0 && micro == 0) {
    return zr_fail(ZR_ERR_CONFIG,
                   "no batch size is given: set train_batch_size or %s, or two of them and %s",
                   micro_key, accum_key);
  }
  if (total > 0 && micro > 0 && accum == 0) {
    if (total % (micro * ranks) != 0) return not_divisible(config, total, micro_key, micro, ranks);
    accum = total / (micro * ranks);
  } else if (total > 0 && micro == 0) {
    if (accum == 0) accum = 1; /* as DeepSpeed */
    if (total % (accum * ranks) != 0) return not_divisible(config, total, accum_key, accum, ranks);
    micro = total / (accum * ranks);
  } else if (total == 0) {
    if (accum == 0) accum = 1;
    total = micro * accum * ranks;
  }
  if (total != micro * accum * ranks) return disagree(config, total, micro, accum, ranks);
  config->n_ranks = n_ranks;
  ZR_TRY(put_int(config, "train_batch_size", total));
  ZR_TRY(put_int(config, micro_key, micro));
  ZR_TRY(put_int(config, accum_key, accum));
  return zr_config_homes_batch(config);
}

/* --- length ----------------------------------------------------------------------------------- */

zr_status_t zr_config_steps(zr_config_file_t *config, int64_t n_samples) {
  zr_config_t *v = &config->values;
  double batch = (double)v->train_batch_size;
  double steps = (double)v->steps;
  if (v->tokens > 0) {
    steps = ceil((double)v->tokens / (batch * (double)v->seq_len));
  } else if (v->epochs > 0) {
    steps = ceil(v->epochs * (double)n_samples / batch);
  }
  if (steps > 0x1p60) return zr_fail(ZR_ERR_CONFIG, "the run is longer than 2^60 steps");
  /* Past the table: what is printed must read back, and only one length may be given. */
  v->steps = (int64_t)steps;
  return zr_config_schedule(config);
}
