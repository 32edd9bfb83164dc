/* Exposed time: the compute stream's idle time, by the stream that caused it. */
#include "runtime/exec/state.h"

enum { MAX_STEPS = 8 };

/* An operation that ended, and when. stream -1: none. */
typedef struct {
  int stream;
  uint64_t value;
  int64_t end_ns;
} ended_t;

static void consider(const zr_exec_t *exec, int s, uint64_t value, int64_t until_ns,
                     ended_t *last) {
  const int64_t end_ns = atomic_load_explicit(&exec->stream[s].time[value % ZR_EXEC_TIMES].end_ns,
                                              memory_order_relaxed);
  if (end_ns <= last->end_ns || end_ns > until_ns) return;
  *last = (ended_t){.stream = s, .value = value, .end_ns = end_ns};
}

/* Of all that `op` waited for, the operation that ended last, if it ended after since_ns. */
static ended_t last_awaited(const zr_exec_t *exec, const zr_exec_op_t *op, int64_t execution,
                            int64_t since_ns, int64_t until_ns) {
  ended_t last = {.stream = -1, .end_ns = since_ns};
  uint64_t wait[ZR_N_STREAMS];
  zr_exec_op_waits(exec, op, execution, wait);
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (wait[s]) consider(exec, s, wait[s], until_ns, &last);
  }
  return last;
}

/* The same for an operation that has run: it waited for the one before it on its stream, too. */
static ended_t cause_of(const zr_exec_t *exec, const ended_t *of, int64_t since_ns,
                        int64_t begin_ns) {
  const zr_exec_op_t *op = zr_exec_op_of_value(exec, of->stream, of->value);
  const int64_t execution = zr_exec_execution_of_value(exec, of->stream, of->value);
  ended_t last = last_awaited(exec, op, execution, since_ns, begin_ns);
  if (of->value - 1 > exec->stream[of->stream].start) {
    consider(exec, of->stream, of->value - 1, begin_ns, &last);
  }
  return last;
}

/*   compute  ====|                       since .. begin: idle                        |====
 *   h2d                                       waits for read        |=== copy ====|
 *   read                   |============== read ===================|
 *                    read is blamed until the copy begins           | then h2d
 *
 * Going back from the operation that compute waited for, each is blamed for the time from its
 * begin on, and what lies before is its own cause's. Where there is no cause in the idle time, or
 * after MAX_STEPS, the rest is the last one's. */
void zr_exec_note_exposed(const zr_exec_op_t *op, int64_t execution, int64_t begin_ns) {
  zr_exec_t *exec = op->exec;
  if (op->stream != ZR_STREAM_COMPUTE || exec->options.serial) return;
  int64_t since_ns = exec->stream[op->stream].previous_end_ns;
  const int64_t idle_until_ns = atomic_load_explicit(&exec->idle_until_ns, memory_order_relaxed);
  if (since_ns < idle_until_ns) since_ns = idle_until_ns;
  ended_t at = last_awaited(exec, op, execution, since_ns, begin_ns);
  int64_t until_ns = begin_ns;
  for (int step = 1; at.stream >= 0; step++) {
    zr_exec_stream_t *stream = &exec->stream[at.stream];
    int64_t from_ns = atomic_load_explicit(&stream->time[at.value % ZR_EXEC_TIMES].begin_ns,
                                           memory_order_relaxed);
    ended_t cause = {.stream = -1};
    if (from_ns > since_ns && from_ns <= until_ns && step < MAX_STEPS) {
      cause = cause_of(exec, &at, since_ns, from_ns);
    }
    if (cause.stream < 0) from_ns = since_ns;
    atomic_fetch_add_explicit(&stream->exposed_ns, until_ns - from_ns, memory_order_relaxed);
    until_ns = from_ns;
    at = cause;
  }
}
