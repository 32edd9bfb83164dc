#include <errno.h>
#include <hwloc.h>
#include <string.h>

#include "runtime/base/affinity_part.h"

/* Cores, not hardware threads: two threads of a core share its multipliers. */
static zr_status_t bind_part(hwloc_topology_t topology, hwloc_bitmap_t part, int local_rank,
                             int n_local_ranks, int *out_n_cores) {
  int n_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  hwloc_obj_type_t type = n_cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  if (n_cores <= 0) n_cores = hwloc_get_nbobjs_by_type(topology, type);
  if (n_cores <= 0) return zr_fail(ZR_ERR_DEVICE, "hwloc finds no cores");
  int begin, end;
  zr_affinity_part(n_cores, local_rank, n_local_ranks, &begin, &end);
  for (int i = begin; i < end; ++i) {
    hwloc_obj_t core = hwloc_get_obj_by_type(topology, type, (unsigned)i);
    if (hwloc_bitmap_or(part, part, core->cpuset) != 0) {
      return zr_fail(ZR_ERR_OUT_OF_MEMORY, "out of host memory: a set of cores");
    }
  }
  if (hwloc_set_cpubind(topology, part, HWLOC_CPUBIND_PROCESS) != 0) {
    return zr_fail(ZR_ERR_DEVICE, "the affinity can not be set: %s", strerror(errno));
  }
  *out_n_cores = zr_affinity_threads(n_cores, end - begin, n_local_ranks);
  return ZR_OK;
}

zr_status_t zr_affinity_widen(int local_rank, int n_local_ranks, int *out_n_cores) {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) {
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "out of host memory: the topology");
  }
  zr_status_t status;
  hwloc_bitmap_t part = hwloc_bitmap_alloc();
  if (!part) {
    status = zr_fail(ZR_ERR_OUT_OF_MEMORY, "out of host memory: a set of cores");
  } else if (hwloc_topology_load(topology) != 0) {
    status = zr_fail(ZR_ERR_DEVICE, "hwloc can not read the topology: %s", strerror(errno));
  } else {
    status = bind_part(topology, part, local_rank, n_local_ranks, out_n_cores);
  }
  hwloc_bitmap_free(part);
  hwloc_topology_destroy(topology);
  return status;
}
