/* A matrix product by the library's own threading: the yardstick of ours. library_dnnl.c, or
 * library_nodnnl.c where it is not built in. */
#ifndef ZR_BENCH_LIBRARY_H
#define ZR_BENCH_LIBRARY_H

#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/dtype.h"

/* C[m][n] = A[m][k] B[k][n]; A[i][p] is a[i a_row + p a_col], likewise B; rows of C lie ldc apart.
 */
typedef struct {
  int64_t m, n, k, a_row, a_col, b_row, b_col, ldc;
  zr_dtype_t ab, c; /* fp32 or bf16 */
} zr_bench_product_t;

typedef struct zr_bench_library_t zr_bench_library_t;

/* Whether the processor multiplies bf16 in this library; where not, it imitates it, slowly. */
int zr_bench_library_has_bf16(void);
/* *out_library is NULL where no library is built in. */
zr_status_t zr_bench_library_create(zr_alloc_t *alloc, const zr_bench_product_t *product,
                                    int n_threads, zr_bench_library_t **out_library) ZR_MUST_CHECK;
zr_status_t zr_bench_library_run(zr_bench_library_t *library, const void *a, const void *b,
                                 void *c) ZR_MUST_CHECK;
void zr_bench_library_destroy(zr_bench_library_t *library); /* NULL is fine */

#endif
