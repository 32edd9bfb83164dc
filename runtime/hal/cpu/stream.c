#include "runtime/hal/cpu/stream.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

void zr_cpu_stream_init(zr_cpu_stream_t *all, zr_stream_id_t id) {
  zr_cpu_stream_t *stream = &all[id];
  zr_cpu_counter_init(&stream->timeline);
  zr_cpu_counter_init(&stream->submitted);
  zr_cpu_counter_init(&stream->taken);
  stream->all = all;
  stream->id = id;
}

void zr_cpu_stream_fail(zr_cpu_stream_t *stream, zr_status_t status, const char *detail) {
  if (atomic_exchange(&stream->failed, true)) return;
  stream->status = status < 0 ? status : ZR_ERR_INTERNAL;
  if (detail && detail[0]) {
    snprintf(stream->detail, sizeof stream->detail, "%s", detail);
  } else {
    snprintf(stream->detail, sizeof stream->detail, "stream %s: %s", zr_stream_name(stream->id),
             zr_status_name(stream->status));
  }
  zr_cpu_counter_advance(&stream->timeline, ZR_TIMELINE_FAILED);
  /* This stream's thread may sleep on any timeline or its ring's submitter on `taken`. */
  for (int s = 0; s < ZR_N_STREAMS; s++) zr_cpu_counter_poke(&stream->all[s].timeline);
  zr_cpu_counter_poke(&stream->taken);
}

/* --- the stream's thread --- */

typedef struct {
  const zr_cpu_stream_t *self, *other;
  uint64_t value;
} awaited_t;

/* While waiting for another stream: this stream was failed from outside, or the device closes and
 * the value will never come. */
static bool give_up(const void *context) {
  const awaited_t *awaited = context;
  return atomic_load(&awaited->self->failed) ||
         (atomic_load(&awaited->self->closing) &&
          atomic_load(&awaited->other->last_signal) < awaited->value);
}

static bool is_closing(const void *context) {
  const zr_cpu_stream_t *stream = context;
  return atomic_load(&stream->closing);
}

static bool is_failed(const void *context) {
  const zr_cpu_stream_t *stream = context;
  return atomic_load(&stream->failed);
}

/* True when every awaited value is there; false when this stream has failed instead. */
static bool await_others(zr_cpu_stream_t *stream, const zr_work_t *work) {
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (!work->wait[s]) continue;
    zr_cpu_stream_t *other = &stream->all[s];
    const awaited_t awaited = {stream, other, work->wait[s]};
    if (zr_cpu_counter_wait(&other->timeline, work->wait[s], give_up, &awaited, -1) !=
        ZR_CPU_REACHED) {
      char text[128];
      snprintf(text, sizeof text, "stream %s waits for %s %llu, which was never submitted",
               zr_stream_name(stream->id), zr_stream_name(other->id),
               (unsigned long long)work->wait[s]);
      zr_cpu_stream_fail(stream, ZR_ERR_INTERNAL, text); /* no effect if it has failed already */
      return false;
    }
    if (zr_cpu_counter_get(&other->timeline) == ZR_TIMELINE_FAILED) {
      zr_cpu_stream_fail(stream, other->status, other->detail);
      return false;
    }
  }
  return true;
}

static void run_work(zr_cpu_stream_t *stream, const zr_work_t *work) {
  if (atomic_load(&stream->failed) || !await_others(stream, work)) return;
  const zr_status_t status = work->fn ? work->fn(work->context, work->iteration) : ZR_OK;
  if (status != ZR_OK) {
    zr_cpu_stream_fail(stream, status, zr_detail());
  } else {
    zr_cpu_counter_advance(&stream->timeline, work->signal);
  }
}

static void *stream_main(void *context) {
  zr_cpu_stream_t *stream = context;
  for (uint64_t n = 0;; n++) {
    if (zr_cpu_counter_wait(&stream->submitted, n + 1, is_closing, stream, -1) != ZR_CPU_REACHED) {
      return NULL;
    }
    const zr_work_t work = stream->ring[n % ZR_CPU_RING_WORKS];
    zr_cpu_counter_advance(&stream->taken, n + 1);
    run_work(stream, &work);
  }
}

/* Signals belong to the program's own threads: the stream's thread blocks them all. */
static zr_status_t start_thread(zr_cpu_stream_t *stream) {
  sigset_t all_signals, before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  const int error = pthread_create(&stream->thread, NULL, stream_main, stream);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error) {
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "stream %s: cannot start its thread: %s",
                   zr_stream_name(stream->id), strerror(error));
  }
  char name[16];
  snprintf(name, sizeof name, "zr-%s", zr_stream_name(stream->id));
  pthread_setname_np(stream->thread, name);
  stream->started = true;
  return ZR_OK;
}

/* --- the callers' side --- */

zr_status_t zr_cpu_stream_submit(zr_cpu_stream_t *stream, const zr_work_t *work) {
  if (work->signal <= atomic_load(&stream->last_signal) || work->signal == ZR_TIMELINE_FAILED ||
      work->wait[stream->id] >= work->signal) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "stream %s: signal %llu does not follow %llu",
                   zr_stream_name(stream->id), (unsigned long long)work->signal,
                   (unsigned long long)atomic_load(&stream->last_signal));
  }
  if (!stream->started) ZR_TRY(start_thread(stream));
  const uint64_t n = zr_cpu_counter_get(&stream->submitted);
  const uint64_t room = n < ZR_CPU_RING_WORKS ? 0 : n + 1 - ZR_CPU_RING_WORKS;
  const bool dropped = is_failed(stream) || zr_cpu_counter_wait(&stream->taken, room, is_failed,
                                                                stream, -1) != ZR_CPU_REACHED;
  atomic_store(&stream->last_signal, work->signal);
  if (dropped) return ZR_OK;
  stream->ring[n % ZR_CPU_RING_WORKS] = *work;
  zr_cpu_counter_advance(&stream->submitted, n + 1);
  return ZR_OK;
}

zr_status_t zr_cpu_stream_wait(zr_cpu_stream_t *stream, uint64_t value, int64_t timeout_ns) {
  if (zr_cpu_counter_wait(&stream->timeline, value, NULL, NULL, timeout_ns) != ZR_CPU_REACHED) {
    return ZR_PENDING;
  }
  if (zr_cpu_counter_get(&stream->timeline) != ZR_TIMELINE_FAILED) return ZR_OK;
  zr_detail_set(stream->detail);
  return stream->status;
}

void zr_cpu_streams_close(zr_cpu_stream_t *all) {
  for (int s = 0; s < ZR_N_STREAMS; s++) atomic_store(&all[s].closing, true);
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    zr_cpu_counter_poke(&all[s].timeline);
    zr_cpu_counter_poke(&all[s].submitted);
  }
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (all[s].started) pthread_join(all[s].thread, NULL);
  }
}
