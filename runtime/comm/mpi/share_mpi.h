/* Collectives of ranks that share one node: each rank reads its peers' memory itself, so a byte is
 * copied once and MPI carries none of it. The callers' threads do the work; the service thread only
 * looks for abort messages. Only this backend's _mpi.c files include this.
 *
 * All ranks map one page of control (a memfd), in which each has a seat. Collective number s:
 *
 *   offer   wait until all have offered s - 1; write kind, size, address; offered = s
 *   read    wait until a peer has offered s; copy from its memory (process_vm_readv)
 *   close   taken = s; wait until all have taken s: only then may the caller write its memory again
 *
 * What is small lies in the seat itself and is not closed: offers alternate between two places, and
 * who offers s + 2 knows that all have offered s + 1, so have left s. A wait polls, then sleeps on
 * the own seat's bell. */
#ifndef ZR_COMM_MPI_SHARE_MPI_H
#define ZR_COMM_MPI_SHARE_MPI_H

#include <sys/types.h>

#include "runtime/comm/mpi/comm_mpi.h"

enum {
  ZR_MPI_INLINE_BYTES = 16 * 1024,    /* of an offer that lies in the seat */
  ZR_MPI_SHARE_CHUNK_BYTES = 1 << 17, /* of a sum: the parts of a chunk stay in the cache */
  ZR_MPI_SHARE_READ_BYTES = 1 << 20   /* between looks for an abort */
};

typedef struct {
  int64_t kind, bytes, root;
  uint64_t address; /* in the offering process; 0: the bytes are in `payload` */
  _Alignas(64) char payload[ZR_MPI_INLINE_BYTES];
} zr_mpi_offer_t;

typedef struct {
  _Alignas(64) _Atomic uint64_t offered, taken;
  _Alignas(64) _Atomic uint32_t bell; /* changes when a peer has offered, taken or failed */
  _Atomic uint32_t asleep;            /* the bell's owner wants to be woken */
  zr_mpi_offer_t offers[2];           /* of collective s: [s % 2] */
} zr_mpi_seat_t;

typedef struct {
  zr_comm_cause_t cause; /* the job's first, as far as it came here */
  zr_mpi_seat_t seats[]; /* one per rank */
} zr_mpi_page_t;

/* What ranks tell each other when they open. */
typedef struct {
  int64_t pid, page_file; /* page_file: rank 0's descriptor of the page + 1; 0: none */
  int64_t token_address,
      token; /* a number in the process's memory, read to see whether it can be */
} zr_mpi_card_t;

struct zr_mpi_share_t {
  zr_mpi_page_t *page;
  size_t page_bytes;
  uint64_t sequence;    /* collectives begun: the caller's own */
  int64_t token;        /* what peers read to see that they can */
  zr_mpi_card_t *cards; /* n_ranks */
  int *processes;       /* n_ranks descriptors that tell of a peer's end; -1: none */
};

/* share_open_mpi.c, on the service thread. get: the memory, if ZR_COMM_SHARED and the ranks' places
 * allow it. open: all ranks together; comm->share is NULL afterwards if any of them is refused,
 * which is said once. close: NULL is fine. */
zr_status_t zr_mpi_share_get(zr_comm_t *comm) ZR_MUST_CHECK;
zr_status_t zr_mpi_share_open(zr_comm_t *comm) ZR_MUST_CHECK;
void zr_mpi_share_close(zr_comm_t *comm);

/* share_wait_mpi.c. offer begins a collective (data NULL: nothing to read). accept waits for the
 * peer's offer of it, and refuses one of another kind or size. read: `bytes` at `offset` of what
 * was accepted. done: lets the peers know; await_done waits for one. */
zr_status_t zr_mpi_share_offer(zr_comm_t *comm, const zr_mpi_offer_t *head,
                               const void *data) ZR_MUST_CHECK;
zr_status_t zr_mpi_share_accept(zr_comm_t *comm, int peer, const zr_mpi_offer_t *head,
                                const zr_mpi_offer_t **out_offer) ZR_MUST_CHECK;
zr_status_t zr_mpi_share_read(zr_comm_t *comm, int peer, const zr_mpi_offer_t *offer,
                              int64_t offset, void *to, int64_t bytes) ZR_MUST_CHECK;
void zr_mpi_share_done(zr_comm_t *comm);
zr_status_t zr_mpi_share_check(zr_comm_t *comm) ZR_MUST_CHECK; /* the cause, if somebody failed */
zr_status_t zr_mpi_share_await_done(zr_comm_t *comm, int peer) ZR_MUST_CHECK;

#endif
