/* Block norm and digests: the same bits in every instruction set, and in kernels/ref. The order is
 * that of kernels/block_norm.h. */
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
