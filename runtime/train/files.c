#include "runtime/train/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

zr_status_t zr_files_fail(const char *verb, const char *path, int error) {
  bool full = error == ENOSPC || error == EDQUOT;
  bool denied = error == EACCES || error == EROFS || error == EPERM || error == ENOTDIR;
  return zr_fail(full ? ZR_ERR_NO_SPACE : ZR_ERR_IO, "can not %s %s: %s%s", verb, path,
                 strerror(error),
                 full     ? "; free some space or set run.dir elsewhere"
                 : denied ? "; set run.dir to a folder that can be written"
                          : "");
}

zr_status_t zr_files_join(char out_path[ZR_PATH_BYTES], const char *folder, const char *name) {
  int used = snprintf(out_path, ZR_PATH_BYTES, "%s/%s", folder, name);
  if (used < 0 || used >= ZR_PATH_BYTES) {
    return zr_fail(ZR_ERR_CONFIG, "the path %.80s.../%s is longer than %d characters", folder, name,
                   (int)ZR_PATH_BYTES - 1);
  }
  return ZR_OK;
}

zr_status_t zr_files_make_dirs(const char *path) {
  char part[ZR_PATH_BYTES];
  size_t length = strlen(path);
  if (length == 0 || length >= sizeof part) {
    return zr_fail(ZR_ERR_CONFIG, "'%.80s' is not the name of a folder", path);
  }
  memcpy(part, path, length + 1);
  for (size_t i = 1; i <= length; ++i) {
    if (part[i] != '/' && part[i] != 0) continue;
    char cut = part[i];
    part[i] = 0;
    if (mkdir(part, 0777) != 0 && errno != EEXIST) {
      return zr_files_fail("make the folder", part, errno);
    }
    part[i] = cut;
  }
  struct stat about;
  if (stat(path, &about) != 0) return zr_files_fail("make the folder", path, errno);
  if (!S_ISDIR(about.st_mode)) return zr_files_fail("make the folder", path, ENOTDIR);
  return ZR_OK;
}

zr_status_t zr_files_write_all(int fd, const char *path, const void *data, size_t bytes) {
  const char *at = data;
  while (bytes > 0) {
    size_t piece = bytes < (size_t)1 << 30 ? bytes : (size_t)1 << 30;
    ssize_t written = write(fd, at, piece);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return zr_files_fail("write", path, written == 0 ? ENOSPC : errno);
    at += written;
    bytes -= (size_t)written;
  }
  return ZR_OK;
}

zr_status_t zr_files_sync_dir(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return zr_files_fail("open", path, errno);
  int failed = fsync(fd) != 0 ? errno : 0;
  close(fd);
  /* Some file systems have no fsync for folders and keep names in order anyway. */
  if (failed != 0 && failed != EINVAL) return zr_files_fail("sync", path, failed);
  return ZR_OK;
}

static zr_status_t write_synced(const char *path, const void *data, size_t bytes) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return zr_files_fail("create", path, errno);
  zr_status_t status = zr_files_write_all(fd, path, data, bytes);
  if (status == ZR_OK && fsync(fd) != 0) status = zr_files_fail("sync", path, errno);
  if (close(fd) != 0 && status == ZR_OK) status = zr_files_fail("close", path, errno);
  return status;
}

zr_status_t zr_files_replace(const char *path, const void *data, size_t bytes) {
  char temporary[ZR_PATH_BYTES], folder[ZR_PATH_BYTES];
  if (snprintf(temporary, sizeof temporary, "%s.new", path) >= ZR_PATH_BYTES) {
    return zr_fail(ZR_ERR_CONFIG, "the path %.80s... is too long", path);
  }
  ZR_TRY(write_synced(temporary, data, bytes));
  if (rename(temporary, path) != 0) return zr_files_fail("rename", path, errno);
  (void)snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash != NULL) *slash = 0;
  return zr_files_sync_dir(slash != NULL ? folder : ".");
}

zr_status_t zr_files_read_text(zr_alloc_t *alloc, const char *path, char **out_text,
                               size_t *out_bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    bool absent = errno == ENOENT || errno == ENOTDIR;
    return zr_fail(absent ? ZR_ERR_NOT_FOUND : ZR_ERR_DATA, "can not open %s: %s", path,
                   strerror(errno));
  }
  char *text = NULL;
  size_t capacity = 0, used = 0;
  zr_status_t status;
  for (;;) {
    status = zr_alloc_grow(alloc, &text, &capacity, used + 4096, 1);
    if (status != ZR_OK) break;
    ssize_t got = read(fd, text + used, capacity - used - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = zr_fail(ZR_ERR_DATA, "can not read %s: %s", path, strerror(errno));
    if (got <= 0) break;
    used += (size_t)got;
  }
  close(fd);
  if (status != ZR_OK) {
    zr_alloc_free(alloc, text);
    return status;
  }
  text[used] = 0;
  *out_text = text;
  *out_bytes = used;
  return ZR_OK;
}

void zr_files_remove_dir(const char *path) {
  DIR *dir = opendir(path);
  if (dir == NULL) return;
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    char file[ZR_PATH_BYTES];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    int used = snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
    if (used > 0 && used < ZR_PATH_BYTES) (void)unlink(file);
  }
  closedir(dir);
  (void)rmdir(path);
}

void zr_files_release(void *memory) {
  free(memory); /* lint: allow(free): the library's, not ours */
}
