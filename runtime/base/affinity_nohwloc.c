#include <errno.h>
#include <sched.h>
#include <string.h>

#include "runtime/base/affinity_part.h"

zr_status_t zr_affinity_widen(int local_rank, int n_local_ranks, int *out_n_cores) {
  cpu_set_t all, part;
  memset(&all, 0xff, sizeof all);
  /* The kernel cuts this to the CPUs that are online and in our cgroup. */
  if (sched_setaffinity(0, sizeof all, &all) != 0 || sched_getaffinity(0, sizeof all, &all) != 0) {
    return zr_fail(ZR_ERR_DEVICE, "the affinity can not be read or set: %s", strerror(errno));
  }
  int begin, end, index = 0, n_cores = CPU_COUNT(&all);
  zr_affinity_part(n_cores, local_rank, n_local_ranks, &begin, &end);
  CPU_ZERO(&part);
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    if (index >= begin && index < end) CPU_SET(cpu, &part);
    ++index;
  }
  if (sched_setaffinity(0, sizeof part, &part) != 0) {
    return zr_fail(ZR_ERR_DEVICE, "the affinity can not be set: %s", strerror(errno));
  }
  *out_n_cores = zr_affinity_threads(n_cores, end - begin, n_local_ranks);
  return ZR_OK;
}
