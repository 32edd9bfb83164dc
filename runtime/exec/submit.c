/* Enqueues executions. The loop's thread; allocates nothing. */
#include "runtime/base/clock.h"
#include "runtime/exec/state.h"

void zr_exec_op_waits(const zr_exec_t *exec, const zr_exec_op_t *op, int64_t execution,
                      uint64_t out_wait[ZR_N_STREAMS]) {
  for (int s = 0; s < ZR_N_STREAMS; s++) out_wait[s] = 0;
  for (int w = 0; w < op->n_waits; w++) {
    const int64_t awaited = execution - op->wait[w].back;
    if (awaited < 0) continue; /* before the change of plan, which drained the streams */
    const int s = op->wait[w].stream;
    const uint64_t value = zr_exec_value(exec, s, awaited, op->wait[w].stream_index);
    if (value > out_wait[s]) out_wait[s] = value;
  }
}

/* The queue must not fill up: a submit that blocks would block the watchdog too. The timeline is
 * looked at only when there may be no room: each look would order the streams a little more than
 * the plan does, and hide a dropped wait from ThreadSanitizer. */
static zr_status_t make_room(zr_exec_t *exec, int s) {
  const zr_exec_options_t *o = &exec->options;
  zr_exec_stream_t *stream = &exec->stream[s];
  if (stream->submitted - stream->known_done < ZR_EXEC_QUEUE_OPS) return ZR_OK;
  const uint64_t enough = stream->submitted - ZR_EXEC_QUEUE_OPS / 2;
  const uint64_t done = o->hal_ops->timeline(o->hal, (zr_stream_id_t)s);
  if (done < enough) ZR_TRY(zr_exec_await(exec, s, enough));
  stream->known_done = done > enough && done < stream->submitted ? done : enough;
  return ZR_OK;
}

/* In virtual time an operation's times are known as soon as it is submitted. */
static void note_virtual_times(zr_exec_t *exec, const zr_exec_op_t *op, int64_t iteration,
                               uint64_t value) {
  const zr_exec_options_t *o = &exec->options;
  zr_exec_event_t *event = zr_exec_event(exec, op->plan, iteration, op->op);
  if (!event || !o->virtual_times) return;
  int64_t begin_ns, end_ns;
  if (o->virtual_times(o->hal, (zr_stream_id_t)op->stream, value, &begin_ns, &end_ns) != ZR_OK) {
    return;
  }
  event->begin_ns = begin_ns - exec->created_ns;
  event->end_ns = end_ns - exec->created_ns;
  event->traced = true;
}

static zr_status_t submit_op(zr_exec_t *exec, zr_exec_op_t *op, int64_t iteration) {
  const zr_exec_options_t *o = &exec->options;
  zr_exec_stream_t *stream = &exec->stream[op->stream];
  const int last = exec->last_stream;
  zr_work_t work = {.fn = zr_exec_work,
                    .context = op,
                    .iteration = iteration,
                    .duration_ns = op->duration_ns,
                    .signal = stream->submitted + 1};
  zr_exec_op_waits(exec, op, exec->n_executions, work.wait);
  /* The loop waits too in serial mode; this is for clocks that its waiting does not move. */
  if (o->serial && last >= 0 && last != op->stream) work.wait[last] = exec->stream[last].submitted;
  ZR_TRY(make_room(exec, op->stream));
  const zr_status_t status = o->hal_ops->submit(o->hal, (zr_stream_id_t)op->stream, &work);
  if (status != ZR_OK) {
    char cause[ZR_DETAIL_BYTES];
    snprintf(cause, sizeof cause, "%s", zr_detail());
    zr_exec_failure_of_op(exec, op, status, cause);
    return zr_exec_stop(exec);
  }
  stream->submitted = work.signal;
  zr_exec_copy_started(op);
  exec->last_stream = op->stream;
  note_virtual_times(exec, op, iteration, work.signal);
  return o->serial ? zr_exec_await(exec, op->stream, work.signal) : ZR_OK;
}

static zr_status_t complete_disk(zr_exec_t *exec, int plan) {
  const zr_status_t status = zr_exec_disk_complete(exec, plan);
  if (status == ZR_OK) return ZR_OK;
  char cause[ZR_DETAIL_BYTES], detail[ZR_DETAIL_BYTES + 64];
  snprintf(cause, sizeof cause, "%s", zr_detail());
  snprintf(detail, sizeof detail, "rank %d: first contents of the disk: %s", exec->rank, cause);
  zr_exec_failure_set(exec, status, detail);
  return zr_exec_stop(exec);
}

static zr_status_t change_plan(zr_exec_t *exec, int plan) {
  if (exec->current == plan) return ZR_OK;
  ZR_TRY(zr_exec_wait(exec));
  if (exec->current < 0) ZR_TRY(complete_disk(exec, plan));
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    exec->stream[s].start = exec->stream[s].submitted;
    exec->stream[s].watched_since_ns = 0;
  }
  exec->n_before += exec->n_executions;
  exec->n_executions = 0;
  exec->current = plan;
  return ZR_OK;
}

/* The slot's record is the streams' to write; the rest is the loop's. */
static void keep_execution(zr_exec_t *exec, int64_t iteration) {
  const int64_t number = exec->n_before + exec->n_executions;
  zr_exec_kept_t *kept = &exec->kept[number % ZR_CONTROL_RECORDS];
  const zr_exec_plan_t *plan = &exec->plan[exec->current];
  kept->iteration = iteration;
  kept->plan = exec->current;
  kept->value = 0;
  if (plan->control_end < 0) return;
  const zr_exec_op_t *op = &plan->op[plan->control_end];
  kept->stream = op->stream;
  kept->value = zr_exec_value(exec, op->stream, exec->n_executions, op->stream_index);
}

zr_status_t zr_exec_start(zr_exec_t *exec, int plan, int64_t iteration) {
  if (plan < 0 || plan >= exec->options.program->n_plans) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "there is no plan %d", plan);
  }
  if (zr_exec_has_failed(exec)) return zr_exec_stop(exec);
  ZR_TRY(change_plan(exec, plan));
  keep_execution(exec, iteration);
  if (exec->is_drained) {
    atomic_store_explicit(&exec->idle_until_ns, zr_clock_ns(), memory_order_relaxed);
  }
  const zr_exec_plan_t *p = &exec->plan[plan];
  for (size_t i = 0; i < p->plan->n_ops; i++) ZR_TRY(submit_op(exec, &p->op[i], iteration));
  exec->n_executions++;
  exec->is_drained = false;
  return ZR_OK;
}

zr_status_t zr_exec_set_serial(zr_exec_t *exec, bool serial) {
  ZR_TRY(zr_exec_wait(exec));
  exec->options.serial = serial;
  return ZR_OK;
}
