/* Direct exchange with every peer in chunks: what all collectives are made of.
 *
 *   chunk    0   1   2   3   4 ...
 *   post     |   |   |   |   . after chunk 0 is finished, in its slot
 *   finish   in order, when all sends and receives of the chunk are complete */
#ifndef ZR_COMM_MPI_EXCHANGE_MPI_H
#define ZR_COMM_MPI_EXCHANGE_MPI_H

#include "runtime/comm/mpi/comm_mpi.h"

typedef struct zr_mpi_exchange_t zr_mpi_exchange_t;
/* A chunk is complete; `slot` is its place in the scratch memory (see below). */
typedef void (*zr_mpi_finish_fn_t)(zr_comm_t *comm, const zr_mpi_exchange_t *exchange,
                                   int64_t offset, int64_t bytes, const char *slot);

struct zr_mpi_exchange_t {
  zr_mpi_kind_t kind;
  int64_t bytes;       /* to and from each peer; 0: one empty message */
  int64_t chunk_bytes; /* > 0 */
  int window;          /* chunks in flight, at most ZR_MPI_WINDOW */
  int root;            /* >= 0: the only sender; -1: everybody sends to everybody */
  const char *send;    /* bytes for peer p at send + p * send_stride */
  int64_t send_stride;
  char *receive; /* bytes of peer p at receive + p * receive_stride */
  int64_t receive_stride;
  char *scratch; /* if not NULL: chunks arrive here instead, [slot][peer][chunk_bytes] */
  zr_mpi_finish_fn_t finish; /* may be NULL */
  const zr_mpi_request_t *request;
};

/* On an error nothing of this exchange is in flight any more, or comm->lost is set. */
zr_status_t zr_mpi_exchange_run(zr_comm_t *comm, const zr_mpi_exchange_t *exchange) ZR_MUST_CHECK;

#endif
