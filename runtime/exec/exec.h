/* The executor: runs a program's plans on a backend. Floor 5; gets tables, includes no backend.
 *
 * All functions are called from one thread (the loop's). Operations run on the streams' threads; a
 * collective runs on the comm stream's. Nothing is allocated and no lock is taken from
 * zr_exec_start to zr_exec_wait. */
#ifndef ZR_EXEC_EXEC_H
#define ZR_EXEC_EXEC_H

#include "kernels/control.h"
#include "kernels/kern.h"
#include "offload/tier.h"
#include "runtime/comm/comm.h"
#include "runtime/hal/hal.h"
#include "runtime/plan/program.h"

typedef struct zr_exec_t zr_exec_t;

/* Fills tokens and targets [rows] of micro-batch `micro` of this rank, and unless NULL the place in
 * its sample where each row's document begins, for execution `iteration` of plan `plan` (index).
 * Runs on the h2d or the compute stream; ids are legal or an error is returned. */
typedef zr_status_t (*zr_fetch_fn_t)(void *context, int plan, int64_t iteration, int64_t micro,
                                     int32_t *out_tokens, int32_t *out_targets, int32_t *out_starts,
                                     int64_t rows);

/* An operation of execution `iteration` that has just run: its operands' memory as it left it. */
typedef void (*zr_observe_fn_t)(void *context, const zr_plan_t *plan, int64_t iteration, int32_t op,
                                const zr_kern_call_t *call);

typedef struct {
  const zr_program_t *program;                  /* compiled; outlives the executor */
  int32_t control_buffer[ZR_PROGRAM_MAX_PLANS]; /* per plan: the buffer whose records zr_exec_record
                                                   reads; -1 */
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  zr_pool_t *pool; /* for the compute and host streams; others run on their own thread */
  /* Needed where the program has a disk arena, unless the device stores nothing. The disk has at
   * least that arena's bytes, serves this executor alone, and is closed after it by the caller. */
  const zr_disk_ops_t *disk_ops;
  zr_disk_t *disk;
  /* The host arena's memory: zr_host_map and zr_host_unmap. NULL: the device's mem_create. What was
   * refused is logged. */
  zr_status_t (*host_map)(int64_t bytes, bool pin, zr_host_memory_t *out_memory);
  void (*host_unmap)(zr_host_memory_t *memory);
  bool pin_host;
  zr_fetch_fn_t fetch;
  void *fetch_context;
  /* Added to the control block's `flags` in execution of a plan's control_count, so that all ranks
   * learn of it in the record. Runs on the compute stream, with fetch_context. NULL: nothing. */
  int64_t (*ask)(void *context, int plan);
  zr_observe_fn_t observe; /* with `serial`: after each operation, on its stream's thread; NULL */
  void *observe_context;
  bool serial;          /* one operation at a time, in list order: the oracle */
  uint64_t delay_seed;  /* != 0: every operation is preceded by a pseudo-random delay ... */
  int64_t delay_max_ns; /* ... of at most this */
  int64_t watchdog_ns;  /* an operation that takes longer fails the run, by name; 0: never */
  int poison; /* 0..255: arenas start filled with this byte; -1: zeroed as the backend gives them,
                 of a disk what persists, when the first execution starts */
  const int64_t *duration_ns[ZR_PROGRAM_MAX_PLANS]; /* null backend: per operation; NULL: 0 */
  /* zr_hal_null_times, so that the trace has virtual times; NULL: operations are timed as they run
   */
  zr_status_t (*virtual_times)(zr_hal_t *hal, zr_stream_id_t stream, uint64_t value,
                               int64_t *out_begin_ns, int64_t *out_end_ns);
  /* Executions of plan 'trace_plan' whose operations are timed: iterations from trace_first on. */
  int64_t trace_first, trace_count;
  int trace_plan;
} zr_exec_options_t;

void zr_exec_defaults(zr_exec_options_t *out_options);

/* Allocates the arenas (exactly arena_bytes of each tier), prepares every kernel, checks plan
 * hashes with the other ranks (ZR_ERR_INTERNAL names the rank that differs). */
