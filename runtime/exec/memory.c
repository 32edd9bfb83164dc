/* Reading and writing what persists, while the streams are drained; numbers about the run. */
#include "runtime/exec/state.h"

/* Where bytes of a buffer are. */
typedef struct {
  const char *name;
  zr_tier_t tier;
  int64_t offset; /* in the tier's arena */
  char *memory;   /* NULL: on disk, or the device stores nothing */
} place_t;

static zr_status_t locate(zr_exec_t *exec, int32_t buffer, int64_t offset, int64_t bytes,
                          place_t *out_place) {
  const zr_program_t *program = exec->options.program;
  if (zr_exec_has_failed(exec)) return zr_exec_failure_get(exec);
  if (buffer < 0 || buffer >= program->n_persistent) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "buffer %d does not persist", buffer);
  }
  const zr_buffer_t *b = &program->plan[0]->buffer[buffer];
  if (offset < 0 || bytes < 0 || offset > b->bytes || bytes > b->bytes - offset) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "bytes %lld..%lld of '%s', which has %lld",
                   (long long)offset, (long long)(offset + bytes), b->name, (long long)b->bytes);
  }
  const zr_exec_options_t *o = &exec->options;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (o->hal_ops->timeline(o->hal, (zr_stream_id_t)s) >= exec->stream[s].submitted) continue;
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "'%s' is copied while stream %s still runs", b->name,
                   zr_stream_name((zr_stream_id_t)s));
  }
  char *arena = exec->arena[b->tier];
  *out_place = (place_t){.name = b->name, .tier = (zr_tier_t)b->tier, .offset = b->offset + offset};
  if (arena) out_place->memory = arena + out_place->offset;
  return ZR_OK;
}

static bool is_on_disk(const zr_exec_t *exec, const place_t *place) {
  return place->tier == ZR_TIER_DISK && !exec->is_virtual;
}

/* A disk's error knows file and offset, not what lies there. */
static zr_status_t disk_result(const zr_exec_t *exec, const place_t *place, const char *verb,
                               zr_status_t status) {
  if (status == ZR_OK) return ZR_OK;
  char cause[ZR_DETAIL_BYTES];
  snprintf(cause, sizeof cause, "%s", zr_detail());
  return zr_fail(status, "rank %d: %s '%s': %s", exec->rank, verb, place->name, cause);
}

zr_status_t zr_exec_upload(zr_exec_t *exec, int32_t buffer, int64_t offset, const void *source,
                           int64_t bytes) {
  place_t place = {0};
  ZR_TRY(locate(exec, buffer, offset, bytes, &place));
  if (is_on_disk(exec, &place)) {
    return disk_result(exec, &place, "writing",
                       zr_exec_disk_put(exec, place.offset, source, bytes));
  }
  if (!place.memory || !bytes) return ZR_OK;
  return exec->options.hal_ops->upload(exec->options.hal, place.tier, place.memory, source, bytes);
}

zr_status_t zr_exec_download(zr_exec_t *exec, int32_t buffer, int64_t offset, void *destination,
                             int64_t bytes) {
  place_t place = {0};
  ZR_TRY(locate(exec, buffer, offset, bytes, &place));
  if (is_on_disk(exec, &place)) {
    return disk_result(exec, &place, "reading",
                       zr_exec_disk_get(exec, place.offset, destination, bytes));
  }
  if (!place.memory || !bytes) return ZR_OK;
  return exec->options.hal_ops->download(exec->options.hal, place.tier, destination, place.memory,
                                         bytes);
}

void *zr_exec_arena(zr_exec_t *exec, zr_tier_t tier, int64_t *out_bytes) {
  *out_bytes = exec->arena_bytes[tier];
  return exec->arena[tier];
}

const zr_host_memory_t *zr_exec_host_memory(const zr_exec_t *exec) {
  return &exec->host;
}

void zr_exec_stats(const zr_exec_t *exec, zr_exec_stats_t *out_stats) {
  const zr_exec_options_t *o = &exec->options;
  *out_stats = (zr_exec_stats_t){0};
  out_stats->sent_bytes = o->comm_ops->sent_bytes(o->comm) - exec->sent_before_bytes;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    out_stats->stream_busy_ns[s] = atomic_load(&exec->stream[s].busy_ns);
    out_stats->exposed_ns[s] = atomic_load(&exec->stream[s].exposed_ns);
  }
  for (int l = 0; l < ZR_N_LINKS; l++) {
    out_stats->moved_bytes[l] = atomic_load(&exec->link[l].moved_bytes);
    out_stats->moving_bytes[l] = exec->link[l].started_bytes - out_stats->moved_bytes[l];
  }
}
