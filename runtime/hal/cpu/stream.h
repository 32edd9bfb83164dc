/* One stream of the CPU backend: a ring of work, a thread that takes from it, and a timeline.
 *
 *   submit ──> ring[submitted % n] ──> thread: await other timelines, run, advance `timeline`
 *
 * The streams of a device stand in one array, because a stream waits for the others' timelines. */
#ifndef ZR_HAL_CPU_STREAM_H
#define ZR_HAL_CPU_STREAM_H

#include <pthread.h>

#include "runtime/hal/cpu/counter.h"
#include "runtime/hal/hal.h"

enum { ZR_CPU_RING_WORKS = 4096 };

typedef struct zr_cpu_stream_t {
  zr_cpu_counter_t timeline;
  zr_cpu_counter_t submitted;  /* works put into the ring; advanced by the submitting thread */
  zr_cpu_counter_t taken;      /* works copied out of it; advanced by the stream's thread */
  struct zr_cpu_stream_t *all; /* the array of ZR_N_STREAMS this one is in */
  zr_stream_id_t id;
  bool started;
  pthread_t thread;
  _Atomic bool closing;         /* nothing more will be submitted to any stream */
  _Atomic uint64_t last_signal; /* of everything submitted so far */

  /* The failure: written once by the thread that claims it, before the timeline shows it. */
  _Atomic bool failed;
  zr_status_t status;
  char detail[ZR_DETAIL_BYTES];

  zr_work_t ring[ZR_CPU_RING_WORKS];
} zr_cpu_stream_t;

void zr_cpu_stream_init(zr_cpu_stream_t *all, zr_stream_id_t id);
void zr_cpu_streams_close(zr_cpu_stream_t *all); /* drains all ZR_N_STREAMS and joins */
zr_status_t zr_cpu_stream_submit(zr_cpu_stream_t *stream, const zr_work_t *work) ZR_MUST_CHECK;
zr_status_t zr_cpu_stream_wait(zr_cpu_stream_t *stream, uint64_t value,
                               int64_t timeout_ns) ZR_MUST_CHECK;
void zr_cpu_stream_fail(zr_cpu_stream_t *stream, zr_status_t status, const char *detail);

#endif
