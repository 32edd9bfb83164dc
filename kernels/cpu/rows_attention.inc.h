/* Attention's tiles. Scores are kept transposed, s[key][query], so that every step of the softmax
 * works on whole vectors of queries and sums over keys are sums of vectors. */
#ifndef ZR_KERNELS_CPU_ROWS_ATTENTION_INC_H
#define ZR_KERNELS_CPU_ROWS_ATTENTION_INC_H

#include <stdbool.h>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/vec.h"

enum { TILE = ZR_CPU_ATTENTION_TILE };

static inline void tile_pack(int64_t n_rows, int64_t cols, const void *elems, int64_t lds,
                             float scale, float *dst) {
  const elem *src = elems;
  for (int64_t r0 = 0; r0 < TILE; r0 += ZR_VEC) {
    for (int64_t c = 0; c < cols; c += ZR_VEC) {
      int64_t n = cols - c < ZR_VEC ? cols - c : ZR_VEC;
      vf row[ZR_VEC];
#pragma GCC unroll 16
      for (int i = 0; i < ZR_VEC; i++) {
        const elem *from = src + (r0 + i) * lds + c;
        row[i] = r0 + i >= n_rows ? v_set(0) : n == ZR_VEC ? e_load(from) : e_load_n(from, n);
      }
      v_transpose(row);
#pragma GCC unroll 16
      for (int i = 0; i < ZR_VEC; i++)
        if (i < n) v_store(dst + (c + i) * TILE + r0, row[i] * scale);
    }
  }
}

static inline void tile_unpack(int64_t n_rows, int64_t cols, const float *src, const float *scale,
                               void *elems, int64_t ldd) {
  elem *dst = elems;
  for (int64_t r0 = 0; r0 < n_rows; r0 += ZR_VEC) {
    const vf by = v_load(scale + r0);
    for (int64_t c = 0; c < cols; c += ZR_VEC) {
      int64_t n = cols - c < ZR_VEC ? cols - c : ZR_VEC;
      vf row[ZR_VEC];
#pragma GCC unroll 16
      for (int i = 0; i < ZR_VEC; i++)
        row[i] = i < n ? v_load(src + (c + i) * TILE + r0) * by : v_set(0);
      v_transpose(row);
#pragma GCC unroll 16
      for (int i = 0; i < ZR_VEC; i++)
        if (r0 + i < n_rows) e_store_n(dst + (r0 + i) * ldd + c, row[i], n);
    }
  }
}

static inline bool is_masked(const zr_cpu_mask_t *mask, int64_t key, int64_t query) {
  return mask->first != NULL || (mask->diagonal && key > query);
}

/* -inf where a query (lane) does not see the key. */
static inline vf masked(const zr_cpu_mask_t *mask, int64_t key, int64_t query, vf x) {
  const vf hidden = v_set(-INFINITY);
  if (mask->diagonal) x = v_select(v_lane_index() >= (int32_t)(key - query), x, hidden);
  if (mask->first != NULL) {
    vi first;
    memcpy(&first, mask->first + query, sizeof first);
    x = v_select(first <= mask->key + (int32_t)key, x, hidden);
  }
  return x;
}

static inline void tile_softmax(int64_t n_keys, int first, const zr_cpu_mask_t *mask, float *s,
                                float *max, float *sum, float *factor) {
  for (int64_t q = 0; q < TILE; q += ZR_VEC) {
    const vf lowest = v_set(-INFINITY);
    vf old = first ? lowest : v_load(max + q), top = old;
    for (int64_t k = 0; k < n_keys; k++) {
      vf x = v_load(s + k * TILE + q);
      if (is_masked(mask, k, q)) {
        x = masked(mask, k, q, x);
        v_store(s + k * TILE + q, x);
      }
      top = v_max(x, top);
    }
    /* a query may see no key up to here: then all are e^-inf = 0, not NaN */
    vf base = mask->first == NULL ? top : v_select(top == lowest, v_set(0), top);
    vf total = v_set(0);
    for (int64_t k = 0; k < n_keys; k++) {
      vf p = v_exp(v_load(s + k * TILE + q) - base);
      v_store(s + k * TILE + q, p);
      total += p;
    }
    vf rescale = first ? v_set(0) : v_exp(old - base);
    v_store(sum + q, first ? total : v_fma(v_load(sum + q), rescale, total));
    v_store(factor + q, rescale);
    v_store(max + q, top);
  }
}

static inline void tile_scale(int64_t n_rows, const float *factor, float *x) {
  for (int64_t r = 0; r < n_rows; r++)
    for (int64_t q = 0; q < TILE; q += ZR_VEC)
      v_store(x + r * TILE + q, v_load(x + r * TILE + q) * v_load(factor + q));
}

static inline void tile_softmax_grad(int64_t n_keys, const zr_cpu_mask_t *mask, const float *lse,
                                     const float *delta, float scale, float *s, float *dp) {
  for (int64_t q = 0; q < TILE; q += ZR_VEC) {
    const vf l = v_load(lse + q), d = v_load(delta + q);
    for (int64_t k = 0; k < n_keys; k++) {
      vf x = v_load(s + k * TILE + q) - l;
      if (is_masked(mask, k, q)) x = masked(mask, k, q, x);
      vf p = v_exp(x);
      v_store(s + k * TILE + q, p);
      v_store(dp + k * TILE + q, p * (v_load(dp + k * TILE + q) - d) * scale);
    }
  }
}

static inline float row_dot(int64_t n, const void *x, const void *y) {
  const elem *a = x, *b = y;
  vf sum = v_set(0);
  int64_t i = 0;
  for (; i + ZR_VEC <= n; i += ZR_VEC) sum = v_fma(e_load(a + i), e_load(b + i), sum);
  if (i < n) sum = v_fma(e_load_n(a + i, n - i), e_load_n(b + i, n - i), sum);
  return v_sum(sum);
}

#endif
