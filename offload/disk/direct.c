/* Transfers without the page cache: asked for, and believed only after one block went there and
 * back. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/disk/disk_internal.h"

enum { GRAIN_BYTES = ZR_DISK_ALIGN_BYTES };

/* The alignment that the file asks for; 0: it takes no direct transfers. */
static int64_t asked_align(int fd) {
#ifdef STATX_DIOALIGN
  struct statx about;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 &&
      (about.stx_mask & STATX_DIOALIGN)) {
    const uint32_t memory = about.stx_dio_mem_align, offset = about.stx_dio_offset_align;
    if (offset == 0) return 0;
    return memory > offset ? memory : offset;
  }
#endif
  (void)fd;
  return GRAIN_BYTES;
}

/* 0, or the errno of the step that failed. EIO: other bytes came back. */
static int prove(const zr_disk_t *disk, int fd, char *grain) {
  int error = -disk->seam.call(disk->seam.context, ZR_DISK_CALL_OPEN_DIRECT);
  if (error) return error;
  for (int i = 0; i < GRAIN_BYTES; i++) grain[i] = (char)(i * 31 + i / 256 + disk->rank);
  if (pwrite(fd, grain, GRAIN_BYTES, 0) != GRAIN_BYTES) return errno ? errno : EIO;
  memset(grain, 0, GRAIN_BYTES);
  if (pread(fd, grain, GRAIN_BYTES, 0) != GRAIN_BYTES) return errno ? errno : EIO;
  for (int i = 0; i < GRAIN_BYTES; i++) {
    if (grain[i] != (char)(i * 31 + i / 256 + disk->rank)) return EIO;
  }
  return 0;
}

static int try_direct(zr_disk_t *disk, zr_disk_file_t *file, char *grain) {
  const int fd = open(file->name, O_RDWR | O_CLOEXEC | O_DIRECT);
  if (fd < 0) return errno;
  errno = 0;
  const int64_t align = asked_align(fd);
  int error = align == 0 || align > GRAIN_BYTES ? EINVAL : prove(disk, fd, grain);
  if (error) {
    (void)close(fd);
    return error;
  }
  file->direct_fd = fd;
  file->align_bytes = align;
  return 0;
}

zr_status_t zr_disk_file_open_direct(zr_disk_t *disk, int index) {
  zr_disk_file_t *file = &disk->file[index];
  char *raw;
  ZR_TRY(zr_alloc_get(disk->alloc, 2, GRAIN_BYTES, &raw));
  char *grain = raw + (GRAIN_BYTES - (uintptr_t)raw % GRAIN_BYTES);
  const int error = try_direct(disk, file, grain);
  zr_alloc_free(disk->alloc, raw);
  if (error == ENOSPC || error == EDQUOT) return zr_disk_fail_space(disk, index, error);
  if (error == EIO) {
    return zr_fail(ZR_ERR_IO, "%s: one block written and read again: %s: use another path",
                   file->name, strerror(error));
  }
  if (error) zr_disk_note(disk, "%s refuses O_DIRECT (%s)", file->path, strerror(error));
  return ZR_OK;
}
