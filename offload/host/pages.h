/* What the kernel says about memory. Private to offload/host. */
#ifndef ZR_OFFLOAD_HOST_PAGES_H
#define ZR_OFFLOAD_HOST_PAGES_H

#include <stdint.h>

int64_t zr_host_available_bytes(void); /* without swapping; -1: not known */
/* Bytes in huge pages of the mappings that touch [memory, memory + bytes). */
int64_t zr_host_huge_bytes(const void *memory, int64_t bytes);

#endif
