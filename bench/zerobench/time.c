#include <string.h>

#include "bench/zerobench/bench.h"
#include "runtime/base/clock.h"

enum { MAX_WORKS = 32, MAX_RANKS = 256 };

static zr_status_t one_round(zr_bench_t *b, const zr_bench_work_t *work, int n_works,
                             int64_t *out_ns) {
  for (int i = 0; i < n_works; i++) {
    if (b->n_ranks > 1) ZR_TRY(b->comm_ops->barrier(b->comm));
    int64_t begin_ns = zr_clock_ns();
    ZR_TRY(work[i].run(work[i].context));
    out_ns[i] = zr_clock_ns() - begin_ns;
  }
  return ZR_OK;
}

/* Each work's time on the rank where it took longest. */
static zr_status_t slowest(zr_bench_t *b, int n_works, int64_t *ns) {
  static int64_t all[MAX_RANKS * MAX_WORKS];
  if (b->n_ranks == 1) return ZR_OK;
  ZR_TRY(b->comm_ops->all_gather(b->comm, ns, all, n_works * (int64_t)sizeof *ns));
  for (int r = 0; r < b->n_ranks; r++) {
    for (int i = 0; i < n_works; i++) {
      if (all[r * n_works + i] > ns[i]) ns[i] = all[r * n_works + i];
    }
  }
  return ZR_OK;
}

zr_status_t zr_bench_time(zr_bench_t *b, zr_bench_work_t *work, int n_works, int least,
                          double budget_s) {
  if (n_works > MAX_WORKS || b->n_ranks > MAX_RANKS) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "%d works on %d ranks: at most %d on %d", n_works,
                   b->n_ranks, (int)MAX_WORKS, (int)MAX_RANKS);
  }
  int64_t ns[MAX_WORKS];
  double total = 0;
  if (b->options.quick) least = 1, budget_s = 0;
  if (b->options.rounds > 0) least = (int)b->options.rounds, budget_s = 0;
  for (int i = 0; i < n_works; i++) work[i].seconds = 1e30;
  ZR_TRY(one_round(b, work, n_works, ns)); /* warms up: first touches, threads, frequencies */
  for (int round = 0; round < least || total < budget_s; round++) {
    ZR_TRY(one_round(b, work, n_works, ns));
    ZR_TRY(slowest(b, n_works, ns));
    for (int i = 0; i < n_works; i++) {
      double seconds = (double)(ns[i] > 0 ? ns[i] : 1) * 1e-9;
      total += seconds;
      if (seconds < work[i].seconds) work[i].seconds = seconds;
    }
  }
  return ZR_OK;
}
