/* A job of one rank: collectives are copies. */
#include <string.h>

#include "runtime/comm/cause.h"
#include "runtime/comm/comm.h"

struct zr_comm_t {
  zr_alloc_t *alloc;
  zr_comm_cause_t cause;
};

static void self_close(zr_comm_t *comm) {
  if (comm) zr_alloc_free(comm->alloc, comm);
}

static zr_comm_info_t self_info(const zr_comm_t *comm) {
  (void)comm;
  return (zr_comm_info_t){.rank = 0, .n_ranks = 1, .local_rank = 0, .n_local_ranks = 1};
}

static zr_status_t self_all_gather(zr_comm_t *comm, const void *shard, void *flat,
                                   int64_t shard_bytes) {
  ZR_TRY(zr_comm_cause_check(&comm->cause, 0));
  if (shard != flat && shard_bytes > 0) memcpy(flat, shard, (size_t)shard_bytes);
  return ZR_OK;
}

static zr_status_t self_reduce_scatter(zr_comm_t *comm, const void *flat, void *shard,
                                       int64_t shard_bytes, zr_dtype_t dtype, int accumulate,
                                       void *scratch) {
  (void)scratch;
  ZR_TRY(zr_comm_cause_check(&comm->cause, 0));
  const int64_t count = shard_bytes / zr_dtype_bytes(dtype);
  if (dtype == ZR_F32) {
    const float *part = flat;
    zr_comm_tree_sum_f32(&part, 1, shard, count, accumulate);
  } else if (dtype == ZR_BF16) {
    const uint16_t *part = flat;
    zr_comm_tree_sum_bf16(&part, 1, shard, count, accumulate);
  } else {
    return zr_fail(ZR_ERR_UNSUPPORTED, "reduce_scatter of %s", zr_dtype_name(dtype));
  }
  return ZR_OK;
}

static int64_t self_scratch_bytes(const zr_comm_t *comm, int64_t shard_bytes) {
  (void)comm;
  return zr_comm_exchange_scratch_bytes(1, shard_bytes);
}

static zr_status_t self_all_reduce(zr_comm_t *comm, int64_t *data, int64_t count, void *scratch) {
  (void)data;
  (void)count;
  (void)scratch;
  return zr_comm_cause_check(&comm->cause, 0);
}

static zr_status_t self_broadcast(zr_comm_t *comm, void *data, int64_t bytes, int root) {
  (void)data;
  (void)bytes;
  if (root != 0) return zr_fail(ZR_ERR_INVALID_ARGUMENT, "broadcast from rank %d of 1", root);
  return zr_comm_cause_check(&comm->cause, 0);
}

static zr_status_t self_barrier(zr_comm_t *comm) {
  return zr_comm_cause_check(&comm->cause, 0);
}

static void self_abort(zr_comm_t *comm, zr_status_t status, const char *detail) {
  (void)zr_comm_cause_set(&comm->cause, 0, status, detail);
}

static zr_status_t self_cause(zr_comm_t *comm, int *out_rank, char *out_detail,
                              int64_t detail_bytes) {
  return zr_comm_cause_get(&comm->cause, out_rank, out_detail, detail_bytes);
}

static int64_t self_sent_bytes(const zr_comm_t *comm) {
  (void)comm;
  return 0;
}

static const zr_comm_ops_t self_ops = {
    .name = "self",
    .close = self_close,
    .info = self_info,
    .all_gather = self_all_gather,
    .reduce_scatter = self_reduce_scatter,
    .scratch_bytes = self_scratch_bytes,
    .all_reduce = self_all_reduce,
    .broadcast = self_broadcast,
    .barrier = self_barrier,
    .abort = self_abort,
    .cause = self_cause,
    .sent_bytes = self_sent_bytes,
};

zr_status_t zr_comm_self_open(zr_alloc_t *alloc, const zr_comm_ops_t **out_ops,
                              zr_comm_t **out_comm) {
  zr_comm_t *comm = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *comm, &comm));
  comm->alloc = alloc;
  *out_ops = &self_ops;
  *out_comm = comm;
  return ZR_OK;
}
