/* Binding memory to the node of the cores this process runs on. Private to offload/host;
 * node_hwloc.c and node_nohwloc.c are two versions of one file. */
#ifndef ZR_OFFLOAD_HOST_NODE_H
#define ZR_OFFLOAD_HOST_NODE_H

#include <stddef.h>

/* Best effort, before the first touch: where it is refused, the kernel's own first touch stays. */
void zr_host_bind_to_node(void *memory, size_t bytes);

#endif
