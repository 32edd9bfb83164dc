/* The configuration of a run: one struct, filled from a YAML (or JSON) file and `--set` through one
 * option table (config_table.c), then resolved: "auto" values, the batch rule, the schedule and the
 * model's shape. shared CONFIG.md is the contract; `zerorun help options` prints the table. One
 * thread.
 *
 *   zr_config_load -> zr_config_set ... -> zr_config_check -> zr_config_batch (rank count) ->
 *   zr_config_steps (number of samples)
 *
 * All of them find the same errors on every rank, so a launcher may call them before any
 * communication. */
#ifndef ZR_TRAIN_CONFIG_H
#define ZR_TRAIN_CONFIG_H

#include "kernels/control.h"
#include "runtime/base/dtype.h"
#include "runtime/base/options.h"
#include "runtime/model/model.h"

typedef enum {
  ZR_OPTIMIZER_ADAMW = 0,
  ZR_OPTIMIZER_ADAM,
  ZR_OPTIMIZER_SGD,
  ZR_OPTIMIZER_LION,
  ZR_OPTIMIZER_ADAGRAD
} zr_optimizer_t;
typedef enum {
  ZR_SCHEDULER_CONSTANT = 0,
  ZR_SCHEDULER_WARMUP_LR,
  ZR_SCHEDULER_WARMUP_DECAY_LR,
  ZR_SCHEDULER_WARMUP_COSINE_LR,
  ZR_SCHEDULER_COSINE,
  ZR_SCHEDULER_LINEAR,
  ZR_SCHEDULER_ONE_CYCLE,
  ZR_SCHEDULER_WSD,
  ZR_SCHEDULER_LR_RANGE_TEST /* refused */
} zr_scheduler_t;
typedef enum { ZR_DIGEST_NONE = 0, ZR_DIGEST_PARAMS, ZR_DIGEST_STATES } zr_digest_mode_t;
typedef enum { ZR_COMM_AUTO = 0, ZR_COMM_SELF, ZR_COMM_MPI } zr_comm_choice_t;
/* Where a state lives; but for auto, a zr_tier_t + 1. */
typedef enum { ZR_HOME_AUTO = 0, ZR_HOME_DEVICE, ZR_HOME_HOST, ZR_HOME_DISK } zr_home_choice_t;
/* DeepSpeed's `device` of an offload block. */
typedef enum {
  ZR_OFFLOAD_NONE = 0,
  ZR_OFFLOAD_CPU,
  ZR_OFFLOAD_NVME,
  ZR_OFFLOAD_AUTO
} zr_offload_device_t;
enum { ZR_CHOICE_AUTO_STAGE = 4, ZR_CHOICE_AUTO_ORDER = 2 };

/* DeepSpeed's offload_optimizer or offload_param, as given. */
typedef struct {
  int device;
  zr_option_list_t nvme_path;
  int pin_memory;
  int64_t buffer_count, buffer_size; /* elements */
} zr_offload_t;

typedef struct {
  /* model: the shape as given; zr_config_check resolves it into `model` */
  char *model_preset, *model_path;
  zr_option_list_t architectures;
  int model_type, tie_word_embeddings, attention_bias, mlp_bias, hidden_act, rope_type;
  int use_sliding_window;
  int64_t sliding_window, max_window_layers;
  zr_option_list_t layer_types;
  zr_model_config_t shape, model;
  int64_t logits_chunk;

  zr_option_list_t data_train, data_eval;
  char *tokenizer, *data_mask;
  int64_t seq_len, data_seed, ignore_id, eot_id;
  int data_format, shuffle, documents;

  int64_t steps, tokens;
  double epochs;
  char *run_dir, *trace;
  int64_t seed, log_every, eval_every, eval_batches, threads, max_skipped, delay_us, poison;
  double watchdog_s;
  int digest, serial, progress;     /* progress: zr_progress_t of events.h */
  int64_t trace_first, trace_count; /* iterations from 1; count 0: none */

  int64_t save_every, keep_last, keep_every;
  int save_at_end, save_async, resume, ignore_options;
  char *export_hf;

  zr_option_bytes_t memory_device, memory_host, memory_disk, headroom;
  zr_option_list_t disk_path;           /* resolved: of the run, where something lives on disk */
  int pin, checksums, disk_backend;     /* disk_backend: zr_disk_kind_t of offload/tier.h */
  int64_t disk_block_bytes, disk_depth; /* or auto */
  int home_param, home_grad, home_optimizer, home_activation; /* resolved: never auto */
  int64_t chunk_elems, n_slots;                               /* or auto */
  int order, recompute;
  int64_t group, prefetch, recompute_every;
  int reduce;
  int device, comm;
  char *isa, *profile;

  int64_t train_batch_size, micro_batch_size, grad_accum_steps; /* 0: not given; resolved */
  double gradient_clipping;
  int optimizer, adam_w_mode, bias_correction, decay, state_dtype;
  double lr, eps, weight_decay, momentum, dampening, lr_decay, initial_accumulator;
  int nesterov;
  int32_t update_kind;   /* resolved: zr_op_kind_t */
  zr_dtype_t state_type; /* resolved: of state_dtype */
  zr_option_list_t betas;
  double beta1, beta2;
  int scheduler, warmup_type;
  double warmup_min_lr, warmup_max_lr, warmup_min_ratio, cos_min_ratio, min_lr;
  int64_t warmup_steps, total_steps, decay_steps;
  int decay_shape, cycle_momentum;
  double cycle_min_lr, cycle_max_lr, cycle_min_mom, cycle_max_mom, decay_lr_rate;
  int64_t cycle_first_steps, cycle_second_steps, cycle_first_stairs, cycle_second_stairs;
  int64_t cycle_decay_steps;
  zr_schedule_params_t schedule; /* resolved */
  int bf16, fp16, grad_accum_dtype, comm_dtype;
  double loss_scale, min_loss_scale; /* loss_scale 0: dynamic */
  int64_t scale_power, scale_window, hysteresis;
  int consecutive_hysteresis;
  /* resolved; scaling is all zero without fp16 */
  zr_dtype_t dtype, grad_dtype;
  zr_loss_scale_params_t scaling;
  int stage;
  zr_offload_t offload_optimizer, offload_param;
  double offload_ratio;
  int cpu_offload, cpu_offload_params, cpu_offload_pin; /* old forms of the blocks */
  int64_t number_checkpoints;
  int cpu_checkpointing;
} zr_config_t;

