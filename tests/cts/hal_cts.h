/* What every device backend must do. A test program opens its backend and calls zr_cts_hal. */
#ifndef ZR_TESTS_CTS_HAL_CTS_H
#define ZR_TESTS_CTS_HAL_CTS_H

#include "runtime/hal/hal.h"

typedef struct {
  zr_status_t (*open)(zr_alloc_t *alloc, const zr_hal_ops_t **out_ops, zr_hal_t **out_hal);
  bool has_threads;    /* work runs on its stream's thread; otherwise inside submit */
  bool has_memory;     /* mem_create gives storage */
  bool submit_is_free; /* submit never allocates */
} zr_cts_hal_t;

/* Returns the number of failed tests. */
int zr_cts_hal(const zr_cts_hal_t *backend, const char *name);

#endif
