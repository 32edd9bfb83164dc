/* Values that live away between two of their uses: what a unit leaves for the next one, and what
 * its forward leaves for its backward. A visit is one segment's work on one micro-batch; visits are
 * numbered along the list. A value whose next visit is further off than the loads reach ahead goes
 * to its home, once for each time it is written, and comes back `prefetch` visits before that one.
 *
 *   visit      3: B1> #0   4: B2> #0   5: B3> #0    ...   8: B2< #0
 *   x of B2    written     read, out                in     read again
 *
 * In `breadth` the boundaries of the micro-batches that wait are away too. */
#include <stdio.h>

#include "runtime/zero/build.h"

static bool is_on(const zr_build_t *build) {
  return build->options->home.activation != ZR_TIER_DEVICE && build->training;
}

static bool may_leave(const zr_build_t *build, int32_t value) {
  const zr_value_t *v = &build->tape->value[value];
  if (v->kind != ZR_VALUE_ACTIVATION && v->kind != ZR_VALUE_GRAD) return false;
  return !build->again[value];
}

static bool *touched(const zr_build_t *build, int32_t value, int32_t unit, int part) {
  return &build->touched[(value * (int64_t)build->zero->n_units + unit) * 2 + part];
}

static void mark(const zr_build_t *build, const zr_tape_op_t *op, int part) {
  for (int k = 0; k < op->n_operands; k++)
    if (op->operand[k].value >= 0) *touched(build, op->operand[k].value, op->unit, part) = true;
}

zr_status_t zr_boundary_init(zr_build_t *build) {
  if (!is_on(build)) return ZR_OK;
  const zr_tape_t *tape = build->tape;
  size_t n_values = tape->n_values;
  ZR_TRY(zr_alloc_get(build->zero->alloc, n_values * build->zero->n_units * 2, sizeof(bool),
                      &build->touched));
  ZR_TRY(zr_alloc_get(build->zero->alloc, n_values * (size_t)build->n_micro, sizeof *build->away,
                      &build->away));
  for (size_t i = 0; i < n_values * (size_t)build->n_micro; i++) build->away[i].buffer = -1;
  for (size_t i = 0; i < tape->n_ops; i++) {
    mark(build, &tape->op[i], i >= tape->n_forward);
    if (build->replayed[i]) mark(build, &tape->op[i], 1);
  }
  return ZR_OK;
}

void zr_boundary_fini(zr_build_t *build) {
  zr_alloc_free(build->zero->alloc, build->touched);
  zr_alloc_free(build->zero->alloc, build->away);
}

/* --- visits ---------------------------------------------------------------------------------- */

static bool is_breadth(const zr_build_t *build) {
  return build->options->order == ZR_ORDER_BREADTH;
}

static int64_t visit_of(const zr_build_t *build, size_t segment, int64_t micro) {
  return is_breadth(build) ? (int64_t)segment * build->n_micro + micro : (int64_t)segment;
}

/* Of a visit's number: false if there is none. */
static bool visit_at(const zr_build_t *build, int64_t visit, size_t *out_segment,
                     int64_t *out_micro) {
  int64_t per = is_breadth(build) ? build->n_micro : 1;
  if (visit >= (int64_t)build->n_segments * per) return false;
  *out_segment = (size_t)(visit / per);
  *out_micro = is_breadth(build) ? visit % per : build->segment[*out_segment].micro_begin;
  return true;
}

static bool touches(const zr_build_t *build, size_t segment, int32_t value) {
  const zr_segment_t *s = &build->segment[segment];
  return ((s->kind & ZR_SEGMENT_FORWARD) && *touched(build, value, s->unit, 0)) ||
         ((s->kind & ZR_SEGMENT_BACKWARD) && *touched(build, value, s->unit, 1));
}

/* The visit after this one, of the same micro-batch, that touches the value; -1: none. */
static int64_t next_visit(const zr_build_t *build, size_t segment, int64_t micro, int32_t value) {
  for (size_t s = segment + 1; s < build->n_segments; s++) {
    const zr_segment_t *later = &build->segment[s];
    if (micro < later->micro_begin || micro >= later->micro_end) continue;
    if (touches(build, s, value)) return visit_of(build, s, micro);
  }
  return -1;
}

