/* zerobench calibrate: a machine profile, from which `zerorun plan` and runs predict a step. */
#include "bench/zerobench/calibrate.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/train/profile_file.h"

enum { MOST_RUNS = 41, LEAST_RUNS = 5 };

static int by_value(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return a < b ? -1 : a > b;
}

zr_status_t zr_bench_middle_ns(zr_bench_t *b, zr_bench_fn_t run, void *context, double *out_ns) {
  /* Ranks must run it equally often: what they run may be a collective. */
  const int64_t budget_ns = b->options.quick || b->n_ranks > 1 ? 0 : 40000000;
  const int64_t most_ns = b->n_ranks > 1 ? INT64_MAX : 1000000000;
  int64_t ns[MOST_RUNS], total_ns = 0;
  int n = 0, least = b->options.quick ? 1 : LEAST_RUNS;
  if (b->n_ranks > 1) ZR_TRY(b->comm_ops->barrier(b->comm));
  ZR_TRY(run(context));
  while (n < MOST_RUNS && total_ns < most_ns && (n < least || total_ns < budget_ns)) {
    int64_t begin_ns = zr_clock_ns();
    ZR_TRY(run(context));
    ns[n] = zr_clock_ns() - begin_ns;
    total_ns += ns[n++];
  }
  qsort(ns, (size_t)n, sizeof ns[0], by_value);
  *out_ns = (double)(ns[n / 2] > 0 ? ns[n / 2] : 1);
  return ZR_OK;
}

static zr_status_t target(const zr_bench_t *b, char out_path[ZR_PATH_BYTES]) {
  if (b->options.n_arguments > 0) {
    (void)snprintf(out_path, ZR_PATH_BYTES, "%s", b->options.argument[0]);
    return ZR_OK;
  }
  zr_profile_default_path(out_path);
  if (out_path[0] != 0) return ZR_OK;
  return zr_fail(ZR_ERR_CONFIG,
                 "there is no home to keep the profile in: name a file, "
                 "zerobench calibrate FILE, and give it as backend.profile");
}

/* Kinds without a curve are priced by the best product of their type. */
static void keep_products(zr_profile_t *profile) {
  for (int type = 0; type < ZR_PROFILE_TYPES; type++) {
    const zr_profile_curve_t *curve = &profile->curve[ZR_PROFILE_ONE][ZR_OP_LINEAR][type];
    int last = curve->n_points - 1;
    if (last >= 0) profile->product_flops_per_ns[type] = curve->work[last] / curve->ns[last];
  }
}

static zr_status_t write(zr_bench_t *b, const zr_profile_t *profile, const char *path) {
  char machine[256];
  if (b->rank != 0) return ZR_OK;
  (void)snprintf(machine, sizeof machine, "%s; %d rank%s x %d thread%s", b->kern_ops->name,
                 b->n_ranks, b->n_ranks == 1 ? "" : "s", b->n_threads,
                 b->n_threads == 1 ? "" : "s");
  ZR_TRY(zr_profile_write(path, profile, machine));
  return zr_bench_note(b, "%s is written; zerorun reads it %s", path,
                       b->options.n_arguments > 0 ? "as backend.profile" : "by itself");
}

zr_status_t zr_bench_calibrate(zr_bench_t *b) {
  char path[ZR_PATH_BYTES];
  zr_profile_t *profile = NULL;
  ZR_TRY(target(b, path));
  ZR_TRY(zr_alloc_get(b->alloc, 1, sizeof *profile, &profile));
  zr_profile_defaults(profile);
  profile->n_workers = b->n_threads;
  zr_status_t status = zr_bench_calibrate_links(b, profile);
  if (status == ZR_OK) status = zr_bench_calibrate_disk(b, profile);
  if (status == ZR_OK) status = zr_bench_calibrate_kernels(b, profile);
  if (status == ZR_OK) {
    keep_products(profile);
    status = write(b, profile, path);
  }
  zr_alloc_free(b->alloc, profile);
  return status;
}
