/* Random plans: persistent and transient buffers, whole, in parts and by rank; elementwise kinds,
 * scratch, fetches and collectives; compiled by the real passes. */
#ifndef ZR_TESTS_PLAN_VERIFY_RANDOM_H
#define ZR_TESTS_PLAN_VERIFY_RANDOM_H

#include "runtime/plan/program.h"

typedef struct {
  int n_ops;       /* about */
  bool any_stream; /* operations on random streams, buffers in two tiers */
} verify_random_options_t;

typedef struct {
  uint64_t state;
} verify_rng_t;
uint64_t verify_draw(verify_rng_t *rng, uint64_t n); /* 0 .. n - 1 */

/* One program of one plan, not compiled. A function of seed and options. */
zr_program_t *verify_random_program(uint64_t seed, const verify_random_options_t *options);
/* Placement and waits: zr_program_compile, or its passes without the row's streams being asked
 * for. */
zr_status_t verify_random_compile(zr_program_t *program, uint64_t seed,
                                  const verify_random_options_t *options);

#endif
