/* The first failure of this rank, and what it tells the others. */
#include <stdio.h>
#include <string.h>

#include "runtime/exec/state.h"

enum { UNSET, WRITING, SET };

void zr_exec_failure_set(zr_exec_t *exec, zr_status_t status, const char *detail) {
  zr_exec_failure_t *failure = &exec->failure;
  int expected = UNSET;
  if (!atomic_compare_exchange_strong(&failure->state, &expected, WRITING)) return;
  failure->status = status;
  snprintf(failure->detail, sizeof failure->detail, "%s", detail);
  atomic_store(&failure->state, SET);
  /* Also when another rank was first: this rank's own collective ends, and its transfers. */
  const zr_exec_options_t *o = &exec->options;
  o->comm_ops->abort(o->comm, status, failure->detail);
  if (exec->disk.bounce_memory) o->disk_ops->cancel(o->disk, status, failure->detail);
}

void zr_exec_failure_of_op(zr_exec_t *exec, const zr_exec_op_t *op, zr_status_t status,
                           const char *cause) {
  char detail[ZR_DETAIL_BYTES], name[96];
  if (status == ZR_ERR_PEER && zr_exec_failure_of_peer(exec, detail) != ZR_OK) {
    zr_exec_failure_set(exec, status, detail);
    return;
  }
  zr_plan_op_name(exec->plan[op->plan].plan, op->op, name, sizeof name);
  const int prefix_bytes = snprintf(detail, sizeof detail, "rank %d: %s on %s: ", exec->rank, name,
                                    zr_stream_name((zr_stream_id_t)op->stream));
  const size_t used = (size_t)prefix_bytes;
  snprintf(detail + used, sizeof detail - used, "%s", cause[0] ? cause : zr_status_name(status));
  zr_exec_failure_set(exec, status, detail);
}

zr_status_t zr_exec_failure_get(zr_exec_t *exec) {
  zr_exec_failure_t *failure = &exec->failure;
  if (atomic_load(&failure->state) == UNSET) return ZR_OK;
  if (!zr_exec_failure_is_known(exec)) { /* for a few hundred nanoseconds */
    zr_detail_set("stopped");
    return ZR_ERR_INTERNAL;
  }
  zr_detail_set(failure->detail);
  return failure->status;
}

zr_status_t zr_exec_failure_of_peer(zr_exec_t *exec, char *out_detail) {
  const zr_exec_options_t *o = &exec->options;
  char text[ZR_DETAIL_BYTES] = "";
  int rank = -1;
  const zr_status_t status = o->comm_ops->cause(o->comm, &rank, text, sizeof text);
  if (status == ZR_OK) return ZR_OK;
  if (!text[0]) snprintf(text, sizeof text, "%s", zr_status_name(status));
  int cut = 0;
  if (strncmp(text, "rank ", 5) != 0) cut = snprintf(out_detail, 32, "rank %d: ", rank);
  snprintf(out_detail + cut, (size_t)(ZR_DETAIL_BYTES - cut), "%s", text);
  return rank == exec->rank ? status : ZR_ERR_PEER;
}
