/* The CPU as a device: both memory tiers are ordinary memory, each stream is a thread. */
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/hal/cpu/memory.h"
#include "runtime/hal/cpu/stream.h"

struct zr_hal_t {
  zr_alloc_t *alloc;
  zr_cpu_stream_t *streams; /* ZR_N_STREAMS */
};

static void cpu_close(zr_hal_t *hal) {
  if (!hal) return;
  if (hal->streams) zr_cpu_streams_close(hal->streams);
  zr_alloc_free(hal->alloc, hal->streams);
  zr_alloc_free(hal->alloc, hal);
}

static zr_status_t cpu_mem_create(zr_hal_t *hal, zr_tier_t tier, int64_t bytes, void **out_memory) {
  (void)hal;
  return zr_cpu_memory_map(tier, bytes, out_memory);
}

static void cpu_mem_destroy(zr_hal_t *hal, zr_tier_t tier, void *memory, int64_t bytes) {
  (void)hal;
  (void)tier;
  zr_cpu_memory_unmap(memory, bytes);
}

static zr_status_t cpu_copy(zr_hal_t *hal, zr_tier_t tier, void *destination, const void *source,
                            int64_t bytes) {
  (void)hal;
  (void)tier;
  if (bytes > 0) memcpy(destination, source, (size_t)bytes);
  return ZR_OK;
}

static zr_status_t cpu_submit(zr_hal_t *hal, zr_stream_id_t stream, const zr_work_t *work) {
  if (stream < 0 || stream >= ZR_N_STREAMS) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "there is no stream %d", (int)stream);
  }
  return zr_cpu_stream_submit(&hal->streams[stream], work);
}

static uint64_t cpu_timeline(zr_hal_t *hal, zr_stream_id_t stream) {
  return zr_cpu_counter_get(&hal->streams[stream].timeline);
}

static zr_status_t cpu_wait(zr_hal_t *hal, zr_stream_id_t stream, uint64_t value,
                            int64_t timeout_ns) {
  return zr_cpu_stream_wait(&hal->streams[stream], value, timeout_ns);
}

static void cpu_fail(zr_hal_t *hal, zr_stream_id_t stream, zr_status_t status, const char *detail) {
  zr_cpu_stream_fail(&hal->streams[stream], status, detail);
}

static int64_t cpu_time_ns(zr_hal_t *hal) {
  (void)hal;
  return zr_clock_ns();
}

static const zr_hal_ops_t cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .mem_create = cpu_mem_create,
    .mem_destroy = cpu_mem_destroy,
    .upload = cpu_copy,
    .download = cpu_copy,
    .submit = cpu_submit,
    .timeline = cpu_timeline,
    .wait = cpu_wait,
    .fail = cpu_fail,
    .time_ns = cpu_time_ns,
};

zr_status_t zr_hal_cpu_open(zr_alloc_t *alloc, const zr_hal_ops_t **out_ops, zr_hal_t **out_hal) {
  zr_hal_t *hal = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *hal, &hal));
  hal->alloc = alloc;
  const zr_status_t status = zr_alloc_get(alloc, ZR_N_STREAMS, sizeof *hal->streams, &hal->streams);
  if (status != ZR_OK) {
    cpu_close(hal);
    return status;
  }
  for (int s = 0; s < ZR_N_STREAMS; s++) zr_cpu_stream_init(hal->streams, (zr_stream_id_t)s);
  *out_ops = &cpu_ops;
  *out_hal = hal;
  return ZR_OK;
}
