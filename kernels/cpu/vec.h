/* Vectors of ZR_VEC floats, for the row kernels: the same source is compiled for each instruction
 * set and element type. Only rows_*.c includes this; ZR_VEC is 4 (baseline), 8 (AVX2) or 16
 * (AVX-512); ZR_ELEM is the type `elem` of the operands in memory: 32 (fp32, if not defined), 16
 * (bf16) or 5 (fp16: its bits of exponent). e_load and e_store convert, and round to nearest even.
 *
 * Every operation works on each lane alone, so an element's bits do not depend on the lane, the
 * address or the cut. Memory need only be aligned to 4 bytes. */
#ifndef ZR_KERNELS_CPU_VEC_H
#define ZR_KERNELS_CPU_VEC_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/half.h"

#ifndef ZR_VEC
#define ZR_VEC 4
#endif
#ifndef ZR_ELEM
#define ZR_ELEM 32
#endif

typedef float vf __attribute__((vector_size(4 * ZR_VEC)));
typedef int32_t vi __attribute__((vector_size(4 * ZR_VEC)));
typedef uint32_t vu __attribute__((vector_size(4 * ZR_VEC)));
typedef float vf_mem __attribute__((vector_size(4 * ZR_VEC), aligned(4), may_alias));
typedef uint16_t vs __attribute__((vector_size(2 * ZR_VEC)));
typedef uint16_t vs_mem __attribute__((vector_size(2 * ZR_VEC), aligned(2), may_alias));
/* Half as many: what a vector of doubles is made of. */
typedef float vh __attribute__((vector_size(2 * ZR_VEC)));
typedef float vh_mem __attribute__((vector_size(2 * ZR_VEC), aligned(4), may_alias));
typedef double vd __attribute__((vector_size(4 * ZR_VEC)));
typedef uint64_t vq __attribute__((vector_size(4 * ZR_VEC)));

static inline vf v_load(const float *p) {
  return (vf) * (const vf_mem *)p;
}
static inline void v_store(float *p, vf x) {
  *(vf_mem *)p = (vf_mem)x;
}
static inline vf v_set(float x) {
  return x - (vf){0};
}
static inline vd v_load_double(const float *p) {
  return __builtin_convertvector((vh) * (const vh_mem *)p, vd);
}

/* The first n lanes, n <= ZR_VEC, from or to memory; the other lanes are +0 or not stored. */
static inline vf v_load_n(const float *p, int64_t n) {
  if (n == ZR_VEC) return v_load(p);
#if ZR_VEC == 16
  return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
  float lane[ZR_VEC] = {0};
  for (int64_t i = 0; i < n; i++) lane[i] = p[i];
  return v_load(lane);
#endif
}

static inline void v_store_n(float *p, vf x, int64_t n) {
#if ZR_VEC == 16
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
#else
  if (n == ZR_VEC) {
    v_store(p, x);
    return;
  }
  float lane[ZR_VEC];
  v_store(lane, x);
  for (int64_t i = 0; i < n; i++) p[i] = lane[i];
#endif
}

