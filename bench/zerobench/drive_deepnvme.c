/* DeepSpeed's file I/O, by a script that the user names: SCRIPT FILE BYTES prints JSON lines with
 * `read_gb_per_s` and `write_gb_per_s`, one for each setting. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/zerobench/child.h"
#include "bench/zerobench/drive.h"

enum { MOST_TEXT_BYTES = 1 << 18, MOST_PATH_BYTES = 4096, LIMIT_S = 900 };

/* Its tools (a compiler's driver among them) lie beside PYTHON. */
static void set_environment(const char *python) {
  const char *slash = strrchr(python, '/'), *path = getenv("PATH");
  char text[2 * MOST_PATH_BYTES];
  (void)setenv("DS_ACCELERATOR", "cpu", 0);
  if (slash == NULL || path == NULL) return;
  const int n = snprintf(text, sizeof text, "%.*s:%s", (int)(slash - python), python, path);
  if (n > 0 && (size_t)n < sizeof text) (void)setenv("PATH", text, 1);
}

/* A file that nobody else sees. */
static zr_status_t make_file(const char *folder, int *out_fd) {
  char name[MOST_PATH_BYTES];
  (void)snprintf(name, sizeof name, "%s/zerobench-XXXXXX", folder);
  const int fd = mkostemp(name, O_CLOEXEC);
  if (fd < 0) return zr_fail(ZR_ERR_IO, "%s: %s", name, strerror(errno));
  (void)unlink(name);
  *out_fd = fd;
  return ZR_OK;
}

static void keep_best(const json_t *line, const char *key, double *best_gbps) {
  const double gbps = json_number_value(json_object_get(line, key));
  if (gbps > *best_gbps) *best_gbps = gbps;
}

static zr_status_t read_lines(char *text, double best_gbps[ZR_DRIVE_MODES]) {
  char *rest = NULL;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    json_t *json = json_loads(line, 0, NULL); /* others are what its libraries say */
    keep_best(json, "read_gb_per_s", &best_gbps[ZR_DRIVE_READ]);
    keep_best(json, "write_gb_per_s", &best_gbps[ZR_DRIVE_WRITE]);
    json_decref(json);
  }
  if (best_gbps[ZR_DRIVE_READ] > 0 && best_gbps[ZR_DRIVE_WRITE] > 0) return ZR_OK;
  return zr_fail(ZR_ERR_CONFIG,
                 "--deepnvme: the script printed no line with read_gb_per_s and "
                 "write_gb_per_s");
}

zr_status_t zr_drive_run_deepnvme(const zr_drive_t *drive, int64_t bytes,
                                  double best_gbps[ZR_DRIVE_MODES]) {
  const zr_bench_t *b = drive->bench;
  char python[MOST_PATH_BYTES], script[MOST_PATH_BYTES], file[64], size[32], *text = NULL;
  (void)snprintf(python, sizeof python, "%s", b->options.deepnvme[0]);
  (void)snprintf(script, sizeof script, "%s", b->options.deepnvme[1]);
  int fd = -1;
  ZR_TRY(make_file(drive->path, &fd));
  (void)snprintf(file, sizeof file, "/proc/%lld/fd/%d", (long long)getpid(), fd);
  (void)snprintf(size, sizeof size, "%lld", (long long)bytes);
  char *argv[] = {python, script, file, size, NULL};
  set_environment(python);
  zr_status_t status = zr_alloc_get(b->alloc, 1, MOST_TEXT_BYTES, &text);
  if (status == ZR_OK) status = zr_bench_child(argv, LIMIT_S, text, MOST_TEXT_BYTES);
  if (status == ZR_OK) status = read_lines(text, best_gbps);
  zr_alloc_free(b->alloc, text);
  (void)close(fd);
  return status;
}
