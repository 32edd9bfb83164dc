/* Wait derivation: the fewest waits between streams that order every pair of conflicting accesses
 * to the same bytes, on two unrolled steps. Two steps suffice since every offset is the same in
 * each step. */
#ifndef ZR_PLAN_WAIT_H
#define ZR_PLAN_WAIT_H

#include "runtime/plan/place.h"

/* Fills wait, n_waits of each operation and the plan's counts. Conservative over ranks: an operand
 * with a rank stride counts as the union of its places on all ranks. For each placement-only wait,
 * the pair of buffers that caused it is appended to *out_pairs (may be NULL). */
typedef struct {
  zr_apart_t *pair;
  size_t n_pairs, capacity;
} zr_apart_list_t;
zr_status_t zr_wait_derive(zr_plan_t *plan, zr_apart_list_t *out_pairs) ZR_MUST_CHECK;

#endif
