/* A disk of files: opening it, its table of functions, its numbers. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "offload/disk/disk_internal.h"
#include "offload/disk/range.h"
#include "runtime/base/log.h"

enum { DEFAULT_BLOCK_BYTES = 1 << 20, DEFAULT_QUEUE_DEPTH = 16 };

static int no_call(void *context, zr_disk_call_t call) {
  (void)context;
  (void)call;
  return 0;
}

static int same_result(void *context, const zr_disk_request_t *request, int answer) {
  (void)context;
  (void)request;
  return answer;
}

const zr_disk_seam_t zr_disk_seam_default = {.call = no_call,
                                             .result = same_result,
                                             .buffer_bytes = 1 << 30,
                                             .retry_ns = 10000000000,
                                             .drain_ns = 5000000000};

void zr_disk_note(zr_disk_t *disk, const char *format, ...) {
  const size_t used = strlen(disk->notice);
  if (used + 4 >= sizeof disk->notice) return;
  (void)snprintf(disk->notice + used, sizeof disk->notice - used, "; ");
  va_list args;
  va_start(args, format);
  (void)vsnprintf(disk->notice + used + 2, sizeof disk->notice - used - 2, format, args);
  va_end(args);
}

/* --- the table --- */

static void disk_close(zr_disk_t *disk) {
  if (!disk) return;
  if (disk->engine) disk->engine->stop(disk);
  bool is_stuck = false, has_engine = false;
  for (int i = 0; i < ZR_DISK_N_LANES; i++) {
    is_stuck = is_stuck || disk->lane[i].is_stuck;
    has_engine = has_engine || disk->lane[i].engine;
  }
  if (is_stuck) {
    if (has_engine) {
      zr_warn("%s: closed while requests hang: their threads keep its files open",
              disk->file[0].path);
      return;
    }
  }
  for (int i = 0; disk->file && i < disk->n_files; i++) zr_disk_file_close(disk, i);
  zr_alloc_free(disk->alloc, disk->file);
  zr_alloc_free(disk->alloc, (void *)(uintptr_t)disk->checksum);
  zr_alloc_free(disk->alloc, disk);
}

static void write_text(zr_disk_t *disk) {
  int n_direct = 0;
  char paths[512] = "";
  for (int i = 0; i < disk->n_files; i++) {
    n_direct += disk->file[i].direct_fd >= 0;
    const size_t used = strlen(paths);
    (void)snprintf(paths + used, sizeof paths - used, "%s%s", i ? ", " : "", disk->file[i].path);
  }
  const bool in_mib = disk->block_bytes % (1 << 20) == 0;
  (void)snprintf(disk->text, sizeof disk->text, "%s, %s, %d %s in %s, %d x %lld %s%s%s",
                 disk->engine == &zr_disk_engine_uring ? "io_uring" : "threads",
                 n_direct == disk->n_files ? "O_DIRECT"
                 : n_direct > 0            ? "partly O_DIRECT"
                                           : "page cache",
                 disk->n_files, disk->n_files == 1 ? "file" : "files", paths, disk->queue_depth,
                 (long long)(in_mib ? disk->block_bytes >> 20 : disk->block_bytes >> 10),
                 in_mib ? "MiB" : "KiB", disk->checksum ? ", checksums" : "", disk->notice);
}

static zr_status_t disk_attach(zr_disk_t *disk, void *memory, int64_t bytes) {
  if (!memory || bytes <= 0 || (uintptr_t)memory % ZR_DISK_ALIGN_BYTES != 0 || disk->attached) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT,
                   "attach of %lld bytes at %p: aligned to %d is wanted, and once",
                   (long long)bytes, memory, ZR_DISK_ALIGN_BYTES);
  }
  disk->attached = memory;
  disk->attached_bytes = bytes - bytes % ZR_DISK_ALIGN_BYTES;
  if (disk->attached_bytes > 0) disk->engine->attach(disk);
  write_text(disk);
  return ZR_OK;
}

static zr_status_t outcome(zr_disk_lane_t *lane) {
  ZR_TRY(zr_verdict_get(&lane->failure));
  if (atomic_load(&lane->moving_bytes) == 0) return ZR_OK;
  ZR_TRY(zr_verdict_get(&lane->disk->cancelled));
  return zr_fail(ZR_ERR_INTERNAL, "a transfer ended with %lld of %lld bytes left",
                 (long long)atomic_load(&lane->moving_bytes), (long long)lane->bytes);
}

