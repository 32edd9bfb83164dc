/* The verifier: checks a finished plan before it runs. Shares no code with the placer and the wait
 * derivation.
 *
 * All conflicting accesses to the same bytes are ordered (vector clocks over stream order and
 * waits, steps unrolled); nothing is read before it was written, after its space was reused, or in
 * another version than the operand names; every operation's streams, tiers, accesses and sizes are
 * those of its row; offsets are aligned, inside the arena, and the arena inside the budget;
 * collectives are on one stream. Any thread. */
#ifndef ZR_PLAN_VERIFY_H
#define ZR_PLAN_VERIFY_H

#include "runtime/plan/plan.h"

typedef struct {
  int32_t op, other_op; /* the offending operations, -1: none */
  char text[ZR_DETAIL_BYTES];
} zr_violation_t;

/* ZR_OK, or ZR_ERR_VERIFY with the two operations named in the detail and in *out_violation (may be
 * NULL). budget 0: unlimited; budget_bytes may be NULL. */
zr_status_t zr_verify(const zr_plan_t *plan, const int64_t budget_bytes[ZR_N_TIERS],
                      zr_violation_t *out_violation) ZR_MUST_CHECK;

#endif
