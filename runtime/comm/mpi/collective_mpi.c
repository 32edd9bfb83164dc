/* The collectives as exchanges. */
#include <string.h>

#include "runtime/comm/mpi/exchange_mpi.h"

enum { SMALL_BYTES = 64 * 1024, ALIGN_BYTES = 64 };

/* Cuts the scratch memory, which has room for n_ranks parts of min(bytes, 1 MiB), into slots. */
static void cut_scratch(const zr_comm_t *comm, zr_mpi_exchange_t *x) {
  const int64_t part_bytes =
      zr_comm_exchange_scratch_bytes(comm->info.n_ranks, x->bytes) / comm->info.n_ranks;
  if (part_bytes <= SMALL_BYTES) {
    x->chunk_bytes = part_bytes;
    x->window = 1;
  } else {
    x->chunk_bytes = part_bytes / ZR_MPI_WINDOW / ALIGN_BYTES * ALIGN_BYTES;
    x->window = ZR_MPI_WINDOW;
  }
}

static zr_status_t all_gather(zr_comm_t *comm, const zr_mpi_request_t *request) {
  char *own = (char *)request->destination + comm->info.rank * request->bytes;
  if (own != request->source) memcpy(own, request->source, (size_t)request->bytes);
  const zr_mpi_exchange_t exchange = {.kind = request->kind,
                                      .bytes = request->bytes,
                                      .chunk_bytes = ZR_MPI_CHUNK_BYTES,
                                      .window = ZR_MPI_WINDOW,
                                      .root = -1,
                                      .send = request->source,
                                      .receive = request->destination,
                                      .receive_stride = request->bytes};
  return zr_mpi_exchange_run(comm, &exchange);
}

/* Rank r's part of a chunk: a peer's lies in the slot, this rank's own where it is sent from. */
static const void *part_of(const zr_comm_t *comm, const zr_mpi_exchange_t *x, int r, int64_t offset,
                           const char *slot) {
  return r == comm->info.rank ? x->send + r * x->send_stride + offset : slot + r * x->chunk_bytes;
}

static void sum_f32(zr_comm_t *comm, const zr_mpi_exchange_t *x, int64_t offset, int64_t bytes,
                    const char *slot) {
  const float **parts = comm->parts;
  for (int r = 0; r < comm->info.n_ranks; r++) parts[r] = part_of(comm, x, r, offset, slot);
  void *out = (char *)x->request->destination + offset;
  zr_comm_tree_sum_f32(parts, comm->info.n_ranks, out, bytes / (int64_t)sizeof **parts,
                       x->request->accumulate);
}

static void sum_bf16(zr_comm_t *comm, const zr_mpi_exchange_t *x, int64_t offset, int64_t bytes,
                     const char *slot) {
  const uint16_t **parts = comm->parts;
  for (int r = 0; r < comm->info.n_ranks; r++) parts[r] = part_of(comm, x, r, offset, slot);
  void *out = (char *)x->request->destination + offset;
  zr_comm_tree_sum_bf16(parts, comm->info.n_ranks, out, bytes / (int64_t)sizeof **parts,
                        x->request->accumulate);
}

static zr_status_t reduce_scatter(zr_comm_t *comm, const zr_mpi_request_t *request) {
  zr_mpi_exchange_t exchange = {.kind = request->kind,
                                .bytes = request->bytes,
                                .root = -1,
                                .send = request->source,
                                .send_stride = request->bytes,
                                .scratch = request->scratch,
                                .finish = request->dtype == ZR_BF16 ? sum_bf16 : sum_f32,
                                .request = request};
  cut_scratch(comm, &exchange);
  return zr_mpi_exchange_run(comm, &exchange);
}

/* The chunk's own sends are complete, so its place may be overwritten. */
static void sum_integers(zr_comm_t *comm, const zr_mpi_exchange_t *x, int64_t offset, int64_t bytes,
                         const char *slot) {
  uint64_t *data = (uint64_t *)(void *)((char *)x->request->destination + offset);
  for (int r = 0; r < comm->info.n_ranks; r++) {
    if (r == comm->info.rank) continue;
    const uint64_t *part = (const uint64_t *)(const void *)(slot + r * x->chunk_bytes);
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *data; i++) data[i] += part[i];
  }
}

static zr_status_t all_reduce(zr_comm_t *comm, const zr_mpi_request_t *request) {
  zr_mpi_exchange_t exchange = {.kind = request->kind,
                                .bytes = request->bytes,
                                .root = -1,
                                .send = request->destination,
                                .scratch = request->scratch,
                                .finish = sum_integers,
                                .request = request};
  cut_scratch(comm, &exchange);
  return zr_mpi_exchange_run(comm, &exchange);
}

static zr_status_t broadcast(zr_comm_t *comm, const zr_mpi_request_t *request) {
  const zr_mpi_exchange_t exchange = {.kind = request->kind,
                                      .bytes = request->bytes,
                                      .chunk_bytes = ZR_MPI_CHUNK_BYTES,
                                      .window = ZR_MPI_WINDOW,
                                      .root = request->root,
                                      .send = request->destination,
                                      .receive = request->destination};
  return zr_mpi_exchange_run(comm, &exchange);
}

static zr_status_t barrier(zr_comm_t *comm) {
  const zr_mpi_exchange_t exchange = {
      .kind = ZR_MPI_BARRIER, .chunk_bytes = ZR_MPI_CHUNK_BYTES, .window = 1, .root = -1};
  return zr_mpi_exchange_run(comm, &exchange);
}

zr_status_t zr_mpi_collective(zr_comm_t *comm, const zr_mpi_request_t *request) {
  ZR_TRY(zr_comm_cause_check(&comm->cause, comm->info.rank));
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
