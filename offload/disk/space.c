/* Is there room? Files may share a file system, and a node's ranks share all of them.
 *
 * A rank can not know whether the others have taken their part already: before files are made only
 * its own part is asked for, and the blocks are then really allocated, which is the proof for all
 * ranks together. Where they can not be allocated, nobody's part is taken yet, and the node's sum
 * is asked for. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "offload/disk/disk_internal.h"

int64_t zr_disk_file_bytes(const zr_disk_t *disk, int index) {
  const int64_t n_blocks = (disk->bytes + disk->block_bytes - 1) / disk->block_bytes;
  const int64_t n_here = (n_blocks - index + disk->n_files - 1) / disk->n_files;
  int64_t bytes = n_here * disk->block_bytes;
  if (n_here > 0 && (n_blocks - 1) % disk->n_files == index) {
    bytes -= n_blocks * disk->block_bytes - disk->bytes;
  }
  /* One block at least, to prove direct transfers on. */
  return bytes < ZR_DISK_ALIGN_BYTES ? ZR_DISK_ALIGN_BYTES : bytes;
}

/* What all ranks of the node put where this rank puts `bytes`. */
static int64_t share(const zr_disk_t *disk, int64_t bytes, bool of_node) {
  if (!of_node || disk->node_bytes <= disk->bytes) return bytes;
  const double ratio = (double)disk->node_bytes / (double)disk->bytes;
  return (int64_t)((double)bytes * ratio);
}

/* Bytes wanted and free on the file system of file `index`. */
static int measure(const zr_disk_t *disk, int index, bool of_node, int64_t *out_wanted,
                   int64_t *out_free) {
  struct statvfs system;
  struct stat here, other;
  const char *path = disk->file[index].path;
  if (statvfs(path, &system) != 0 || stat(path, &here) != 0) return errno;
  int64_t wanted = 0;
  for (int i = 0; i < disk->n_files; i++) {
    if (i == index || (stat(disk->file[i].path, &other) == 0 && other.st_dev == here.st_dev)) {
      wanted += share(disk, disk->file[i].bytes, of_node);
    }
  }
  *out_wanted = wanted;
  /* A file system without blocks knows nothing about room. */
  *out_free = system.f_blocks ? (int64_t)system.f_bavail * (int64_t)system.f_frsize : INT64_MAX;
  return 0;
}

zr_status_t zr_disk_check_space(const zr_disk_t *disk, bool of_node) {
  for (int i = 0; i < disk->n_files; i++) {
    int64_t wanted, free_bytes;
    const char *path = disk->file[i].path;
    const int error = measure(disk, i, of_node, &wanted, &free_bytes);
    if (error) {
      return zr_fail(ZR_ERR_CONFIG,
                     "disk path %s: %s: name a directory on a local drive (memory.disk_path)", path,
                     strerror(error));
    }
    if (wanted > free_bytes) {
      return zr_fail(ZR_ERR_NO_SPACE,
                     "%s: %lld bytes are wanted%s and %lld are free: %lld bytes are missing: free "
                     "them, add a path, or keep fewer states on disk",
                     path, (long long)wanted, of_node ? " by this node's ranks" : "",
                     (long long)free_bytes, (long long)(wanted - free_bytes));
    }
  }
  return ZR_OK;
}

zr_status_t zr_disk_fail_space(const zr_disk_t *disk, int index, int error) {
  int64_t wanted = 0, free_bytes = 0;
  (void)measure(disk, index, false, &wanted, &free_bytes);
  const int64_t node = share(disk, wanted, true);
  return zr_fail(ZR_ERR_NO_SPACE,
                 "%s: %s: rank %d wants %lld bytes (this node's ranks %lld) and %lld are free: "
                 "%lld bytes are missing: free them, add a path, or keep fewer states on disk",
                 disk->file[index].path, strerror(error), disk->rank, (long long)wanted,
                 (long long)node, (long long)free_bytes,
                 (long long)(wanted > free_bytes ? wanted - free_bytes : 0));
}
