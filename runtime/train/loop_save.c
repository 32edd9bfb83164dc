/* Saving and evaluating, between steps. */
#include "runtime/base/clock.h"
#include "runtime/train/loop_state.h"

/* --- saving ---------------------------------------------------------------------------------- */

/* Rank 0 alone: manifest, rename, `latest`. */
static zr_status_t commit(zr_loop_t *loop, const zr_control_t *control,
                          const zr_checkpoint_file_t *file) {
  if (loop->rank != 0) return ZR_OK;
  char *options = NULL;
  ZR_TRY(zr_config_numeric_text(loop->options->config, &options));
  zr_checkpoint_manifest_t manifest = {.options = options,
                                       .kernels = loop->options->kern_ops->name,
                                       .data_tokens = zr_data_n_tokens(loop->train),
                                       .zero = loop->zero,
                                       .file = file,
                                       .n_files = (size_t)loop->n_ranks};
  zr_checkpoint_from_control(control, &manifest.counters);
  /* A step's line is durable before its checkpoint can be seen. */
  zr_status_t status = zr_events_sync(loop->events);
  if (status == ZR_OK) status = zr_checkpoint_commit(loop->alloc, loop->checkpoints, &manifest);
  zr_alloc_free(loop->alloc, options);
  return status;
}

static zr_status_t save_files(zr_loop_t *loop, const zr_control_t *control,
                              zr_checkpoint_file_t *file) {
  zr_checkpoint_file_t own = {0};
  zr_status_t status =
      loop->rank == 0 ? zr_checkpoint_begin(loop->checkpoints, control->step) : ZR_OK;
  ZR_TRY(zr_job_agree(loop->job, status));
  status = zr_checkpoint_write(&loop->states, loop->checkpoints, control->step, &own);
  ZR_TRY(zr_job_agree(loop->job, status));
  ZR_TRY(zr_job_gather(loop->job, &own, file, sizeof own));
  return zr_job_agree(loop->job, commit(loop, control, file));
}

static zr_status_t log_save(zr_loop_t *loop, const zr_checkpoint_file_t *file, double seconds) {
  if (loop->events == NULL) return ZR_OK;
  char name[ZR_CHECKPOINT_NAME_BYTES], path[ZR_PATH_BYTES], size[32];
  int64_t bytes = 0;
  for (int rank = 0; rank < loop->n_ranks; ++rank) bytes += file[rank].bytes;
  zr_checkpoint_name(loop->step, name);
  ZR_TRY(zr_files_join(path, loop->checkpoints, name));
  zr_events_bytes(bytes, size, sizeof size);
  zr_events_say(loop->events, "saved %s (%s, %.2f s)", path, size, seconds);
  return zr_events_put(
      loop->events,
      json_pack("{s:s, s:I, s:s, s:I, s:o}", "event", "save", "step", (json_int_t)loop->step,
                "path", path, "bytes", (json_int_t)bytes, "seconds", zr_events_real(seconds)));
}

zr_status_t zr_loop_save(zr_loop_t *loop) {
  int64_t begin_ns = zr_clock_ns();
  zr_control_t control;
  ZR_TRY(zr_exec_wait(loop->exec));
  ZR_TRY(zr_exec_download(loop->exec, zr_loop_control(loop), 0, &control, sizeof control));
  zr_checkpoint_file_t *file = NULL;
  ZR_TRY(zr_alloc_get(loop->alloc, (size_t)loop->n_ranks, sizeof *file, &file));
  zr_status_t status = save_files(loop, &control, file);
  if (status == ZR_OK) {
    loop->saved_step = control.step;
    status = log_save(loop, file, (double)(zr_clock_ns() - begin_ns) * 1e-9);
    if (loop->rank == 0) {
      zr_checkpoint_prune(loop->checkpoints, control.step, loop->v->keep_last, loop->v->keep_every);
    }
  }
  zr_alloc_free(loop->alloc, file);
  zr_loop_rest_clock(loop);
  return status;
}

/* --- evaluating ------------------------------------------------------------------------------ */

static int64_t eval_batches(const zr_loop_t *loop) {
  int64_t samples = zr_loop_batch_samples(loop);
  int64_t all = (zr_data_n_samples(loop->eval) + samples - 1) / samples;
  int64_t asked = loop->v->eval_batches;
  return asked > 0 && asked < all ? asked : all;
}

zr_status_t zr_loop_evaluate(zr_loop_t *loop) {
  if (loop->eval == NULL) return ZR_OK;
  int64_t begin_ns = zr_clock_ns();
  int64_t n_executions = eval_batches(loop) * loop->v->grad_accum_steps;
  for (int64_t i = 0; i < n_executions; ++i) {
    ZR_TRY(zr_exec_start(loop->exec, loop->plan_eval, i));
  }
  zr_step_record_t record;
  ZR_TRY(zr_exec_start(loop->exec, loop->plan_eval_end, 0));
  ZR_TRY(zr_exec_record(loop->exec, 0, &record));
  ZR_TRY(zr_exec_wait(loop->exec));
  if (record.step_tokens == 0) {
    return zr_job_agree(loop->job, zr_fail(ZR_ERR_DATA,
                                           "data.eval: none of its targets counts (data.mask, "
                                           "data.ignore_id); give other text"));
  }
  loop->evaluated_step = loop->step;
  loop->last_eval_loss = record.loss;
  double seconds = (double)(zr_clock_ns() - begin_ns) * 1e-9;
  zr_loop_rest_clock(loop);
  zr_events_say(loop->events, "eval  %lld  loss %.6f  (%lld tokens, %.2f s)", (long long)loop->step,
                record.loss, (long long)record.step_tokens, seconds);
  return zr_events_put(
      loop->events, json_pack("{s:s, s:I, s:o, s:I, s:o}", "event", "eval", "step",
                              (json_int_t)loop->step, "loss", zr_events_real(record.loss), "tokens",
                              (json_int_t)record.step_tokens, "seconds", zr_events_real(seconds)));
}
