#include "offload/disk/verdict.h"

#include <stdio.h>

enum { NONE = 0, BEING_WRITTEN, THERE };

void zr_verdict_set(zr_verdict_t *verdict, zr_status_t status, const char *detail) {
  int none = NONE;
  if (!atomic_compare_exchange_strong(&verdict->state, &none, BEING_WRITTEN)) return;
  verdict->status = status;
  (void)snprintf(verdict->detail, sizeof verdict->detail, "%s", detail ? detail : "");
  atomic_store_explicit(&verdict->state, THERE, memory_order_release);
}

bool zr_verdict_is_set(const zr_verdict_t *verdict) {
  return atomic_load_explicit(&verdict->state, memory_order_acquire) == THERE;
}

zr_status_t zr_verdict_get(const zr_verdict_t *verdict) {
  if (!zr_verdict_is_set(verdict)) return ZR_OK;
  zr_detail_set(verdict->detail);
  return verdict->status;
}
