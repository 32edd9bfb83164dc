/* The callers' side of the MPI backend: hand a request to the service thread, sleep, read the
 * answer; or, where all ranks share a node, do it at once (share_mpi.h). */
#include "runtime/comm/mpi/comm_mpi.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/comm/mpi/share_mpi.h"

void zr_mpi_service_wake(zr_comm_t *comm) {
  atomic_fetch_add(&comm->wake, 1);
  zr_futex_wake_all(&comm->wake);
}

static zr_status_t hand_over(zr_comm_t *comm, const zr_mpi_request_t *request) {
  if (comm->share) return zr_mpi_share_collective(comm, request);
  comm->request = *request;
  atomic_store(&comm->request_state, ZR_MPI_POSTED);
  zr_mpi_service_wake(comm);
  while (atomic_load(&comm->request_state) == ZR_MPI_POSTED) {
    zr_futex_wait(&comm->request_state, ZR_MPI_POSTED, -1);
  }
  if (comm->request.status != ZR_OK) zr_detail_set(comm->request.detail);
  return comm->request.status;
}

static void free_all(zr_comm_t *comm) {
  zr_mpi_share_close(comm);
  zr_alloc_free(comm->alloc, comm->requests);
  zr_alloc_free(comm->alloc, comm->statuses);
  zr_alloc_free(comm->alloc, comm->indices);
  zr_alloc_free(comm->alloc, comm->parts);
  zr_alloc_free(comm->alloc, comm->abort_sends);
  zr_alloc_free(comm->alloc, comm->drain);
  zr_alloc_free(comm->alloc, comm);
}

/* After a failure the service thread may be stuck inside MPI_Finalize with a dead peer. Then it and
 * its memory stay behind, for the process is about to end. */
static void mpi_close(zr_comm_t *comm) {
  static const int64_t patience_ns = 4000000000, look_ns = 100000000;
  if (!comm) return;
  atomic_store(&comm->closing, 1);
  zr_mpi_service_wake(comm);
  int64_t limit_ns = INT64_MAX;
  while (atomic_load(&comm->life) != ZR_MPI_FINISHED) {
    if (limit_ns == INT64_MAX && zr_comm_cause_known(&comm->cause)) {
      limit_ns = zr_clock_ns() + patience_ns;
    }
    if (zr_clock_ns() >= limit_ns) {
      zr_warn("MPI does not end, probably because a peer is gone: leaving it behind");
      pthread_detach(comm->thread);
      return;
    }
    zr_futex_wait(&comm->life, ZR_MPI_OPENED, look_ns);
  }
  pthread_join(comm->thread, NULL);
  free_all(comm);
}

static zr_comm_info_t mpi_info(const zr_comm_t *comm) {
  return comm->info;
}

static zr_status_t mpi_all_gather(zr_comm_t *comm, const void *shard, void *flat,
                                  int64_t shard_bytes) {
  const zr_mpi_request_t request = {
      .kind = ZR_MPI_ALL_GATHER, .source = shard, .destination = flat, .bytes = shard_bytes};
  return hand_over(comm, &request);
}

static zr_status_t mpi_reduce_scatter(zr_comm_t *comm, const void *flat, void *shard,
                                      int64_t shard_bytes, zr_dtype_t dtype, int accumulate,
                                      void *scratch) {
  if (dtype != ZR_F32 && dtype != ZR_BF16) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "reduce_scatter of %s", zr_dtype_name(dtype));
  }
  const zr_mpi_request_t request = {.kind = ZR_MPI_REDUCE_SCATTER,
                                    .source = flat,
                                    .destination = shard,
                                    .bytes = shard_bytes,
                                    .dtype = dtype,
                                    .accumulate = accumulate,
                                    .scratch = scratch};
  return hand_over(comm, &request);
}

static int64_t mpi_scratch_bytes(const zr_comm_t *comm, int64_t shard_bytes) {
  return zr_comm_exchange_scratch_bytes(comm->info.n_ranks, shard_bytes);
}

static zr_status_t mpi_all_reduce(zr_comm_t *comm, int64_t *data, int64_t count, void *scratch) {
  const zr_mpi_request_t request = {.kind = ZR_MPI_ALL_REDUCE,
                                    .destination = data,
                                    .bytes = count * (int64_t)sizeof *data,
                                    .scratch = scratch};
  return hand_over(comm, &request);
}

static zr_status_t mpi_broadcast(zr_comm_t *comm, void *data, int64_t bytes, int root) {
  if (root < 0 || root >= comm->info.n_ranks) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "broadcast from rank %d of %d", root,
                   comm->info.n_ranks);
  }
  const zr_mpi_request_t request = {
      .kind = ZR_MPI_BROADCAST, .destination = data, .bytes = bytes, .root = root};
  return hand_over(comm, &request);
}

static zr_status_t mpi_barrier(zr_comm_t *comm) {
  const zr_mpi_request_t request = {.kind = ZR_MPI_BARRIER};
  return hand_over(comm, &request);
}

static void mpi_abort(zr_comm_t *comm, zr_status_t status, const char *detail) {
  if (!zr_comm_cause_set(&comm->cause, comm->info.rank, status, detail)) return;
  zr_mpi_share_cause_tell(comm);
  zr_mpi_service_wake(comm);
}

static zr_status_t mpi_cause(zr_comm_t *comm, int *out_rank, char *out_detail,
                             int64_t detail_bytes) {
  zr_mpi_share_cause_hear(comm);
  return zr_comm_cause_get(&comm->cause, out_rank, out_detail, detail_bytes);
}

static int64_t mpi_sent_bytes(const zr_comm_t *comm) {
  return atomic_load(&comm->sent_bytes);
}

static const zr_comm_ops_t mpi_ops = {
    .name = "mpi",
    .close = mpi_close,
    .info = mpi_info,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .scratch_bytes = mpi_scratch_bytes,
    .all_reduce = mpi_all_reduce,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
    .abort = mpi_abort,
    .cause = mpi_cause,
    .sent_bytes = mpi_sent_bytes,
};

/* Signals belong to the program's own threads; MPI's threads inherit the mask too. */
static int start_service(zr_comm_t *comm) {
  sigset_t all_signals, before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  const int error = pthread_create(&comm->thread, NULL, zr_mpi_service_main, comm);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!error) pthread_setname_np(comm->thread, "zr-mpi");
  return error;
}

zr_status_t zr_comm_mpi_open(zr_alloc_t *alloc, const zr_comm_ops_t **out_ops,
                             zr_comm_t **out_comm) {
  zr_comm_t *comm = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *comm, &comm));
  comm->alloc = alloc;
  const int error = start_service(comm);
  if (error) {
    free_all(comm);
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "mpi: cannot start its thread: %s", strerror(error));
  }
  while (atomic_load(&comm->life) == ZR_MPI_STARTING) {
    zr_futex_wait(&comm->life, ZR_MPI_STARTING, -1);
  }
  if (comm->open_status != ZR_OK) {
    const zr_status_t status = comm->open_status;
    pthread_join(comm->thread, NULL);
    zr_detail_set(comm->open_detail);
    free_all(comm);
    return status;
  }
  *out_ops = &mpi_ops;
  *out_comm = comm;
  return ZR_OK;
}
