/* Steps: the order in which segments run, and each tape operation as a plan operation of its
 * micro-batch. */
#include <stddef.h>

#include "runtime/zero/build.h"

static void add_segment(zr_build_t *build, size_t unit, zr_segment_kind_t kind, int64_t begin,
                        int64_t end) {
  build->segment[build->n_segments++] = (zr_segment_t){
      .unit = (int32_t)unit, .kind = (int32_t)kind, .micro_begin = begin, .micro_end = end};
}

static void add_pass(zr_build_t *build, bool training, int64_t begin, int64_t end) {
  size_t n_units = build->zero->n_units, head = n_units - 1;
  for (size_t u = 0; u < head; u++) add_segment(build, u, ZR_SEGMENT_FORWARD, begin, end);
  add_segment(build, head, training ? ZR_SEGMENT_TURN : ZR_SEGMENT_FORWARD, begin, end);
  for (size_t u = head; training && u-- > 0;)
    add_segment(build, u, ZR_SEGMENT_BACKWARD, begin, end);
}

zr_status_t zr_steps_segments(zr_build_t *build, bool training) {
  build->training = training;
  if (training) ZR_TRY(zr_recompute_mark(build));
  size_t per_pass = 2 * build->zero->n_units;
  bool breadth = build->options->order == ZR_ORDER_BREADTH;
  size_t n_passes = breadth ? 1 : (size_t)build->n_micro;
  ZR_TRY(zr_alloc_get(build->zero->alloc, per_pass * n_passes, sizeof *build->segment,
                      &build->segment));
  if (breadth) add_pass(build, training, 0, build->n_micro);
  for (int64_t g = 0; !breadth && g < build->n_micro; g++) add_pass(build, training, g, g + 1);
  return ZR_OK;
}

/* The buffer of an activation or datum in one micro-batch, made when first asked for. */
static zr_status_t value_buffer(zr_build_t *build, int32_t id, int64_t micro, int32_t *out_buffer) {
  int32_t *slot = zr_build_value(build, id, micro);
  if (*slot < 0) {
    const zr_value_t *value = &build->tape->value[id];
    zr_category_t category =
        value->kind == ZR_VALUE_DATA ? ZR_CATEGORY_DATA : ZR_CATEGORY_ACTIVATION;
    int64_t bytes = value->elems * zr_dtype_bytes((zr_dtype_t)value->dtype);
    char name[sizeof value->name + 8];
    snprintf(name, sizeof name, "%s%s", value->name,
             build->replaying && build->again[id] ? ".again" : "");
    ZR_TRY(zr_build_buffer(build, value->unit, name, -1, micro, category, (zr_dtype_t)value->dtype,
                           bytes, slot));
  }
  *out_buffer = *slot;
  return ZR_OK;
}

/* A tensor's part of a flat of its unit. */
static zr_operand_t tensor_part(const zr_build_t *build, const zr_value_t *value, int32_t flat,
                                zr_access_t access) {
  int64_t item = value->kind == ZR_VALUE_PARAM ? build->param_bytes : build->grad_bytes;
  return zr_operand_part(flat, build->tensor_begin[value->tensor] * item, value->elems * item,
                         access);
}

static zr_status_t lower_operand(zr_build_t *build, const zr_tape_operand_t *from, int64_t micro,
                                 zr_operand_t *out_operand) {
  if (from->value < 0) {
    *out_operand = zr_operand_none();
    return ZR_OK;
  }
  const zr_value_t *value = &build->tape->value[from->value];
  zr_access_t access = (zr_access_t)from->access;
  int32_t unit = value->tensor >= 0 ? build->tape->tensor[value->tensor].unit : -1;
  if (value->kind == ZR_VALUE_PARAM) {
    *out_operand = tensor_part(build, value, build->gathered[unit], access);
  } else if (value->kind == ZR_VALUE_PARAM_GRAD) {
    const zr_grad_tree_t *tree = &build->tree[build->tree_of_value[from->value]];
    zr_tree_step_t step = zr_tree_peek(&tree->leaves);
    *out_operand = tensor_part(build, value, tree->flat[step.slot],
                               step.accumulate ? ZR_ACCUMULATE : ZR_WRITE);
  } else if (value->kind == ZR_VALUE_CONTROL) {
    *out_operand = zr_build_all(build, build->control, access);
  } else if (value->kind == ZR_VALUE_TABLE) {
    *out_operand = zr_build_all(build, build->rope, access);
  } else {
    int64_t item = zr_dtype_bytes((zr_dtype_t)value->dtype);
    int32_t buffer;
    ZR_TRY(value_buffer(build, from->value, micro, &buffer));
    *out_operand = zr_operand_part(buffer, from->offset * item, from->elems * item, access);
  }
  return ZR_OK;
}

static zr_status_t lower_op(zr_build_t *build, const zr_tape_op_t *op, int64_t micro) {
  zr_operand_t operand[ZR_MAX_OPERANDS];
  for (int i = 0; i < op->n_operands; i++)
    ZR_TRY(lower_operand(build, &op->operand[i], micro, &operand[i]));
  return zr_build_op(build, op->kind, op->unit, micro, op->attr, op->real, op->n_operands, operand);
}

