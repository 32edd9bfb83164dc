/* Block norm, AdamW and digests: the same bits in every instruction set, and in kernels/ref. The
 * orders are those of kernels/block_norm.h and kernels/adamw.h. */
#ifndef ZR_KERNELS_CPU_ROWS_UPDATE_INC_H
#define ZR_KERNELS_CPU_ROWS_UPDATE_INC_H

#include <stddef.h>

#include "kernels/block_norm.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/vec.h"
#include "runtime/base/digest.h"

enum {
  NORM_LANES = ZR_VEC / 2, /* doubles in a vector */
  NORM_VECTORS = ZR_BLOCK_NORM_LANES / NORM_LANES
};

/* A float's square is exact in double: fused or not, the sums are the same. */
static inline double update_block_norm(const void *elems) {
#if ZR_ELEM == 32
  const float *g = elems;
#else
  float g[ZR_BLOCK_ELEMS] __attribute__((aligned(64)));
  for (int i = 0; i < ZR_BLOCK_ELEMS; i += ZR_VEC) v_store(g + i, e_load((const elem *)elems + i));
#endif
  vd sum[NORM_VECTORS] = {0};
  for (int i = 0; i < ZR_BLOCK_ELEMS; i += ZR_BLOCK_NORM_LANES) {
#pragma GCC unroll 8
    for (int v = 0; v < NORM_VECTORS; v++) {
      vd x = v_load_double(g + i + v * NORM_LANES);
      sum[v] += x * x;
    }
  }
  double lane[ZR_BLOCK_NORM_LANES];
  memcpy(lane, sum, sizeof lane);
  for (int half = ZR_BLOCK_NORM_LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
}

static inline void adamw_vector(const zr_cpu_adamw_t *c, vf *p, vf g, vf *m, vf *v) {
  g *= c->clip_coef;
  if (c->use_l2) g = v_fma_exact(v_set(c->l2), *p, g);
  if (c->decays) *p *= c->decay_mul;
  *m = v_fma_exact(v_set(c->one_minus_beta1), g - *m, *m);
  *v = v_fma_exact(v_set(c->one_minus_beta2), g * g, c->beta2 * *v);
  vf d = v_sqrt(*v) * c->inv_sqrt_bias2 + c->eps;
  *p = v_fma_exact(v_set(-c->step_size), *m / d, *p);
}

/* What holds an element's fp32 master. */
typedef struct {
  elem *p;
#if ZR_ELEM == 16
  uint16_t *low;
#elif ZR_ELEM == 5
  float *low;
#endif
} master_t;

/* n lanes of masters from i on. */
static inline vf master_load(const master_t *a, int64_t i, int64_t n) {
#if ZR_ELEM == 16
  vs high = vs_load_n(a->p + i, n), low = vs_load_n(a->low + i, n);
  vi signed_low = (vi)(vs_widen(low) << 16) >> 16;
  return (vf)((vs_widen(high) << 16) + (vu)signed_low);
#elif ZR_ELEM == 5
  return v_load_n(a->low + i, n);
#else
  return e_load_n(a->p + i, n);
#endif
}

/* Stores n lanes; -1 in the lanes whose parameter, as it is read by kernels, is not finite. */
static inline vi master_store(const master_t *a, int64_t i, int64_t n, vf x) {
#if ZR_ELEM == 16
  vu bits = (vu)x;
  vi nan = (vi)((bits & 0x7fffffffu) > 0x7f800000u);
  vu high = (vu)((nan & (vi)(bits >> 16 | 0x40u)) | (~nan & (vi)((bits + 0x8000u) >> 16)));
  vs_store_n(a->p + i, vs_narrow(high), n);
  vs_store_n(a->low + i, vs_narrow((vu)((vi)bits & ~nan)), n);
  return (vi)((high & 0x7f80u) == 0x7f80u);
#elif ZR_ELEM == 5
  vs half = E_ROUND(x);
  v_store_n(a->low + i, x, n);
  vs_store_n(a->p + i, half, n);
  return (vi)((vs_widen(half) & 0x7c00u) == 0x7c00u);
#else
  e_store_n(a->p + i, x, n);
  return ((vi)x & 0x7f800000) == 0x7f800000;
#endif
}

static inline vf gradient_load(const void *g, zr_cpu_type_t type, int64_t i, int64_t n) {
  if (type == ZR_CPU_F32) return v_load_n((const float *)g + i, n);
  vs half = vs_load_n((const uint16_t *)g + i, n);
  return type == ZR_CPU_BF16 ? v_of_bf16(half) : v_of_f16(half);
}

/* Operands of a range. */
typedef struct {
  master_t p;
  const void *g;
  float *m, *v;
  float *master; /* a copy, or NULL */
} adamw_range_t;

/* n lanes from element i on; -1 in those whose parameter is not finite. */
__attribute__((always_inline)) static inline vi adamw_lanes(const zr_cpu_adamw_t *c,
                                                            const adamw_range_t *r,
                                                            const zr_cpu_type_t g_type, int64_t i,
                                                            int64_t n) {
  vf p = master_load(&r->p, i, n), g = gradient_load(r->g, g_type, i, n);
  vf m = v_load_n(r->m + i, n), v = v_load_n(r->v + i, n);
  adamw_vector(c, &p, g, &m, &v);
  v_store_n(r->m + i, m, n);
  v_store_n(r->v + i, v, n);
  if (r->master != NULL) v_store_n(r->master + i, p, n);
  return master_store(&r->p, i, n, p);
}

__attribute__((always_inline)) static inline int64_t adamw_range(const zr_cpu_adamw_t *c, int64_t n,
                                                                 const adamw_range_t *r,
                                                                 const zr_cpu_type_t g_type) {
  vi bad = {0};
  int64_t i = 0, n_bad = 0;
  for (; i + ZR_VEC <= n; i += ZR_VEC) bad += adamw_lanes(c, r, g_type, i, ZR_VEC);
  if (i < n) bad += adamw_lanes(c, r, g_type, i, n - i) & (v_lane_index() < (int32_t)(n - i));
  for (int l = 0; l < ZR_VEC; l++) n_bad -= bad[l];
  return n_bad;
}

static inline int64_t update_adamw(const zr_cpu_adamw_t *c, int64_t n, void *p, void *low,
                                   const void *g, zr_cpu_type_t g_type, float *m, float *v,
                                   float *master) {
#if ZR_ELEM == 32
  (void)low;
  adamw_range_t r = {{p}, g, m, v, master};
#else
  adamw_range_t r = {{p, low}, g, m, v, master};
#endif
  if (g_type == ZR_CPU_F32) return adamw_range(c, n, &r, ZR_CPU_F32);
  if (g_type == ZR_CPU_BF16) return adamw_range(c, n, &r, ZR_CPU_BF16);
  return adamw_range(c, n, &r, ZR_CPU_F16);
}

static inline vq mix_vector(vq x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/* Sum of zr_digest_element(key, first + i, x[i]). */
static inline uint64_t update_digest(int64_t n, uint64_t key, uint64_t first, const float *x) {
  typedef uint32_t half_bits __attribute__((vector_size(2 * ZR_VEC)));
  typedef uint32_t half_mem __attribute__((vector_size(2 * ZR_VEC), aligned(4), may_alias));
  enum { STEP = ZR_VEC / 2 };
  const uint64_t stride = 0x9e3779b97f4a7c15ull;
  vq counter, total = {0};
  for (int l = 0; l < STEP; l++) counter[l] = key + (first + (uint64_t)l) * stride;
  int64_t i = 0;
  for (; i + STEP <= n; i += STEP) {
    half_bits bits = (half_bits) * (const half_mem *)(x + i);
    total += mix_vector(mix_vector(counter) ^ __builtin_convertvector(bits, vq));
    counter += STEP * stride;
  }
  uint64_t sum = 0;
  for (int l = 0; l < STEP; l++) sum += total[l];
  for (; i < n; i++) sum += zr_digest_element(key, first + (uint64_t)i, x[i]);
  return sum;
}

#endif