typedef struct {
  zr_config_t values;
  zr_options_t *options;
  zr_alloc_t *alloc;
  int n_ranks; /* 0 until zr_config_batch */
} zr_config_file_t;

/* The table, for the reference page. */
const zr_option_t *zr_config_table(size_t *out_n_rows);

/* Defaults, then the file's keys. `path` "-" is standard input. ZR_ERR_NOT_FOUND: no such file. */
zr_status_t zr_config_load(zr_alloc_t *alloc, const char *path,
                           zr_config_file_t **out_config) ZR_MUST_CHECK;
/* The same from memory; `name` stands for the path in messages and gives the default run.dir. */
zr_status_t zr_config_parse(zr_alloc_t *alloc, const char *name, const char *text,
                            size_t text_bytes, zr_config_file_t **out_config) ZR_MUST_CHECK;
void zr_config_destroy(zr_config_file_t *config); /* NULL is fine */

/* The keys of one block from a file of their own, over those that are there: a Hugging Face
 * config.json, or a file with that block at its top level. */
zr_status_t zr_config_load_block(zr_config_file_t *config, const char *block,
                                 const char *path) ZR_MUST_CHECK;
/* "key=value" of the command line. */
zr_status_t zr_config_set(zr_config_file_t *config, const char *pair) ZR_MUST_CHECK;
/* The model's shape; zr_config_check calls it. */
zr_status_t zr_config_model(zr_config_file_t *config) ZR_MUST_CHECK;
/* Numeric types and the loss scale; zr_config_check calls it. */
zr_status_t zr_config_types(zr_config_file_t *config) ZR_MUST_CHECK;
/* The optimizer and its parameters; zr_config_check calls it. */
zr_status_t zr_config_optimizer(zr_config_file_t *config) ZR_MUST_CHECK;
/* Homes, and what else DeepSpeed's offload blocks say; zr_config_check calls it. */
zr_status_t zr_config_homes(zr_config_file_t *config) ZR_MUST_CHECK;
/* What homes need of the stage and the rank count; zr_config_batch calls it. */
zr_status_t zr_config_homes_batch(const zr_config_file_t *config) ZR_MUST_CHECK;
/* The schedule, once the run's length is known; zr_config_steps calls it. */
zr_status_t zr_config_schedule(zr_config_file_t *config) ZR_MUST_CHECK;
/* Calls fn for each scheduler parameter that was given to a type that has none of that name. */
typedef void (*zr_config_needless_fn_t)(void *context, const char *key, const char *reason);
void zr_config_homes_needless(const zr_config_file_t *config, zr_config_needless_fn_t fn,
                              void *context);
void zr_config_schedule_needless(const zr_config_file_t *config, zr_config_needless_fn_t fn,
                                 void *context);
/* What needs no rank count and no data: refusals, "auto", the model's shape, the optimizer. */
zr_status_t zr_config_check(zr_config_file_t *config) ZR_MUST_CHECK;
/* train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks: derives
 * what is missing as DeepSpeed does; an error names all the numbers. */
zr_status_t zr_config_batch(zr_config_file_t *config, int n_ranks) ZR_MUST_CHECK;
/* run.steps from run.tokens or run.epochs; then the schedule, which may end with the run.
 * n_samples 0: not known (`zerorun plan`, --print-config): run.epochs stays unresolved. */
zr_status_t zr_config_steps(zr_config_file_t *config, int64_t n_samples) ZR_MUST_CHECK;

/* Calls fn for each option that was given and has no effect, with the reason. */
void zr_config_needless(const zr_config_file_t *config, zr_config_needless_fn_t fn, void *context);
/* Calls fn for each option that was read as another one, with what became of it. */
void zr_config_mapped(const zr_config_file_t *config, zr_config_needless_fn_t fn, void *context);
/* All values as YAML that reads back to the same. */
void zr_config_print(const zr_config_file_t *config, FILE *out);
/* The numeric options alone, as YAML: what a checkpoint records. Free with zr_alloc_free. */
zr_status_t zr_config_numeric_text(const zr_config_file_t *config, char **out_text) ZR_MUST_CHECK;

#endif
