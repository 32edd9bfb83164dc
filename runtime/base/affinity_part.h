/* What both affinity sources share: cutting a node's cores among its ranks. Private to
 * runtime/base. */
#ifndef ZR_BASE_AFFINITY_PART_H
#define ZR_BASE_AFFINITY_PART_H

#include <stdint.h>

#include "runtime/base/affinity.h"

/* CPUs' worth of time that the cgroup grants, rounded up; 0: no limit is known. */
int zr_affinity_quota_cores(void);

/* Rank's contiguous part [begin, end) of n_cores; all of them when ranks outnumber cores. */
void zr_affinity_part(int n_cores, int local_rank, int n_local_ranks, int *out_begin, int *out_end);

/* Threads for a rank that got n_part of n_cores: one when ranks outnumber cores, and never more
 * than its share of the cgroup's quota; at least 1. */
int zr_affinity_threads(int n_cores, int n_part, int n_local_ranks);

#endif
