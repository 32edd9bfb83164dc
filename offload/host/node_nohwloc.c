#include "offload/host/node.h"

void zr_host_bind_to_node(void *memory, size_t bytes) {
  (void)memory;
  (void)bytes;
}
