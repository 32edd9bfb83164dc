/* Row kernels: the inner loops of every kind but the library's matrix products, once for each
 * instruction set.
 *
 * A row kernel works on a range that its caller cut by shape, on the calling thread, and allocates
 * nothing. Its source is *.inc.h, compiled by rows_baseline.c, rows_avx2.c and rows_avx512.c. The
 * optimizer, block norm and accumulate give the same bits in all of them. */
#ifndef ZR_KERNELS_CPU_ROWS_H
#define ZR_KERNELS_CPU_ROWS_H

#include <stdint.h>

/* Queries and keys of an attention tile. */
enum { ZR_CPU_ATTENTION_TILE = 64 };

/* C[m][n] = A B, or += A B continuing the sums in C. A[i][p] is a[i a_row + p a_col]; rows of B and
 * C are contiguous. */
typedef struct {
  int64_t m, n, k;
  const float *a;
  int64_t a_row, a_col;
  const float *b;
  int64_t ldb;
  float *c;
  int64_t ldc;
  int add;
} zr_cpu_product_t;

/* Rows of layernorm or rmsnorm (b, mean and db absent) and their gradients. */
typedef struct {
  int64_t n_rows, cols;
  float eps;
  const float *x, *w, *b, *dy;
  float *y;     /* [n_rows, cols] */
  float *stats; /* layernorm [n_rows, 2], rmsnorm [n_rows] */
  const float *stats_in;
  float *dx;
  int dx_add;
  float *dw_part, *db_part; /* [cols]: sums over these rows, overwritten */
} zr_cpu_norm_rows_t;

/* One row of the head: logits in, gradients out in place. */
typedef struct {
  float *logits; /* [vocab_padded] */
  int64_t vocab, vocab_padded;
  int32_t target;
  int grad;         /* 1: logits become d loss / d logits */
  float inv_tokens; /* factor of the gradient */
} zr_cpu_head_row_t;

/* Constants of AdamW for a range that decays throughout or not at all. */
typedef struct {
  float clip_coef, decay_mul, step_size, inv_sqrt_bias2;
  float beta2, one_minus_beta1, one_minus_beta2, eps;
  float l2; /* weight decay added to the gradient; used if use_l2 */
  int use_l2;
  int decays; /* decay_mul is used */
} zr_cpu_adamw_t;

typedef struct {
  void (*add)(int64_t n, const float *a, const float *b, float *y);
  void (*accumulate)(int64_t n, const float *src, float *dst); /* dst + src */
  void (*fill)(int64_t n, float value, float *dst);
  void (*gelu)(int64_t n, const float *x, float *y);
  void (*gelu_grad)(int64_t n, const float *x, const float *dy, float *dx);
  void (*swiglu)(int64_t n, const float *gate, const float *up, float *y);
  void (*swiglu_grad)(int64_t n, const float *gate, const float *up, const float *dy, float *dgate,
                      float *dup);
  /* sum[c] = sum of rows of x, in order from the first */
  void (*column_sum)(int64_t n_rows, int64_t cols, const float *x, int64_t ldx, float *sum);
  /* Turns `heads` heads of a row by cos[i], sin[i], i < half. */
  void (*rope)(int64_t heads, int64_t half, const float *cosine, const float *sine, float *row);

  void (*layernorm)(const zr_cpu_norm_rows_t *rows);
  void (*layernorm_grad)(const zr_cpu_norm_rows_t *rows);
  void (*rmsnorm)(const zr_cpu_norm_rows_t *rows);
  void (*rmsnorm_grad)(const zr_cpu_norm_rows_t *rows);

  void (*product)(const zr_cpu_product_t *product);
  /* dst[c][r] = scale src[r][c], rows r in [n_rows, tile) of dst +0; dst [cols][tile] */
  void (*pack)(int64_t n_rows, int64_t cols, const float *src, int64_t lds, float scale,
               float *dst);
  /* dst[r][c] = src[c][r] scale[r], src [cols][tile], scale [tile] */
  void (*unpack)(int64_t n_rows, int64_t cols, const float *src, const float *scale, float *dst,
                 int64_t ldd);
  /* One tile of running softmax, lanes are queries: s [n_keys][tile] becomes exp(s - max);
   * max, sum and factor (what earlier sums must be multiplied by) are [tile]. */
  void (*softmax_tile)(int64_t n_keys, int first, int diagonal, float *s, float *max, float *sum,
                       float *factor);
  void (*scale_tile)(int64_t n_rows, const float *factor, float *x);
  /* p = exp(s - lse); dp = scale p (dp - delta) */
  void (*softmax_tile_grad)(int64_t n_keys, int diagonal, const float *lse, const float *delta,
                            float scale, float *s, float *dp);
  float (*dot)(int64_t n, const float *a, const float *b);

  double (*head_row)(const zr_cpu_head_row_t *row); /* the row's loss */

  double (*block_norm)(const float *g); /* ZR_BLOCK_ELEMS elements */
  int64_t (*adamw)(const zr_cpu_adamw_t *c, int64_t n, float *p, const float *g, float *m,
                   float *v); /* returns the number of non-finite parameters */
  uint64_t (*digest)(int64_t n, uint64_t key, uint64_t first, const float *x);
} zr_cpu_rows_t;

extern const zr_cpu_rows_t zr_cpu_rows_baseline, zr_cpu_rows_avx2, zr_cpu_rows_avx512;

#endif
