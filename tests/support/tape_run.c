#include "tests/support/tape_run.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "tests/kernels/check.h"

static void *aligned(int64_t bytes) {
  void *memory = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
  assert_non_null(memory);
  memset(memory, 0xff, (size_t)bytes);
  return memory;
}

static zr_dtype_t value_dtype(const tape_run_t *run, int32_t value) {
  zr_dtype_t dtype = (zr_dtype_t)run->tape->value[value].dtype;
  return dtype == ZR_F32 ? run->real : dtype;
}

static int64_t value_bytes(const tape_run_t *run, int32_t value) {
  const zr_value_t *v = &run->tape->value[value];
  if (v->kind == ZR_VALUE_CONTROL) return (int64_t)sizeof(zr_control_t);
  return v->elems * zr_dtype_bytes(value_dtype(run, value));
}

double tape_run_get(const tape_run_t *run, int32_t value, int64_t i) {
  const void *data = run->value[value];
  switch (value_dtype(run, value)) {
    case ZR_F64:
      return ((const double *)data)[i];
    case ZR_BF16:
      return (double)zr_bf16_to_f32(((const uint16_t *)data)[i]);
    case ZR_F16:
      return (double)zr_f16_to_f32(((const uint16_t *)data)[i]);
    default:
      return (double)((const float *)data)[i];
  }
}

void tape_run_set(tape_run_t *run, int32_t value, int64_t i, double number) {
  void *data = run->value[value];
  switch (value_dtype(run, value)) {
    case ZR_F64:
      ((double *)data)[i] = number;
      break;
    case ZR_BF16:
      ((uint16_t *)data)[i] = zr_bf16_from_f32((float)number);
      break;
    case ZR_F16:
      ((uint16_t *)data)[i] = zr_f16_from_f32((float)number);
      break;
    default:
      ((float *)data)[i] = (float)number;
      break;
  }
}

void tape_run_call(tape_run_t *run, const tape_run_call_t *from) {
  const zr_op_row_t *row = zr_op_row(from->kind);
  zr_kern_shape_t shape = {.kind = from->kind, .accumulate = 0, .real = from->real};
  zr_kern_call_t call = {.shape = &shape, .pool = run->pool};
  memcpy(shape.attr, from->attr, row->n_attrs * sizeof *from->attr);
  int next = 0, scratch = -1;
  for (int i = 0; i < row->n_operands; i++) {
    shape.dtype[i] = ZR_U8;
    if (row->operand[i].access == ZR_SCRATCH) scratch = i;
    if (row->operand[i].access == ZR_SCRATCH || next >= from->n_operands) continue;
    if (from->accumulate & (1u << next)) shape.accumulate |= 1u << i;
    call.operand[i] = from->operand[next].data;
    call.bytes[i] = from->operand[next].bytes;
    if (call.operand[i] != NULL) {
      shape.present |= (uint8_t)(1u << i);
      shape.dtype[i] = (uint8_t)from->operand[next].dtype;
    }
    next++;
  }
  int n_workers = zr_pool_n_workers(run->pool);
  int64_t bytes = scratch < 0 ? 0 : run->ops->scratch_bytes(run->kern, &shape, n_workers);
  if (bytes > run->scratch_bytes) {
    free(run->scratch);
    run->scratch = aligned(bytes);
    run->scratch_bytes = bytes;
  }
  if (bytes > 0) {
    call.operand[scratch] = run->scratch;
    call.bytes[scratch] = bytes;
    shape.present |= (uint8_t)(1u << scratch);
  }
  zr_status_t status = run->ops->prepare(run->kern, &shape, n_workers, &call.prepared);
  if (status == ZR_OK) status = run->ops->run(run->kern, &call);
  if (status != ZR_OK) fail_msg("%s: %s", row->name, zr_detail());
}

void tape_run_init(tape_run_t *run, const zr_tape_t *tape, const zr_model_config_t *config,
                   const zr_model_run_t *shape, zr_dtype_t real, const zr_kern_ops_t *ops,
                   zr_kern_t *kern, zr_pool_t *pool) {
  *run = (tape_run_t){.tape = tape, .real = real, .ops = ops, .kern = kern, .pool = pool};
  run->value = calloc(tape->n_values, sizeof *run->value);
  assert_non_null(run->value);
  for (size_t v = 0; v < tape->n_values; v++) run->value[v] = aligned(value_bytes(run, (int32_t)v));
  run->control = run->value[tape->control];
  memset(run->control, 0, sizeof *run->control);
  if (tape->rope_table < 0) return;
  int64_t attr[ZR_MAX_ATTRS];
  zr_model_rope_table(config, shape->seq_len, attr);
  tape_run_call_t call = {
      .kind = ZR_OP_ROPE_TABLE,
      .attr = attr,
      .real = config->rope_theta,
      .n_operands = 1,
      .operand = {{run->value[tape->rope_table], value_bytes(run, tape->rope_table), real}}};
  tape_run_call(run, &call);
}