int32_t zr_steps_count_unit(const zr_build_t *build) {
  int32_t n_units = (int32_t)build->zero->n_units;
  return n_units > 3 ? n_units - 3 : 0;
}

/* Begins the control block's step and agrees on the number of tokens: so late that the last step's
 * control_end is done, so early that the head's gather does not stand before it. */
static zr_status_t emit_counts(zr_build_t *build) {
  ZR_TRY(zr_steps_control(build, ZR_OP_CONTROL_BEGIN));
  for (int64_t g = 0; g < build->n_micro; g++) ZR_TRY(zr_steps_count(build, g));
  return zr_shard_all_reduce(build, offsetof(zr_control_t, count_local), 8);
}

/* A unit's activations once more, in buffers of their own, before its backward. */
static zr_status_t emit_replay(zr_build_t *build, const zr_segment_t *segment, int64_t micro) {
  if (segment->kind != ZR_SEGMENT_BACKWARD) return ZR_OK;
  zr_range_t ops = build->forward[segment->unit];
  for (size_t v = 0; v < build->tape->n_values; v++)
    if (build->again[v] && build->tape->value[v].unit == segment->unit)
      *zr_build_value(build, (int32_t)v, micro) = -1;
  build->replaying = true;
  for (int64_t i = ops.begin; i < ops.end; i++)
    if (build->replayed[i]) ZR_TRY(lower_op(build, &build->tape->op[i], micro));
  build->replaying = false;
  return ZR_OK;
}

static zr_status_t emit_segment(zr_build_t *build, size_t index) {
  const zr_segment_t *segment = &build->segment[index];
  build->phase++;
  bool first = segment->micro_begin == 0 && build->training;
  if (first && segment->kind == ZR_SEGMENT_TURN)
    ZR_TRY(zr_steps_control(build, ZR_OP_CONTROL_COUNT));
  if (first && segment->kind == ZR_SEGMENT_FORWARD && segment->unit == zr_steps_count_unit(build))
    ZR_TRY(emit_counts(build));
  ZR_TRY(zr_shard_gather(build, segment));
  for (int64_t g = segment->micro_begin; g < segment->micro_end; g++) {
    ZR_TRY(zr_boundary_before(build, index, g));
    ZR_TRY(zr_shard_begin_leaf(build, segment));
    ZR_TRY(emit_replay(build, segment, g));
    for (int part = 0; part < 2; part++) {
      zr_range_t ops = zr_build_ops(build, segment, part);
      for (int64_t i = ops.begin; i < ops.end; i++) ZR_TRY(lower_op(build, &build->tape->op[i], g));
    }
    ZR_TRY(zr_boundary_after(build, index, g));
    ZR_TRY(zr_shard_end_leaf(build, segment));
  }
  return ZR_OK;
}

zr_status_t zr_steps_emit(zr_build_t *build) {
  ZR_TRY(zr_boundary_init(build));
  for (size_t s = 0; s < build->n_segments; s++) ZR_TRY(emit_segment(build, s));
  return ZR_OK;
}

zr_status_t zr_steps_fetch(zr_build_t *build, int64_t micro) {
  int32_t tokens, targets, starts = build->tape->starts;
  ZR_TRY(value_buffer(build, build->tape->tokens, micro, &tokens));
  ZR_TRY(value_buffer(build, build->tape->targets, micro, &targets));
  if (starts >= 0) ZR_TRY(value_buffer(build, build->tape->starts, micro, &starts));
  int64_t rows = build->tape->value[build->tape->tokens].elems;
  zr_operand_t fetch[] = {zr_build_all(build, tokens, ZR_WRITE),
                          zr_build_all(build, targets, ZR_WRITE),
                          starts < 0 ? zr_operand_none() : zr_build_all(build, starts, ZR_WRITE)};
  const int64_t attr[] = {micro, rows};
  /* On h2d it would stand behind the parameters that the last step's updates return. */
  uint8_t on = zr_away_has(build) ? ZR_ON(ZR_STREAM_COMPUTE) : 0;
  return zr_build_op_on(build, on, ZR_OP_FETCH, -1, micro, attr, 0, 3, fetch);
}

zr_status_t zr_steps_count(zr_build_t *build, int64_t micro) {
  int32_t targets;
  ZR_TRY(value_buffer(build, build->tape->targets, micro, &targets));
  int64_t rows = build->tape->value[build->tape->targets].elems;
  zr_operand_t count[] = {zr_build_all(build, targets, ZR_READ),
                          zr_build_all(build, build->control, ZR_ACCUMULATE)};
  return zr_build_op(build, ZR_OP_COUNT, -1, micro, &rows, 0, 2, count);
}

zr_status_t zr_steps_control(zr_build_t *build, int32_t kind) {
  zr_operand_t control = zr_build_all(build, build->control, ZR_ACCUMULATE);
  return zr_build_op(build, kind, -1, -1, NULL, 0, 1, &control);
}
