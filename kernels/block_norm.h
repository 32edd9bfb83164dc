/* The sum of squares of one block of 1,024 floats in double, in the one order every backend keeps.
 *
 * Lane l (of 16) sums the squares of elements l, l + 16, l + 32, ... in increasing order; then the
 * lanes are added in a fixed tree: l += l + 8, then 4, 2, 1. The square of a float is exact in
 * double (48 bits), so a fused multiply-add and a multiply followed by an add give the same bits:
 * AVX-512 (two registers of 8), AVX2 (four of 4) and this plain loop agree. A non-finite element
 * makes the result non-finite; finite ones can not overflow. Pure; any thread. */
#ifndef ZR_KERNELS_BLOCK_NORM_H
#define ZR_KERNELS_BLOCK_NORM_H

#include "kernels/kern.h"

enum { ZR_BLOCK_NORM_LANES = 16 };

static inline double zr_block_norm(const float block[ZR_BLOCK_ELEMS]) {
  double lane[ZR_BLOCK_NORM_LANES] = {0};
  for (int i = 0; i < ZR_BLOCK_ELEMS; i += ZR_BLOCK_NORM_LANES)
    for (int l = 0; l < ZR_BLOCK_NORM_LANES; l++)
      lane[l] += (double)block[i + l] * (double)block[i + l];
  for (int width = ZR_BLOCK_NORM_LANES / 2; width > 0; width /= 2)
    for (int l = 0; l < width; l++) lane[l] += lane[l + width];
  return lane[0];
}

#endif
