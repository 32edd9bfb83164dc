/* An interpreter of plans with real, small memory, for judging the verifier: it knows no conflict
 * rules, it just runs. Each operation mixes all bytes it reads into all bytes it writes, so one
 * wrong byte anywhere changes the digest. Operations take time: what they read is read at their
 * begin or at their end, what they will write is garbage in between, and what they put into their
 * scratch must be there at the end. All ranks run, collectives meet. Sizes and offsets of operands
 * are multiples of 8. */
#ifndef ZR_TESTS_PLAN_VERIFY_RUN_H
#define ZR_TESTS_PLAN_VERIFY_RUN_H

#include "runtime/plan/plan.h"

typedef struct verify_run_t verify_run_t;

/* `memory` outlives runs of plans with the same buffers' sizes and arenas not larger than these. */
verify_run_t *verify_run_create(const zr_plan_t *plan);
void verify_run_destroy(verify_run_t *run);

/* Digest of every value computed in `n_steps` executions and of what the persistent buffers hold
 * then. An operation is known by its `micro`, so its place in the list may change. Serial: the
 * list's order. */
uint64_t verify_run_serial(verify_run_t *run, const zr_plan_t *plan, int n_steps, uint64_t seed);
/* Which stream of which rank goes on is chosen at random, in several manners, subject to the waits
 * alone. false: stuck. */
bool verify_run_random(verify_run_t *run, const zr_plan_t *plan, int n_steps, uint64_t seed,
                       uint64_t *out_digest);

#endif
