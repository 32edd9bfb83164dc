/* A drive: transfers of several sizes, reads and writes alone and at once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/zerobench/calibrate.h"
#include "offload/tier.h"
#include "runtime/base/clock.h"
#include "runtime/plan/op.h"

static const int64_t sizes[] = {65536, 1 << 20, 4 << 20, 16 << 20};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], MIXED_SIZE = 2 };

typedef struct {
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  char *memory;
  int64_t disk_bytes, bytes, at; /* a transfer's, and where the next one begins */
  bool writes;
} transfer_t;

static zr_status_t transfer(void *context) {
  transfer_t *t = context;
  int64_t at = t->at;
  t->at = at + 2 * t->bytes <= t->disk_bytes ? at + t->bytes : 0;
  return t->writes ? t->ops->write(t->disk, at, t->memory, t->bytes)
                   : t->ops->read(t->disk, at, t->memory, t->bytes);
}

/* From front to back, so that everything that is read later was written. */
static zr_status_t fill(transfer_t *t) {
  for (int64_t at = 0; at < t->disk_bytes; at += sizes[MIXED_SIZE]) {
    ZR_TRY(t->ops->write(t->disk, at, t->memory, sizes[MIXED_SIZE]));
  }
  return ZR_OK;
}

static zr_status_t alone(zr_bench_t *b, transfer_t *t, zr_profile_t *profile) {
  int32_t kind = t->writes ? ZR_OP_DISK_WRITE : ZR_OP_DISK_READ;
  double ns = 0;
  for (int i = 0; i < N_SIZES; i++) {
    t->bytes = sizes[i];
    t->at = 0;
    ZR_TRY(zr_bench_middle_ns(b, transfer, t, &ns));
    (void)zr_profile_curve_add(&profile->curve[ZR_PROFILE_ONE][kind][ZR_PROFILE_F32],
                               (double)t->bytes, ns);
  }
  zr_bench_row_t row = {.what = t->writes ? "disk, written" : "disk, read",
                        .seconds = ns * 1e-9,
                        .value = (double)t->bytes / ns,
                        .unit = "GB/s"};
  return zr_bench_row(b, &row);
}

static zr_status_t run_transfer(void *context, int64_t iteration) {
  (void)iteration;
  return transfer(context);
}

/* Both streams, or one of them, move `count` pieces. */
static zr_status_t span(zr_bench_t *b, transfer_t t[2], int count, int which, uint64_t signal[2],
                        double *out_ns) {
  const zr_stream_id_t stream[2] = {ZR_STREAM_READ, ZR_STREAM_WRITE};
  int64_t begin_ns = zr_clock_ns();
  for (int i = 0; i < 2; i++) {
    for (int n = 0; n < count && (which < 0 || which == i); n++) {
      zr_work_t work = {.fn = run_transfer, .context = &t[i], .signal = ++signal[i]};
      ZR_TRY(b->hal_ops->submit(b->hal, stream[i], &work));
    }
  }
  for (int i = 0; i < 2; i++) ZR_TRY(b->hal_ops->wait(b->hal, stream[i], signal[i], -1));
  *out_ns = (double)(zr_clock_ns() - begin_ns);
  return ZR_OK;
}

static int by_value(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

/* How much of the two the drive serves at once, each as a share of its speed alone. */
static zr_status_t mixed(zr_bench_t *b, transfer_t t[2], zr_profile_t *profile) {
  enum { ROUNDS = 5 };
  uint64_t signal[2] = {0};
  double share[ROUNDS];
  int count = b->options.quick ? 1 : 16;
  for (int round = 0; round < ROUNDS; round++) {
    double ns[2], both_ns;
    for (int i = 0; i < 2; i++) ZR_TRY(span(b, t, count, i, signal, &ns[i]));
    ZR_TRY(span(b, t, count, -1, signal, &both_ns));
    /* While both run the share counts; the slower one ends alone, at full speed. */
    double longer = fmax(ns[0], ns[1]);
    share[round] = both_ns <= longer ? 2 : (ns[0] + ns[1]) / both_ns;
  }
  qsort(share, ROUNDS, sizeof share[0], by_value);
  profile->mixed_drive = fmax(0.3, fmin(share[ROUNDS / 2], 2));
  return zr_bench_fact(b, "reads and writes at once, of each alone", profile->mixed_drive);
}

static zr_status_t measure(zr_bench_t *b, transfer_t t[2], zr_profile_t *profile) {
  ZR_TRY(fill(&t[1]));
  for (int i = 0; i < 2; i++) ZR_TRY(alone(b, &t[i], profile));
  for (int i = 0; i < 2; i++) {
    t[i].bytes = sizes[MIXED_SIZE];
    t[i].at = i * t[i].disk_bytes / 2;
  }
  ZR_TRY(mixed(b, t, profile));
  return zr_bench_note(b, "disk: %s", t[0].ops->describe(t[0].disk));
}

zr_status_t zr_bench_calibrate_disk(zr_bench_t *b, zr_profile_t *profile) {
  const char *folder = getenv("TMPDIR");
  if (folder == NULL || folder[0] == 0) folder = "/tmp";
  if (b->options.n_arguments > 1) folder = b->options.argument[1];
  const int64_t bytes = (int64_t)(b->options.quick ? 16 : 512) << 20;
  zr_disk_options_t options = {.path = &folder, .n_paths = 1, .bytes = bytes, .rank = b->rank};
  options.node_bytes = bytes * b->comm_ops->info(b->comm).n_local_ranks;
  const zr_disk_ops_t *ops = NULL;
  zr_disk_t *disk = NULL;
  void *memory = NULL;
  zr_bench_say(b, "disk in %s", folder);
  ZR_TRY(zr_disk_open(b->alloc, &options, &ops, &disk));
  zr_status_t status =
      b->hal_ops->mem_create(b->hal, ZR_TIER_HOST, 2 * sizes[N_SIZES - 1], &memory);
  if (status == ZR_OK) {
    memset(memory, 1, (size_t)(2 * sizes[N_SIZES - 1]));
    transfer_t t[2] = {{ops, disk, memory, bytes, 0, 0, false},
                       {ops, disk, (char *)memory + sizes[N_SIZES - 1], bytes, 0, 0, true}};
    status = measure(b, t, profile);
    b->hal_ops->mem_destroy(b->hal, ZR_TIER_HOST, memory, 2 * sizes[N_SIZES - 1]);
  }
  ops->close(disk);
  return status;
}
