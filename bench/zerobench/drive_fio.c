/* The same file moved by fio: io_uring, direct, sequential, with the same block and depth. Small
 * pages have cost it much of its speed in some runs (a request of 1 MiB is then 256 pieces) and
 * little in others, so it gets huge ones as our arenas have: its buffers come from malloc, which
 * takes them where glibc is asked to. */
#include <string.h>
#include <unistd.h>

#include "bench/zerobench/child.h"
#include "bench/zerobench/drive.h"
#include "offload/disk/retune.h"

enum { MOST_TEXT_BYTES = 1 << 18, ARG_BYTES = 64, MOST_ARGS = 28 };

typedef struct {
  char text[MOST_ARGS][ARG_BYTES];
  char *argv[MOST_ARGS + 1];
  int n;
} command_t;

static void add(command_t *c, const char *name, int64_t value, const char *unit) {
  (void)snprintf(c->text[c->n], ARG_BYTES, "%s%lld%s", name, (long long)value, unit);
  c->argv[c->n] = c->text[c->n];
  c->n++;
}

static void word(command_t *c, const char *text) {
  (void)snprintf(c->text[c->n], ARG_BYTES, "%s", text);
  c->argv[c->n] = c->text[c->n];
  c->n++;
}

static void job(command_t *c, const char *name, int64_t offset, int64_t bytes) {
  char rw[ARG_BYTES];
  (void)snprintf(rw, sizeof rw, "--rw=%s", name);
  word(c, "--name=job"); /* what stands before the first one is for all */
  word(c, rw);
  add(c, "--offset=", offset, "");
  add(c, "--size=", bytes, "");
}

static void compose_head(command_t *c, bool is_best, bool registers) {
  if (is_best) word(c, "env");
  if (is_best) word(c, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1");
  word(c, "fio");
  if (is_best && registers) word(c, "--fixedbufs");
  if (is_best && registers) word(c, "--registerfiles");
  if (is_best) word(c, "--scramble_buffers=0");
  word(c, "--output-format=json");
  word(c, "--ioengine=io_uring");
  word(c, "--direct=1");
  word(c, "--time_based");
  word(c, "--allow_file_create=0");
  word(c, "--fallocate=none");
}

static void compose(command_t *c, const zr_drive_t *drive, zr_drive_mode_t mode,
                    const zr_drive_setting_t *setting, double seconds) {
  *c = (command_t){0};
  compose_head(c, setting->mover == ZR_MOVER_FIO, drive->fio_registers);
  (void)snprintf(c->text[c->n], ARG_BYTES, "--filename=/proc/%lld/fd/%d", (long long)getpid(),
                 zr_disk_descriptor(drive->disk));
  c->argv[c->n] = c->text[c->n];
  c->n++;
  add(c, "--runtime=", (int64_t)(seconds * 1e3 + 0.5), "ms");
  add(c, "--bs=", setting->block_bytes, "");
  add(c, "--iodepth=", setting->depth, "");
  const int64_t half = drive->bytes / 2 / ZR_DISK_ALIGN_BYTES * ZR_DISK_ALIGN_BYTES;
  const bool is_mixed = mode == ZR_DRIVE_MIXED;
  if (mode != ZR_DRIVE_WRITE) job(c, "read", 0, is_mixed ? half : drive->bytes);
  const int64_t begin = is_mixed ? half : 0; /* of what is written */
  if (mode != ZR_DRIVE_READ) job(c, "write", begin, drive->bytes - begin);
}

static double rate(const json_t *job, const char *direction) {
  return json_number_value(json_object_get(json_object_get(job, direction), "bw_bytes")) * 1e-9;
}

static zr_status_t read_rates(const char *text, double *out_gbps) {
  const char *begin = strchr(text, '{'); /* notices may stand before it */
  json_error_t error;
  json_t *json = json_loads(begin == NULL ? "" : begin, 0, &error);
  const json_t *jobs = json_object_get(json, "jobs");
  double gbps = 0;
  for (size_t i = 0; i < json_array_size(jobs); i++) {
    gbps += rate(json_array_get(jobs, i), "read") + rate(json_array_get(jobs, i), "write");
  }
  json_decref(json);
  if (gbps <= 0) return zr_fail(ZR_ERR_UNSUPPORTED, "fio reports no rate %s", error.text);
  *out_gbps = gbps;
  return ZR_OK;
}

zr_status_t zr_drive_run_fio(const zr_drive_t *drive, zr_drive_mode_t mode,
                             const zr_drive_setting_t *setting, double seconds, double *out_gbps) {
  command_t command;
  char *text = NULL;
  compose(&command, drive, mode, setting, seconds);
  ZR_TRY(zr_alloc_get(drive->bench->alloc, 1, MOST_TEXT_BYTES, &text));
  zr_status_t status = zr_bench_child(command.argv, seconds + 60, text, MOST_TEXT_BYTES);
  if (status == ZR_OK) status = read_rates(text, out_gbps);
  zr_alloc_free(drive->bench->alloc, text);
  return status;
}
