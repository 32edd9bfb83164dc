/* A library that does one matrix product on the calling thread: what a file gemm_<library>.c
 * offers to gemm.c. gemm_nodnnl.c offers none, and gemm.c then uses the row kernels.
 *
 * Products are made before the first step and owned by the caller. One product may run on several
 * workers at once, each with its own worker number and scratch. */
#ifndef ZR_KERNELS_CPU_GEMM_LIBRARY_H
#define ZR_KERNELS_CPU_GEMM_LIBRARY_H

#include <stdint.h>

#include "kernels/cpu/rows.h"
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

/* C[m][n] = A[m][k] B[k][n]. A[i][p] is a[i a_row + p a_col], one of the two strides is 1; likewise
 * B; rows of C are contiguous and ldc apart. */
typedef struct {
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, ldc;
  zr_cpu_type_t ab, c; /* types of A and B, and of C */
} zr_cpu_gemm_shape_t;

typedef enum { ZR_CPU_BASELINE = 0, ZR_CPU_AVX2, ZR_CPU_AVX512, ZR_CPU_N_ISAS } zr_cpu_isa_t;

typedef struct zr_cpu_library_t zr_cpu_library_t;
typedef struct zr_cpu_product_prim_t zr_cpu_product_prim_t;

/* *out_library is NULL where no library is built in or where it would not use `isa`. */
zr_status_t zr_cpu_library_open(zr_alloc_t *alloc, zr_cpu_isa_t isa,
                                zr_cpu_library_t **out_library) ZR_MUST_CHECK;
void zr_cpu_library_close(zr_cpu_library_t *library); /* NULL is fine */

/* Whether fp32 products on one thread read A and B where they lie, without packing them. */
int zr_cpu_library_reads_in_place(const zr_cpu_library_t *library); /* NULL: 0 */

/* C is fp32 whatever shape->c says. add: C += A B, one rounding for each addition. *out_prim is
 * NULL where the library would need more than max_scratch_bytes, or where the processor does not
 * multiply the type of A and B itself. */
zr_status_t zr_cpu_library_prepare(zr_cpu_library_t *library, const zr_cpu_gemm_shape_t *shape,
                                   int add, int64_t max_scratch_bytes, int n_workers,
                                   zr_cpu_product_prim_t **out_prim) ZR_MUST_CHECK;
void zr_cpu_library_release(zr_cpu_library_t *library, zr_cpu_product_prim_t *prim);

/* Allocates nothing of ours; `scratch` is the worker's own, aligned to 64. */
zr_status_t zr_cpu_library_run(zr_cpu_library_t *library, const zr_cpu_product_prim_t *prim,
                               int worker, const void *a, const void *b, float *c,
                               void *scratch) ZR_MUST_CHECK;

#endif
