/* A collective backend that misbehaves on purpose: wraps another one, and fails, delays, corrupts
 * or hangs one collective, or delays every one by a pseudo-random time. Calls counted: all_gather,
 * reduce_scatter, all_reduce, broadcast, barrier. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/rng.h"
#include "runtime/comm/comm.h"

enum { HANG_POLL_NS = 1000000 };

struct zr_comm_t {
  zr_comm_ops_t ops; /* the table is this object's own: its name has the inner one's in it */
  char name[64];
  zr_alloc_t *alloc;
  zr_fault_t fault;
  const zr_comm_ops_t *inner_ops;
  zr_comm_t *inner;
  int64_t n_calls;
};

/* Before a collective: error, delay, or a hang until somebody aborts. The hung call then goes on to
 * the inner backend, which answers with the cause. */
static zr_status_t before(zr_comm_t *comm, const char *call) {
  const zr_fault_t *fault = &comm->fault;
  comm->n_calls++;
  if (fault->random_seed != 0) {
    const int rank = comm->inner_ops->info(comm->inner).rank;
    const uint64_t bits = zr_rng_u64(fault->random_seed + (uint64_t)rank, (uint64_t)comm->n_calls);
    if (fault->delay_ns > 0) {
      zr_clock_sleep_ns((int64_t)(bits % ((uint64_t)fault->delay_ns + 1)));
    }
    return ZR_OK;
  }
  if (comm->n_calls != fault->at) return ZR_OK;
  switch (fault->kind) {
    case ZR_FAULT_ERROR:
      return zr_fail(ZR_ERR_NETWORK, "%s: %s fails as asked (call %lld)", comm->name, call,
                     (long long)comm->n_calls);
    case ZR_FAULT_DELAY:
      zr_clock_sleep_ns(fault->delay_ns);
      break;
    case ZR_FAULT_HANG:
      while (comm->inner_ops->cause(comm->inner, NULL, NULL, 0) == ZR_OK) {
        zr_clock_sleep_ns(HANG_POLL_NS);
      }
      break;
    case ZR_FAULT_NONE:
    case ZR_FAULT_CORRUPT:
      break;
  }
  return ZR_OK;
}

static void after(zr_comm_t *comm, void *result, int64_t bytes) {
  const zr_fault_t *fault = &comm->fault;
  if (fault->random_seed == 0 && fault->kind == ZR_FAULT_CORRUPT && comm->n_calls == fault->at &&
      bytes > 0) {
    ((unsigned char *)result)[bytes / 2] ^= 1u;
  }
}

static void fault_close(zr_comm_t *comm) {
  if (!comm) return;
  comm->inner_ops->close(comm->inner);
  zr_alloc_free(comm->alloc, comm);
}

static zr_comm_info_t fault_info(const zr_comm_t *comm) {
  return comm->inner_ops->info(comm->inner);
}

static zr_status_t fault_all_gather(zr_comm_t *comm, const void *shard, void *flat,
                                    int64_t shard_bytes) {
  ZR_TRY(before(comm, "all_gather"));
  ZR_TRY(comm->inner_ops->all_gather(comm->inner, shard, flat, shard_bytes));
  after(comm, flat, shard_bytes * comm->inner_ops->info(comm->inner).n_ranks);
  return ZR_OK;
}

static zr_status_t fault_reduce_scatter(zr_comm_t *comm, const void *flat, void *shard,
                                        int64_t shard_bytes, zr_dtype_t dtype, int accumulate,
                                        void *scratch) {
  ZR_TRY(before(comm, "reduce_scatter"));
  ZR_TRY(comm->inner_ops->reduce_scatter(comm->inner, flat, shard, shard_bytes, dtype, accumulate,
                                         scratch));
  after(comm, shard, shard_bytes);
  return ZR_OK;
}

static int64_t fault_scratch_bytes(const zr_comm_t *comm, int64_t shard_bytes) {
  return comm->inner_ops->scratch_bytes(comm->inner, shard_bytes);
}

static zr_status_t fault_all_reduce(zr_comm_t *comm, int64_t *data, int64_t count, void *scratch) {
  ZR_TRY(before(comm, "all_reduce"));
  ZR_TRY(comm->inner_ops->all_reduce(comm->inner, data, count, scratch));
  after(comm, data, count * (int64_t)sizeof *data);
  return ZR_OK;
}

static zr_status_t fault_broadcast(zr_comm_t *comm, void *data, int64_t bytes, int root) {
  ZR_TRY(before(comm, "broadcast"));
  ZR_TRY(comm->inner_ops->broadcast(comm->inner, data, bytes, root));
  after(comm, data, bytes);
  return ZR_OK;
}

static zr_status_t fault_barrier(zr_comm_t *comm) {
  ZR_TRY(before(comm, "barrier"));
  return comm->inner_ops->barrier(comm->inner);
}

static void fault_abort(zr_comm_t *comm, zr_status_t status, const char *detail) {
  comm->inner_ops->abort(comm->inner, status, detail);
}

static zr_status_t fault_cause(zr_comm_t *comm, int *out_rank, char *out_detail,
                               int64_t detail_bytes) {
  return comm->inner_ops->cause(comm->inner, out_rank, out_detail, detail_bytes);
}

static int64_t fault_sent_bytes(const zr_comm_t *comm) {
  return comm->inner_ops->sent_bytes(comm->inner);
}

static const zr_comm_ops_t fault_ops = {
    .close = fault_close,
    .info = fault_info,
    .all_gather = fault_all_gather,
    .reduce_scatter = fault_reduce_scatter,
    .scratch_bytes = fault_scratch_bytes,
    .all_reduce = fault_all_reduce,
    .broadcast = fault_broadcast,
    .barrier = fault_barrier,
    .abort = fault_abort,
    .cause = fault_cause,
    .sent_bytes = fault_sent_bytes,
};

zr_status_t zr_comm_fault_open(zr_alloc_t *alloc, const zr_fault_t *fault,
                               const zr_comm_ops_t *inner_ops, zr_comm_t *inner,
                               const zr_comm_ops_t **out_ops, zr_comm_t **out_comm) {
  zr_comm_t *comm = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *comm, &comm));
  comm->alloc = alloc;
  comm->fault = *fault;
  comm->inner_ops = inner_ops;
  comm->inner = inner;
  snprintf(comm->name, sizeof comm->name, "fault(%s)", inner_ops->name);
  comm->ops = fault_ops;
  comm->ops.name = comm->name;
  *out_ops = &comm->ops;
  *out_comm = comm;
  return ZR_OK;
}
