/* Digests: a sum modulo 2^64 over logical elements of a mix of (tensor name, index, fp32 bits).
 * Independent of ranks, stage and homes; partial digests of disjoint elements are added. */
#ifndef ZR_BASE_DIGEST_H
#define ZR_BASE_DIGEST_H

#include <stdint.h>
#include <string.h>

#include "runtime/base/rng.h"

/* tensor_key = zr_rng_key(kind, tensor name), where kind is ZR_DIGEST_PARAM, ZR_DIGEST_EXP_AVG, ...
 */
enum { ZR_DIGEST_PARAM = 1, ZR_DIGEST_EXP_AVG = 2, ZR_DIGEST_EXP_AVG_SQ = 3 };

static inline uint64_t zr_digest_element(uint64_t tensor_key, uint64_t index, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return zr_mix64(zr_mix64(tensor_key + index * 0x9e3779b97f4a7c15ull) ^ bits);
}

#endif
