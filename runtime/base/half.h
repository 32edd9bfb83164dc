/* The 16-bit floating-point types in software, exact and the same on every machine: bf16 (8 bits of
 * exponent) and fp16 (IEEE binary16). To 16 bits rounds to nearest, ties to even; a NaN stays a
 * NaN, made quiet, with its sign and the leading bits of its payload. Pure; any thread.
 *
 * The split master: an fp32 number as bf16 `high`, the parameter that kernels read, and 16 more
 * bits `low`, so that an fp32 master costs two bytes beside its parameter:
 *   bits(master) = (high << 16) + low      as integers, low signed
 *   high = (bits + 0x8000) >> 16           the nearest bf16, ties away from zero
 * This is exact for every finite master. One that rounds to infinity (above 3.3961775e38) still
 * joins back exactly, but its parameter is not finite: the optimizer counts it as a bad parameter.
 */
#ifndef ZR_BASE_HALF_H
#define ZR_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t zr_f32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float zr_f32_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float zr_bf16_to_f32(uint16_t half) {
  return zr_f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t zr_bf16_from_f32(float value) {
  uint32_t bits = zr_f32_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float zr_f16_to_f32(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) { /* infinity, or a NaN made quiet */
    uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0;
    return zr_f32_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | quiet);
  }
  if (magnitude >= 0x400u) return zr_f32_of_bits(sign | ((magnitude << 13) + 0x38000000u));
  float small = (float)magnitude * 0x1p-24f; /* exact: at most ten bits */
  return zr_f32_of_bits(sign | zr_f32_bits(small));
}

static inline uint16_t zr_f16_from_f32(float value) {
  uint32_t bits = zr_f32_bits(value), magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65,536 and more */
  if (magnitude >= 0x38800000u) { /* normal in fp16; a carry out of 65,504 gives infinity */
    uint32_t rebiased = magnitude - 0x38000000u;
    return (uint16_t)(sign | (rebiased + 0xfffu + (rebiased >> 13 & 1u)) >> 13);
  }
  if (magnitude <= 0x33000000u) return (uint16_t)sign; /* 2^-25 is a tie, zero is even */
  uint32_t shift = 126u - (magnitude >> 23);           /* 14 .. 24 */
  uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u);
  uint32_t tie = 1u << (shift - 1u);
  return (uint16_t)(sign | (kept + (rest > tie || (rest == tie && (kept & 1u)))));
}

static inline float zr_master_join(uint16_t high, int16_t low) {
  return zr_f32_of_bits(((uint32_t)high << 16) + (uint32_t)(int32_t)low);
}

/* A NaN is kept as a quiet NaN in `high`, with low = 0: no carry may make a number of it. */
static inline void zr_master_split(float master, uint16_t *out_high, int16_t *out_low) {
  uint32_t bits = zr_f32_bits(master);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    *out_high = (uint16_t)(bits >> 16 | 0x40u);
    *out_low = 0;
    return;
  }
  uint32_t high = (bits + 0x8000u) >> 16;
  int32_t low = (int32_t)(bits & 0xffffu);
  *out_high = (uint16_t)high;
  *out_low = (int16_t)(low >= 0x8000 ? low - 0x10000 : low);
}

#endif
