#include "runtime/base/rng.h"

#include <math.h>

static const uint64_t golden = 0x9e3779b97f4a7c15ull;

uint64_t zr_rng_u64(uint64_t key, uint64_t counter) {
  /* The key goes in twice: keys that differ by a multiple of the increment share no sequence. */
  uint64_t mixed = zr_mix64(key + golden);
  return zr_mix64(zr_mix64(mixed + counter * golden) + mixed);
}

double zr_rng_uniform(uint64_t key, uint64_t counter) {
  return ((double)(zr_rng_u64(key, counter) >> 12) + 0.5) * 0x1p-52;
}

double zr_rng_normal(uint64_t key, uint64_t counter) {
  double radius = sqrt(-2.0 * log(zr_rng_uniform(key, 2 * counter)));
  return radius * cos(2.0 * 3.14159265358979323846 * zr_rng_uniform(key, 2 * counter + 1));
}

uint64_t zr_rng_key(uint64_t seed, const char *name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const unsigned char *c = (const unsigned char *)name; *c; ++c) {
    hash = (hash ^ *c) * 0x100000001b3ull;
  }
  return zr_mix64(zr_mix64(hash + golden) + zr_mix64(seed + golden));
}

/* A balanced network over 2 x half_bits bits. */
static uint64_t feistel(uint64_t key, int half_bits, uint64_t x) {
  enum { ROUNDS = 8 };
  uint64_t mask = ((uint64_t)1 << half_bits) - 1;
  uint64_t left = x >> half_bits, right = x & mask;
  for (uint64_t round = 0; round < ROUNDS; ++round) {
    uint64_t next = left ^ (zr_rng_u64(key + round, right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

uint64_t zr_rng_permute(uint64_t key, uint64_t n, uint64_t i) {
  if (n <= 1) return 0;
  int half_bits = 1;
  while (half_bits < 32 && (n - 1) >> (2 * half_bits) != 0) ++half_bits;
  /* The network permutes at most 4 n values: walking a cycle until it is back below n takes less
   * than four steps on average and ends, because i itself is on the cycle. */
  do {
    i = feistel(key, half_bits, i);
  } while (i >= n);
  return i;
}
