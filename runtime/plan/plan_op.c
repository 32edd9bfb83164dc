/* Appending an operation: everything that can be checked against its row is checked here. */
#include <string.h>

#include "runtime/plan/plan_internal.h"

static zr_status_t refuse(const zr_plan_t *plan, const zr_op_t *op, int i, const char *why) {
  char name[2 * ZR_PLAN_NAME_BYTES];
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  const char *operand = i < row->n_operands ? row->operand[i].name : "?";
  int32_t buffer = op->operand[i].buffer;
  bool known = buffer >= 0 && (size_t)buffer < plan->n_buffers;
  zr_op_name_format(plan, op, name, sizeof name);
  return zr_fail(ZR_ERR_INTERNAL, "plan %s: operation %zu (%s), operand %s (%s): %s", plan->name,
                 plan->n_ops, name, operand, known ? plan->buffer[buffer].name : "none", why);
}

static bool access_allowed(const zr_op_operand_row_t *row, uint8_t access) {
  return access == row->access || (row->may_accumulate && access == ZR_ACCUMULATE);
}

/* The operand lies in its buffer on every rank: the extremes are the first and the last. */
static bool range_inside(const zr_plan_t *plan, const zr_operand_t *operand) {
  int64_t size = plan->buffer[operand->buffer].bytes, last = 0;
  if (operand->bytes <= 0 || operand->offset < 0 || operand->bytes > size) return false;
  if (__builtin_mul_overflow(operand->rank_stride, plan->n_ranks - 1, &last)) return false;
  if (__builtin_add_overflow(last, operand->offset, &last)) return false;
  return operand->offset <= size - operand->bytes && last >= 0 && last <= size - operand->bytes;
}

static zr_status_t add_operand(const zr_plan_t *plan, zr_op_t *op, int i) {
  const zr_op_operand_row_t *row = &zr_op_row(op->shape.kind)->operand[i];
  zr_operand_t *operand = &op->operand[i];
  if (operand->buffer < 0) {
    *operand = zr_operand_none();
    return row->optional ? ZR_OK : refuse(plan, op, i, "it is missing");
  }
  if ((size_t)operand->buffer >= plan->n_buffers)
    return refuse(plan, op, i, "there is no such buffer");
  if (!access_allowed(row, operand->access))
    return refuse(plan, op, i, "the kind does not allow this access");
  if (!range_inside(plan, operand)) return refuse(plan, op, i, "it is not inside its buffer");
  operand->version = 0;
  op->shape.present |= (uint8_t)(1u << i);
  uint8_t dtype = plan->buffer[operand->buffer].dtype;
  if (dtype != ZR_U8 && operand->dtype != ZR_U8)
    return refuse(plan, op, i, "only a part of a buffer of bytes has a type of its own");
  op->shape.dtype[i] = operand->dtype != ZR_U8 ? operand->dtype : dtype;
  if (row->may_accumulate && operand->access == ZR_ACCUMULATE) op->shape.accumulate |= 1u << i;
  return ZR_OK;
}

static zr_status_t check_sizes(const zr_plan_t *plan, const zr_op_t *op) {
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  int64_t need[ZR_MAX_OPERANDS] = {0};
  row->operand_bytes(&op->shape, need);
  if (op->shape.kind == ZR_OP_ALL_GATHER)
    need[1] = op->shape.attr[ZR_COMM_SHARD_BYTES] * plan->n_ranks;
  if (op->shape.kind == ZR_OP_REDUCE_SCATTER)
    need[0] = op->shape.attr[ZR_COMM_SHARD_BYTES] * plan->n_ranks;
  for (int i = 0; i < row->n_operands; i++) {
    if (op->operand[i].buffer < 0 || need[i] < 0 || op->operand[i].bytes == need[i]) continue;
    char why[96];
    snprintf(why, sizeof why, "it has %lld bytes, the shape needs %lld",
             (long long)op->operand[i].bytes, (long long)need[i]);
    return refuse(plan, op, i, why);
  }
  return ZR_OK;
}

zr_status_t zr_plan_add_op(zr_plan_t *plan, const zr_op_desc_t *desc, int32_t *out_op) {
  const zr_op_row_t *row = zr_op_row(desc->kind);
  if (row == NULL)
    return zr_fail(ZR_ERR_INTERNAL, "plan %s: operation %zu: unknown kind %d", plan->name,
                   plan->n_ops, desc->kind);
  if (plan->finished || plan->n_ops >= INT32_MAX / 2 || desc->n_operands < 0 ||
      desc->n_operands > row->n_operands || desc->unit < -1 ||
      (desc->unit >= 0 && (size_t)desc->unit >= plan->n_units))
    return zr_fail(ZR_ERR_INTERNAL, "plan %s: operation %zu (%s): %d operands, unit %d%s",
                   plan->name, plan->n_ops, row->name, desc->n_operands, desc->unit,
                   plan->finished ? ", and the plan is finished" : "");
  uint8_t stream = desc->on > 0 ? (uint8_t)(desc->on - 1) : row->stream;
  if (stream >= ZR_N_STREAMS || (stream != row->stream && (row->also >> stream & 1) == 0))
    return zr_fail(ZR_ERR_INTERNAL, "plan %s: operation %zu (%s) does not run on stream %d",
                   plan->name, plan->n_ops, row->name, stream);
  zr_op_t op = {.stream = stream,
                .unit = desc->unit,
                .micro = desc->micro,
                .phase = desc->phase,
                .stream_index = -1};
  op.shape.kind = desc->kind;
  for (int i = 0; i < row->n_attrs; i++) op.shape.attr[i] = desc->attr[i];
  if (row->has_real) op.shape.real = desc->real;
  for (int i = 0; i < ZR_MAX_OPERANDS; i++)
    op.operand[i] = i < desc->n_operands ? desc->operand[i] : zr_operand_none();
  for (int i = 0; i < row->n_operands; i++) ZR_TRY(add_operand(plan, &op, i));
  ZR_TRY(check_sizes(plan, &op));
  ZR_TRY(
      zr_alloc_grow(plan->alloc, &plan->op, &plan->op_capacity, plan->n_ops + 1, sizeof *plan->op));
  plan->op[plan->n_ops] = op;
  if (out_op != NULL) *out_op = (int32_t)plan->n_ops;
  plan->n_ops++;
  return ZR_OK;
}

void zr_plan_move_op(zr_plan_t *plan, int32_t from, int32_t to) {
  if (plan->finished || from <= to || to < 0 || (size_t)from >= plan->n_ops) return;
  zr_op_t moved = plan->op[from];
  memmove(&plan->op[to + 1], &plan->op[to], (size_t)(from - to) * sizeof moved);
  plan->op[to] = moved;
}
