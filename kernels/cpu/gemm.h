/* Matrix products cut into pieces by the shape alone, each piece done by one thread.
 *
 * A piece of the output is the whole inner sum of its elements in fp32, so neither the number of
 * workers nor which of them runs it changes a bit. Accumulating, or an output of 16 bits, computes
 * the piece into the worker's scratch, then adds or rounds it: fl(c + product). Made before the
 * first step; running allocates nothing and may be called by one thread at a time for each gemm. */
#ifndef ZR_KERNELS_CPU_GEMM_H
#define ZR_KERNELS_CPU_GEMM_H

#include "kernels/cpu/gemm_library.h"
#include "kernels/cpu/rows.h"
#include "runtime/base/pool.h"

typedef struct zr_cpu_gemm_t zr_cpu_gemm_t;

/* Pieces of at most rows x cols; piece p covers rows (p % n_down) and columns (p / n_down), so that
 * consecutive pieces share the columns of B. */
typedef struct {
  int64_t rows, cols, n_down, n_across;
} zr_cpu_gemm_cut_t;

zr_cpu_gemm_cut_t zr_cpu_gemm_cut(const zr_cpu_gemm_shape_t *shape);

/* Scratch of one worker, a multiple of 64. */
int64_t zr_cpu_gemm_worker_bytes(const zr_cpu_gemm_shape_t *shape, int accumulate);

/* `library` may be NULL. accumulate: running adds to c instead of overwriting it. */
zr_status_t zr_cpu_gemm_create(zr_alloc_t *alloc, zr_cpu_library_t *library,
                               const zr_cpu_rows_set_t *rows, const zr_cpu_gemm_shape_t *shape,
                               int accumulate, int n_workers,
                               zr_cpu_gemm_t **out_gemm) ZR_MUST_CHECK;
void zr_cpu_gemm_destroy(zr_cpu_gemm_t *gemm); /* NULL is fine */

typedef struct {
  const zr_cpu_gemm_t *gemm;
  const void *a, *b;
  void *c;
  const void *bias;     /* [n] of the type of A, added to each row, or NULL */
  char *scratch;        /* of worker 0 */
  int64_t worker_bytes; /* from one worker's scratch to the next one's */
} zr_cpu_gemm_call_t;

zr_status_t zr_cpu_gemm_run(zr_pool_t *pool, const zr_cpu_gemm_call_t *call) ZR_MUST_CHECK;

#endif
