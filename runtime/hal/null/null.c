/* The device that does nothing, in virtual time: submit computes when the work would begin and
 * end. One thread; nothing blocks. */
#include <stdio.h>
#include <string.h>

#include "runtime/hal/hal.h"
#include "runtime/hal/null/history.h"

typedef struct {
  zr_null_history_t history;
  int64_t idle_ns; /* when its last work ends */
  uint64_t last_signal;
  zr_status_t status; /* ZR_OK until it fails */
  char detail[ZR_DETAIL_BYTES];
} null_stream_t;

struct zr_hal_t {
  zr_alloc_t *alloc;
  bool run_work;
  null_stream_t streams[ZR_N_STREAMS];
};

static void null_close(zr_hal_t *hal) {
  if (!hal) return;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    zr_alloc_free(hal->alloc, hal->streams[s].history.entries);
  }
  zr_alloc_free(hal->alloc, hal);
}

static zr_status_t null_mem_create(zr_hal_t *hal, zr_tier_t tier, int64_t bytes,
                                   void **out_memory) {
  (void)hal;
  if (bytes <= 0) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "%s arena of %lld bytes", zr_tier_name(tier),
                   (long long)bytes);
  }
  *out_memory = NULL;
  return ZR_OK;
}

static void null_mem_destroy(zr_hal_t *hal, zr_tier_t tier, void *memory, int64_t bytes) {
  (void)hal;
  (void)tier;
  (void)memory;
  (void)bytes;
}

static zr_status_t null_copy(zr_hal_t *hal, zr_tier_t tier, void *destination, const void *source,
                             int64_t bytes) {
  (void)hal;
  (void)tier;
  (void)destination;
  (void)source;
  (void)bytes;
  return ZR_OK;
}

static void null_fail(zr_hal_t *hal, zr_stream_id_t id, zr_status_t status, const char *detail) {
  null_stream_t *stream = &hal->streams[id];
  if (stream->status != ZR_OK) return;
  stream->status = status < 0 ? status : ZR_ERR_INTERNAL;
  if (detail && detail[0]) {
    snprintf(stream->detail, sizeof stream->detail, "%s", detail);
  } else {
    snprintf(stream->detail, sizeof stream->detail, "stream %s: %s", zr_stream_name(id),
             zr_status_name(stream->status));
  }
}

/* Latest end of everything awaited. A value that nobody submitted yet has no time: refused. */
static zr_status_t awaited_ns(zr_hal_t *hal, zr_stream_id_t id, const zr_work_t *work,
                              int64_t *out_ns) {
  int64_t latest_ns = 0;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    null_stream_t *other = &hal->streams[s];
    if (!work->wait[s] || other->status != ZR_OK) continue;
    const zr_null_entry_t *entry = zr_null_history_find(&other->history, work->wait[s]);
    if (!entry) {
      return zr_fail(ZR_ERR_INVALID_ARGUMENT, "stream %s waits for %s %llu, which comes later",
                     zr_stream_name(id), zr_stream_name((zr_stream_id_t)s),
                     (unsigned long long)work->wait[s]);
    }
    if (entry->end_ns > latest_ns) latest_ns = entry->end_ns;
  }
  *out_ns = latest_ns;
  return ZR_OK;
}

static bool inherit_failure(zr_hal_t *hal, zr_stream_id_t id, const zr_work_t *work) {
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    const null_stream_t *other = &hal->streams[s];
    if (work->wait[s] && other->status != ZR_OK) null_fail(hal, id, other->status, other->detail);
  }
  return hal->streams[id].status != ZR_OK;
}

static zr_status_t null_submit(zr_hal_t *hal, zr_stream_id_t id, const zr_work_t *work) {
  if (id < 0 || id >= ZR_N_STREAMS) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "there is no stream %d", (int)id);
  }
  null_stream_t *stream = &hal->streams[id];
  if (work->signal <= stream->last_signal || work->signal == ZR_TIMELINE_FAILED ||
      work->wait[id] >= work->signal || work->duration_ns < 0) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT,
                   "stream %s: signal %llu does not follow %llu, or its duration %lld is negative",
                   zr_stream_name(id), (unsigned long long)work->signal,
                   (unsigned long long)stream->last_signal, (long long)work->duration_ns);
  }
  int64_t begin_ns = 0;
  ZR_TRY(awaited_ns(hal, id, work, &begin_ns));
  if (begin_ns < stream->idle_ns) begin_ns = stream->idle_ns;
  if (inherit_failure(hal, id, work)) { /* dropped */
    stream->last_signal = work->signal;
    return ZR_OK;
  }
  ZR_TRY(zr_null_history_add(&stream->history, hal->alloc, work->signal, begin_ns,
                             begin_ns + work->duration_ns));
  stream->last_signal = work->signal;
  stream->idle_ns = begin_ns + work->duration_ns;
  if (hal->run_work && work->fn) {
    const zr_status_t status = work->fn(work->context, work->iteration);
    if (status != ZR_OK) null_fail(hal, id, status, zr_detail());
  }
  return ZR_OK;
}

static uint64_t null_timeline(zr_hal_t *hal, zr_stream_id_t id) {
  const null_stream_t *stream = &hal->streams[id];
  return stream->status == ZR_OK ? stream->last_signal : ZR_TIMELINE_FAILED;
}

static zr_status_t null_wait(zr_hal_t *hal, zr_stream_id_t id, uint64_t value, int64_t timeout_ns) {
  const null_stream_t *stream = &hal->streams[id];
  if (stream->status != ZR_OK) {
    zr_detail_set(stream->detail);
    return stream->status;
  }
  if (value <= stream->last_signal) return ZR_OK;
  if (timeout_ns >= 0) return ZR_PENDING;
  return zr_fail(ZR_ERR_TIMEOUT, "stream %s ends at %llu: waiting for %llu would never end",
                 zr_stream_name(id), (unsigned long long)stream->last_signal,
                 (unsigned long long)value);
}

static int64_t null_time_ns(zr_hal_t *hal) {
  int64_t latest_ns = 0;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (hal->streams[s].idle_ns > latest_ns) latest_ns = hal->streams[s].idle_ns;
  }
  return latest_ns;
}

static const zr_hal_ops_t null_ops = {
    .name = "null",
    .close = null_close,
    .mem_create = null_mem_create,
    .mem_destroy = null_mem_destroy,
    .upload = null_copy,
    .download = null_copy,
    .submit = null_submit,
    .timeline = null_timeline,
    .wait = null_wait,
    .fail = null_fail,
    .time_ns = null_time_ns,
};

zr_status_t zr_hal_null_open(zr_alloc_t *alloc, bool run_work, const zr_hal_ops_t **out_ops,
                             zr_hal_t **out_hal) {
  zr_hal_t *hal = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *hal, &hal));
  hal->alloc = alloc;
  hal->run_work = run_work;
  *out_ops = &null_ops;
  *out_hal = hal;
  return ZR_OK;
}

zr_status_t zr_hal_null_times(zr_hal_t *hal, zr_stream_id_t stream, uint64_t value,
                              int64_t *out_begin_ns, int64_t *out_end_ns) {
  const zr_null_entry_t *entry = zr_null_history_find(&hal->streams[stream].history, value);
  if (!entry || entry->signal != value) {
    return zr_fail(ZR_ERR_NOT_FOUND, "stream %s: no work signalled %llu", zr_stream_name(stream),
                   (unsigned long long)value);
  }
  *out_begin_ns = entry->begin_ns;
  *out_end_ns = entry->end_ns;
  return ZR_OK;
}