/* a b + c: fused where the instruction set can; v_fma_exact is fused in all of them. */
static inline vf v_fma(vf a, vf b, vf c) {
#if ZR_VEC == 16
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif ZR_VEC == 8
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

static inline vf v_fma_exact(vf a, vf b, vf c) {
#if ZR_VEC > 4
  return v_fma(a, b, c);
#else
  vf r;
  for (int i = 0; i < ZR_VEC; i++) r[i] = fmaf(a[i], b[i], c[i]);
  return r;
#endif
}

static inline vd vd_fma_exact(vd a, vd b, vd c) {
#if ZR_VEC == 16
  return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif ZR_VEC == 8
  return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
  vd r;
  for (int i = 0; i < ZR_VEC / 2; i++) r[i] = fma(a[i], b[i], c[i]);
  return r;
#endif
}

static inline vf v_sqrt(vf x) {
#if ZR_VEC == 16
  return (vf)_mm512_sqrt_ps((__m512)x);
#elif ZR_VEC == 8
  return (vf)_mm256_sqrt_ps((__m256)x);
#else
  return (vf)_mm_sqrt_ps((__m128)x);
#endif
}

/* Where an argument is NaN, the result is b. */
static inline vf v_max(vf a, vf b) {
#if ZR_VEC == 16
  return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif ZR_VEC == 8
  return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return (vf)_mm_max_ps((__m128)a, (__m128)b);
#endif
}

static inline vf v_min(vf a, vf b) {
#if ZR_VEC == 16
  return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif ZR_VEC == 8
  return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return (vf)_mm_min_ps((__m128)a, (__m128)b);
#endif
}

/* mask: 0 or -1 in each lane. */
static inline vf v_select(vi mask, vf yes, vf no) {
  return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

static inline vi v_lane_index(void) {
  vi index;
  for (int i = 0; i < ZR_VEC; i++) index[i] = i;
  return index;
}

/* x in the first n lanes, +0 in the others. */
static inline vf v_first(vf x, int64_t n) {
  return (vf)((vi)x & (v_lane_index() < (int32_t)n));
}

/* Sums of the lanes, halves onto halves. */
static inline float v_sum(vf x) {
  float lane[ZR_VEC];
  v_store(lane, x);
  for (int half = ZR_VEC / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  }
  return lane[0];
}

static inline double vd_sum(vd x) {
  double lane[ZR_VEC / 2];
  memcpy(lane, &x, sizeof lane);
  for (int half = ZR_VEC / 4; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  }
  return lane[0];
}

static inline float v_max_lane(vf x) {
  float lane[ZR_VEC];
  v_store(lane, x);
  for (int i = 1; i < ZR_VEC; i++) lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
  return lane[0];
}

/* The sum of a vector's lanes in double, as two vectors of doubles added. */
static inline vd v_add_double(vd sum, vf x) {
#if ZR_VEC == 16
  __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
  __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
  return sum + ((vd)low + (vd)high);
#elif ZR_VEC == 8
  __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x));
  __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
  return sum + ((vd)low + (vd)high);
#else
  float lane[ZR_VEC];
  v_store(lane, x);
  return sum + (v_load_double(lane) + v_load_double(lane + ZR_VEC / 2));
#endif
}

/* e^x to about 1 ulp; 0 below -86.9 (a subnormal result can cost hundreds of cycles), infinite
 * above 88.72, NaN of NaN. Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], times 2^(n - 1), times 2: n
 * may be 128. */
static inline vf v_exp(vf x) {
  const vf magic = v_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
  const vf lowest = v_set(-86.9f);
  vi zero = x < lowest;
  x = v_min(v_set(89.0f), v_max(lowest, x));
  vf shifted = v_fma(x, v_set(1.44269504088896341f), magic);
  vf n = shifted - magic;
  vf r = v_fma(n, v_set(-0.693359375f), x);
  r = v_fma(n, v_set(2.12194440e-4f), r);
  vf p = v_fma(v_set(1.9875691500e-4f), r, v_set(1.3981999507e-3f));
  p = v_fma(p, r, v_set(8.3334519073e-3f));
  p = v_fma(p, r, v_set(4.1665795894e-2f));
  p = v_fma(p, r, v_set(1.6666665459e-1f));
  p = v_fma(p, r, v_set(5.0000001201e-1f));
  vf y = v_fma(p, r * r, r) + 1.0f;
  vi exponent = (vi)shifted - (vi)magic + 126; /* of 2^(n - 1) */
  y = y * (vf)((vu)exponent << 23) * 2.0f;
  return (vf)((vi)y & ~zero);
}

/* 1 / (1 + e^-x) */
static inline vf v_sigmoid(vf x) {
  return 1.0f / (1.0f + v_exp(-x));
}

/* sigmoid(x) and 1 - sigmoid(x), the small one of them accurate too. */
typedef struct {
  vf s, rest;
} v_sigmoids_t;

static inline v_sigmoids_t v_sigmoids(vf x) {
  vi negative = (vi)x >> 31;
  vf small = v_exp((vf)((vi)x | INT32_MIN)); /* e^-|x| */
  vf large = 1.0f / (1.0f + small);
  small *= large;
  return (v_sigmoids_t){v_select(negative, small, large), v_select(negative, large, small)};
}

/* --- elements of 16 bits ------------------------------------------------------------------------
 */

/* The first n lanes from or to memory, n <= ZR_VEC; the others are 0 or not stored. */
static inline vs vs_load_n(const uint16_t *p, int64_t n) {
  if (n == ZR_VEC) return (vs) * (const vs_mem *)p;
#if ZR_VEC == 16
  return (vs)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
#else
  vs x = {0};
  for (int64_t i = 0; i < n; i++) x[i] = p[i];
  return x;
#endif
}

static inline void vs_store_n(uint16_t *p, vs x, int64_t n) {
#if ZR_VEC == 16
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), (__m256i)x);
#else
  if (n == ZR_VEC) {
    *(vs_mem *)p = (vs_mem)x;
    return;
  }
  for (int64_t i = 0; i < n; i++) p[i] = x[i];
