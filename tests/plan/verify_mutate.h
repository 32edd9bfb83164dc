/* Mutations of a compiled plan, as a bug in the placer, in the wait derivation or in the compiler
 * would make them. Bookkeeping (positions in streams, counts) is kept right, so that only what the
 * mutation means is left to find. */
#ifndef ZR_TESTS_PLAN_VERIFY_MUTATE_H
#define ZR_TESTS_PLAN_VERIFY_MUTATE_H

#include "tests/plan/verify_random.h"

typedef enum {
  MUTATION_WAIT_DROPPED = 0,
  MUTATION_WAIT_EARLIER, /* for an earlier operation of the stream, or a step earlier */
  MUTATION_OFFSET_MOVED, /* of a buffer */
  MUTATION_OPS_SWAPPED,
  MUTATION_STREAM_CHANGED,
  MUTATION_LIFETIME_CUT, /* a buffer's space is given away before its last use */
  N_MUTATIONS
} verify_mutation_t;

const char *verify_mutation_name(int mutation);

zr_plan_t *verify_plan_copy(const zr_plan_t *plan);
void verify_plan_free(zr_plan_t *copy);
/* false: the plan has no place for this mutation, or nothing changed. */
bool verify_mutate(zr_plan_t *plan, int mutation, verify_rng_t *rng);

#endif
