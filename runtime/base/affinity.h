/* Cores of this rank. `mpirun` binds a lone rank to one core: affinity is widened to the node's
 * allowed cores divided by its ranks (hwloc; sched_getaffinity without it), and said. */
#ifndef ZR_BASE_AFFINITY_H
#define ZR_BASE_AFFINITY_H

#include "runtime/base/status.h"

/* Widens the process's affinity to the machine's online cores (limited by its cgroup), then gives
 * ranks of one node equal contiguous parts; with more ranks than cores all share all of them.
 * out_n_cores: cores this rank may use, at least 1: the default of `run.threads`. Call before any
 * thread starts. */
zr_status_t zr_affinity_widen(int local_rank, int n_local_ranks, int *out_n_cores) ZR_MUST_CHECK;

#endif