#endif
}

static inline vs vs_narrow(vu x) {
#if ZR_VEC == 16
  return (vs)_mm512_cvtepi32_epi16((__m512i)x);
#else
  return __builtin_convertvector(x, vs);
#endif
}

static inline vu vs_widen(vs x) {
#if ZR_VEC == 16
  return (vu)_mm512_cvtepu16_epi32((__m256i)x);
#elif ZR_VEC == 8
  return (vu)_mm256_cvtepu16_epi32((__m128i)x);
#else
  return __builtin_convertvector(x, vu);
#endif
}

static inline vf v_of_bf16(vs x) {
  return (vf)(vs_widen(x) << 16);
}

/* Not the processor's own conversion: that one takes subnormal numbers for zero. */
static inline vs v_to_bf16(vf x) {
  vu bits = (vu)x, high = bits >> 16;
  vu rounded = (bits + 0x7fffu + (high & 1u)) >> 16;
#if ZR_VEC == 16
  __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
  return vs_narrow(
      (vu)_mm512_mask_or_epi32((__m512i)rounded, nan, (__m512i)high, _mm512_set1_epi32(0x40)));
#else
  vi nan = x != x;
  return vs_narrow((vu)(((vi)(high | 0x40u) & nan) | ((vi)rounded & ~nan)));
#endif
}

static inline vf v_of_f16(vs x) {
#if ZR_VEC == 16
  return (vf)_mm512_cvtph_ps((__m256i)x);
#elif ZR_VEC == 8
  return (vf)_mm256_cvtph_ps((__m128i)x);
#else
  vf r;
  for (int i = 0; i < ZR_VEC; i++) r[i] = zr_f16_to_f32(x[i]);
  return r;
#endif
}

static inline vs v_to_f16(vf x) {
#if ZR_VEC == 16
  return (vs)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif ZR_VEC == 8
  return (vs)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
  vs r;
  for (int i = 0; i < ZR_VEC; i++) r[i] = zr_f16_from_f32(x[i]);
  return r;
#endif
}

#if ZR_ELEM == 32
typedef float elem;
static inline vf e_load(const elem *p) {
  return v_load(p);
}
static inline vf e_load_n(const elem *p, int64_t n) {
  return v_load_n(p, n);
}
static inline void e_store(elem *p, vf x) {
  v_store(p, x);
}
static inline void e_store_n(elem *p, vf x, int64_t n) {
  v_store_n(p, x, n);
}
#else
typedef uint16_t elem;
#if ZR_ELEM == 16
#define E_WIDEN v_of_bf16
#define E_ROUND v_to_bf16
#else
#define E_WIDEN v_of_f16
#define E_ROUND v_to_f16
#endif
static inline vf e_load(const elem *p) {
  return E_WIDEN((vs) * (const vs_mem *)p);
}
static inline vf e_load_n(const elem *p, int64_t n) {
  return E_WIDEN(vs_load_n(p, n));
}
static inline void e_store(elem *p, vf x) {
  *(vs_mem *)p = (vs_mem)E_ROUND(x);
}
static inline void e_store_n(elem *p, vf x, int64_t n) {
  vs_store_n(p, E_ROUND(x), n);
}
#endif

/* x as elements hold it. */
static inline vf e_rounded(vf x) {
#if ZR_ELEM == 32
  return x;
#else
  return E_WIDEN(E_ROUND(x));
#endif
}

/* row[i][j] becomes row[j][i]. Each step interleaves the first half of all elements with the
 * second, which turns the bits of an element's number by one place. */
static inline void v_transpose(vf row[ZR_VEC]) {
  vi low, high;
  for (int i = 0; i < ZR_VEC / 2; i++) {
    low[2 * i] = i;
    low[2 * i + 1] = ZR_VEC + i;
    high[2 * i] = ZR_VEC / 2 + i;
    high[2 * i + 1] = ZR_VEC + ZR_VEC / 2 + i;
  }
#pragma GCC unroll 4
  for (int step = 1; step < ZR_VEC; step *= 2) {
    vf next[ZR_VEC];
#pragma GCC unroll 8
    for (int i = 0; i < ZR_VEC / 2; i++) {
      next[2 * i] = __builtin_shuffle(row[i], row[i + ZR_VEC / 2], low);
      next[2 * i + 1] = __builtin_shuffle(row[i], row[i + ZR_VEC / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < ZR_VEC; i++) row[i] = next[i];
  }
}

#endif
