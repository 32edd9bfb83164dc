/* Waiting, the watchdog, and coming to rest after a failure. The loop's thread. */
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/exec/state.h"

static const int64_t slice_ns = 50000000;
static const int64_t soft_limit_ns = 1000000000; /* for streams to end by themselves */
static const int64_t still_limit_ns = 100000000; /* nothing runs and nothing moves: they can not */
static const int64_t nap_ns = 1000000;

static uint64_t timeline(const zr_exec_t *exec, int stream) {
  return exec->options.hal_ops->timeline(exec->options.hal, (zr_stream_id_t)stream);
}

/* --- the watchdog --- */

/* All that the operation waits for is done. */
static bool is_ready(const zr_exec_t *exec, int stream, uint64_t value) {
  const zr_exec_op_t *op = zr_exec_op_of_value(exec, stream, value);
  uint64_t wait[ZR_N_STREAMS];
  zr_exec_op_waits(exec, op, zr_exec_execution_of_value(exec, stream, value), wait);
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (wait[s] && timeline(exec, s) < wait[s]) return false;
  }
  return true;
}

/* How long the stream's next operation has been able to run without ending. */
static int64_t late_ns(zr_exec_t *exec, int stream, int64_t now_ns) {
  zr_exec_stream_t *x = &exec->stream[stream];
  const uint64_t done = timeline(exec, stream);
  if (done >= x->submitted) {
    x->watched_since_ns = 0;
    return 0;
  }
  if (done != x->watched) x->watched_since_ns = 0;
  x->watched = done;
  if (!is_ready(exec, stream, done + 1)) {
    x->watched_since_ns = 0;
  } else if (!x->watched_since_ns) {
    x->watched_since_ns = now_ns;
  }
  return x->watched_since_ns ? now_ns - x->watched_since_ns : 0;
}

/* A collective is late when any rank is. It gets half as much time again, so that the rank whose
 * own operation is late is the one that speaks first; where that rank can not speak, those that
 * wait for it run out of patience one after the other, so that the first one's message reaches the
 * rest.
 */
static int64_t patience_ns(const zr_exec_t *exec) {
  const int64_t half_ns = exec->options.watchdog_ns / 2, turn_ns = exec->rank * 4 * slice_ns;
  return exec->options.watchdog_ns + half_ns + (turn_ns < half_ns ? turn_ns : half_ns);
}

static void watch(zr_exec_t *exec) {
  const int64_t limit_ns = exec->options.watchdog_ns;
  if (limit_ns <= 0 || exec->is_virtual) return;
  const int64_t now_ns = zr_clock_ns();
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    const int64_t waited_ns = late_ns(exec, s, now_ns);
    if (waited_ns <= limit_ns) continue;
    const zr_exec_op_t *op = zr_exec_op_of_value(exec, s, exec->stream[s].watched + 1);
    const bool collective = zr_op_row(op->kind)->collective;
    if (collective && exec->n_ranks > 1 && waited_ns <= patience_ns(exec)) continue;
    char cause[96];
    snprintf(cause, sizeof cause, "not done after %.1f s (the watchdog's limit is %.1f s)",
             (double)waited_ns * 1e-9, (double)limit_ns * 1e-9);
    zr_exec_failure_of_op(exec, op, ZR_ERR_TIMEOUT, cause);
    exec->options.hal_ops->fail(exec->options.hal, (zr_stream_id_t)s, ZR_ERR_TIMEOUT, cause);
    return;
  }
}

/* --- coming to rest --- */

/* No operation of this executor is on the stream or will come to it. A timeline that was failed
 * from outside says so too early; is_running does not. */
static bool stream_at_rest(const zr_exec_t *exec, int s) {
  return timeline(exec, s) >= exec->stream[s].submitted &&
         !atomic_load(&exec->stream[s].is_running);
}

static bool all_at_rest(const zr_exec_t *exec) {
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (!stream_at_rest(exec, s)) return false;
  }
  return true;
}

bool zr_exec_at_rest(zr_exec_t *exec, int64_t limit_ns) {
  const int64_t begin_ns = zr_clock_ns();
  while (!all_at_rest(exec)) {
    if (zr_clock_ns() - begin_ns > limit_ns) return false;
    zr_clock_sleep_ns(nap_ns);
  }
  return true;
}

/* Changes whenever an operation begins or ends anywhere; *out_running: some are running now. */
static uint64_t motion(const zr_exec_t *exec, bool *out_running) {
  uint64_t sum = 0;
  *out_running = false;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    sum += timeline(exec, s) + atomic_load(&exec->stream[s].n_begun);
    if (atomic_load(&exec->stream[s].is_running)) *out_running = true;
  }
  return sum;
}

/* Operations fail by themselves once the failure is set, each on its own thread, and that is the
 * clean end. Streams that wait for what was never submitted, or hang, are failed from outside. */
