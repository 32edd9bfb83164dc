/* The events of a run. */
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/plan/cost.h"
#include "runtime/train/loop_state.h"
#include "runtime/train/report.h"

static json_t *hex(uint64_t value) {
  return json_sprintf("%016llx", (unsigned long long)value);
}

static const zr_plan_t *step_plan(const zr_loop_t *loop) {
  return loop->zero->program->plan[loop->plan_step];
}

/* --- start ----------------------------------------------------------------------------------- */

typedef struct {
  zr_loop_t *loop;
  zr_status_t status;
} needless_t;

static void log_needless(void *context, const char *key, const char *reason) {
  needless_t *needless = context;
  if (needless->status != ZR_OK) return;
  zr_info("%s is accepted and has no effect: %s", key, reason);
  needless->status = zr_events_put(
      needless->loop->events,
      json_pack("{s:s, s:s, s:s}", "event", "warning", "option", key, "text", reason));
}

static void log_mapped(void *context, const char *key, const char *text) {
  needless_t *mapped = context;
  if (mapped->status != ZR_OK) return;
  zr_info("%s: %s", key, text);
  mapped->status =
      zr_events_put(mapped->loop->events,
                    json_pack("{s:s, s:s, s:s}", "event", "warning", "option", key, "text", text));
}

static json_t *config_text(const zr_config_file_t *config) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  if (file == NULL) return json_null();
  zr_config_print(config, file);
  json_t *value = fclose(file) == 0 ? json_string(text) : json_null();
  zr_files_release(text);
  return value;
}

static json_t *machine(const zr_loop_t *loop) {
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  return json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "host", host, "ranks", loop->n_ranks,
                   "threads", loop->n_workers, "device", loop->options->hal_ops->name, "comm",
                   zr_job_comm_ops(loop->job)->name, "kernels", loop->options->kern_ops->name);
}

static void say_start(const zr_loop_t *loop) {
  const zr_zero_options_t *o = &loop->zero->options;
  const zr_plan_t *plan = step_plan(loop);
  zr_account_t account;
  char memory[32], sent[32], files[256], text[512];
  zr_cost_account(plan, &account);
  zr_events_bytes(plan->arena_bytes[ZR_TIER_DEVICE], memory, sizeof memory);
  zr_events_bytes(account.sent_bytes, sent, sizeof sent);
  zr_events_say(loop->events,
                "zerorun %s: %.2fM parameters in %s, stage %d, %d rank%s x %d thread%s",
                loop->options->version, (double)loop->zero->n_params / 1e6,
                zr_dtype_name(o->run.dtype), o->stage, loop->n_ranks, loop->n_ranks == 1 ? "" : "s",
                loop->n_workers, loop->n_workers == 1 ? "" : "s");
  zr_events_say(loop->events,
                "  batch %lld x %lld tokens, %lld micro-batch%s of %lld a rank; memory %s a rank; "
                "sends %s a step",
                (long long)loop->v->train_batch_size, (long long)loop->v->seq_len,
                (long long)o->n_micro, o->n_micro == 1 ? "" : "es",
                (long long)loop->v->micro_batch_size, memory, sent);
  zr_loop_say_tiers(loop);
  zr_predict_text(&loop->bound.prediction, text, sizeof text);
  zr_events_say(loop->events, "  predicted %s", text);
  zr_data_describe(loop->train, files, sizeof files);
  zr_events_say(loop->events, "  data %lld tokens in %s", (long long)zr_data_n_tokens(loop->train),
                files);
  zr_events_say(loop->events, "  %lld steps%s%s; everything goes to %s", (long long)loop->v->steps,
                loop->start.step > 0 ? ", continued from " : "",
                loop->resumed != NULL ? zr_checkpoint_path(loop->resumed) : "", loop->v->run_dir);
  if (!zr_zero_split_is_exact(o)) {
    zr_events_say(loop->events,
                  "  this split of micro-batches has bits of its own: a power of two of ranks, or "
                  "of micro-batches a rank, would give the same as any other");
  }
}

static json_t *types(const zr_loop_t *loop) {
  const zr_zero_options_t *o = &loop->zero->options;
  return json_pack("{s:s, s:s, s:s, s:s}", "parameters", zr_dtype_name(o->run.dtype), "masters",
                   "fp32", "moments", "fp32", "gradients", zr_dtype_name(o->grad_dtype));
}

