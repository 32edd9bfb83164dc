/* What the executor's files share. Private to runtime/exec.
 *
 *   loop's thread:     create ── start ── wait / record ── destroy  (create.c submit.c wait.c)
 *                                  │ zr_work_t
 *   a stream's thread:             └──> zr_exec_work(op)               (work.c)
 *
 * Timeline values are dense: the n-th operation submitted to a stream signals n. Between two
 * changes of plan a value therefore tells execution and operation, and back. */
#ifndef ZR_EXEC_STATE_H
#define ZR_EXEC_STATE_H

#include <stdatomic.h>

#include "runtime/exec/exec.h"

enum {
  ZR_EXEC_QUEUE_OPS = 1000, /* in flight on a stream: fewer than any backend's ring holds */
  ZR_EXEC_TIMES = 1024      /* operations whose times a stream remembers, for exposed.c */
};

/* One operation of one plan, ready to be submitted and run; never changes after create. */
typedef struct {
  zr_exec_t *exec;
  int32_t plan, op;
  int32_t kind;
  uint8_t stream, n_waits;
  int32_t stream_index;
  struct {
    uint8_t stream, back;
    int32_t stream_index;
  } wait[ZR_N_STREAMS];
  int64_t duration_ns;
  int64_t disk_offset; /* of the operand that is on disk; its address is NULL */
  zr_kern_call_t call; /* operands resolved for this rank; shape, primitive and pool */
} zr_exec_op_t;

typedef struct {
  const zr_plan_t *plan;
  zr_exec_op_t *op;                 /* [n_ops] */
  int32_t *stream_op[ZR_N_STREAMS]; /* [stream_ops[s]]: operation at a stream's position */
  int32_t control_end;              /* the operation whose record is kept; -1 */
  _Atomic int64_t *least_ns;        /* [n_ops]: shortest time so far; 0: has not run */
} zr_exec_plan_t;

typedef struct {
  _Alignas(64) _Atomic uint64_t n_begun; /* operations that began here: the value of the last one */
  _Atomic int is_running;                /* inside zr_exec_work */
  _Atomic int64_t busy_ns;
  _Atomic int64_t exposed_ns; /* compute's idle time caused by this stream */
  int64_t previous_end_ns;    /* of the stream's thread */
  struct {
    _Atomic int64_t begin_ns, end_ns;
  } time[ZR_EXEC_TIMES]; /* of value v in slot v % n */
  /* the loop's thread */
  uint64_t known_done;      /* the timeline when it was last asked for room */
  uint64_t submitted;       /* value of the last operation submitted */
  uint64_t start;           /* the same when the plan last changed */
  uint64_t watched;         /* the timeline when the watchdog last looked ... */
  int64_t watched_since_ns; /* ... and since when the operation after it could run; 0: it can not */
} zr_exec_stream_t;

typedef struct {
  int64_t started_bytes;       /* the loop's thread */
  _Atomic int64_t moved_bytes; /* the stream's */
} zr_exec_link_t;

typedef struct {
  void *bounce_memory; /* NULL: there is no disk */
  char *bounce;        /* in it, aligned for transfers */
  uint64_t *written;   /* a bit per grain: what was written before the first execution */
} zr_exec_disk_t;

/* The first failure. Written once, by whoever moves `state` from 0 (none) to 1 (being written);
 * read when it is 2 (known). */
typedef struct {
  _Atomic int state;
  zr_status_t status;
  char detail[ZR_DETAIL_BYTES];
} zr_exec_failure_t;

/* One of the last ZR_CONTROL_RECORDS executions. */
typedef struct {
  int64_t iteration;
  int32_t plan; /* -1: none yet */
  uint8_t stream;
  uint64_t value; /* of its control_end; 0: it has none */
  zr_step_record_t record;
} zr_exec_kept_t;

typedef struct {
  int64_t begin_ns, end_ns;
  bool traced; /* false: did not run */
} zr_exec_event_t;

struct zr_exec_t {
  zr_alloc_t *alloc;
  zr_exec_options_t options;
  int rank, n_ranks;
  bool is_virtual; /* the backend has no storage: nothing is computed */
  bool stopped;    /* the streams have been brought to rest after a failure */
  void *arena[ZR_N_TIERS];
  int64_t arena_bytes[ZR_N_TIERS];
  zr_host_memory_t host; /* bytes > 0: the host arena is host_map's */
  zr_exec_disk_t disk;
  zr_exec_link_t link[ZR_N_LINKS];
  zr_exec_plan_t plan[ZR_PROGRAM_MAX_PLANS];
  zr_exec_stream_t *stream; /* [ZR_N_STREAMS] */
  zr_exec_failure_t failure;
  int current;                   /* plan last started; -1 */
  int64_t n_executions;          /* of it since it became the current one */
  int64_t n_before;              /* of all plans until then */
  int last_stream;               /* of the operation last submitted; -1 */
  bool is_drained;               /* nothing has been started since the last wait */
  _Atomic int64_t idle_until_ns; /* until then compute had nothing to do */
  zr_exec_kept_t kept[ZR_CONTROL_RECORDS];
  int64_t created_ns;
  int64_t sent_before_bytes;
  zr_exec_event_t *event; /* [trace_count][n_ops of trace_plan] */
};

