/* A program: a few plans over one persistent layout ("load", "step", "eval"). Persistent buffers
 * come first in every plan, the same ones with the same index, size and place; switching plans
 * drains the streams. */
#ifndef ZR_PLAN_PROGRAM_H
#define ZR_PLAN_PROGRAM_H

#include "runtime/plan/plan.h"

enum { ZR_PROGRAM_MAX_PLANS = 8 };

typedef struct {
  zr_alloc_t *alloc;
  int n_plans;
  zr_plan_t *plan[ZR_PROGRAM_MAX_PLANS]; /* owned */
  int32_t n_persistent;                  /* buffers 0 .. n_persistent - 1 of every plan */
} zr_program_t;

zr_status_t zr_program_create(zr_alloc_t *alloc, zr_program_t **out_program) ZR_MUST_CHECK;
void zr_program_destroy(zr_program_t *program);
/* Takes ownership (also on failure). Its persistent buffers must be those of the plans before it,
 * in the same order. */
zr_status_t zr_program_add(zr_program_t *program, zr_plan_t *plan) ZR_MUST_CHECK;
zr_plan_t *zr_program_find(const zr_program_t *program, const char *name); /* NULL if none */

typedef struct {
  int64_t budget_bytes[ZR_N_TIERS]; /* 0: unlimited */
  /* Phases by which a buffer's life is stretched past its last use on this stream and before its
   * first write there, so that reuse does not serialise what should overlap. Defaults
   * (zr_compile_defaults): comm, h2d, d2h 1; others 0. */
  int32_t lag_phases[ZR_N_STREAMS];
  bool keep_placement_waits; /* false: buffers whose reuse costs a wait are kept apart as long as
                                the budget allows; true: the least memory that the lags allow */
} zr_place_options_t;

void zr_place_defaults(zr_place_options_t *out_options);

/* finish -> place -> wait -> verify, for all plans. ZR_ERR_OUT_OF_MEMORY says how many bytes are
 * missing, in which tier, in which plan, and what the largest categories are. */
zr_status_t zr_program_compile(zr_program_t *program,
                               const zr_place_options_t *options) ZR_MUST_CHECK;

#endif
