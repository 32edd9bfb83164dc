/* A small matrix product by register tiles: PRODUCT_ROWS x (PRODUCT_VECTORS vectors) sums at a
 * time, each sum in increasing order of the inner index. Attention uses it, and gemm.c where no
 * library does the product. */
#ifndef ZR_KERNELS_CPU_ROWS_PRODUCT_INC_H
#define ZR_KERNELS_CPU_ROWS_PRODUCT_INC_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/vec.h"

/* As many accumulators as leave registers for a row of B. */
enum { PRODUCT_ROWS = 6, PRODUCT_VECTORS = ZR_VEC == 16 ? 4 : 2 };

/* `lanes` > 0: one vector of which so many lanes exist. */
__attribute__((always_inline)) static inline void product_tile(const zr_cpu_product_t *p, int64_t i,
                                                               int64_t j, const int rows,
                                                               const int vectors, int64_t lanes) {
  vf sum[PRODUCT_ROWS][PRODUCT_VECTORS];
  const float *a = p->a + i * p->a_row, *b = p->b + j;
  float *c = p->c + i * p->ldc + j;
  const int64_t a_row = p->a_row, a_col = p->a_col, ldb = p->ldb;
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      const float *from = c + r * p->ldc + v * ZR_VEC;
      sum[r][v] = !p->add ? v_set(0) : lanes > 0 ? v_load_n(from, lanes) : v_load(from);
    }
  }
  for (int64_t k = 0; k < p->k; k++) {
    vf row[PRODUCT_VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++)
      row[v] = lanes > 0 ? v_load_n(b + k * ldb, lanes) : v_load(b + k * ldb + v * ZR_VEC);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      vf x = v_set(a[r * a_row + k * a_col]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(x, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      if (lanes > 0) {
        v_store_n(c + r * p->ldc, sum[r][v], lanes);
      } else {
        v_store(c + r * p->ldc + v * ZR_VEC, sum[r][v]);
      }
    }
  }
}

__attribute__((always_inline)) static inline void product_columns(const zr_cpu_product_t *p,
                                                                  int64_t j, const int vectors,
                                                                  int64_t lanes) {
  int64_t i = 0;
  for (; i + PRODUCT_ROWS <= p->m; i += PRODUCT_ROWS)
    product_tile(p, i, j, PRODUCT_ROWS, vectors, lanes);
  switch (p->m - i) {
    case 5:
      product_tile(p, i, j, 5, vectors, lanes);
      break;
    case 4:
      product_tile(p, i, j, 4, vectors, lanes);
      break;
    case 3:
      product_tile(p, i, j, 3, vectors, lanes);
      break;
    case 2:
      product_tile(p, i, j, 2, vectors, lanes);
      break;
    case 1:
      product_tile(p, i, j, 1, vectors, lanes);
      break;
    default:
      break;
  }
}

static inline void row_product(const zr_cpu_product_t *p) {
  int64_t j = 0;
  for (; j + PRODUCT_VECTORS * ZR_VEC <= p->n; j += PRODUCT_VECTORS * ZR_VEC)
    product_columns(p, j, PRODUCT_VECTORS, 0);
  for (; j + ZR_VEC <= p->n; j += ZR_VEC) product_columns(p, j, 1, 0);
  if (j < p->n) product_columns(p, j, 1, p->n - j);
}

#endif
