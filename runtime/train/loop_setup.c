/* Everything before the first step. */
#include <stddef.h>
#include <string.h>

#include "runtime/train/loop_state.h"
#include "runtime/train/report.h"
#include "runtime/train/setup.h"

/* --- data, folder, checkpoint ---------------------------------------------------------------- */

static zr_status_t open_data(zr_loop_t *loop, const char *key, const zr_option_list_t *files,
                             zr_data_t **out_data) {
  const zr_config_t *v = loop->v;
  zr_data_options_t options;
  zr_data_defaults(&options);
  options.key = key;
  options.pattern = (const char *const *)files->items;
  options.n_patterns = files->n_items;
  options.bytes = v->tokenizer != NULL;
  options.format = (zr_data_format_t)v->data_format;
  options.mask_ending = v->data_mask;
  options.ignore_id = v->ignore_id;
  options.eot_id = v->eot_id;
  options.separate = v->documents != 0;
  options.seq_len = v->seq_len;
  options.vocab_size = v->model.vocab_size;
  options.seed = (uint64_t)v->data_seed;
  options.shuffle = v->shuffle != 0;
  return zr_data_open(loop->alloc, &options, out_data);
}

static zr_status_t open_inputs(zr_loop_t *loop) {
  ZR_TRY(open_data(loop, "data.train", &loop->v->data_train, &loop->train));
  if (loop->v->data_eval.n_items > 0) {
    ZR_TRY(open_data(loop, "data.eval", &loop->v->data_eval, &loop->eval));
  }
  return zr_config_steps(loop->options->config, zr_data_n_samples(loop->train));
}

static zr_status_t open_outputs(zr_loop_t *loop) {
  if (loop->rank != 0 || loop->options->observe != NULL) return ZR_OK;
  ZR_TRY(zr_files_make_dirs(loop->v->run_dir));
  zr_events_options_t options = {.dir = loop->v->run_dir,
                                 .json = loop->options->json,
                                 .progress = loop->v->progress,
                                 .log_every = loop->v->log_every,
                                 .total_steps = loop->v->steps};
  if (loop->options->piped && options.progress == ZR_PROGRESS_AUTO) {
    options.progress = ZR_PROGRESS_LINES;
  }
  const zr_plan_t *plan = loop->zero->program->plan[loop->plan_step];
  for (int tier = 0; tier < 3; ++tier) options.tier_bytes[tier] = plan->arena_bytes[tier];
  ZR_TRY(zr_events_open(loop->alloc, &options, &loop->events));
  return zr_report_write(loop->zero, loop->v->run_dir);
}

static zr_status_t find_checkpoint(zr_loop_t *loop) {
  if (!loop->v->resume) return ZR_OK;
  ZR_TRY(zr_checkpoint_open_latest(loop->alloc, loop->checkpoints, &loop->resumed));
  if (loop->resumed == NULL) return ZR_OK;
  loop->start = *zr_checkpoint_counters(loop->resumed);
  if (loop->v->ignore_options) return ZR_OK;
  char *options = NULL;
  ZR_TRY(zr_config_numeric_text(loop->options->config, &options));
  zr_status_t status = zr_checkpoint_compare(loop->resumed, options, loop->options->kern_ops->name);
  zr_alloc_free(loop->alloc, options);
  if (status != ZR_OK) return status;
  return zr_checkpoint_compare_data(loop->resumed, zr_data_n_tokens(loop->train));
}

/* --- program --------------------------------------------------------------------------------- */

/* What may differ between ranks and must not: the least counts. */
static zr_status_t settle_place(zr_loop_t *loop, zr_setup_place_t *out_place) {
  int n_local = zr_job_info(loop->job).n_local_ranks;
  enum { N_FACTS = 1 + ZR_N_TIERS };
  int64_t own[N_FACTS] = {loop->options->n_threads}, *all = NULL;
  zr_setup_budgets(loop->v, n_local, own + 1);
  ZR_TRY(zr_alloc_get(loop->alloc, (size_t)loop->n_ranks, sizeof own, &all));
  zr_status_t status = zr_job_gather(loop->job, own, all, sizeof own);
  for (int rank = 0; status == ZR_OK && rank < loop->n_ranks; ++rank) {
    for (int i = 0; i < N_FACTS; ++i) {
      if (all[N_FACTS * rank + i] < own[i]) own[i] = all[N_FACTS * rank + i];
    }
  }
  zr_alloc_free(loop->alloc, all);
  *out_place = (zr_setup_place_t){.n_ranks = loop->n_ranks,
                                  .n_workers = (int)own[0],
                                  .kern_ops = loop->options->kern_ops,
                                  .kern = loop->options->kern};
  memcpy(out_place->budget_bytes, own + 1, sizeof out_place->budget_bytes);
  return status;
}