void tape_run_fini(tape_run_t *run) {
  for (size_t v = 0; v < run->tape->n_values; v++) free(run->value[v]);
  free(run->value);
  free(run->scratch);
}

static int32_t param_value(const tape_run_t *run, size_t tensor) {
  for (size_t v = 0; v < run->tape->n_values; v++) {
    const zr_value_t *value = &run->tape->value[v];
    if (value->kind == ZR_VALUE_PARAM && value->tensor == (int32_t)tensor) return (int32_t)v;
  }
  fail_msg("no such tensor");
  return -1;
}

void tape_run_set_param(tape_run_t *run, size_t tensor, const double *values) {
  const zr_tape_tensor_t *t = &run->tape->tensor[tensor];
  int32_t value = param_value(run, tensor);
  for (int64_t i = 0; i < t->padded_rows * t->cols; i++)
    tape_run_set(run, value, i, i < t->rows * t->cols ? values[i] : 0.0);
}

void tape_run_begin(tape_run_t *run, const int32_t *targets, int64_t n_batches) {
  int64_t rows = run->tape->value[run->tape->targets].elems;
  memset(run->control, 0, sizeof *run->control);
  zr_control_begin(run->control);
  for (int64_t b = 0; b < n_batches; b++) {
    memcpy(run->value[run->tape->targets], targets + b * rows, (size_t)rows * sizeof *targets);
    tape_run_call_t call = {.kind = ZR_OP_COUNT,
                            .accumulate = 2,
                            .attr = &rows,
                            .n_operands = 2,
                            .operand = {{run->value[run->tape->targets], rows * 4, ZR_I32},
                                        {run->control, (int64_t)sizeof *run->control, ZR_U8}}};
    tape_run_call(run, &call);
  }
  zr_control_count(run->control);
}

static void run_op(tape_run_t *run, const zr_tape_op_t *op) {
  tape_run_call_t call = {
      .kind = op->kind, .attr = op->attr, .real = op->real, .n_operands = op->n_operands};
  for (int i = 0; i < op->n_operands; i++) {
    const zr_tape_operand_t *operand = &op->operand[i];
    if (operand->value < 0) continue;
    zr_dtype_t dtype = value_dtype(run, operand->value);
    int64_t item = zr_dtype_bytes(dtype);
    call.operand[i].data = (char *)run->value[operand->value] + operand->offset * item;
    call.operand[i].bytes = operand->elems * item;
    if (run->tape->value[operand->value].kind == ZR_VALUE_CONTROL)
      call.operand[i].bytes = value_bytes(run, operand->value);
    call.operand[i].dtype = dtype;
    if (operand->access == ZR_ACCUMULATE) call.accumulate |= 1u << i;
  }
  tape_run_call(run, &call);
}

void tape_run_set_starts(tape_run_t *run, const int32_t *starts) {
  int32_t value = run->tape->starts;
  memcpy(run->value[value], starts, (size_t)value_bytes(run, value));
}

void tape_run_batch(tape_run_t *run, const int32_t *tokens, const int32_t *targets) {
  const zr_tape_t *tape = run->tape;
  for (size_t v = 0; v < tape->n_values; v++) {
    int32_t kind = tape->value[v].kind;
    if (kind == ZR_VALUE_ACTIVATION || kind == ZR_VALUE_GRAD || kind == ZR_VALUE_PARAM_GRAD)
      memset(run->value[v], 0xff, (size_t)value_bytes(run, (int32_t)v));
  }
  size_t bytes = (size_t)value_bytes(run, tape->tokens);
  memcpy(run->value[tape->tokens], tokens, bytes);
  memcpy(run->value[tape->targets], targets, bytes);
  for (size_t i = 0; i < tape->n_ops; i++) run_op(run, &tape->op[i]);
}

double tape_run_loss(const tape_run_t *run) {
  return zr_exact_value(&run->control->loss) / (double)run->control->count_local;
}

void tape_run_add_gradient(const tape_run_t *run, size_t tensor, double *sum) {
  const zr_tape_tensor_t *t = &run->tape->tensor[tensor];
  int n_uses = 0;
  for (int tied = 0; tied < 2; tied++) {
    for (size_t v = 0; v < run->tape->n_values; v++) {
      const zr_value_t *value = &run->tape->value[v];
      if (value->kind != ZR_VALUE_PARAM_GRAD || value->tensor != (int32_t)tensor) continue;
      if ((value->use_unit != t->unit) != (tied == 1)) continue;
      n_uses++;
      for (int64_t i = 0; i < t->rows * t->cols; i++) sum[i] += tape_run_get(run, (int32_t)v, i);
    }
  }
  if (n_uses == 0) fail_msg("%s has no gradient", t->name);
}
