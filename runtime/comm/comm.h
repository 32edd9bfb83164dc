/* The collective interface. Floor 1.
 *
 * Collectives are blocking calls made from one thread, the comm stream's (backends that bind to a
 * thread, like MPI, are opened and closed on it: `attach` and `detach`). They never spin for long:
 * at most 100 us of polling, then sleeps of up to a millisecond. Results are the same bits for any
 * timing: sums go in the fixed tree over the ranks (a node over n splits at the largest power of
 * two below n), in fp32, rounded to the element type at each node. */
#ifndef ZR_COMM_COMM_H
#define ZR_COMM_COMM_H

#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/hal/hal.h"

typedef struct zr_comm_t zr_comm_t;

typedef struct {
  int rank, n_ranks;
  int local_rank, n_local_ranks; /* of this node */
} zr_comm_info_t;

/* The table of a collective backend. All slots required. Every rank calls the same ones in the same
 * order. */
typedef struct {
  const char *name;                              /* "self", "mpi", "fault(mpi)" */
  void (*close)(zr_comm_t *comm);                /* NULL is fine */
  zr_comm_info_t (*info)(const zr_comm_t *comm); /* valid from open on */

  /* flat[r * shard_bytes ..] = rank r's shard. shard may be this rank's place in flat. Sends (N-1)
   * shard_bytes. */
  zr_status_t (*all_gather)(zr_comm_t *comm, const void *shard, void *flat,
                            int64_t shard_bytes) ZR_MUST_CHECK;
  /* shard = (accumulate: fl(shard + ...)) tree sum over the ranks of flat[rank * shard_bytes ..].
   * scratch: at least scratch_bytes(shard_bytes). Works in chunks of bounded size. Sends (N-1)
   * shard_bytes. dtype ZR_F32 or ZR_BF16. */
  zr_status_t (*reduce_scatter)(zr_comm_t *comm, const void *flat, void *shard, int64_t shard_bytes,
                                zr_dtype_t dtype, int accumulate, void *scratch) ZR_MUST_CHECK;
  int64_t (*scratch_bytes)(
      const zr_comm_t *comm,
      int64_t shard_bytes); /* for reduce_scatter, and for all_reduce with bytes */
  zr_status_t (*all_reduce)(zr_comm_t *comm, int64_t *data, int64_t count,
                            void *scratch) ZR_MUST_CHECK; /* int64 sums */
  zr_status_t (*broadcast)(zr_comm_t *comm, void *data, int64_t bytes, int root) ZR_MUST_CHECK;
  zr_status_t (*barrier)(zr_comm_t *comm) ZR_MUST_CHECK;

  /* Any thread: tells the other ranks that this one fails with `status`; each collective waiting
   * there, or called later, returns ZR_ERR_PEER with the first cause's rank and text. Idempotent.
   * Where the backend's calls are bound to a thread the message leaves when that thread next polls
   * or at close. */
  void (*abort)(zr_comm_t *comm, zr_status_t status, const char *detail);
  /* The first cause as this rank knows it: ZR_OK while nobody has failed; fills rank and detail
   * (may be NULL). */
  zr_status_t (*cause)(zr_comm_t *comm, int *out_rank, char *out_detail, int64_t detail_bytes);
  int64_t (*sent_bytes)(
      const zr_comm_t *comm); /* payload handed to the library so far, counted at the call */
} zr_comm_ops_t;

/* One rank: copies. */
zr_status_t zr_comm_self_open(zr_alloc_t *alloc, const zr_comm_ops_t **out_ops,
                              zr_comm_t **out_comm) ZR_MUST_CHECK;

/* MPI. zr_comm_mpi_open starts the backend's own service thread, which initialises MPI
 * (MPI_THREAD_SERIALIZED), makes every MPI call and finalises it; the calls above hand their work
 * to it and sleep. Nonblocking calls tested with back-off; calls are cut to 1 GiB. Where all ranks
 * are on one node and may read each other's memory, collectives do so on the calling thread instead
 * (ZR_COMM_SHARED=0 in the environment: not). Without mpirun it is a job of one rank. Not built:
 * ZR_ERR_UNSUPPORTED. */
zr_status_t zr_comm_mpi_open(zr_alloc_t *alloc, const zr_comm_ops_t **out_ops,
                             zr_comm_t **out_comm) ZR_MUST_CHECK;
int zr_comm_mpi_launched(
    void); /* 1 if the environment says a launcher started this process with more than one rank */

/* Only the facts of rank `rank` of n_ranks; collectives return ZR_ERR_UNSUPPORTED, scratch_bytes as
 * mpi: for `zerorun plan` and for tests of the compiler. */
zr_status_t zr_comm_null_open(zr_alloc_t *alloc, int rank, int n_ranks,
                              const zr_comm_ops_t **out_ops, zr_comm_t **out_comm) ZR_MUST_CHECK;

zr_status_t zr_comm_fault_open(zr_alloc_t *alloc, const zr_fault_t *fault,
                               const zr_comm_ops_t *inner_ops, zr_comm_t *inner,
                               const zr_comm_ops_t **out_ops, zr_comm_t **out_comm) ZR_MUST_CHECK;

/* Adds n parts of `count` fp32 elements in the tree, into out (accumulate: fl(out + sum)); parts[r]
 * is rank r's; out may be a part. Shared by backends and tests. */
void zr_comm_tree_sum_f32(const float *const *parts, int n_parts, float *out, int64_t count,
                          int accumulate);
/* The same of bf16 elements: each node, and the addition to out, is made in fp32 and rounded. */
void zr_comm_tree_sum_bf16(const uint16_t *const *parts, int n_parts, uint16_t *out, int64_t count,
                           int accumulate);
/* Bytes of scratch of a chunked exchange: the same rule for every backend, so that plans do not
 * depend on it. */
int64_t zr_comm_exchange_scratch_bytes(int n_ranks, int64_t shard_bytes);

#endif
