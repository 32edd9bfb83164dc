/* The first failure of something, kept: set from any thread, once; read by any thread. No lock. */
#ifndef ZR_OFFLOAD_DISK_VERDICT_H
#define ZR_OFFLOAD_DISK_VERDICT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/base/status.h"

/* All zeros: none yet. */
typedef struct {
  _Atomic int state; /* none, being written, there */
  zr_status_t status;
  char detail[ZR_DETAIL_BYTES];
} zr_verdict_t;

/* Later ones change nothing. detail may be NULL. */
void zr_verdict_set(zr_verdict_t *verdict, zr_status_t status, const char *detail);
bool zr_verdict_is_set(const zr_verdict_t *verdict);
/* ZR_OK, or its status with its detail as this thread's. */
zr_status_t zr_verdict_get(const zr_verdict_t *verdict) ZR_MUST_CHECK;

#endif
