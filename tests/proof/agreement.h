/* A second lower bound of a step's time, of no list or schedule: between two agreements on the norm
 * (control_update) a stream has its work, which can not begin before the first of it has its values
 * (heads) nor end later than what the agreement still needs after it (tails). For any set of a
 * stream's operations:
 *
 *   control_update ──head──> [ work of the set ] ──tail──> control_update
 *
 * least head + work + least tail is a bound. zr_cost_bound's knows chains and busy streams, each by
 * itself; this one knows that all of the backward stands before the agreement. Follows values only.
 */
#ifndef ZR_TESTS_PROOF_AGREEMENT_H
#define ZR_TESTS_PROOF_AGREEMENT_H

#include "runtime/plan/plan.h"

int64_t agreement_bound_ns(const zr_plan_t *plan, const int64_t *duration_ns);

#endif
