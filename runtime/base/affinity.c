#include <stdio.h>

#include "runtime/base/affinity_part.h"

/* Two numbers, or "max" for the first: the share of a CPU that the cgroup grants per period. */
static int64_t quota_of(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  long long quota = 0, period = 0;
  int found = fscanf(file, "%lld %lld", &quota, &period);
  (void)fclose(file);
  if (found == 1) period = 100000;
  if (found < 1 || quota <= 0 || period <= 0) return 0;
  int64_t cores = (quota + period - 1) / period;
  return cores < 1 ? 1 : cores;
}

int zr_affinity_quota_cores(void) {
  int64_t cores = quota_of("/sys/fs/cgroup/cpu.max");
  if (cores == 0) cores = quota_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  return (int)cores;
}

void zr_affinity_part(int n_cores, int local_rank, int n_local_ranks, int *out_begin,
                      int *out_end) {
  if (n_local_ranks > n_cores || local_rank < 0 || local_rank >= n_local_ranks) {
    *out_begin = 0;
    *out_end = n_cores;
    return;
  }
  *out_begin = (int)((int64_t)n_cores * local_rank / n_local_ranks);
  *out_end = (int)((int64_t)n_cores * (local_rank + 1) / n_local_ranks);
}

int zr_affinity_threads(int n_cores, int n_part, int n_local_ranks) {
  int threads = n_local_ranks > n_cores ? 1 : n_part;
  int quota = zr_affinity_quota_cores();
  int share = n_local_ranks > 0 ? quota / n_local_ranks : quota;
  if (quota > 0 && threads > share) threads = share;
  return threads < 1 ? 1 : threads;
}