/* The lane is the caller's. */
static zr_status_t transfer(zr_disk_lane_t *lane, int64_t offset, char *memory, int64_t bytes) {
  zr_disk_t *disk = lane->disk;
  const char *what = lane->is_write ? "write" : "read";
  zr_status_t status;
  if (lane->is_stuck) {
    status = zr_fail(ZR_ERR_IO, "%s: an earlier %s never completed: the drive hangs",
                     disk->file[0].path, what);
  } else {
    lane->offset = offset;
    lane->memory = memory;
    lane->bytes = bytes;
    lane->failure = (zr_verdict_t){0};
    atomic_store(&lane->cursor, 0);
    atomic_store(&lane->moving_bytes, bytes);
    disk->engine->move(lane);
    status = outcome(lane);
    atomic_store(&lane->moving_bytes, 0);
  }
  atomic_store(&lane->is_busy, 0);
  return status;
}

static bool take(zr_disk_lane_t *lane) {
  return !atomic_exchange(&lane->is_busy, 1);
}

static zr_status_t disk_read(zr_disk_t *disk, int64_t offset, void *memory, int64_t bytes) {
  ZR_TRY(zr_verdict_get(&disk->cancelled));
  ZR_TRY(zr_disk_check_range("read", disk->bytes, offset, memory, bytes));
  if (take(&disk->lane[0])) return transfer(&disk->lane[0], offset, memory, bytes);
  if (take(&disk->lane[2])) return transfer(&disk->lane[2], offset, memory, bytes);
  return zr_fail(ZR_ERR_INTERNAL, "three threads read one disk at once");
}

static zr_status_t disk_write(zr_disk_t *disk, int64_t offset, const void *memory, int64_t bytes) {
  char *from = (char *)(uintptr_t)memory;
  ZR_TRY(zr_verdict_get(&disk->cancelled));
  ZR_TRY(zr_disk_check_range("write", disk->bytes, offset, from, bytes));
  if (take(&disk->lane[1])) return transfer(&disk->lane[1], offset, from, bytes);
  return zr_fail(ZR_ERR_INTERNAL, "two threads write one disk at once");
}

static void disk_stats(const zr_disk_t *disk, zr_disk_stats_t *out_stats) {
  *out_stats = (zr_disk_stats_t){0};
  for (int i = 0; i < ZR_DISK_N_LANES; i++) {
    const zr_disk_lane_t *lane = &disk->lane[i];
    const int64_t moved = atomic_load(&lane->moved_bytes);
    const int64_t moving = atomic_load(&lane->moving_bytes);
    *(lane->is_write ? &out_stats->written_bytes : &out_stats->read_bytes) += moved;
    *(lane->is_write ? &out_stats->writing_bytes : &out_stats->reading_bytes) += moving;
    out_stats->n_requests += atomic_load(&lane->n_requests);
    out_stats->n_resumed += atomic_load(&lane->n_resumed);
    out_stats->n_retried += atomic_load(&lane->n_retried);
  }
}

static void disk_cancel(zr_disk_t *disk, zr_status_t status, const char *detail) {
  zr_verdict_set(&disk->cancelled, status, detail);
}

static const char *disk_describe(const zr_disk_t *disk) {
  return disk->text;
}

#define DISK_OPS(ops_name)                                                                     \
  {                                                                                            \
    .name = ops_name, .close = disk_close, .attach = disk_attach, .read = disk_read,           \
    .write = disk_write, .stats = disk_stats, .cancel = disk_cancel, .describe = disk_describe \
  }
static const zr_disk_ops_t uring_ops = DISK_OPS("uring"), posix_ops = DISK_OPS("posix");

/* --- opening --- */

static zr_status_t check_options(const zr_disk_options_t *o) {
  const int64_t align = ZR_DISK_ALIGN_BYTES;
  if (o->n_paths < 1 || o->n_paths > ZR_DISK_MOST_PATHS || !o->path) {
    return zr_fail(ZR_ERR_CONFIG, "memory.disk_path: %d paths: 1 to %d are wanted", o->n_paths,
                   ZR_DISK_MOST_PATHS);
  }
  if (o->bytes <= 0 || o->bytes % align != 0) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "a disk of %lld bytes: a multiple of %lld is wanted",
                   (long long)o->bytes, (long long)align);
  }
  if (o->block_bytes < 0 || o->block_bytes % align != 0 ||
      o->block_bytes > ZR_DISK_MOST_BLOCK_BYTES) {
    return zr_fail(ZR_ERR_CONFIG, "aio.block_size %lld: a multiple of %lld up to %d is wanted",
                   (long long)o->block_bytes, (long long)align, ZR_DISK_MOST_BLOCK_BYTES);
  }
  if (o->queue_depth < 0 || o->queue_depth > ZR_DISK_MOST_IN_FLIGHT) {
    return zr_fail(ZR_ERR_CONFIG, "aio.queue_depth %d: 1 to %d are wanted", o->queue_depth,
                   ZR_DISK_MOST_IN_FLIGHT);
  }
  if (o->kind < ZR_DISK_AUTO || o->kind > ZR_DISK_POSIX) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "a disk of kind %d", o->kind);
  }
  return ZR_OK;
}

