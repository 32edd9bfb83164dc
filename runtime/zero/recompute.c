/* Recompute: activations that are made again in the backward instead of being kept. Which
 * operations of a unit's forward are replayed is found once, on the tape; a replayed operation
 * writes buffers of its own, so that what the forward wrote dies with its last use there.
 *
 *   full       all that the unit's backward needs; only what other units made is kept
 *   attention  queries, keys, values and what attention makes of them, from the norm before them
 *
 * The same kernels on the same inputs give the same bits. Losses, counts and gradients are never
 * replayed: their units turn round, and have no forward of their own. */
#include <string.h>

#include "runtime/zero/build.h"

static bool is_block_norm(const zr_tape_op_t *op) {
  return op->kind == ZR_OP_RMSNORM || op->kind == ZR_OP_LAYERNORM;
}

/* An activation of the unit that is made by its forward. */
static bool is_made_in(const zr_build_t *build, int32_t value, int32_t unit) {
  const zr_value_t *v = &build->tape->value[value];
  return v->kind == ZR_VALUE_ACTIVATION && v->unit == unit;
}

static bool writes_marked(const zr_tape_op_t *op, const bool *marked) {
  for (int k = 0; k < op->n_operands; k++) {
    const zr_tape_operand_t *operand = &op->operand[k];
    if (operand->value >= 0 && (operand->access & ZR_WRITE) && marked[operand->value]) return true;
  }
  return false;
}

static void mark_inputs(const zr_build_t *build, const zr_tape_op_t *op, bool *marked) {
  for (int k = 0; k < op->n_operands; k++) {
    const zr_tape_operand_t *operand = &op->operand[k];
    if (operand->value >= 0 && (operand->access & ZR_READ) &&
        is_made_in(build, operand->value, op->unit))
      marked[operand->value] = true;
  }
}

static void mark_outputs(const zr_tape_op_t *op, bool *marked) {
  for (int k = 0; k < op->n_operands; k++)
    if (op->operand[k].value >= 0 && (op->operand[k].access & ZR_WRITE))
      marked[op->operand[k].value] = true;
}

/* From what the backward reads, against the order of the forward, to the unit's input. */
static void mark_full(zr_build_t *build, int32_t unit) {
  const zr_tape_op_t *op = build->tape->op;
  for (int64_t i = build->backward[unit].begin; i < build->backward[unit].end; i++)
    mark_inputs(build, &op[i], build->again);
  for (int64_t i = build->forward[unit].end; i-- > build->forward[unit].begin;) {
    if (!writes_marked(&op[i], build->again)) continue;
    build->replayed[i] = true;
    mark_inputs(build, &op[i], build->again);
    mark_outputs(&op[i], build->again);
  }
}

/* From attention back to the norm of its block. */
static void mark_attention(zr_build_t *build, int32_t unit) {
  const zr_tape_op_t *op = build->tape->op;
  for (int64_t i = build->forward[unit].end; i-- > build->forward[unit].begin;) {
    bool part = op[i].kind == ZR_OP_ATTENTION || writes_marked(&op[i], build->again);
    if (!part || is_block_norm(&op[i])) continue;
    build->replayed[i] = true;
    mark_inputs(build, &op[i], build->again);
    mark_outputs(&op[i], build->again);
  }
}

/* A value is made again only if an operation that makes it is replayed. */
static void unmark_kept(zr_build_t *build) {
  const zr_tape_t *tape = build->tape;
  memset(build->again, 0, tape->n_values * sizeof *build->again);
  for (size_t i = 0; i < tape->n_forward; i++)
    if (build->replayed[i]) mark_outputs(&tape->op[i], build->again);
}

zr_status_t zr_recompute_mark(zr_build_t *build) {
  const zr_zero_options_t *o = build->options;
  ZR_TRY(zr_alloc_get(build->zero->alloc, build->tape->n_values, sizeof(bool), &build->again));
  ZR_TRY(zr_alloc_get(build->zero->alloc, build->tape->n_ops, sizeof(bool), &build->replayed));
  if (o->recompute == ZR_RECOMPUTE_NONE) return ZR_OK;
  int32_t head = (int32_t)build->zero->n_units - 1;
  for (int32_t u = 1; u < head; u++) {
    if ((u - 1) % o->recompute_every != 0) continue;
    if (o->recompute == ZR_RECOMPUTE_FULL) {
      mark_full(build, u);
    } else {
      mark_attention(build, u);
    }
  }
  unmark_kept(build);
  return ZR_OK;
}
