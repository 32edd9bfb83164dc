/* Block norm, AdamW and digests: the same bits in every instruction set, and in kernels/ref. The
 * orders are those of kernels/block_norm.h and kernels/adamw.h. */
#ifndef ZR_KERNELS_CPU_ROWS_UPDATE_INC_H
#define ZR_KERNELS_CPU_ROWS_UPDATE_INC_H

#include "kernels/block_norm.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/vec.h"
#include "runtime/base/digest.h"

enum {
  NORM_LANES = ZR_VEC / 2, /* doubles in a vector */
  NORM_VECTORS = ZR_BLOCK_NORM_LANES / NORM_LANES
};

/* A float's square is exact in double: fused or not, the sums are the same. */
static inline double update_block_norm(const float *g) {
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

/* One vector of elements. Returns 0 or -1 in each lane: -1 where the parameter is not finite. */
static inline vi adamw_vector(const zr_cpu_adamw_t *c, vf *p, vf g, vf *m, vf *v) {
  g *= c->clip_coef;
  if (c->use_l2) g = v_fma_exact(v_set(c->l2), *p, g);
  if (c->decays) *p *= c->decay_mul;
  *m = v_fma_exact(v_set(c->one_minus_beta1), g - *m, *m);
  *v = v_fma_exact(v_set(c->one_minus_beta2), g * g, c->beta2 * *v);
  vf d = v_sqrt(*v) * c->inv_sqrt_bias2 + c->eps;
  *p = v_fma_exact(v_set(-c->step_size), *m / d, *p);
  return ((vi)*p & 0x7f800000) == 0x7f800000;
}

static inline int64_t update_adamw(const zr_cpu_adamw_t *c, int64_t n, float *p, const float *g,
                                   float *m, float *v) {
  vi bad = {0};
  int64_t i = 0;
  for (; i + ZR_VEC <= n; i += ZR_VEC) {
    vf pv = v_load(p + i), mv = v_load(m + i), vv = v_load(v + i);
    bad += adamw_vector(c, &pv, v_load(g + i), &mv, &vv);
    v_store(p + i, pv);
    v_store(m + i, mv);
    v_store(v + i, vv);
  }
  if (i < n) {
    int64_t r = n - i;
    vf pv = v_load_n(p + i, r), mv = v_load_n(m + i, r), vv = v_load_n(v + i, r);
    bad += adamw_vector(c, &pv, v_load_n(g + i, r), &mv, &vv) & (v_lane_index() < (int32_t)r);
    v_store_n(p + i, pv, r);
    v_store_n(m + i, mv, r);
    v_store_n(v + i, vv, r);
  }
  int64_t n_bad = 0;
  for (int l = 0; l < ZR_VEC; l++) n_bad -= bad[l];
  return n_bad;
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
