/* The collectives of ranks that read each other's memory. */
#include "runtime/comm/mpi/share_mpi.h"

#include <stdio.h>
#include <string.h>

static int peer_of(const zr_comm_t *comm, int i) {
  return (comm->info.rank + i) % comm->info.n_ranks; /* not all read the same one at once */
}

static bool is_small(const zr_mpi_offer_t *head) {
  return head->bytes <= ZR_MPI_INLINE_BYTES;
}

static void count_sent(zr_comm_t *comm, int64_t bytes_to_each) {
  atomic_fetch_add(&comm->sent_bytes, bytes_to_each * (comm->info.n_ranks - 1));
}

/* Until every peer has read what this rank offers; small offers were copied. */
static zr_status_t finish(zr_comm_t *comm, const zr_mpi_offer_t *head) {
  if (is_small(head)) return ZR_OK;
  zr_mpi_share_done(comm);
  for (int i = 1; i < comm->info.n_ranks; i++) {
    ZR_TRY(zr_mpi_share_await_done(comm, peer_of(comm, i)));
  }
  return ZR_OK;
}

static zr_status_t all_gather(zr_comm_t *comm, const zr_mpi_request_t *request) {
  const zr_mpi_offer_t head = {.kind = request->kind, .bytes = request->bytes};
  char *flat = request->destination, *own = flat + comm->info.rank * request->bytes;
  ZR_TRY(zr_mpi_share_offer(comm, &head, request->source));
  count_sent(comm, request->bytes);
  if (own != request->source) memcpy(own, request->source, (size_t)request->bytes);
  for (int i = 1; i < comm->info.n_ranks; i++) {
    const int peer = peer_of(comm, i);
    const zr_mpi_offer_t *offer;
    ZR_TRY(zr_mpi_share_accept(comm, peer, &head, &offer));
    ZR_TRY(zr_mpi_share_read(comm, peer, offer, 0, flat + peer * request->bytes, request->bytes));
  }
  return finish(comm, &head);
}

/* Peers' `bytes` at `offset` come to scratch[rank][bytes], or are used where they lie if small;
 * comm->parts points to them. */
static zr_status_t gather_parts(zr_comm_t *comm, const zr_mpi_offer_t *head, const void *own,
                                int64_t offset, int64_t bytes, char *scratch) {
  const void **parts = comm->parts;
  parts[comm->info.rank] = own;
  for (int i = 1; i < comm->info.n_ranks; i++) {
    const int peer = peer_of(comm, i);
    const zr_mpi_offer_t *offer;
    char *to = scratch + peer * bytes;
    ZR_TRY(zr_mpi_share_accept(comm, peer, head, &offer));
    parts[peer] = is_small(head) ? offer->payload + offset : to;
    if (!is_small(head)) ZR_TRY(zr_mpi_share_read(comm, peer, offer, offset, to, bytes));
  }
  return ZR_OK;
}

static void sum_parts(zr_comm_t *comm, const zr_mpi_request_t *request, int64_t offset,
                      int64_t bytes) {
  const int n_ranks = comm->info.n_ranks;
  void *out = (char *)request->destination + offset;
  if (request->dtype == ZR_BF16) {
    zr_comm_tree_sum_bf16(comm->parts, n_ranks, out, bytes / 2, request->accumulate);
  } else {
    zr_comm_tree_sum_f32(comm->parts, n_ranks, out, bytes / 4, request->accumulate);
  }
}

static int64_t part_bytes(const zr_comm_t *comm, int64_t bytes) {
  return zr_comm_exchange_scratch_bytes(comm->info.n_ranks, bytes) / comm->info.n_ranks;
}

static zr_status_t reduce_scatter(zr_comm_t *comm, const zr_mpi_request_t *request) {
  const zr_mpi_offer_t head = {.kind = request->kind, .bytes = request->bytes * comm->info.n_ranks};
  const int64_t first = comm->info.rank * request->bytes;
  int64_t chunk_bytes = part_bytes(comm, request->bytes);
  if (chunk_bytes > ZR_MPI_SHARE_CHUNK_BYTES) chunk_bytes = ZR_MPI_SHARE_CHUNK_BYTES;
  ZR_TRY(zr_mpi_share_offer(comm, &head, request->source));
  count_sent(comm, request->bytes);
  for (int64_t offset = 0; offset < request->bytes; offset += chunk_bytes) {
    const int64_t rest = request->bytes - offset;
    const int64_t bytes = rest < chunk_bytes ? rest : chunk_bytes;
    const char *own = (const char *)request->source + first + offset;
    ZR_TRY(gather_parts(comm, &head, own, first + offset, bytes, request->scratch));
    sum_parts(comm, request, offset, bytes);
  }
  return finish(comm, &head);
}