zr_status_t zr_loop_log_start(zr_loop_t *loop) {
  if (loop->events == NULL) return ZR_OK;
  char hash[17];
  zr_report_hash(loop->zero, hash);
  say_start(loop);
  needless_t needless = {.loop = loop};
  zr_config_mapped(loop->options->config, log_mapped, &needless);
  zr_config_needless(loop->options->config, log_needless, &needless);
  ZR_TRY(needless.status);
  return zr_events_put(
      loop->events,
      json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:o}", "event", "start",
                "version", loop->options->version, "time", (json_int_t)time(NULL), "machine",
                machine(loop), "tiers", zr_loop_tiers_json(loop), "types", types(loop), "plan_hash",
                hash, "parameters", (json_int_t)loop->zero->n_params, "step",
                (json_int_t)loop->start.step, "steps", (json_int_t)loop->v->steps, "configuration",
                config_text(loop->options->config), "predicted",
                zr_predict_json(&loop->bound.prediction)));
}

/* --- step ------------------------------------------------------------------------------------ */

void zr_loop_rest_clock(zr_loop_t *loop) {
  loop->last_ns = zr_clock_ns();
  zr_exec_stats(loop->exec, &loop->last_stats);
}

/* Seconds in which compute waited for each other stream, of the time since the last line. */
static json_t *exposed(const zr_exec_stats_t *now, const zr_exec_stats_t *before) {
  json_t *object = json_object();
  for (int s = 0; s < ZR_N_STREAMS; ++s) {
    if (s == ZR_STREAM_COMPUTE) continue;
    double seconds = (double)(now->exposed_ns[s] - before->exposed_ns[s]) * 1e-9;
    (void)json_object_set_new(object, zr_stream_name((zr_stream_id_t)s), json_real(seconds));
  }
  return object;
}

static json_t *peak_bytes(const zr_loop_t *loop) {
  const zr_plan_t *plan = step_plan(loop);
  return json_pack("{s:I, s:I, s:I}", "device", (json_int_t)plan->arena_bytes[ZR_TIER_DEVICE],
                   "host", (json_int_t)plan->arena_bytes[ZR_TIER_HOST], "disk",
                   (json_int_t)plan->arena_bytes[ZR_TIER_DISK]);
}

/* What the plan moves, which is what the executor moves. */
static json_t *moved_bytes(const zr_loop_t *loop) {
  zr_account_t account;
  zr_cost_account(step_plan(loop), &account);
  return json_pack("{s:I, s:I, s:I, s:I, s:I}", "comm", (json_int_t)account.sent_bytes, "h2d",
                   (json_int_t)account.h2d_bytes, "d2h", (json_int_t)account.d2h_bytes, "disk_read",
                   (json_int_t)account.disk_read_bytes, "disk_write",
                   (json_int_t)account.disk_write_bytes);
}

static zr_status_t put_step(zr_loop_t *loop, const zr_step_record_t *r, double step_s,
                            const zr_exec_stats_t *stats) {
  json_t *event = json_pack(
      "{s:s, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:n, s:I, s:o, s:o}", "event", "step",
      "step", (json_int_t)r->step, "loss", zr_events_real(r->loss), "lr", zr_events_real(r->lr),
      "grad_norm", zr_events_real(r->grad_norm), "tokens", (json_int_t)r->tokens, "tokens_per_s",
      zr_events_real((double)r->step_tokens / step_s), "step_s", zr_events_real(step_s),
      "exposed_s", exposed(stats, &loop->last_stats), "bound_s",
      zr_events_real((double)loop->bound.bound.bound_ns * 1e-9), "mfu", "skipped",
      (json_int_t)r->skipped, "peak_bytes", peak_bytes(loop), "bytes", moved_bytes(loop));
  if (zr_loop_bound_is_alone(loop, r)) (void)json_object_set_new(event, "alone", json_true());
  if (loop->v->dtype == ZR_F16) {
    (void)json_object_set_new(event, "loss_scale", zr_events_real(r->loss_scale));
  }
  if (loop->v->digest != ZR_DIGEST_NONE) {
    (void)json_object_set_new(event, "digest_params", hex(r->digest_params));
  }
  if (loop->v->digest == ZR_DIGEST_STATES) {
    (void)json_object_set_new(event, "digest_states", hex(r->digest_states));
  }
  return zr_events_put(loop->events, event);
}

