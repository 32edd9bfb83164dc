/* The conformance suite over engines, paths, depths and block sizes. usage: uring | posix */
#include <string.h>
#include <sys/stat.h>

#include "tests/cts/disk_cts.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

enum { SKIPPED = 77 };

static zr_status_t open_disk(const void *context, zr_alloc_t *alloc, int64_t bytes,
                             const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) {
  zr_disk_options_t options = *(const zr_disk_options_t *)context;
  options.bytes = bytes;
  return zr_disk_open(alloc, &options, out_ops, out_disk);
}

static int run(const zr_disk_options_t *options, const char *engine) {
  char name[128];
  (void)snprintf(name, sizeof name, "disk %s, %d paths, depth %d, blocks of %lld%s", engine,
                 options->n_paths, options->queue_depth, (long long)options->block_bytes,
                 options->checksums ? ", checksums" : "");
  const zr_cts_disk_t backend = {.open = open_disk, .context = options, .has_memory = true};
  return zr_cts_disk(&backend, name);
}

/* Blocks of 12, 68 and 260 KiB divide neither the disk nor each other. */
static int run_all(zr_disk_options_t options, const char *engine) {
  static const struct {
    int n_paths, queue_depth;
    int64_t block_bytes;
    bool checksums;
  } rows[] = {{1, 1, 69632, false},   {1, 64, 12288, true},   {2, 1, 266240, false},
              {2, 64, 4096, true},    {3, 1, 12288, true},    {3, 64, 266240, false},
              {1, 64, 1 << 20, true}, {3, 0, 1 << 20, false}, {2, 3, 0, false}};
  int n_failed = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    options.n_paths = rows[i].n_paths;
    options.queue_depth = rows[i].queue_depth;
    options.block_bytes = rows[i].block_bytes;
    options.checksums = rows[i].checksums;
    n_failed += run(&options, engine);
  }
  return n_failed;
}

static int is_refused(const zr_disk_options_t *options) {
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  zr_disk_options_t o = *options;
  o.bytes = ZR_DISK_ALIGN_BYTES;
  const zr_status_t status = zr_disk_open(NULL, &o, &ops, &disk);
  if (status == ZR_OK) ops->close(disk);
  return status == ZR_ERR_UNSUPPORTED;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  if (make_temp_dir(NULL) != 0) return 2;
  char other[64];
  (void)snprintf(other, sizeof other, "%s/other", temp_dir);
  if (mkdir(other, 0700) != 0) return 2;
  /* Memory behind a path is a file system of its own: room and direct transfers may differ. */
  const char *paths[] = {temp_dir, "/dev/shm", other};
  const zr_disk_options_t options = {
      .kind = strcmp(argv[1], "uring") == 0 ? ZR_DISK_URING : ZR_DISK_POSIX,
      .path = paths,
      .n_paths = 1};
  int n_failed = 0, is_skipped = is_refused(&options);
  if (is_skipped) {
    print_message("skipped: %s\n", zr_detail());
  } else {
    n_failed = run_all(options, argv[1]);
  }
  n_failed += remove_temp_dir(NULL) != 0;
  return is_skipped ? SKIPPED : n_failed ? 1 : 0;
}