zr_status_t zr_exec_create(zr_alloc_t *alloc, const zr_exec_options_t *options,
                           zr_exec_t **out_exec) ZR_MUST_CHECK;
/* Waits for what runs (bounded after a failure). NULL is fine. */
void zr_exec_destroy(zr_exec_t *exec);

/* Enqueues one execution of a plan. A change of plan drains the streams first. Blocks only while
 * queues are full. */
zr_status_t zr_exec_start(zr_exec_t *exec, int plan, int64_t iteration) ZR_MUST_CHECK;
/* Waits until everything started is done, or returns the first failure with its detail: "rank 1:
 * layers.3/linear#0 on compute:
 * ...". A failure here is spread to the other ranks (comm abort); a failure there arrives here as
 * ZR_ERR_PEER. */
zr_status_t zr_exec_wait(zr_exec_t *exec) ZR_MUST_CHECK;
/* Waits for the control_end of execution `iteration` of the plan last started (at most
 * ZR_CONTROL_RECORDS - 1 executions ago) and copies its record: the next execution may already be
 * running. */
zr_status_t zr_exec_record(zr_exec_t *exec, int64_t iteration,
                           zr_step_record_t *out_record) ZR_MUST_CHECK;

/* Bytes of a persistent buffer of any tier; streams drained. On a disk any offset and length: the
 * 4,096-byte grains at the edges are read, changed and written. */
zr_status_t zr_exec_upload(zr_exec_t *exec, int32_t buffer, int64_t offset, const void *source,
                           int64_t bytes) ZR_MUST_CHECK;
zr_status_t zr_exec_download(zr_exec_t *exec, int32_t buffer, int64_t offset, void *destination,
                             int64_t bytes) ZR_MUST_CHECK;
/* The arena itself, for tests on backends whose memory can be read. A disk's has no address. */
void *zr_exec_arena(zr_exec_t *exec, zr_tier_t tier, int64_t *out_bytes);
/* What host_map gave; bytes 0: it was not asked. */
const zr_host_memory_t *zr_exec_host_memory(const zr_exec_t *exec);

/* What copies between tiers go over. A fetch is none of them. */
typedef enum {
  ZR_LINK_H2D = 0,
  ZR_LINK_D2H,
  ZR_LINK_DISK_READ,
  ZR_LINK_DISK_WRITE,
  ZR_N_LINKS
} zr_link_t;

typedef struct {
  int64_t sent_bytes;                   /* counted at the collectives, this rank */
  int64_t moved_bytes[ZR_N_LINKS];      /* by operations that are done; since create */
  int64_t moving_bytes[ZR_N_LINKS];     /* by operations that were started and are not done */
  int64_t stream_busy_ns[ZR_N_STREAMS]; /* since create; 0 on backends without clocks */
  /* The compute stream's idle time, by the stream that it waited for in the end: while it waits for
   * a copy that itself waited for the disk, the disk is what it is exposed to. */
  int64_t exposed_ns[ZR_N_STREAMS];
} zr_exec_stats_t;
void zr_exec_stats(const zr_exec_t *exec, zr_exec_stats_t *out_stats);

/* The shortest time each operation of a plan has taken so far: out_ns[n_ops]; 0 where it has not
 * run (always on backends without clocks). */
void zr_exec_op_times(const zr_exec_t *exec, int plan, int64_t *out_ns);
/* From the next start on: one operation at a time, or streams. Waits first, as zr_exec_wait. */
zr_status_t zr_exec_set_serial(zr_exec_t *exec, bool serial) ZR_MUST_CHECK;

/* Chrome trace (JSON) of the traced executions: one row per stream, args {unit, micro, bytes};
 * opens in Perfetto. */
zr_status_t zr_exec_trace_write(const zr_exec_t *exec, const char *path) ZR_MUST_CHECK;
/* Begin and end of operation `op` in traced execution `iteration`, for tests; ns since the
 * executor's creation. */
zr_status_t zr_exec_trace_op(const zr_exec_t *exec, int64_t iteration, int32_t op,
                             int64_t *out_begin_ns, int64_t *out_end_ns) ZR_MUST_CHECK;

#endif
