/* Arenas of the CPU backend: anonymous mappings. Any thread; no state of their own. */
#ifndef ZR_HAL_CPU_MEMORY_H
#define ZR_HAL_CPU_MEMORY_H

#include "runtime/hal/hal.h"

/* Zeroed, on a huge-page boundary when it is that large. */
zr_status_t zr_cpu_memory_map(zr_tier_t tier, int64_t bytes, void **out_memory) ZR_MUST_CHECK;
void zr_cpu_memory_unmap(void *memory, int64_t bytes);

#endif
