#include "offload/disk/retune.h"

#include <stdio.h>

#include "offload/disk/disk_internal.h"

typedef struct {
  const zr_disk_engine_t *engine;
  int64_t block_bytes;
  int queue_depth;
} settings_t;

static zr_status_t start(zr_disk_t *disk, const settings_t *settings) {
  disk->engine = settings->engine;
  disk->block_bytes = settings->block_bytes;
  disk->queue_depth = settings->queue_depth;
  ZR_TRY(disk->engine->start(disk));
  if (disk->attached_bytes > 0) disk->engine->attach(disk);
  return ZR_OK;
}

static zr_status_t check(const zr_disk_t *disk, int kind, int64_t block_bytes, int queue_depth) {
  const bool is_block = block_bytes > 0 && block_bytes % ZR_DISK_ALIGN_BYTES == 0 &&
                        block_bytes <= ZR_DISK_MOST_BLOCK_BYTES;
  const bool is_depth = queue_depth > 0 && queue_depth <= ZR_DISK_MOST_IN_FLIGHT;
  if (is_block && is_depth && disk->n_files == 1 && kind > ZR_DISK_AUTO && kind <= ZR_DISK_POSIX) {
    return ZR_OK;
  }
  return zr_fail(ZR_ERR_CONFIG, "a disk of %d files can not be given %d x %lld bytes and kind %d",
                 disk->n_files, queue_depth, (long long)block_bytes, kind);
}

zr_status_t zr_disk_retune(zr_disk_t *disk, int kind, int64_t block_bytes, int queue_depth) {
  ZR_TRY(check(disk, kind, block_bytes, queue_depth));
  const settings_t before = {disk->engine, disk->block_bytes, disk->queue_depth};
  const settings_t wanted = {kind == ZR_DISK_URING ? &zr_disk_engine_uring : &zr_disk_engine_posix,
                             block_bytes, queue_depth};
  before.engine->stop(disk);
  const zr_status_t status = start(disk, &wanted);
  if (status == ZR_OK) return ZR_OK;
  char detail[ZR_DETAIL_BYTES];
  (void)snprintf(detail, sizeof detail, "%s", zr_detail());
  disk->engine->stop(disk);
  const zr_status_t again = start(disk, &before);
  if (again != ZR_OK) zr_verdict_set(&disk->cancelled, again, zr_detail());
  zr_detail_set(detail);
  return status;
}

int zr_disk_descriptor(const zr_disk_t *disk) {
  const zr_disk_file_t *file = &disk->file[0];
  return file->direct_fd >= 0 ? file->direct_fd : file->buffered_fd;
}