/* Data is read by peers and written with the sum: each piece is written when all have read it. */
static zr_status_t all_reduce(zr_comm_t *comm, const zr_mpi_request_t *request) {
  const int64_t piece_bytes = part_bytes(comm, request->bytes);
  for (int64_t offset = 0; offset < request->bytes; offset += piece_bytes) {
    const int64_t rest = request->bytes - offset;
    const int64_t bytes = rest < piece_bytes ? rest : piece_bytes;
    const zr_mpi_offer_t head = {.kind = request->kind, .bytes = bytes};
    uint64_t *data = (uint64_t *)(void *)((char *)request->destination + offset);
    ZR_TRY(zr_mpi_share_offer(comm, &head, data));
    count_sent(comm, bytes);
    ZR_TRY(gather_parts(comm, &head, data, 0, bytes, request->scratch));
    ZR_TRY(finish(comm, &head));
    const uint64_t *const *parts = comm->parts;
    for (int r = 0; r < comm->info.n_ranks; r++) {
      if (r == comm->info.rank) continue;
      for (int64_t i = 0; i < bytes / (int64_t)sizeof *data; i++) data[i] += parts[r][i];
    }
  }
  return ZR_OK;
}

static zr_status_t broadcast(zr_comm_t *comm, const zr_mpi_request_t *request) {
  const zr_mpi_offer_t head = {
      .kind = request->kind, .bytes = request->bytes, .root = request->root};
  const bool is_root = comm->info.rank == request->root;
  ZR_TRY(zr_mpi_share_offer(comm, &head, is_root ? request->destination : NULL));
  if (is_root) {
    count_sent(comm, request->bytes);
    return finish(comm, &head);
  }
  const zr_mpi_offer_t *offer;
  ZR_TRY(zr_mpi_share_accept(comm, request->root, &head, &offer));
  ZR_TRY(zr_mpi_share_read(comm, request->root, offer, 0, request->destination, request->bytes));
  if (!is_small(&head)) zr_mpi_share_done(comm);
  return ZR_OK;
}

static zr_status_t barrier(zr_comm_t *comm) {
  const zr_mpi_offer_t head = {.kind = ZR_MPI_BARRIER};
  ZR_TRY(zr_mpi_share_offer(comm, &head, NULL));
  for (int i = 1; i < comm->info.n_ranks; i++) {
    const zr_mpi_offer_t *offer;
    ZR_TRY(zr_mpi_share_accept(comm, peer_of(comm, i), &head, &offer));
  }
  return ZR_OK;
}

static zr_status_t run(zr_comm_t *comm, const zr_mpi_request_t *request) {
  if (request->kind == ZR_MPI_BARRIER) return barrier(comm);
  if (request->bytes == 0) return ZR_OK;
  switch (request->kind) {
    case ZR_MPI_ALL_GATHER:
      return all_gather(comm, request);
    case ZR_MPI_REDUCE_SCATTER:
      return reduce_scatter(comm, request);
    case ZR_MPI_ALL_REDUCE:
      return all_reduce(comm, request);
    case ZR_MPI_BROADCAST:
      return broadcast(comm, request);
    default:
      return zr_fail(ZR_ERR_INTERNAL, "comm: no collective %d", (int)request->kind);
  }
}

/* The page knows of the failure before the caller has its memory back. So a rank that has read
 * from this one and does not see it there has read what was meant. */
static zr_status_t fail(zr_comm_t *comm, zr_status_t status) {
  char detail[ZR_DETAIL_BYTES];
  snprintf(detail, sizeof detail, "%s", zr_detail());
  (void)zr_comm_cause_set(&comm->cause, comm->info.rank, status, detail);
  zr_mpi_share_cause_tell(comm);
  zr_mpi_service_wake(comm); /* it tells MPI's peers, and close waits for less */
  zr_detail_set(detail);
  return status;
}

zr_status_t zr_mpi_share_collective(zr_comm_t *comm, const zr_mpi_request_t *request) {
  zr_status_t status = zr_mpi_share_check(comm);
  if (status == ZR_OK) status = run(comm, request);
  if (status == ZR_OK) status = zr_mpi_share_check(comm);
  return status == ZR_OK ? ZR_OK : fail(comm, status);
}
