/* Small plans, by hand and at random. Everything is fp32 on the device tier unless said. */
#ifndef ZR_TESTS_PLAN_MAKE_H
#define ZR_TESTS_PLAN_MAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>

#include "runtime/plan/place.h"
#include "runtime/plan/program.h"

#define assert_ok(expr) assert_int_equal((expr), ZR_OK)

int32_t make_buffer(zr_plan_t *plan, const char *name, int64_t elems, bool persistent);
/* Any kind with one attribute `elems`; all operands whole buffers of that many elements, accesses
 * from the row; negative: absent. */
int32_t make_op(zr_plan_t *plan, int32_t kind, zr_stream_id_t stream, int32_t phase, int64_t elems,
                int n_operands, ...);
int32_t make_fill(zr_plan_t *plan, zr_stream_id_t stream, int32_t phase, int32_t dst);
int32_t make_accumulate(zr_plan_t *plan, zr_stream_id_t stream, int32_t phase, int32_t src,
                        int32_t dst);

/* In-place all_gather of a unit's flat, a use of it, and so on: the forward of `n_units` units. */
zr_plan_t *make_gathers(zr_alloc_t *alloc, int n_ranks, int n_units, int64_t shard_elems);
/* Random buffers and operations on random streams, all legal as a list. */
zr_plan_t *make_random(uint64_t seed, int max_ops, int max_buffers);
/* A step of n_layers x n_micro micro-batches, stage-3-like; about 30 operations each. */
zr_status_t make_step(zr_alloc_t *alloc, int n_layers, int n_micro, zr_plan_t **out_plan);

/* Places and derives one plan alone. */
void place_alone(zr_plan_t *plan, const zr_place_options_t *options, const zr_apart_t *apart,
                 size_t n_apart);

#endif