static zr_status_t open_files(zr_disk_t *disk, const zr_disk_options_t *o) {
  zr_disk_file_t *file = NULL;
  ZR_TRY(zr_alloc_get(disk->alloc, (size_t)o->n_paths, sizeof *file, &file));
  for (int i = 0; i < o->n_paths; i++) {
    file[i].direct_fd = file[i].buffered_fd = -1;
    file[i].align_bytes = ZR_DISK_ALIGN_BYTES;
  }
  disk->file = file;
  disk->n_files = o->n_paths;
  for (int i = 0; i < disk->n_files; i++) {
    ZR_TRY(zr_alloc_strdup(disk->alloc, o->path[i], &file[i].path));
    file[i].bytes = zr_disk_file_bytes(disk, i);
  }
  ZR_TRY(zr_disk_check_space(disk, false));
  for (int i = 0; i < disk->n_files; i++) ZR_TRY(zr_disk_file_open(disk, i));
  return ZR_OK;
}

static zr_status_t start(zr_disk_t *disk, const zr_disk_engine_t *engine) {
  disk->engine = engine;
  const zr_status_t status = engine->start(disk);
  if (status == ZR_OK) return ZR_OK;
  char detail[ZR_DETAIL_BYTES];
  (void)snprintf(detail, sizeof detail, "%s", zr_detail());
  engine->stop(disk);
  disk->engine = NULL;
  zr_detail_set(detail);
  return status;
}

/* io_uring is worth it for direct transfers: the page cache copies on the caller's core. */
static zr_status_t start_some(zr_disk_t *disk, int kind) {
  bool is_direct = true;
  for (int i = 0; i < disk->n_files; i++) is_direct = is_direct && disk->file[i].direct_fd >= 0;
  if (kind == ZR_DISK_URING || (kind == ZR_DISK_AUTO && is_direct)) {
    const zr_status_t status = start(disk, &zr_disk_engine_uring);
    if (status != ZR_ERR_UNSUPPORTED || kind == ZR_DISK_URING) return status;
    zr_disk_note(disk, "%.250s", zr_detail());
  }
  return start(disk, &zr_disk_engine_posix);
}

static zr_status_t set_up(zr_disk_t *disk, const zr_disk_options_t *o) {
  disk->bytes = o->bytes;
  disk->node_bytes = o->node_bytes > o->bytes ? o->node_bytes : o->bytes;
  disk->block_bytes = o->block_bytes ? o->block_bytes : DEFAULT_BLOCK_BYTES;
  disk->queue_depth = o->queue_depth ? o->queue_depth : DEFAULT_QUEUE_DEPTH;
  disk->rank = o->rank;
  for (int i = 0; i < ZR_DISK_N_LANES; i++) {
    disk->lane[i].disk = disk;
    disk->lane[i].is_write = i == 1;
  }
  ZR_TRY(open_files(disk, o));
  if (o->checksums) {
    const size_t n_grains = (size_t)(disk->bytes / ZR_DISK_ALIGN_BYTES);
    ZR_TRY(zr_alloc_get(disk->alloc, n_grains, sizeof *disk->checksum, &disk->checksum));
  }
  ZR_TRY(start_some(disk, o->kind));
  write_text(disk);
  return ZR_OK;
}

zr_status_t zr_disk_open_with(zr_alloc_t *alloc, const zr_disk_options_t *options,
                              const zr_disk_seam_t *seam, const zr_disk_ops_t **out_ops,
                              zr_disk_t **out_disk) {
  ZR_TRY(check_options(options));
  zr_disk_t *disk = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *disk, &disk));
  disk->alloc = alloc;
  disk->seam = *seam;
  const zr_status_t status = set_up(disk, options);
  if (status != ZR_OK) {
    disk_close(disk);
    return status;
  }
  *out_ops = disk->engine == &zr_disk_engine_uring ? &uring_ops : &posix_ops;
  *out_disk = disk;
  return ZR_OK;
}

zr_status_t zr_disk_open(zr_alloc_t *alloc, const zr_disk_options_t *options,
                         const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) {
  return zr_disk_open_with(alloc, options, &zr_disk_seam_default, out_ops, out_disk);
}
