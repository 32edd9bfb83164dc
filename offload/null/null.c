/* A disk that moves nothing and counts. */
#include "offload/disk/range.h"
#include "offload/disk/verdict.h"
#include "offload/tier.h"

struct zr_disk_t {
  zr_alloc_t *alloc;
  int64_t bytes;
  _Atomic int64_t read_bytes, written_bytes, n_requests;
  zr_verdict_t cancelled;
};

static void null_close(zr_disk_t *disk) {
  if (disk) zr_alloc_free(disk->alloc, disk);
}

static zr_status_t null_attach(zr_disk_t *disk, void *memory, int64_t bytes) {
  (void)disk;
  (void)memory;
  (void)bytes;
  return ZR_OK;
}

static zr_status_t count(zr_disk_t *disk, const char *what, int64_t offset, const void *memory,
                         int64_t bytes, _Atomic int64_t *counter) {
  ZR_TRY(zr_verdict_get(&disk->cancelled));
  ZR_TRY(zr_disk_check_range(what, disk->bytes, offset, memory, bytes));
  atomic_fetch_add(counter, bytes);
  atomic_fetch_add(&disk->n_requests, 1);
  return ZR_OK;
}

static zr_status_t null_read(zr_disk_t *disk, int64_t offset, void *memory, int64_t bytes) {
  return count(disk, "read", offset, memory, bytes, &disk->read_bytes);
}

static zr_status_t null_write(zr_disk_t *disk, int64_t offset, const void *memory, int64_t bytes) {
  return count(disk, "write", offset, memory, bytes, &disk->written_bytes);
}

static void null_stats(const zr_disk_t *disk, zr_disk_stats_t *out_stats) {
  *out_stats = (zr_disk_stats_t){.read_bytes = atomic_load(&disk->read_bytes),
                                 .written_bytes = atomic_load(&disk->written_bytes),
                                 .n_requests = atomic_load(&disk->n_requests)};
}

static void null_cancel(zr_disk_t *disk, zr_status_t status, const char *detail) {
  zr_verdict_set(&disk->cancelled, status, detail);
}

static const char *null_describe(const zr_disk_t *disk) {
  (void)disk;
  return "null: nothing is moved";
}

static const zr_disk_ops_t null_ops = {
    .name = "null",
    .close = null_close,
    .attach = null_attach,
    .read = null_read,
    .write = null_write,
    .stats = null_stats,
    .cancel = null_cancel,
    .describe = null_describe,
};

zr_status_t zr_disk_null_open(zr_alloc_t *alloc, int64_t bytes, const zr_disk_ops_t **out_ops,
                              zr_disk_t **out_disk) {
  if (bytes <= 0 || bytes % ZR_DISK_ALIGN_BYTES != 0) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "a disk of %lld bytes: a multiple of %d is wanted",
                   (long long)bytes, ZR_DISK_ALIGN_BYTES);
  }
  zr_disk_t *disk = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *disk, &disk));
  disk->alloc = alloc;
  disk->bytes = bytes;
  *out_ops = &null_ops;
  *out_disk = disk;
  return ZR_OK;
}
