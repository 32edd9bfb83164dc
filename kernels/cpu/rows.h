/* Row kernels: the inner loops of every kind but the library's matrix products, once for each
 * instruction set and element type.
 *
 * A row kernel works on a range that its caller cut by shape, on the calling thread, and allocates
 * nothing. Its source is *.inc.h, compiled by rows_<set>.c, rows_bf16_<set>.c and rows_f16_<set>.c.
 * `void` pointers are to elements of the table's type: they are loaded to fp32 and rounded once, to
 * nearest even, where they are stored; `float` pointers are fp32 in all tables. The optimizer,
 * block norm and accumulate give the same bits in all instruction sets. */
#ifndef ZR_KERNELS_CPU_ROWS_H
#define ZR_KERNELS_CPU_ROWS_H

#include <stdint.h>

#include "kernels/kern.h"

/* Queries and keys of an attention tile. */
enum { ZR_CPU_ATTENTION_TILE = 64 };

/* Element types. */
typedef enum { ZR_CPU_F32 = 0, ZR_CPU_BF16, ZR_CPU_F16, ZR_CPU_N_TYPES } zr_cpu_type_t;

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
  const void *x, *w, *b, *dy;
  void *y;      /* [n_rows, cols] */
  float *stats; /* layernorm [n_rows, 2], rmsnorm [n_rows] */
  const float *stats_in;
  void *dx;
  int dx_add;
  float *dw_part, *db_part; /* [cols]: sums over these rows, overwritten */
} zr_cpu_norm_rows_t;

/* What the queries of an attention tile see of a tile of keys: with `diagonal` key k up to query k;
 * with `first` [tile] the keys from first[query] on, where the tile's first key is `key`. */
typedef struct {
  int diagonal;
  int32_t key;
  const int32_t *first; /* NULL: all of them */
} zr_cpu_mask_t;

/* One row of the head: logits in, gradients out in place: as elements, from the row's start. */
typedef struct {
  float *logits; /* [vocab_padded] */
  int64_t vocab, vocab_padded;
  int32_t target;
  int grad;         /* 1: logits become d loss / d logits */
  float inv_tokens; /* factor of the gradient */
} zr_cpu_head_row_t;

/* Constants of an optimizer for a range that decays throughout or not at all. */
typedef struct {
  int32_t kind; /* ZR_OP_ADAMW, ... */
  float clip_coef, decay_mul, step_size, inv_sqrt_bias2;
  float beta2, one_minus_beta1, one_minus_beta2, eps;
  float momentum, gain;
  float l2; /* weight decay added to the gradient; used if use_l2 */
  int use_l2;
  int decays; /* decay_mul is used */
  int nesterov;
} zr_cpu_update_t;

/* Operands of a range of elements of one tensor. */
typedef struct {
  void *p, *low; /* low: bf16: 16 bits below p, fp16: the fp32 master, fp32: NULL */
  const void *g;
  zr_cpu_type_t g_type;
  void *state[2];            /* NULL: the optimizer has none */
  int half_states;           /* bf16 instead of fp32 */
  uint64_t round_key, index; /* half_states: of the tensor; of the first element in it */
  float *master, *seen[2];   /* where to copy masters and states to as they were stored, or NULL */
} zr_cpu_update_range_t;

typedef struct {
  int64_t elem_bytes;
  void (*widen)(int64_t n, const void *src, float *dst);
  void (*round)(int64_t n, const float *src, void *dst);
  void (*round_add)(int64_t n, const float *src, void *dst); /* dst + rounded src */
  void (*widen_add)(int64_t n, const void *src, float *dst); /* dst + src */
  void (*add_bias)(int64_t n, const void *bias, float *row); /* row + bias */
  void (*add)(int64_t n, const void *a, const void *b, void *y);
  void (*accumulate)(int64_t n, const void *src, void *dst); /* dst + src */
  void (*fill)(int64_t n, float value, void *dst);
  /* by activation; none for ZR_ACT_OWN */
  void (*gelu[ZR_N_ACTS])(int64_t n, const void *x, void *y);
  void (*gelu_grad[ZR_N_ACTS])(int64_t n, const void *x, const void *dy, void *dx);
  void (*swiglu[ZR_N_ACTS])(int64_t n, const void *gate, const void *up, void *y);
  void (*swiglu_grad[ZR_N_ACTS])(int64_t n, const void *gate, const void *up, const void *dy,
                                 void *dgate, void *dup);
  /* sum[c] = sum of rows of x, in order from the first */
  void (*column_sum)(int64_t n_rows, int64_t cols, const void *x, int64_t ldx, float *sum);
  /* Turns `heads` heads of a row by cos[i], sin[i], i < half. */
  void (*rope)(int64_t heads, int64_t half, const float *cosine, const float *sine, void *row);

  void (*layernorm)(const zr_cpu_norm_rows_t *rows);
  void (*layernorm_grad)(const zr_cpu_norm_rows_t *rows);
  void (*rmsnorm)(const zr_cpu_norm_rows_t *rows);
  void (*rmsnorm_grad)(const zr_cpu_norm_rows_t *rows);

  void (*product)(const zr_cpu_product_t *product);
  /* dst[c][r] = scale src[r][c], rows r in [n_rows, tile) of dst +0; dst [cols][tile] */
  void (*pack)(int64_t n_rows, int64_t cols, const void *src, int64_t lds, float scale, float *dst);
  /* dst[r][c] = src[c][r] scale[r], src [cols][tile], scale [tile] */
  void (*unpack)(int64_t n_rows, int64_t cols, const float *src, const float *scale, void *dst,
                 int64_t ldd);
  /* One tile of running softmax, lanes are queries: s [n_keys][tile] becomes exp(s - max);
   * max, sum and factor (what earlier sums must be multiplied by) are [tile]. */
  void (*softmax_tile)(int64_t n_keys, int first, const zr_cpu_mask_t *mask, float *s, float *max,
                       float *sum, float *factor);
  void (*scale_tile)(int64_t n_rows, const float *factor, float *x);
  /* p = exp(s - lse); dp = scale p (dp - delta) */
  void (*softmax_tile_grad)(int64_t n_keys, const zr_cpu_mask_t *mask, const float *lse,
                            const float *delta, float scale, float *s, float *dp);
  float (*dot)(int64_t n, const void *a, const void *b);

  double (*head_row)(const zr_cpu_head_row_t *row); /* the row's loss */

  double (*block_norm)(const void *g); /* ZR_BLOCK_ELEMS elements */
  /* Returns the number of non-finite parameters. */
  int64_t (*update)(const zr_cpu_update_t *c, int64_t n, const zr_cpu_update_range_t *r);
  uint64_t (*digest)(int64_t n, uint64_t key, uint64_t first, const float *x);
} zr_cpu_rows_t;

extern const zr_cpu_rows_t zr_cpu_rows_baseline, zr_cpu_rows_avx2, zr_cpu_rows_avx512;
extern const zr_cpu_rows_t zr_cpu_rows_bf16_baseline, zr_cpu_rows_bf16_avx2,
    zr_cpu_rows_bf16_avx512;
extern const zr_cpu_rows_t zr_cpu_rows_f16_baseline, zr_cpu_rows_f16_avx2, zr_cpu_rows_f16_avx512;

/* The tables of one instruction set, by zr_cpu_type_t. */
typedef const zr_cpu_rows_t *zr_cpu_rows_set_t[ZR_CPU_N_TYPES];

#endif
