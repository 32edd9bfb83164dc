#include "runtime/train/loop.h"

#include <math.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/train/loop_state.h"

/* A parameter that this rank's update made non-finite: it is looked for and named. Ranks that find
 * one at the same time speak in the order of their numbers, so that one message is printed. */
static zr_status_t name_bad_parameter(zr_loop_t *loop, const zr_step_record_t *record) {
  ZR_TRY(zr_exec_wait(loop->exec));
  zr_status_t status = zr_states_check_finite(&loop->states);
  if (status == ZR_ERR_NUMERIC) {
    status = zr_fail(ZR_ERR_NUMERIC, "step %lld: %s; lower the learning rate%s",
                     (long long)record->step, zr_detail(),
                     loop->v->save_every > 0 ? " and continue from the last checkpoint" : "");
  } else if (status == ZR_OK) {
    return ZR_OK; /* another rank's: it speaks */
  }
  zr_clock_sleep_ns((int64_t)loop->rank * 50000000);
  return status;
}

static zr_status_t fail_masked(const zr_loop_t *loop, const zr_step_record_t *record) {
  int64_t samples = zr_loop_batch_samples(loop), n_all = zr_data_n_samples(loop->train);
  int64_t first = (record->iteration - 1) * samples % n_all;
  return zr_fail(ZR_ERR_DATA,
                 "step %lld: none of its targets counts: all of its %lld samples from place %lld "
                 "of the order on are masked (data.mask, data.ignore_id, data.documents); take "
                 "such text out of data.train, or make batches larger",
                 (long long)record->step, (long long)samples, (long long)first);
}

static zr_status_t fail_record(const zr_loop_t *loop, const zr_step_record_t *record) {
  if (record->scale_at_min) {
    return zr_fail(ZR_ERR_NUMERIC,
                   "step %lld: the gradient is not finite at the least loss scale, %g "
                   "(fp16.min_loss_scale): it can not be halved; lower the learning rate, or "
                   "train in bf16",
                   (long long)record->step + 1, record->loss_scale);
  }
  if (record->step_tokens == 0) return fail_masked(loop, record);
  if (record->skipped_in_row < loop->v->max_skipped) return ZR_OK;
  return zr_fail(
      ZR_ERR_NUMERIC,
      "step %lld: the gradient was not finite %lld times in a row (run.max_skipped); lower the "
      "learning rate, or look at the data from sample %lld on",
      (long long)record->step + 1, (long long)record->skipped_in_row,
      (long long)(record->iteration - record->skipped_in_row) * zr_loop_batch_samples(loop));
}

/* Every rank knows the same record. The step in flight ends before they agree: its collectives and
 * the agreement would meet in another order on another rank. */
static zr_status_t check_record(zr_loop_t *loop, const zr_step_record_t *record) {
  if (record->n_bad_params > 0) ZR_TRY(name_bad_parameter(loop, record));
  if (fail_record(loop, record) == ZR_OK) return ZR_OK;
  ZR_TRY(zr_exec_wait(loop->exec));
  return zr_job_agree(loop->job, fail_record(loop, record));
}

static zr_status_t take_record(zr_loop_t *loop) {
  zr_step_record_t record;
  ZR_TRY(zr_exec_record(loop->exec, loop->next_record, &record));
  loop->next_record += 1;
  loop->step = record.step;
  loop->requests |= record.flags;
  ZR_TRY(zr_loop_log_step(loop, &record));
  return check_record(loop, &record);
}

static bool divides(int64_t every, int64_t step) {
  return every > 0 && step > 0 && step % every == 0;
}

/* Something is to be done between the steps, once `step` updates are made. */
static bool is_boundary(const zr_loop_t *loop, int64_t step) {
  const zr_config_t *v = loop->v;
  return step >= v->steps || divides(v->eval_every, step) || divides(v->save_every, step);
}

static bool wants_stop(const zr_loop_t *loop) {
  return loop->requests >> 32 != 0;
}

static bool wants_save(const zr_loop_t *loop) {
  return (uint32_t)loop->requests != 0;
}

/* Starts steps and logs them, one in flight ahead, until something is to be done in between; on
 * return nothing is in flight. */
