/* What every disk must do. A test program opens its disk and calls zr_cts_disk. */
#ifndef ZR_TESTS_CTS_DISK_CTS_H
#define ZR_TESTS_CTS_DISK_CTS_H

#include "offload/tier.h"

typedef struct {
  zr_status_t (*open)(const void *context, zr_alloc_t *alloc, int64_t bytes,
                      const zr_disk_ops_t **out_ops, zr_disk_t **out_disk);
  const void *context;
  bool has_memory; /* what was written is read */
} zr_cts_disk_t;

/* Returns the number of failed tests. */
int zr_cts_disk(const zr_cts_disk_t *backend, const char *name);

#endif
