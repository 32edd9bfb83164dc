/* What every disk asks of a transfer. */
#ifndef ZR_OFFLOAD_DISK_RANGE_H
#define ZR_OFFLOAD_DISK_RANGE_H

#include "offload/tier.h"

/* [offset, offset + bytes) lies on a disk of disk_bytes, all in steps of ZR_DISK_ALIGN_BYTES. */
static inline zr_status_t zr_disk_check_range(const char *what, int64_t disk_bytes, int64_t offset,
                                              const void *memory, int64_t bytes) {
  const uint64_t bits = (uint64_t)offset | (uint64_t)bytes | (uint64_t)(uintptr_t)memory;
  if (memory && bytes > 0 && offset >= 0 && offset <= disk_bytes - bytes &&
      bits % ZR_DISK_ALIGN_BYTES == 0) {
    return ZR_OK;
  }
  return zr_fail(ZR_ERR_INVALID_ARGUMENT,
                 "%s of %lld bytes at %lld, memory %p: not multiples of %d, or outside the disk's "
                 "%lld bytes",
                 what, (long long)bytes, (long long)offset, memory, ZR_DISK_ALIGN_BYTES,
                 (long long)disk_bytes);
}

#endif