static zr_status_t run_to_boundary(zr_loop_t *loop) {
  for (;;) {
    int64_t in_flight = loop->next_iteration - loop->next_record;
    bool at_boundary = is_boundary(loop, loop->step + in_flight) && in_flight > 0;
    /* A step that is skipped leaves loop->step behind, and another one is started. */
    bool more = loop->requests == 0 && !at_boundary && loop->step + in_flight < loop->v->steps;
    if (more && in_flight <= zr_loop_ahead(loop)) {
      ZR_TRY(zr_loop_start_step(loop));
      continue;
    }
    if (in_flight == 0) break;
    ZR_TRY(take_record(loop));
    if (loop->next_record == loop->next_iteration && is_boundary(loop, loop->step)) break;
  }
  return zr_exec_wait(loop->exec);
}

/* Evaluation and checkpoint as the step and the requests ask for. */
static zr_status_t serve_boundary(zr_loop_t *loop) {
  const zr_config_t *v = loop->v;
  bool done = loop->step >= v->steps, stopped = wants_stop(loop);
  bool evaluates = divides(v->eval_every, loop->step) || done;
  if (evaluates && !stopped && loop->evaluated_step != loop->step) ZR_TRY(zr_loop_evaluate(loop));
  bool saves =
      divides(v->save_every, loop->step) || wants_save(loop) || stopped || (done && v->save_at_end);
  if (saves && loop->saved_step != loop->step) ZR_TRY(zr_loop_save(loop));
  loop->requests &= ~(int64_t)UINT32_MAX;
  return ZR_OK;
}

static zr_status_t run_steps(zr_loop_t *loop) {
  zr_loop_rest_clock(loop);
  while (loop->step < loop->v->steps && !wants_stop(loop)) {
    ZR_TRY(run_to_boundary(loop));
    ZR_TRY(serve_boundary(loop));
  }
  return ZR_OK;
}

static zr_status_t write_trace(zr_loop_t *loop) {
  if (loop->v->trace_count == 0 || loop->rank != 0) return ZR_OK;
  char path[ZR_PATH_BYTES];
  ZR_TRY(zr_files_join(path, loop->v->run_dir, "trace.json"));
  return zr_exec_trace_write(loop->exec, path);
}

static zr_status_t run(zr_loop_t *loop) {
  ZR_TRY(zr_loop_open(loop));
  if (loop->start.step >= loop->v->steps) {
    zr_events_say(loop->events, "this run is finished: %s has all %lld steps; nothing to do",
                  zr_checkpoint_path(loop->resumed), (long long)loop->v->steps);
    return ZR_OK;
  }
  ZR_TRY(zr_loop_create(loop));
  ZR_TRY(zr_job_agree(loop->job, zr_loop_log_start(loop)));
  zr_checkpoint_close(loop->resumed);
  loop->resumed = NULL;
  if (loop->options->check_only) {
    zr_events_say(loop->events, "everything is there and fits; nothing was trained (--check)");
    return ZR_OK;
  }
  ZR_TRY(run_steps(loop));
  int64_t disk_written = 0;
  ZR_TRY(zr_loop_disk_written(loop, &disk_written));
  zr_status_t status = write_trace(loop);
  const char *why = loop->step < loop->v->steps ? "stopped" : "done";
  if (status == ZR_OK) status = zr_loop_log_end(loop, why, disk_written);
  return zr_job_agree(loop->job, status);
}

zr_status_t zr_loop_run(zr_alloc_t *alloc, const zr_loop_options_t *options) {
  zr_comm_info_t info = zr_job_info(options->job);
  zr_loop_t loop = {.alloc = alloc,
                    .options = options,
                    .v = &options->config->values,
                    .job = options->job,
                    .rank = info.rank,
                    .n_ranks = info.n_ranks,
                    .begun_ns = zr_clock_ns(),
                    .last_loss = (double)NAN,
                    .last_eval_loss = (double)NAN};
  zr_status_t status = run(&loop);
  if (status != ZR_OK) {
    /* The message must outlive what closing does to it. */
    char detail[ZR_DETAIL_BYTES];
    (void)snprintf(detail, sizeof detail, "%s", zr_detail());
    zr_job_abort(options->job, status);
    zr_loop_close(&loop);
    zr_detail_set(detail);
    return status;
  }
  zr_loop_close(&loop);
  return ZR_OK;
}
