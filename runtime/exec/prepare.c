/* From a plan's list to records that can be submitted and run without another look at the plan. */
#include "runtime/exec/state.h"

static bool is_kernel(int32_t kind) {
  switch (kind) {
    case ZR_OP_NOP:
    case ZR_OP_FETCH:
    case ZR_OP_ALL_GATHER:
    case ZR_OP_REDUCE_SCATTER:
    case ZR_OP_ALL_REDUCE:
    case ZR_OP_BROADCAST:
    case ZR_OP_BARRIER:
      return false;
    default:
      return !zr_kern_is_copy(kind);
  }
}

static void resolve_operands(const zr_exec_t *exec, const zr_plan_t *plan, const zr_op_t *op,
                             zr_exec_op_t *out) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    const zr_operand_t *operand = &op->operand[i];
    if (!(op->shape.present >> i & 1) || operand->buffer < 0) continue;
    const zr_buffer_t *buffer = &plan->buffer[operand->buffer];
    const int64_t begin = zr_plan_operand_begin(plan, operand, exec->rank);
    out->call.bytes[i] = operand->bytes;
    if (buffer->tier == ZR_TIER_DISK) out->disk_offset = begin;
    if (exec->arena[buffer->tier]) out->call.operand[i] = (char *)exec->arena[buffer->tier] + begin;
  }
}

static zr_status_t prepare_kernel(zr_exec_t *exec, const zr_plan_t *plan, zr_exec_op_t *op) {
  const zr_exec_options_t *o = &exec->options;
  if (exec->is_virtual || !is_kernel(op->kind)) return ZR_OK;
  const bool uses_pool = op->stream == ZR_STREAM_COMPUTE || op->stream == ZR_STREAM_HOST;
  op->call.pool = uses_pool ? o->pool : NULL;
  const zr_status_t status = o->kern_ops->prepare(
      o->kern, op->call.shape, zr_pool_n_workers(op->call.pool), &op->call.prepared);
  if (status == ZR_OK) return ZR_OK;
  char name[96], cause[ZR_DETAIL_BYTES];
  zr_plan_op_name(plan, op->op, name, sizeof name);
  snprintf(cause, sizeof cause, "%s", zr_detail());
  return zr_fail(status, "rank %d: %s: %s", exec->rank, name, cause);
}

static void fill_waits(const zr_plan_t *plan, const zr_op_t *op, zr_exec_op_t *out) {
  for (int w = 0; w < op->n_waits; w++) {
    const zr_op_t *other = &plan->op[op->wait[w].op];
    if (other->stream == op->stream) continue; /* a stream's own order is enough */
    out->wait[out->n_waits].stream = other->stream;
    out->wait[out->n_waits].back = op->wait[w].back;
    out->wait[out->n_waits].stream_index = other->stream_index;
    out->n_waits++;
  }
}

static zr_status_t prepare_op(zr_exec_t *exec, int plan_index, int32_t index) {
  const zr_exec_options_t *o = &exec->options;
  zr_exec_plan_t *p = &exec->plan[plan_index];
  const zr_op_t *op = &p->plan->op[index];
  zr_exec_op_t *out = &p->op[index];
  out->exec = exec;
  out->plan = plan_index;
  out->op = index;
  out->kind = op->shape.kind;
  out->stream = op->stream;
  out->stream_index = op->stream_index;
  if (o->duration_ns[plan_index]) out->duration_ns = o->duration_ns[plan_index][index];
  out->call.shape = &op->shape;
  p->stream_op[op->stream][op->stream_index] = index;
  fill_waits(p->plan, op, out);
  resolve_operands(exec, p->plan, op, out);
  if (out->kind == ZR_OP_CONTROL_END && op->operand[0].buffer == o->control_buffer[plan_index]) {
    p->control_end = index;
  }
  if (out->kind == ZR_OP_FETCH && !o->fetch && !exec->is_virtual) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "plan '%s' fetches tokens, but there is no source",
                   p->plan->name);
  }
  return prepare_kernel(exec, p->plan, out);
}

zr_status_t zr_exec_plan_prepare(zr_exec_t *exec, int plan) {
  zr_exec_plan_t *p = &exec->plan[plan];
  p->plan = exec->options.program->plan[plan];
  p->control_end = -1;
  ZR_TRY(zr_alloc_get(exec->alloc, p->plan->n_ops, sizeof *p->op, &p->op));
  ZR_TRY(zr_alloc_get(exec->alloc, p->plan->n_ops, sizeof *p->least_ns, &p->least_ns));
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    ZR_TRY(zr_alloc_get(exec->alloc, (size_t)p->plan->stream_ops[s], sizeof *p->stream_op[s],
                        &p->stream_op[s]));
  }
  for (size_t i = 0; i < p->plan->n_ops; i++) ZR_TRY(prepare_op(exec, plan, (int32_t)i));
  return ZR_OK;
}

void zr_exec_plan_release(zr_exec_t *exec, int plan) {
  zr_exec_plan_t *p = &exec->plan[plan];
  for (int s = 0; s < ZR_N_STREAMS; s++) zr_alloc_free(exec->alloc, p->stream_op[s]);
  zr_alloc_free(exec->alloc, p->least_ns);
  zr_alloc_free(exec->alloc, p->op);
}
