/* A file of this job alone: in a directory of its own, allocated, locked, and nameless as soon as
 * it is open, so that the kernel takes it back however the process ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/disk/disk_internal.h"

enum { NAME_BYTES = 4096 };

static zr_status_t fail_path(const zr_disk_file_t *file, const char *what, int error) {
  return zr_fail(
      ZR_ERR_CONFIG,
      "disk path %s: %s: %s: name a directory that this user may write (memory.disk_path)",
      file->path, what, strerror(error));
}

static zr_status_t make_folder(const zr_disk_t *disk, const zr_disk_file_t *file, char *out_name) {
  const int wanted = snprintf(out_name, NAME_BYTES, "%s/zerorun-%d-%d-XXXXXX", file->path,
                              (int)getpid(), disk->rank);
  if (wanted >= NAME_BYTES - 8) return fail_path(file, "a directory in it", ENAMETOOLONG);
  if (mkdtemp(out_name)) return ZR_OK;
  const int error = errno;
  if (error == ENOSPC || error == EDQUOT) {
    return zr_disk_fail_space(disk, (int)(file - disk->file), error);
  }
  return fail_path(file, "a directory in it", error);
}

/* posix_fallocate would write where blocks can not be allocated: for hours on a large file. */
static zr_status_t allocate(zr_disk_t *disk, int index) {
  zr_disk_file_t *file = &disk->file[index];
  int error = -disk->seam.call(disk->seam.context, ZR_DISK_CALL_FALLOCATE);
  while (!error && fallocate(file->buffered_fd, 0, 0, file->bytes) != 0) {
    if (errno != EINTR) error = errno;
  }
  if (error == 0) return ZR_OK;
  if (error == ENOSPC || error == EDQUOT) return zr_disk_fail_space(disk, index, error);
  if (error != EOPNOTSUPP && error != ENOSYS) return fail_path(file, "fallocate", error);
  if (ftruncate(file->buffered_fd, file->bytes) != 0) return fail_path(file, "ftruncate", errno);
  zr_disk_note(disk, "%s can not allocate blocks ahead: room may run out later", file->path);
  return zr_disk_check_space(disk, true);
}

static zr_status_t open_in(zr_disk_t *disk, int index) {
  zr_disk_file_t *file = &disk->file[index];
  file->buffered_fd = open(file->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file->buffered_fd < 0) return fail_path(file, "a file in it", errno);
  if (flock(file->buffered_fd, LOCK_EX | LOCK_NB) != 0 && errno != ENOSYS && errno != EOPNOTSUPP) {
    return fail_path(file, "a lock on a file in it", errno);
  }
  return zr_disk_file_open_direct(disk, index);
}

zr_status_t zr_disk_file_open(zr_disk_t *disk, int index) {
  zr_disk_file_t *file = &disk->file[index];
  char name[NAME_BYTES];
  ZR_TRY(make_folder(disk, file, name));
  const size_t folder_length = strlen(name);
  memcpy(name + folder_length, "/data", sizeof "/data");
  zr_status_t status = zr_alloc_strdup(disk->alloc, name, &file->name);
  if (status == ZR_OK) status = open_in(disk, index);
  (void)unlink(name);
  name[folder_length] = '\0';
  (void)rmdir(name);
  if (status == ZR_OK) status = allocate(disk, index);
  return status;
}

void zr_disk_file_close(zr_disk_t *disk, int index) {
  zr_disk_file_t *file = &disk->file[index];
  if (file->direct_fd >= 0) (void)close(file->direct_fd);
  if (file->buffered_fd >= 0) (void)close(file->buffered_fd);
  zr_alloc_free(disk->alloc, file->name);
  zr_alloc_free(disk->alloc, file->path);
}
