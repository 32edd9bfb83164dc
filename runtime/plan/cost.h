/* Accounting and bounds: what a plan holds, moves and computes, and how long a step takes at least.
 * Exact but for time. */
#ifndef ZR_PLAN_COST_H
#define ZR_PLAN_COST_H

#include "runtime/plan/plan.h"

typedef struct {
  int64_t category_bytes[ZR_N_TIERS][ZR_N_CATEGORIES]; /* sum of buffers' bytes (not of places) */
  int64_t persistent_bytes[ZR_N_TIERS][ZR_N_CATEGORIES];
  int64_t sent_bytes; /* by each rank in one execution: the payload of its collectives, (N-1) per
                         shard ... */
  int64_t flops;
  int64_t touched_bytes; /* operand bytes read and written by compute operations */
} zr_account_t;

void zr_cost_account(const zr_plan_t *plan, zr_account_t *out_account);
/* Payload bytes one rank hands to the library for one operation; the formula of runtime/comm. */
int64_t zr_cost_sent_bytes(const zr_plan_t *plan, const zr_op_t *op);

/* Time of each operation, filled by the caller (a machine profile later, fixed numbers in tests).
 */
typedef struct {
  int64_t busy_ns;  /* of the busiest stream in one step */
  int64_t chain_ns; /* growth per step of the longest chain of true dependencies (values, not space)
                       over unrolled steps */
  int64_t serial_ns; /* all operations one after the other */
  int64_t
      bound_ns; /* max(busy, chain): no schedule of this list's values is faster in the long run */
  uint8_t busiest; /* stream */
} zr_bound_t;

/* duration_ns[n_ops]. Follows buffer versions only: knows nothing of waits, offsets or the
 * verifier. */
zr_status_t zr_cost_bound(const zr_plan_t *plan, const int64_t *duration_ns,
                          zr_bound_t *out_bound) ZR_MUST_CHECK;

#endif
