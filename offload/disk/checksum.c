/* XXH3 of each 4 KiB, kept in memory: a drive, a cable or a driver that returns other bytes than it
 * was given is found when they are read. */
#include <xxhash.h>

#include "offload/disk/disk_internal.h"

enum { GRAIN_BYTES = ZR_DISK_ALIGN_BYTES };

/* 0 stands for never written. */
static uint64_t grain_checksum(const char *memory) {
  const uint64_t hash = XXH3_64bits(memory, GRAIN_BYTES);
  return hash ? hash : 1;
}

void zr_disk_checksum_set(zr_disk_t *disk, const zr_disk_request_t *request) {
  _Atomic uint64_t *checksum = disk->checksum + request->begin / GRAIN_BYTES;
  for (int64_t at = 0; at < request->begin_bytes; at += GRAIN_BYTES) {
    atomic_store_explicit(checksum++, grain_checksum(request->memory + at), memory_order_relaxed);
  }
}

zr_status_t zr_disk_checksum_check(const zr_disk_t *disk, const zr_disk_request_t *request) {
  const zr_disk_file_t *file = &disk->file[request->file];
  const _Atomic uint64_t *checksum = disk->checksum + request->begin / GRAIN_BYTES;
  const char *memory = request->memory - (request->begin_bytes - request->bytes);
  const int64_t offset = request->offset - (request->begin_bytes - request->bytes);
  for (int64_t at = 0; at < request->begin_bytes; at += GRAIN_BYTES) {
    const uint64_t wanted = atomic_load_explicit(checksum++, memory_order_relaxed);
    if (wanted == 0) {
      return zr_fail(ZR_ERR_IO, "%s: 4096 bytes at %lld are read and were never written",
                     file->name, (long long)(offset + at));
    }
    if (wanted != grain_checksum(memory + at)) {
      return zr_fail(ZR_ERR_IO,
                     "%s: 4096 bytes at %lld are not what was written (checksum %016llx): the "
                     "drive under %s is not to be trusted: use another path, and resume from the "
                     "last checkpoint",
                     file->name, (long long)(offset + at), (unsigned long long)wanted, file->path);
    }
  }
  return ZR_OK;
}