static zr_status_t put_skip(zr_loop_t *loop, const zr_step_record_t *r) {
  char scale[48] = "";
  if (loop->v->dtype == ZR_F16) {
    (void)snprintf(scale, sizeof scale, " at loss scale %g", r->loss_scale);
  }
  zr_events_say(loop->events,
                "step %lld skipped: the gradient is not finite%s (%lld in a row; run.max_skipped "
                "is %lld)",
                (long long)r->step + 1, scale, (long long)r->skipped_in_row,
                (long long)loop->v->max_skipped);
  json_t *event =
      json_pack("{s:s, s:I, s:I, s:o, s:o, s:I, s:I}", "event", "skip", "step",
                (json_int_t)r->step + 1, "iteration", (json_int_t)r->iteration, "loss",
                zr_events_real(r->loss), "grad_norm", zr_events_real(r->grad_norm), "skipped",
                (json_int_t)r->skipped, "in_row", (json_int_t)r->skipped_in_row);
  if (loop->v->dtype == ZR_F16) {
    (void)json_object_set_new(event, "loss_scale", zr_events_real(r->loss_scale));
  }
  return zr_events_put(loop->events, event);
}

zr_status_t zr_loop_log_step(zr_loop_t *loop, const zr_step_record_t *record) {
  int64_t now_ns = zr_clock_ns();
  double step_s = (double)(now_ns - loop->last_ns) * 1e-9;
  zr_exec_stats_t stats;
  zr_exec_stats(loop->exec, &stats);
  loop->last_loss = record->loss;
  zr_status_t status = zr_loop_bound_step(loop, record, step_s, &stats);
  ZR_TRY(status);
  if (loop->events != NULL && record->skipped_now) {
    status = put_skip(loop, record);
  } else if (loop->events != NULL) {
    status = put_step(loop, record, step_s, &stats);
    zr_account_t account;
    zr_cost_account(step_plan(loop), &account);
    zr_progress_step_t shown = {.link_bytes = account.h2d_bytes + account.d2h_bytes,
                                .disk_bytes = account.disk_read_bytes + account.disk_write_bytes,
                                .step = record->step,
                                .loss = record->loss,
                                .tokens_per_s = (double)record->step_tokens / step_s,
                                .step_s = step_s};
    zr_events_progress(loop->events, &shown);
  }
  loop->last_ns = now_ns;
  loop->last_stats = stats;
  return status;
}

/* --- end ------------------------------------------------------------------------------------- */

/* Drives wear: what was written, and what a day of this would write. */
static json_t *log_wear(zr_loop_t *loop, int64_t written, double seconds) {
  if (loop->disk_ops == NULL) return json_null();
  char sum[32], day[32];
  double per_day = seconds > 0 ? (double)written / seconds * 86400 : 0;
  zr_events_bytes(written, sum, sizeof sum);
  zr_events_bytes((int64_t)per_day, day, sizeof day);
  zr_events_say(loop->events, "  written to disk: %s, all ranks; at this rate %s a day", sum, day);
  return json_pack("{s:I, s:o}", "written_bytes", (json_int_t)written, "written_bytes_per_day",
                   zr_events_real(per_day));
}

zr_status_t zr_loop_log_end(zr_loop_t *loop, const char *why, int64_t disk_written) {
  if (loop->events == NULL) return ZR_OK;
  char took[32];
  double seconds = (double)(zr_clock_ns() - loop->begun_ns) * 1e-9;
  zr_events_duration(seconds, took, sizeof took);
  zr_events_say(loop->events, "%s after %lld steps and %s; log, plan and checkpoints are in %s",
                why, (long long)loop->step, took, loop->v->run_dir);
  json_t *wear = log_wear(loop, disk_written, seconds);
  json_t *took_json = zr_loop_bound_end(loop);
  ZR_TRY(zr_events_put(
      loop->events,
      json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "event", "end", "reason", why, "step",
                (json_int_t)loop->step, "loss", zr_events_real(loop->last_loss), "eval_loss",
                zr_events_real(loop->last_eval_loss), "seconds", zr_events_real(seconds), "disk",
                wear, "steps", took_json)));
  return zr_events_sync(loop->events);
}
