#include "runtime/comm/cause.h"

#include <stdio.h>

enum { NONE, WRITING, THERE };

bool zr_comm_cause_set(zr_comm_cause_t *cause, int rank, zr_status_t status, const char *text) {
  uint32_t expected = NONE;
  if (!atomic_compare_exchange_strong(&cause->state, &expected, WRITING)) return false;
  cause->rank = rank;
  cause->status = status < 0 ? status : ZR_ERR_INTERNAL;
  const bool has_text = text && text[0];
  snprintf(cause->text, sizeof cause->text, "%s", has_text ? text : zr_status_name(cause->status));
  atomic_store(&cause->state, THERE);
  return true;
}

bool zr_comm_cause_known(const zr_comm_cause_t *cause) {
  return atomic_load(&cause->state) == THERE;
}

zr_status_t zr_comm_cause_get(const zr_comm_cause_t *cause, int *out_rank, char *out_detail,
                              int64_t detail_bytes) {
  if (!zr_comm_cause_known(cause)) return ZR_OK;
  if (out_rank) *out_rank = cause->rank;
  if (out_detail && detail_bytes > 0) {
    snprintf(out_detail, (size_t)detail_bytes, "%s", cause->text);
  }
  return cause->status;
}

zr_status_t zr_comm_cause_check(const zr_comm_cause_t *cause, int own_rank) {
  if (!zr_comm_cause_known(cause)) return ZR_OK;
  return zr_fail(cause->rank == own_rank ? cause->status : ZR_ERR_PEER, "rank %d: %s", cause->rank,
                 cause->text);
}
