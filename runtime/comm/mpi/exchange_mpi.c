#include "runtime/comm/mpi/exchange_mpi.h"

#include <stdio.h>

#include "runtime/base/clock.h"

/* How long a failed collective tries to get its memory back from MPI. */
static const int64_t settle_ns = 300000000;

static MPI_Request *request_of(zr_comm_t *comm, int slot, int receive, int peer) {
  return &comm->requests[(slot * 2 + receive) * comm->info.n_ranks + peer];
}

static zr_status_t post_send(zr_comm_t *comm, const zr_mpi_exchange_t *x, int slot, int peer,
                             int64_t offset, int bytes) {
  const char *from = bytes ? x->send + peer * x->send_stride + offset : NULL;
  ZR_TRY(zr_mpi_check(MPI_Isend(from, bytes, MPI_BYTE, peer, (int)x->kind, comm->data,
                                request_of(comm, slot, 0, peer)),
                      "MPI_Isend"));
  atomic_fetch_add(&comm->sent_bytes, bytes);
  comm->n_left[slot]++;
  return ZR_OK;
}

static zr_status_t post_receive(zr_comm_t *comm, const zr_mpi_exchange_t *x, int slot, int peer,
                                int64_t offset, int bytes) {
  char *to = NULL;
  if (x->scratch) {
    to = x->scratch + ((int64_t)slot * comm->info.n_ranks + peer) * x->chunk_bytes;
  } else if (bytes) {
    to = x->receive + peer * x->receive_stride + offset;
  }
  ZR_TRY(zr_mpi_check(MPI_Irecv(to, bytes, MPI_BYTE, peer, (int)x->kind, comm->data,
                                request_of(comm, slot, 1, peer)),
                      "MPI_Irecv"));
  comm->n_left[slot]++;
  return ZR_OK;
}

/* Receives are posted first, so that no message arrives unexpected that need not; peers in the
 * order r+1, r+2, ..., so that not all ranks talk to the same one. */
static zr_status_t post_chunk(zr_comm_t *comm, const zr_mpi_exchange_t *x, int64_t chunk) {
  const int n_ranks = comm->info.n_ranks, rank = comm->info.rank;
  const int slot = (int)(chunk % x->window);
  const int64_t offset = chunk * x->chunk_bytes;
  const int64_t rest = x->bytes - offset;
  const int bytes = (int)(rest < x->chunk_bytes ? rest : x->chunk_bytes);
  for (int i = 1; i < n_ranks; i++) {
    const int peer = (rank + n_ranks - i) % n_ranks;
    if (x->root >= 0 && peer != x->root) continue;
    ZR_TRY(post_receive(comm, x, slot, peer, offset, bytes));
  }
  for (int i = 1; i < n_ranks && (x->root < 0 || x->root == rank); i++) {
    ZR_TRY(post_send(comm, x, slot, (rank + i) % n_ranks, offset, bytes));
  }
  return ZR_OK;
}

/* Takes note of completed requests; *out_n: how many, or MPI_UNDEFINED when none is active. */
static zr_status_t test_some(zr_comm_t *comm, int *out_n) {
  int n = 0;
  const int code =
      MPI_Testsome(comm->n_requests, comm->requests, &n, comm->indices, comm->statuses);
  *out_n = n;
  if (n == MPI_UNDEFINED) return zr_mpi_check(code, "MPI_Testsome");
  int failed = code;
  for (int i = 0; i < n; i++) {
    comm->n_left[comm->indices[i] / (2 * comm->info.n_ranks)]--;
    if (code == MPI_ERR_IN_STATUS && comm->statuses[i].MPI_ERROR != MPI_SUCCESS) {
      failed = comm->statuses[i].MPI_ERROR;
    }
  }
  return zr_mpi_check(failed, "MPI_Testsome");
}

/* Returns when some request is complete, or with the failure of a peer. */
static zr_status_t await_some(zr_comm_t *comm) {
  zr_mpi_backoff_t backoff;
  zr_mpi_backoff_start(&backoff);
  for (;;) {
    const uint32_t seen = atomic_load(&comm->wake);
    int n = 0;
    ZR_TRY(test_some(comm, &n));
    if (n != 0) return ZR_OK;
    ZR_TRY(zr_mpi_abort_poll(comm));
    ZR_TRY(zr_comm_cause_check(&comm->cause, comm->info.rank));
    zr_mpi_backoff_pause(&backoff, comm, seen);
  }
}

static zr_status_t run(zr_comm_t *comm, const zr_mpi_exchange_t *x) {
  const int64_t n_chunks = x->bytes ? (x->bytes + x->chunk_bytes - 1) / x->chunk_bytes : 1;
  int64_t posted = 0;
  for (int64_t done = 0; done < n_chunks; done++) {
    for (; posted < n_chunks && posted < done + x->window; posted++) {
      ZR_TRY(post_chunk(comm, x, posted));
    }
    const int slot = (int)(done % x->window);
    while (comm->n_left[slot] > 0) ZR_TRY(await_some(comm));
    if (x->finish) {
      const int64_t offset = done * x->chunk_bytes, rest = x->bytes - offset;
      x->finish(comm, x, offset, rest < x->chunk_bytes ? rest : x->chunk_bytes,
                x->scratch + (int64_t)slot * comm->info.n_ranks * x->chunk_bytes);
    }
  }
  return ZR_OK;
}

/* The caller's memory goes back to it after a failure, so nothing may be in flight. Receives are
 * cancelled; sends complete because the peers, told of the failure, take in what they are sent. A
 * peer that is dead or stopped does not: then this backend never calls MPI again. */
static void settle(zr_comm_t *comm) {
  for (int slot = 0; slot < ZR_MPI_WINDOW; slot++) {
    for (int peer = 0; peer < comm->info.n_ranks; peer++) {
      MPI_Request *request = request_of(comm, slot, 1, peer);
      if (*request != MPI_REQUEST_NULL) (void)MPI_Cancel(request);
    }
  }
  const int64_t limit_ns = zr_clock_ns() + settle_ns;
  zr_mpi_backoff_t backoff;
  zr_mpi_backoff_start(&backoff);
  int n = 0;
  for (;;) {
    const uint32_t seen = atomic_load(&comm->wake);
    (void)test_some(comm, &n);
    if (n == MPI_UNDEFINED || zr_clock_ns() >= limit_ns) break;
    if (zr_mpi_abort_poll(comm) != ZR_OK) break;
    zr_mpi_backoff_pause(&backoff, comm, seen);
  }
  if (n != MPI_UNDEFINED) comm->lost = true;
  for (int slot = 0; slot < ZR_MPI_WINDOW; slot++) comm->n_left[slot] = 0;
}

zr_status_t zr_mpi_exchange_run(zr_comm_t *comm, const zr_mpi_exchange_t *exchange) {
  const zr_status_t status = run(comm, exchange);
  if (status == ZR_OK) return ZR_OK;
  char detail[ZR_DETAIL_BYTES];
  snprintf(detail, sizeof detail, "%s", zr_detail());
  /* An error of MPI itself ends the job too: the peers must hear of it while MPI may be called. */
  (void)zr_comm_cause_set(&comm->cause, comm->info.rank, status, detail);
  settle(comm);
  zr_detail_set(detail);
  return status;
}