static int plan_index(const zr_program_t *program, const char *name) {
  for (int i = 0; i < program->n_plans; ++i) {
    if (strcmp(program->plan[i]->name, name) == 0) return i;
  }
  return -1;
}

static zr_status_t compile(zr_loop_t *loop, const zr_setup_place_t *place) {
  zr_zero_options_t options;
  zr_setup_zero_options(loop->options->config, place, &options);
  ZR_TRY(zr_zero_compile(loop->alloc, &options, &loop->zero));
  const zr_program_t *program = loop->zero->program;
  loop->plan_load = plan_index(program, "load");
  loop->plan_step = plan_index(program, "step");
  loop->plan_eval = plan_index(program, "eval");
  loop->plan_eval_end = plan_index(program, "eval_end");
  return zr_loop_check_memory(loop);
}

zr_status_t zr_loop_open(zr_loop_t *loop) {
  zr_setup_place_t place;
  zr_status_t status = zr_files_join(loop->checkpoints, loop->v->run_dir, "checkpoints");
  if (status == ZR_OK) status = open_inputs(loop);
  if (status == ZR_OK) status = find_checkpoint(loop);
  ZR_TRY(zr_job_agree(loop->job, status));
  ZR_TRY(settle_place(loop, &place));
  loop->n_workers = place.n_workers;
  ZR_TRY(zr_job_agree(loop->job, compile(loop, &place)));
  ZR_TRY(zr_job_agree(loop->job, open_outputs(loop)));
  return zr_loop_open_disk(loop);
}

/* --- executor and states --------------------------------------------------------------------- */

static zr_status_t get_bytes(void *context, int32_t buffer, int64_t offset, void *out_data,
                             int64_t bytes) {
  return zr_exec_download(context, buffer, offset, out_data, bytes);
}

static zr_status_t put_bytes(void *context, int32_t buffer, int64_t offset, const void *data,
                             int64_t bytes) {
  return zr_exec_upload(context, buffer, offset, data, bytes);
}

static zr_status_t create_exec(zr_loop_t *loop) {
  const zr_loop_options_t *o = loop->options;
  zr_exec_options_t options;
  zr_exec_defaults(&options);
  options.program = loop->zero->program;
  options.control_buffer[loop->plan_step] = zr_loop_control(loop);
  if (loop->plan_eval_end >= 0) {
    options.control_buffer[loop->plan_eval_end] = loop->zero->control_eval;
  }
  options.hal_ops = o->hal_ops;
  options.hal = o->hal;
  options.comm_ops = zr_job_comm_ops(loop->job);
  options.comm = zr_job_comm(loop->job);
  options.kern_ops = o->kern_ops;
  options.kern = o->kern;
  options.pool = loop->pool;
  options.disk_ops = loop->disk_ops;
  options.disk = loop->disk;
  options.host_map = o->host_map;
  options.host_unmap = o->host_unmap;
  options.pin_host = loop->v->pin != 0;
  options.fetch = zr_loop_fetch;
  options.ask = zr_loop_ask;
  options.fetch_context = loop;
  options.serial = loop->v->serial != 0;
  options.observe = o->observe;
  options.observe_context = o->observe_context;
  options.delay_seed = loop->v->delay_us > 0 ? (uint64_t)loop->rank + 1 : 0;
  options.delay_max_ns = loop->v->delay_us * 1000;
  options.watchdog_ns = (int64_t)(loop->v->watchdog_s * 1e9);
  options.poison = (int)loop->v->poison;
  if (loop->v->trace_count > 0) {
    options.trace_plan = loop->plan_step;
    options.trace_first = loop->v->trace_first - 1;
    options.trace_count = loop->v->trace_count;
  }
  return zr_exec_create(loop->alloc, &options, &loop->exec);
}

static void fill_control(const zr_loop_t *loop, zr_control_t *out_control) {
  const zr_config_t *v = loop->v;
  *out_control = (zr_control_t){.rank = loop->rank,
                                .n_ranks = loop->n_ranks,
                                .digest = v->digest,
                                .schedule = v->schedule,
                                .beta1 = v->beta1,
                                .beta2 = v->beta2,
                                .eps = v->eps,
                                .weight_decay = v->weight_decay,
                                .max_grad_norm = v->gradient_clipping,
                                .momentum = v->momentum,
                                .dampening = v->dampening,
                                .nesterov = v->nesterov,
                                .lr_decay = v->lr_decay,
                                .seed = (uint64_t)v->seed};
  bool is_adam = v->update_kind == ZR_OP_ADAMW;
  out_control->bias_correction = is_adam && v->bias_correction;
  out_control->l2 = is_adam ? !v->adam_w_mode : v->optimizer != ZR_OPTIMIZER_LION;
}

