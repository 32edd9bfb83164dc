/* Counter-based random numbers: a value is a function of (key, counter) alone, so it is independent
 * of sharding, of threads and of recomputation. */
#ifndef ZR_BASE_RNG_H
#define ZR_BASE_RNG_H

#include <stdint.h>

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words. */
static inline uint64_t zr_mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t zr_rng_u64(uint64_t key, uint64_t counter);
double zr_rng_uniform(uint64_t key, uint64_t counter); /* in (0, 1) */
double zr_rng_normal(uint64_t key, uint64_t counter);  /* mean 0, deviation 1 (Box-Muller) */
uint64_t zr_rng_key(uint64_t seed,
                    const char *name); /* a key for one named thing: FNV-1a of the name, mixed */

/* The i-th image, 0 <= i < n, of a keyed pseudo-random permutation of 0..n-1 (Feistel network with
 * cycle walking): shuffling without a table. */
uint64_t zr_rng_permute(uint64_t key, uint64_t n, uint64_t i);

#endif