zr_status_t zr_exec_stop(zr_exec_t *exec) {
  const zr_exec_options_t *o = &exec->options;
  if (exec->stopped) return zr_exec_failure_get(exec);
  exec->stopped = true;
  while (!zr_exec_failure_is_known(exec)) zr_clock_sleep_ns(nap_ns);
  const int64_t begin_ns = zr_clock_ns();
  int64_t moved_ns = begin_ns;
  bool running;
  uint64_t before = motion(exec, &running);
  while (!all_at_rest(exec)) {
    zr_clock_sleep_ns(nap_ns);
    const int64_t now_ns = zr_clock_ns();
    const uint64_t now = motion(exec, &running);
    if (running || now != before) moved_ns = now_ns;
    before = now;
    if (now_ns - begin_ns > soft_limit_ns || now_ns - moved_ns > still_limit_ns) break;
  }
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (stream_at_rest(exec, s)) continue;
    o->hal_ops->fail(o->hal, (zr_stream_id_t)s, exec->failure.status, exec->failure.detail);
  }
  return zr_exec_failure_get(exec);
}

/* --- waiting --- */

/* A stream failed, but no operation said why: the backend did it. The culprit is the failed stream
 * whose next operation waited for nobody; the others failed because they waited. */
static void name_backend_failure(zr_exec_t *exec, zr_status_t status, const char *cause) {
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    const zr_exec_stream_t *x = &exec->stream[s];
    const uint64_t next = atomic_load(&x->n_begun) + 1;
    if (timeline(exec, s) != ZR_TIMELINE_FAILED) continue;
    if (next <= x->start || next > x->submitted) continue; /* not one of this plan's */
    const zr_exec_op_t *op = zr_exec_op_of_value(exec, s, next);
    uint64_t wait[ZR_N_STREAMS];
    zr_exec_op_waits(exec, op, zr_exec_execution_of_value(exec, s, next), wait);
    bool waited = false;
    for (int t = 0; t < ZR_N_STREAMS; t++) {
      if (wait[t] > atomic_load(&exec->stream[t].n_begun)) waited = true;
    }
    if (waited) continue;
    zr_exec_failure_of_op(exec, op, status, cause);
    return;
  }
  char detail[ZR_DETAIL_BYTES];
  const int cut = snprintf(detail, sizeof detail, "rank %d: ", exec->rank);
  const int room = (int)sizeof detail - cut - 1;
  snprintf(detail + cut, sizeof detail - (size_t)cut, "%.*s", room, cause);
  zr_exec_failure_set(exec, status, detail);
}

static zr_status_t fail_from_backend(zr_exec_t *exec, zr_status_t status) {
  char cause[ZR_DETAIL_BYTES];
  snprintf(cause, sizeof cause, "%s", zr_detail());
  if (!zr_exec_has_failed(exec)) name_backend_failure(exec, status, cause);
  return zr_exec_stop(exec);
}

/* Between two slices of a wait: has anything gone wrong anywhere? */
static zr_status_t look_around(zr_exec_t *exec) {
  const zr_exec_options_t *o = &exec->options;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (timeline(exec, s) != ZR_TIMELINE_FAILED) continue;
    const zr_status_t status = o->hal_ops->wait(o->hal, (zr_stream_id_t)s, 1, 0);
    if (status < 0) return fail_from_backend(exec, status);
  }
  char detail[ZR_DETAIL_BYTES];
  if (!zr_exec_has_failed(exec)) {
    const zr_status_t status = zr_exec_failure_of_peer(exec, detail);
    if (status != ZR_OK) zr_exec_failure_set(exec, status, detail);
  }
  if (!zr_exec_has_failed(exec)) watch(exec);
  return zr_exec_has_failed(exec) ? zr_exec_stop(exec) : ZR_OK;
}

zr_status_t zr_exec_await(zr_exec_t *exec, int stream, uint64_t value) {
  const zr_exec_options_t *o = &exec->options;
  for (;;) {
    const zr_status_t status = o->hal_ops->wait(o->hal, (zr_stream_id_t)stream, value, slice_ns);
    if (status == ZR_OK) return ZR_OK;
    if (status != ZR_PENDING) return fail_from_backend(exec, status);
    ZR_TRY(look_around(exec));
  }
}

zr_status_t zr_exec_wait(zr_exec_t *exec) {
  if (zr_exec_has_failed(exec)) return zr_exec_stop(exec);
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (exec->stream[s].submitted) ZR_TRY(zr_exec_await(exec, s, exec->stream[s].submitted));
  }
  exec->is_drained = true;
  return zr_exec_has_failed(exec) ? zr_exec_stop(exec) : ZR_OK;
}

zr_status_t zr_exec_record(zr_exec_t *exec, int64_t iteration, zr_step_record_t *out_record) {
  for (int k = 0; k < ZR_CONTROL_RECORDS; k++) {
    const zr_exec_kept_t *kept = &exec->kept[k];
    if (kept->plan < 0 || kept->plan != exec->current || kept->iteration != iteration) continue;
    if (!kept->value) {
      return zr_fail(ZR_ERR_INVALID_ARGUMENT, "plan '%s' keeps no records",
                     exec->plan[kept->plan].plan->name);
    }
    ZR_TRY(zr_exec_await(exec, kept->stream, kept->value));
    *out_record = kept->record;
    return ZR_OK;
  }
  return zr_fail(ZR_ERR_INVALID_ARGUMENT, "execution %lld is not one of the last %d",
                 (long long)iteration, ZR_CONTROL_RECORDS);
}
