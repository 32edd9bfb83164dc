/* The hardware interface: memory tiers, streams and their timelines.
 *
 * Floor 1. A stream is an ordered queue with one timeline, a u64 that only grows. A submitted piece
 * of work waits for values on other streams' timelines, runs, and sets its own stream's timeline to
 * its signal value. No other synchronisation exists. `submit` is called from one thread (the
 * executor's); work runs on the stream's own thread. After `submit` returns ZR_OK the completion
 * comes exactly once; after an error it never comes.
 *
 * Failure is sticky: work that returns an error fails its stream with the detail; the timeline
 * jumps to ZR_TIMELINE_FAILED, so every waiter wakes and fails with the same status; later work is
 * dropped. */
#ifndef ZR_HAL_HAL_H
#define ZR_HAL_HAL_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

typedef enum { ZR_TIER_DEVICE = 0, ZR_TIER_HOST, ZR_TIER_DISK, ZR_N_TIERS } zr_tier_t;

typedef enum {
  ZR_STREAM_COMPUTE = 0,
  ZR_STREAM_H2D,
  ZR_STREAM_D2H,
  ZR_STREAM_COMM,
  ZR_STREAM_READ,
  ZR_STREAM_WRITE,
  ZR_STREAM_HOST,
  ZR_N_STREAMS
} zr_stream_id_t;

const char *zr_tier_name(zr_tier_t tier);          /* "device" */
const char *zr_stream_name(zr_stream_id_t stream); /* "compute" */

#define ZR_TIMELINE_FAILED UINT64_MAX

/* Runs on the stream's thread. `iteration` is what submit was given. */
typedef zr_status_t (*zr_work_fn_t)(void *context, int64_t iteration);

typedef struct {
  zr_work_fn_t fn;
  void *context; /* owned by the caller, alive until the work is done */
  int64_t iteration;
  int64_t duration_ns;         /* virtual time, for the null backend; others ignore it */
  uint64_t wait[ZR_N_STREAMS]; /* per stream: the value to wait for; 0: none */
  uint64_t signal;             /* greater than every earlier signal of this stream */
} zr_work_t;

typedef struct zr_hal_t zr_hal_t;

/* The table of a device backend. All slots required. */
typedef struct {
  const char *name;             /* "cpu", "null", "fault(cpu)" */
  void (*close)(zr_hal_t *hal); /* drains, joins threads; NULL is fine */

  /* One arena of a tier: zeroed, at least 4096-byte aligned, `bytes` > 0. The null backend gives no
   * storage: *out_memory may be NULL and must not be touched. */
  zr_status_t (*mem_create)(zr_hal_t *hal, zr_tier_t tier, int64_t bytes,
                            void **out_memory) ZR_MUST_CHECK;
  void (*mem_destroy)(zr_hal_t *hal, zr_tier_t tier, void *memory, int64_t bytes);
  /* Blocking copies between ordinary memory and a tier's memory, only while the streams are
   * drained. */
  zr_status_t (*upload)(zr_hal_t *hal, zr_tier_t tier, void *destination, const void *source,
                        int64_t bytes) ZR_MUST_CHECK;
  zr_status_t (*download)(zr_hal_t *hal, zr_tier_t tier, void *destination, const void *source,
                          int64_t bytes) ZR_MUST_CHECK;

  /* Enqueues on `stream`; blocks while its queue (a fixed ring of at least 1024) is full. */
  zr_status_t (*submit)(zr_hal_t *hal, zr_stream_id_t stream, const zr_work_t *work) ZR_MUST_CHECK;
  uint64_t (*timeline)(
      zr_hal_t *hal, zr_stream_id_t stream); /* the value now; ZR_TIMELINE_FAILED after a failure */
  /* Blocks the calling thread until the timeline reaches value: ZR_OK; ZR_PENDING after timeout_ns
   * (< 0: none); or the stream's failure, whose detail becomes the caller's. Sleeps; polls at most
   * 100 us. */
  zr_status_t (*wait)(zr_hal_t *hal, zr_stream_id_t stream, uint64_t value,
                      int64_t timeout_ns) ZR_MUST_CHECK;
  /* Fails one stream from outside (watchdog, abort): sticky, as if its running work had failed. */
  void (*fail)(zr_hal_t *hal, zr_stream_id_t stream, zr_status_t status, const char *detail);
  int64_t (*time_ns)(zr_hal_t *hal); /* this backend's clock: monotonic, or virtual: when the last
                                        stream becomes idle */
} zr_hal_ops_t;

/* Backends. Streams start their thread at the first submit and bind to no core. */
zr_status_t zr_hal_cpu_open(zr_alloc_t *alloc, const zr_hal_ops_t **out_ops,
                            zr_hal_t **out_hal) ZR_MUST_CHECK;
/* Virtual time: submit computes start = max(stream idle, awaited values reached) and end = start +
 * duration; `fn` is not called unless run_work, then at once on the caller's thread. */
zr_status_t zr_hal_null_open(zr_alloc_t *alloc, bool run_work, const zr_hal_ops_t **out_ops,
                             zr_hal_t **out_hal) ZR_MUST_CHECK;

/* When the work that signalled `value` on `stream` began and ended, in virtual time (null backend
 * only). */
zr_status_t zr_hal_null_times(zr_hal_t *hal, zr_stream_id_t stream, uint64_t value,
                              int64_t *out_begin_ns, int64_t *out_end_ns) ZR_MUST_CHECK;

typedef enum {
  ZR_FAULT_NONE = 0,
  ZR_FAULT_ERROR,   /* the call fails with ZR_ERR_DEVICE (hal) or ZR_ERR_NETWORK (comm) */
  ZR_FAULT_DELAY,   /* sleeps delay_ns first */
  ZR_FAULT_CORRUPT, /* comm: flips a bit of the result; upload and download: of the copy */
  ZR_FAULT_HANG     /* never completes until aborted: the watchdog's case */
} zr_fault_kind_t;

typedef struct {
  zr_fault_kind_t kind;
  int64_t at; /* the n-th call (from 1) */
  int64_t delay_ns;
  uint64_t random_seed; /* != 0: delays every work item by a pseudo-random 0..delay_ns instead of
                           one call */
} zr_fault_t;

/* Wraps another backend; `close` closes the inner one too. submit counts as calls. */
zr_status_t zr_hal_fault_open(zr_alloc_t *alloc, const zr_fault_t *fault,
                              const zr_hal_ops_t *inner_ops, zr_hal_t *inner,
                              const zr_hal_ops_t **out_ops, zr_hal_t **out_hal) ZR_MUST_CHECK;

#endif
