#include <hwloc.h>
#include <stdio.h>
#include <string.h>

#include "offload/host/node.h"

/* One memory node: nothing to choose, and no topology to read for it. */
static int has_one_node(void) {
  FILE *file = fopen("/sys/devices/system/node/online", "r");
  if (!file) return 0;
  char text[64] = "";
  const char *line = fgets(text, sizeof text, file);
  (void)fclose(file);
  return line && !strpbrk(text, ",-");
}

static void bind_in(hwloc_topology_t topology, void *memory, size_t bytes) {
  hwloc_bitmap_t cores = hwloc_bitmap_alloc();
  if (!cores) return;
  if (hwloc_get_cpubind(topology, cores, HWLOC_CPUBIND_PROCESS) == 0) {
    (void)hwloc_set_area_membind(topology, memory, bytes, cores, HWLOC_MEMBIND_BIND, 0);
  }
  hwloc_bitmap_free(cores);
}

void zr_host_bind_to_node(void *memory, size_t bytes) {
  if (has_one_node()) return;
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return;
  if (hwloc_topology_load(topology) == 0) bind_in(topology, memory, bytes);
  hwloc_topology_destroy(topology);
}
