/* The placer: an offset for every buffer, offline. Lifetimes are intervals of list positions on a
 * circle (a lag may reach over the step boundary), stretched by the lags of the streams that touch
 * the buffer. Persistent buffers are placed once for the program, below the transient ones. */
#ifndef ZR_PLAN_PLACE_H
#define ZR_PLAN_PLACE_H

#include "runtime/plan/program.h"

/* A pair of transient buffers of one plan that must not share bytes; a == b: with no other buffer.
 */
typedef struct {
  int32_t a, b;
} zr_apart_t;

/* Places all plans of a program; sets offset, arena_bytes, peak_bytes, lower_bound_bytes. `apart`
 * (of plan `plan_index`) may be NULL. */
zr_status_t zr_place_program(zr_program_t *program, const zr_place_options_t *options,
                             const zr_apart_t *const apart[ZR_PROGRAM_MAX_PLANS],
                             const size_t n_apart[ZR_PROGRAM_MAX_PLANS]) ZR_MUST_CHECK;

/* The place in the list where most bytes of `tier` are live, and the bytes by category there, each
 * buffer's rounded up to the alignment: their sum is lower_bound_bytes. Lags do not count. op -1:
 * an empty plan, or no memory for the answer. */
void zr_place_peak(const zr_plan_t *plan, zr_tier_t tier, int32_t *out_op,
                   int64_t out_bytes[ZR_N_CATEGORIES]);

#endif
