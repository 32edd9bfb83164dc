/* Abort messages, and the goodbye that makes MPI_Finalize safe to call. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/comm/mpi/comm_mpi.h"

static const int64_t goodbye_ns = 2000000000; /* for peers that may be dead */

zr_status_t zr_mpi_abort_listen(zr_comm_t *comm) {
  return zr_mpi_check(
      MPI_Irecv(&comm->abort_in, (int)sizeof comm->abort_in, MPI_BYTE, MPI_ANY_SOURCE,
                ZR_MPI_ABORT_TAG, comm->control, &comm->abort_receive),
      "MPI_Irecv");
}

static zr_status_t send_abort(zr_comm_t *comm) {
  comm->abort_sent = true;
  comm->abort_out = (zr_mpi_abort_t){.rank = comm->cause.rank, .status = comm->cause.status};
  snprintf(comm->abort_out.text, sizeof comm->abort_out.text, "%s", comm->cause.text);
  for (int peer = 0; peer < comm->info.n_ranks; peer++) {
    if (peer == comm->info.rank) continue;
    ZR_TRY(zr_mpi_check(MPI_Isend(&comm->abort_out, (int)sizeof comm->abort_out, MPI_BYTE, peer,
                                  ZR_MPI_ABORT_TAG, comm->control, &comm->abort_sends[peer]),
                        "MPI_Isend"));
  }
  return ZR_OK;
}

/* One message after the other into memory that nobody reads. */
static zr_status_t drain(zr_comm_t *comm) {
  for (;;) {
    int there = 0;
    ZR_TRY(zr_mpi_check(MPI_Test(&comm->drain_receive, &there, MPI_STATUS_IGNORE), "MPI_Test"));
    if (!there) return ZR_OK;
    MPI_Message message;
    ZR_TRY(zr_mpi_check(
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm->data, &there, &message, MPI_STATUS_IGNORE),
        "MPI_Improbe"));
    if (!there) return ZR_OK;
    ZR_TRY(zr_mpi_check(
        MPI_Imrecv(comm->drain, ZR_MPI_CHUNK_BYTES, MPI_BYTE, &message, &comm->drain_receive),
        "MPI_Imrecv"));
  }
}

zr_status_t zr_mpi_abort_poll(zr_comm_t *comm) {
  if (comm->lost || comm->info.n_ranks == 1) return ZR_OK;
  int there = 0;
  ZR_TRY(zr_mpi_check(MPI_Test(&comm->abort_receive, &there, MPI_STATUS_IGNORE), "MPI_Test"));
  if (there) {
    comm->abort_in.text[ZR_DETAIL_BYTES - 1] = 0;
    (void)zr_comm_cause_set(&comm->cause, comm->abort_in.rank, comm->abort_in.status,
                            comm->abort_in.text);
    ZR_TRY(zr_mpi_abort_listen(comm));
  }
  if (!zr_comm_cause_known(&comm->cause)) return ZR_OK;
  if (!comm->abort_sent && comm->cause.rank == comm->info.rank) ZR_TRY(send_abort(comm));
  return drain(comm);
}

bool zr_mpi_goodbye(zr_comm_t *comm) {
  if (comm->lost) return false;
  const int n_ranks = comm->info.n_ranks;
  int n = 0; /* no collective runs, so its requests are free */
  for (int peer = 0; peer < n_ranks; peer++) {
    if (peer == comm->info.rank) continue;
    if (MPI_Irecv(NULL, 0, MPI_BYTE, peer, ZR_MPI_GOODBYE_TAG, comm->control,
                  &comm->requests[n++]) ||
        MPI_Isend(NULL, 0, MPI_BYTE, peer, ZR_MPI_GOODBYE_TAG, comm->control,
                  &comm->requests[n++])) {
      return false;
    }
  }
  int64_t limit_ns = INT64_MAX;
  zr_mpi_backoff_t backoff;
  zr_mpi_backoff_start(&backoff);
  for (;;) {
    const uint32_t seen = atomic_load(&comm->wake);
    int all_there = 0, sent = 0;
    if (zr_mpi_abort_poll(comm) != ZR_OK ||
        MPI_Testall(n, comm->requests, &all_there, MPI_STATUSES_IGNORE) ||
        MPI_Testall(n_ranks, comm->abort_sends, &sent, MPI_STATUSES_IGNORE)) {
      return false;
    }
    if (all_there && sent) return true;
    if (limit_ns == INT64_MAX && zr_comm_cause_known(&comm->cause)) {
      limit_ns = zr_clock_ns() + goodbye_ns;
    }
    if (zr_clock_ns() >= limit_ns) return false;
    zr_mpi_backoff_pause(&backoff, comm, seen);
  }
}