/* prepare.c */
zr_status_t zr_exec_plan_prepare(zr_exec_t *exec, int plan) ZR_MUST_CHECK;
void zr_exec_plan_release(zr_exec_t *exec, int plan);

/* work.c: runs on the stream's thread; context is a zr_exec_op_t */
zr_status_t zr_exec_work(void *context, int64_t iteration);
/* copy.c: runs a copy between tiers, on its stream's thread; and counts it when it is submitted
 * (any operation may be passed), on the loop's. */
zr_status_t zr_exec_copy(const zr_exec_op_t *op) ZR_MUST_CHECK;
void zr_exec_copy_started(const zr_exec_op_t *op);
/* exposed.c: an operation begins; on its stream's thread. */
void zr_exec_note_exposed(const zr_exec_op_t *op, int64_t execution, int64_t begin_ns);

/* disk.c; the loop's thread, while nothing runs. Offsets are the disk's, any number of bytes. */
zr_status_t zr_exec_disk_open(zr_exec_t *exec, int64_t bytes) ZR_MUST_CHECK;
void zr_exec_disk_close(zr_exec_t *exec);
zr_status_t zr_exec_disk_fill(zr_exec_t *exec, int value) ZR_MUST_CHECK; /* all of the arena */
/* Zeros wherever no persistent byte has been written, nor will be by `plan` before it reads: a disk
 * need not give what it was not given. Before the first execution, which is of `plan`. */
zr_status_t zr_exec_disk_complete(zr_exec_t *exec, int plan) ZR_MUST_CHECK;
zr_status_t zr_exec_disk_put(zr_exec_t *exec, int64_t offset, const void *source,
                             int64_t bytes) ZR_MUST_CHECK;
zr_status_t zr_exec_disk_get(zr_exec_t *exec, int64_t offset, void *destination,
                             int64_t bytes) ZR_MUST_CHECK;

/* operands.c: tells ThreadSanitizer what the operation touches; nothing in other builds. */
void zr_exec_declare_operands(const zr_exec_op_t *op);

/* failure.c. Any thread: keeps the first failure, tells the other ranks. */
void zr_exec_failure_set(zr_exec_t *exec, zr_status_t status, const char *detail);
/* As "rank 1: layers.3/linear#0 on compute: cause". */
void zr_exec_failure_of_op(zr_exec_t *exec, const zr_exec_op_t *op, zr_status_t status,
                           const char *cause);
/* ZR_OK, or the failure with its detail. */
zr_status_t zr_exec_failure_get(zr_exec_t *exec) ZR_MUST_CHECK;
/* The first cause as the other ranks told it. ZR_OK: nobody failed. */
zr_status_t zr_exec_failure_of_peer(zr_exec_t *exec, char *out_detail) ZR_MUST_CHECK;
static inline bool zr_exec_has_failed(zr_exec_t *exec) {
  return atomic_load(&exec->failure.state) != 0;
}
static inline bool zr_exec_failure_is_known(zr_exec_t *exec) {
  return atomic_load(&exec->failure.state) == 2;
}

/* wait.c; the loop's thread. */
/* Until the stream's timeline reaches value; or the first failure of any stream or rank. */
zr_status_t zr_exec_await(zr_exec_t *exec, int stream, uint64_t value) ZR_MUST_CHECK;
/* After a failure: brings the streams to rest, from outside if need be, and returns the failure. */
zr_status_t zr_exec_stop(zr_exec_t *exec);
/* Nothing runs any more, waited for at most limit_ns. */
bool zr_exec_at_rest(zr_exec_t *exec, int64_t limit_ns);

/* Value of stream position `index` in execution `execution` of the current plan. */
static inline uint64_t zr_exec_value(const zr_exec_t *exec, int stream, int64_t execution,
                                     int32_t index) {
  const int64_t per_execution = exec->plan[exec->current].plan->stream_ops[stream];
  return exec->stream[stream].start + (uint64_t)(execution * per_execution) + (uint64_t)index + 1;
}
/* And back: the execution, and the operation, that signals `value`. */
static inline int64_t zr_exec_execution_of_value(const zr_exec_t *exec, int stream,
                                                 uint64_t value) {
  const int64_t per_execution = exec->plan[exec->current].plan->stream_ops[stream];
  return (int64_t)(value - 1 - exec->stream[stream].start) / per_execution;
}
static inline const zr_exec_op_t *zr_exec_op_of_value(const zr_exec_t *exec, int stream,
                                                      uint64_t value) {
  const zr_exec_plan_t *plan = &exec->plan[exec->current];
  const int64_t position = (int64_t)(value - 1 - exec->stream[stream].start);
  return &plan->op[plan->stream_op[stream][position % plan->plan->stream_ops[stream]]];
}
/* Fills the value to wait for on each stream. */
void zr_exec_op_waits(const zr_exec_t *exec, const zr_exec_op_t *op, int64_t execution,
                      uint64_t out_wait[ZR_N_STREAMS]);

/* trace.c; NULL where the execution is not traced. */
zr_exec_event_t *zr_exec_event(const zr_exec_t *exec, int plan, int64_t iteration, int32_t op);

#endif