/* A new run, or one whose checkpoint knows no scale, begins with the first one; an option that was
 * fixed stays as it is configured. */
static void fill_scale(const zr_loop_t *loop, zr_control_t *control) {
  if (loop->v->dtype != ZR_F16) {
    control->loss_scale = 0;
    return;
  }
  control->scale_params = loop->v->scaling;
  if (control->loss_scale <= 0 || !control->scale_params.dynamic) zr_control_scale_init(control);
}

/* Where a unit is updated: on the device, on the host, or on both. */
static zr_status_t upload_layout(zr_loop_t *loop, size_t unit) {
  const zr_zero_unit_t *u = &loop->zero->unit[unit];
  const int32_t buffers[] = {u->layout, u->away_elems > 0 ? u->away_layout : -1};
  zr_kern_layout_t *layout = NULL;
  int64_t bytes = 0;
  ZR_TRY(zr_zero_layout(loop->zero, unit, &layout, &bytes));
  zr_status_t status = ZR_OK;
  for (int i = 0; i < 2 && status == ZR_OK; ++i) {
    if (buffers[i] >= 0) status = zr_exec_upload(loop->exec, buffers[i], 0, layout, bytes);
  }
  zr_alloc_free(loop->alloc, layout);
  return status;
}

static zr_status_t upload_facts(zr_loop_t *loop) {
  zr_control_t control;
  fill_control(loop, &control);
  if (loop->plan_eval_end >= 0) {
    ZR_TRY(zr_exec_upload(loop->exec, loop->zero->control_eval, 0, &control, sizeof control));
  }
  zr_checkpoint_to_control(&loop->start, &control);
  fill_scale(loop, &control);
  ZR_TRY(zr_exec_upload(loop->exec, loop->zero->control, 0, &control, sizeof control));
  if (loop->zero->control_away >= 0) {
    ZR_TRY(zr_exec_upload(loop->exec, loop->zero->control_away, 0, &control, sizeof control));
  }
  for (size_t unit = 0; unit < loop->zero->n_units; ++unit) ZR_TRY(upload_layout(loop, unit));
  return ZR_OK;
}

static zr_status_t fill_states(zr_loop_t *loop) {
  loop->states = (zr_states_t){.alloc = loop->alloc,
                               .zero = loop->zero,
                               .rank = loop->rank,
                               .pool = loop->pool,
                               .get = get_bytes,
                               .put = put_bytes,
                               .context = loop->exec};
  if (loop->resumed == NULL) return zr_states_initialise(&loop->states, (uint64_t)loop->v->seed);
  ZR_TRY(zr_checkpoint_verify(loop->resumed, loop->rank, loop->n_ranks));
  return zr_checkpoint_load(loop->resumed, &loop->states);
}

zr_status_t zr_loop_create(zr_loop_t *loop) {
  zr_status_t status = zr_pool_create(loop->alloc, loop->n_workers, &loop->pool);
  ZR_TRY(zr_job_agree(loop->job, status));
  ZR_TRY(create_exec(loop)); /* compares plans: collective itself */
  status = upload_facts(loop);
  if (status == ZR_OK) status = zr_exec_start(loop->exec, loop->plan_load, 0);
  if (status == ZR_OK) status = zr_exec_wait(loop->exec);
  if (status == ZR_OK) status = fill_states(loop);
  if (status == ZR_OK) status = zr_loop_bound_open(loop);
  ZR_TRY(zr_job_agree(loop->job, status));
  loop->step = loop->saved_step = loop->start.step;
  loop->evaluated_step = -1;
  loop->next_iteration = loop->next_record = loop->start.iteration;
  return ZR_OK;
}

void zr_loop_close(zr_loop_t *loop) {
  zr_exec_destroy(loop->exec);
  zr_loop_bound_close(loop);
  if (loop->disk_ops != NULL) loop->disk_ops->close(loop->disk);
  zr_pool_destroy(loop->pool);
  zr_zero_destroy(loop->zero);
  zr_checkpoint_close(loop->resumed);
  zr_events_close(loop->events);
  zr_data_close(loop->eval);
  zr_data_close(loop->train);
}