static bool writes(const zr_build_t *build, size_t segment, int32_t value) {
  for (int part = 0; part < 2; part++) {
    zr_range_t ops = zr_build_ops(build, &build->segment[segment], part);
    for (int64_t i = ops.begin; i < ops.end; i++)
      for (int k = 0; k < build->tape->op[i].n_operands; k++) {
        const zr_tape_operand_t *operand = &build->tape->op[i].operand[k];
        if (operand->value == value && (operand->access & ZR_WRITE)) return true;
      }
  }
  return false;
}

/* --- out and in ------------------------------------------------------------------------------ */

static zr_away_value_t *away_of(const zr_build_t *build, int32_t value, int64_t micro) {
  return &build->away[micro * (int64_t)build->tape->n_values + value];
}

static zr_status_t take_out(zr_build_t *build, int32_t value, int64_t micro, int64_t visit) {
  zr_away_value_t *away = away_of(build, value, micro);
  const zr_value_t *v = &build->tape->value[value];
  int32_t *here = zr_build_value(build, value, micro);
  if (!away->valid) {
    char name[sizeof v->name + 8];
    snprintf(name, sizeof name, "%s.away", v->name);
    int64_t bytes = zr_pad_bytes(build->plan->buffer[*here].bytes);
    ZR_TRY(zr_build_buffer_in(build, (zr_tier_t)build->options->home.activation, v->unit, name,
                              visit, micro, ZR_CATEGORY_ACTIVATION, ZR_U8, bytes, &away->buffer));
    ZR_TRY(zr_move_out(build, v->unit, micro, *here, away->buffer));
    away->valid = true;
  }
  away->dropped = true;
  *here = -1;
  return ZR_OK;
}

static zr_status_t bring_in(zr_build_t *build, int32_t value, int64_t micro, int64_t visit) {
  zr_away_value_t *away = away_of(build, value, micro);
  const zr_value_t *v = &build->tape->value[value];
  int32_t *here = zr_build_value(build, value, micro);
  ZR_TRY(zr_build_buffer(build, v->unit, v->name, visit, micro, ZR_CATEGORY_ACTIVATION,
                         (zr_dtype_t)v->dtype, v->elems * zr_dtype_bytes((zr_dtype_t)v->dtype),
                         here));
  away->dropped = false;
  return zr_move_in(build, v->unit, micro, away->buffer, *here);
}

/* What the visit needs and does not have. */
static zr_status_t bring_for(zr_build_t *build, size_t segment, int64_t micro) {
  int64_t visit = visit_of(build, segment, micro);
  for (int32_t v = 0; v < (int32_t)build->tape->n_values; v++) {
    if (!away_of(build, v, micro)->dropped || !touches(build, segment, v)) continue;
    ZR_TRY(bring_in(build, v, micro, visit));
  }
  return ZR_OK;
}

zr_status_t zr_boundary_before(zr_build_t *build, size_t segment, int64_t micro) {
  if (!is_on(build)) return ZR_OK;
  int64_t visit = visit_of(build, segment, micro);
  for (int64_t ahead = 0; ahead <= build->options->prefetch; ahead++) {
    size_t s;
    int64_t m;
    if (visit_at(build, visit + ahead, &s, &m)) ZR_TRY(bring_for(build, s, m));
  }
  return ZR_OK;
}

zr_status_t zr_boundary_after(zr_build_t *build, size_t segment, int64_t micro) {
  if (!is_on(build)) return ZR_OK;
  int64_t visit = visit_of(build, segment, micro);
  for (int32_t v = 0; v < (int32_t)build->tape->n_values; v++) {
    if (!may_leave(build, v) || !touches(build, segment, v)) continue;
    if (*zr_build_value(build, v, micro) < 0) continue;
    if (writes(build, segment, v)) away_of(build, v, micro)->valid = false;
    int64_t next = next_visit(build, segment, micro, v);
    if (next < 0 || next - visit <= build->options->prefetch + 1) continue;
    ZR_TRY(take_out(build, v, micro, visit));
  }
  return ZR_OK;
}
