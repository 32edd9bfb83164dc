/* The facts of one rank of a job that does not run: for the compiler. */
#include "runtime/comm/cause.h"
#include "runtime/comm/comm.h"

struct zr_comm_t {
  zr_alloc_t *alloc;
  int rank, n_ranks;
  zr_comm_cause_t cause;
};

static zr_status_t unsupported(const char *call) {
  return zr_fail(ZR_ERR_UNSUPPORTED, "%s: this job is only planned, not run", call);
}

static void null_close(zr_comm_t *comm) {
  if (comm) zr_alloc_free(comm->alloc, comm);
}

static zr_comm_info_t null_info(const zr_comm_t *comm) {
  return (zr_comm_info_t){.rank = comm->rank,
                          .n_ranks = comm->n_ranks,
                          .local_rank = comm->rank,
                          .n_local_ranks = comm->n_ranks};
}

static zr_status_t null_all_gather(zr_comm_t *comm, const void *shard, void *flat,
                                   int64_t shard_bytes) {
  (void)comm;
  (void)shard;
  (void)flat;
  (void)shard_bytes;
  return unsupported("all_gather");
}

static zr_status_t null_reduce_scatter(zr_comm_t *comm, const void *flat, void *shard,
                                       int64_t shard_bytes, zr_dtype_t dtype, int accumulate,
                                       void *scratch) {
  (void)comm;
  (void)flat;
  (void)shard;
  (void)shard_bytes;
  (void)dtype;
  (void)accumulate;
  (void)scratch;
  return unsupported("reduce_scatter");
}

static int64_t null_scratch_bytes(const zr_comm_t *comm, int64_t shard_bytes) {
  return zr_comm_exchange_scratch_bytes(comm->n_ranks, shard_bytes);
}

static zr_status_t null_all_reduce(zr_comm_t *comm, int64_t *data, int64_t count, void *scratch) {
  (void)comm;
  (void)data;
  (void)count;
  (void)scratch;
  return unsupported("all_reduce");
}

static zr_status_t null_broadcast(zr_comm_t *comm, void *data, int64_t bytes, int root) {
  (void)comm;
  (void)data;
  (void)bytes;
  (void)root;
  return unsupported("broadcast");
}

static zr_status_t null_barrier(zr_comm_t *comm) {
  (void)comm;
  return unsupported("barrier");
}

static void null_abort(zr_comm_t *comm, zr_status_t status, const char *detail) {
  (void)zr_comm_cause_set(&comm->cause, comm->rank, status, detail);
}

static zr_status_t null_cause(zr_comm_t *comm, int *out_rank, char *out_detail,
                              int64_t detail_bytes) {
  return zr_comm_cause_get(&comm->cause, out_rank, out_detail, detail_bytes);
}

static int64_t null_sent_bytes(const zr_comm_t *comm) {
  (void)comm;
  return 0;
}

static const zr_comm_ops_t null_ops = {
    .name = "null",
    .close = null_close,
    .info = null_info,
    .all_gather = null_all_gather,
    .reduce_scatter = null_reduce_scatter,
    .scratch_bytes = null_scratch_bytes,
    .all_reduce = null_all_reduce,
    .broadcast = null_broadcast,
    .barrier = null_barrier,
    .abort = null_abort,
    .cause = null_cause,
    .sent_bytes = null_sent_bytes,
};

zr_status_t zr_comm_null_open(zr_alloc_t *alloc, int rank, int n_ranks,
                              const zr_comm_ops_t **out_ops, zr_comm_t **out_comm) {
  if (n_ranks < 1 || rank < 0 || rank >= n_ranks) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "rank %d of %d", rank, n_ranks);
  }
  zr_comm_t *comm = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *comm, &comm));
  comm->alloc = alloc;
  comm->rank = rank;
  comm->n_ranks = n_ranks;
  *out_ops = &null_ops;
  *out_comm = comm;
  return ZR_OK;
}
