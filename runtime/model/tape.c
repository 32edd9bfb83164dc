#include "runtime/model/tape.h"

#include <string.h>

zr_status_t zr_tape_create(zr_alloc_t *alloc, int64_t rows, zr_dtype_t dtype,
                           zr_tape_t **out_tape) {
  zr_tape_t *tape = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *tape, &tape));
  tape->alloc = alloc;
  tape->dtype = dtype == ZR_U8 ? ZR_F32 : (int32_t)dtype;
  tape->starts = tape->rope_table = -1;
  tape->tokens = zr_tape_value(tape, "tokens", rows);
  tape->targets = zr_tape_value(tape, "targets", rows);
  tape->losses = zr_tape_value(tape, "loss", rows);
  tape->control = zr_tape_value(tape, "ctl", (int64_t)0);
  if (tape->status != ZR_OK) {
    zr_status_t status = tape->status;
    zr_tape_destroy(tape);
    return status;
  }
  tape->value[tape->tokens].kind = tape->value[tape->targets].kind = ZR_VALUE_DATA;
  tape->value[tape->losses].kind = ZR_VALUE_DATA;
  tape->value[tape->control].kind = ZR_VALUE_CONTROL;
  tape->value[tape->tokens].dtype = tape->value[tape->targets].dtype = ZR_I32;
  tape->value[tape->losses].dtype = ZR_F64;
  tape->value[tape->control].dtype = ZR_U8;
  *out_tape = tape;
  return ZR_OK;
}

void zr_tape_destroy(zr_tape_t *tape) {
  if (tape == NULL) return;
  zr_alloc_free(tape->alloc, tape->tensor);
  zr_alloc_free(tape->alloc, tape->value);
  zr_alloc_free(tape->alloc, tape->op);
  zr_alloc_free(tape->alloc, tape->unit_name);
  zr_alloc_free(tape->alloc, tape);
}

void zr_tape_add_starts(zr_tape_t *tape) {
  if (tape->status != ZR_OK) return;
  int32_t id = zr_tape_value(tape, "starts", tape->value[tape->tokens].elems);
  if (tape->status != ZR_OK) return;
  tape->value[id].kind = ZR_VALUE_DATA;
  tape->value[id].dtype = ZR_I32;
  tape->starts = id;
}

static void copy_name(char *out_name, size_t bytes, const char *name) {
  size_t length = strnlen(name, bytes - 1);
  memcpy(out_name, name, length);
  out_name[length] = '\0';
}

/* Room for one more item; false (and the tape's sticky status) when there is none. */
static bool grow(zr_tape_t *tape, void *items, size_t *capacity, size_t count, size_t item_bytes) {
  if (tape->status != ZR_OK) return false;
  tape->status = zr_alloc_grow(tape->alloc, items, capacity, count + 1, item_bytes);
  return tape->status == ZR_OK;
}

void zr_tape_unit(zr_tape_t *tape, const char *name) {
  if (!grow(tape, &tape->unit_name, &tape->unit_capacity, tape->n_units, sizeof *tape->unit_name))
    return;
  copy_name(tape->unit_name[tape->n_units++], ZR_PLAN_NAME_BYTES, name);
}

/* A new value; after a failure 0, so that recording can go on to its end. */
static int32_t add_value(zr_tape_t *tape, const char *name, int32_t kind, int64_t elems) {
  if (!grow(tape, &tape->value, &tape->value_capacity, tape->n_values, sizeof *tape->value))
    return 0;
  zr_value_t *value = &tape->value[tape->n_values];
  copy_name(value->name, sizeof value->name, name);
  value->kind = kind;
  value->unit = (int32_t)tape->n_units - 1;
  value->elems = elems;
  value->dtype = tape->dtype;
  value->tensor = value->of = value->use_unit = value->grad = -1;
  return (int32_t)tape->n_values++;
}

int32_t zr_tape_value(zr_tape_t *tape, const char *name, int64_t elems) {
  return add_value(tape, name, ZR_VALUE_ACTIVATION, elems);
}

int32_t zr_tape_param(zr_tape_t *tape, const char *name, int64_t rows, int64_t cols, int n_dims,
                      zr_init_t init, bool is_vocab) {
  if (!grow(tape, &tape->tensor, &tape->tensor_capacity, tape->n_tensors, sizeof *tape->tensor))
    return 0;
  int64_t padded = is_vocab ? (rows + 63) / 64 * 64 : rows;
  int32_t id = add_value(tape, "param", ZR_VALUE_PARAM, padded * cols);
  if (tape->status != ZR_OK) return 0;
  zr_tape_tensor_t *tensor = &tape->tensor[tape->n_tensors];
  *tensor = (zr_tape_tensor_t){.unit = (int32_t)tape->n_units - 1,
                               .n_dims = n_dims,
                               .rows = rows,
                               .cols = cols,
                               .padded_rows = padded,
                               .init = (int32_t)init,
                               .is_vocab = is_vocab};
  copy_name(tensor->name, sizeof tensor->name, name);
  tape->value[id].tensor = (int32_t)tape->n_tensors++;
  return id;
}

int32_t zr_tape_grad(zr_tape_t *tape, int32_t value) {
  if (tape->status != ZR_OK) return 0;
  if (tape->value[value].grad >= 0) return tape->value[value].grad;
  char name[sizeof tape->value[value].name + 2];
  snprintf(name, sizeof name, "d%s", tape->value[value].name);
  int32_t id = add_value(tape, name, ZR_VALUE_GRAD, tape->value[value].elems);
  if (tape->status != ZR_OK) return 0;
  tape->value[id].of = value;
  tape->value[id].unit = tape->value[value].unit;
  tape->value[value].grad = id;
  return id;
}

static int32_t param_grad(zr_tape_t *tape, int32_t param, int32_t use_unit) {
  if (tape->status != ZR_OK) return 0;
  int32_t id = add_value(tape, "dparam", ZR_VALUE_PARAM_GRAD, tape->value[param].elems);
  if (tape->status != ZR_OK) return 0;
  tape->value[id].tensor = tape->value[param].tensor;
  tape->value[id].use_unit = use_unit;
  tape->value[id].unit = use_unit;
  return id;
}

int32_t zr_tape_param_grad(zr_tape_t *tape, int32_t param) {
  return param_grad(tape, param, (int32_t)tape->n_units - 1);
}

zr_tape_operand_t zr_tape_none(void) {
  return (zr_tape_operand_t){.value = -1};
}

zr_tape_operand_t zr_tape_part(int32_t value, int64_t offset, int64_t elems, zr_access_t access) {
  return (zr_tape_operand_t){
      .value = value, .access = (uint8_t)access, .offset = offset, .elems = elems};
}

zr_tape_operand_t zr_tape_all(const zr_tape_t *tape, int32_t value, zr_access_t access) {
  int64_t elems = tape->status == ZR_OK ? tape->value[value].elems : 0;
  return zr_tape_part(value, 0, elems, access);
}

static int32_t append(zr_tape_t *tape, const zr_tape_op_t *op) {
  if (!grow(tape, &tape->op, &tape->op_capacity, tape->n_ops, sizeof *tape->op)) return 0;
  tape->op[tape->n_ops] = *op;
  return (int32_t)tape->n_ops++;
}

int32_t zr_tape_record(zr_tape_t *tape, int32_t kind, const int64_t *attr, double real,
                       int n_operands, const zr_tape_operand_t *operand) {
  zr_tape_op_t op = {
      .kind = kind, .unit = (int32_t)tape->n_units - 1, .real = real, .n_operands = n_operands};
  memcpy(op.attr, attr, zr_op_row(kind)->n_attrs * sizeof *attr);
  memcpy(op.operand, operand, (size_t)n_operands * sizeof *operand);
  int32_t index = append(tape, &op);
  for (int i = 0; i < n_operands && tape->status == ZR_OK; i++) {
    zr_value_t *value = operand[i].value < 0 ? NULL : &tape->value[operand[i].value];
    if (value != NULL && (operand[i].access & ZR_WRITE)) value->written = true;
  }
  tape->n_forward = tape->n_ops;
  return index;
}

/* --- backward ------------------------------------------------------------------------------- */

static bool wants_grad(const zr_value_t *value) {
  return value->kind == ZR_VALUE_ACTIVATION || value->kind == ZR_VALUE_PARAM;
}

static zr_status_t rule_error(const zr_tape_t *tape, const zr_tape_op_t *op, const char *what) {
  return zr_fail(ZR_ERR_INTERNAL, "gradient of %s/%s: %s", tape->unit_name[op->unit],
                 zr_op_row(op->kind)->name, what);
}

/* The gradient operand for forward operand `from`; written ones record their first or later
 * contribution. */
static zr_status_t grad_operand(zr_tape_t *tape, const zr_tape_op_t *op, zr_tape_operand_t from,
                                const zr_op_operand_row_t *row, zr_tape_operand_t *out_operand) {
  if (from.value < 0 || !wants_grad(&tape->value[from.value])) {
    *out_operand = zr_tape_none();
    return ZR_OK;
  }
  bool is_param = tape->value[from.value].kind == ZR_VALUE_PARAM;
  int32_t id = is_param ? param_grad(tape, from.value, op->unit) : zr_tape_grad(tape, from.value);
  ZR_TRY(tape->status);
  zr_value_t *grad = &tape->value[id];
  zr_access_t access = ZR_READ;
  if (row->access & ZR_WRITE) {
    bool in_place = (row->access & ZR_READ) != 0;
    access = grad->written || in_place ? ZR_ACCUMULATE : ZR_WRITE;
    if (in_place && !grad->written) return rule_error(tape, op, "changed before it was made");
    if (grad->written && !in_place && !row->may_accumulate)
      return rule_error(tape, op, "a second contribution to a gradient that is written whole");
    if (!in_place && from.elems != grad->elems)
      return rule_error(tape, op, "a gradient of a part of a value");
    grad->written = true;
  } else if (!grad->written) {
    return rule_error(tape, op, "read before it was made: nothing downstream gives a gradient");
  }
  *out_operand = zr_tape_part(id, from.offset, from.elems, access);
  return ZR_OK;
}

static zr_status_t grad_step(zr_tape_t *tape, const zr_tape_op_t *op, const zr_grad_step_t *step) {
  const zr_op_row_t *forward = zr_op_row(op->kind), *row = zr_op_row(step->kind);
  zr_tape_op_t back = {.kind = step->kind, .unit = op->unit, .real = op->real};
  memcpy(back.attr, op->attr, sizeof back.attr);
  if (forward->grad_flip_attr >= 0)
    back.attr[forward->grad_flip_attr] = 1 - back.attr[forward->grad_flip_attr];
  bool has_output = false;
  for (int i = 0; i < row->n_operands; i++) {
    if (row->operand[i].access == ZR_SCRATCH) continue;
    const zr_grad_operand_t *source = &step->operand[i];
    zr_tape_operand_t *out = &back.operand[back.n_operands++];
    *out = zr_tape_none();
    if (source->index >= op->n_operands) continue; /* an optional one at the end */
    if (source->source == ZR_GRAD_VALUE) {
      *out = op->operand[source->index];
      if (out->value >= 0) out->access = ZR_READ;
    } else if (source->source == ZR_GRAD_OF) {
      ZR_TRY(grad_operand(tape, op, op->operand[source->index], &row->operand[i], out));
      if (out->value >= 0 && (row->operand[i].access & ZR_WRITE)) has_output = true;
    }
  }
  if (has_output) append(tape, &back);
  return tape->status;
}

/* The gradient of input i IS the gradient of the output: one buffer, or an addition if it already
 * has one. */
static zr_status_t grad_alias(zr_tape_t *tape, const zr_tape_op_t *op, int32_t output) {
  const zr_op_row_t *row = zr_op_row(op->kind);
  int32_t grad = tape->value[op->operand[output].value].grad;
  if (grad < 0) return rule_error(tape, op, "its output has no gradient");
  for (int i = 0; i < op->n_operands; i++) {
    if (!(row->grad_alias & (1 << i))) continue;
    zr_value_t *input = &tape->value[op->operand[i].value];
    if (input->grad < 0) {
      input->grad = grad;
    } else {
      zr_tape_op_t add = {.kind = ZR_OP_ACCUMULATE, .unit = op->unit, .n_operands = 2};
      add.attr[ZR_ELEMS] = input->elems;
      add.operand[0] = zr_tape_all(tape, grad, ZR_READ);
      add.operand[1] = zr_tape_all(tape, input->grad, ZR_ACCUMULATE);
      append(tape, &add);
    }
  }
  return tape->status;
}

zr_status_t zr_tape_backward(zr_tape_t *tape) {
  ZR_TRY(tape->status);
  for (size_t i = tape->n_forward; i-- > 0;) {
    const zr_tape_op_t op = tape->op[i]; /* a copy: appending may move the list */
    const zr_op_row_t *row = zr_op_row(op.kind);
    if (row->grad_alias != 0) ZR_TRY(grad_alias(tape, &op, op.n_operands - 1));
    for (int s = 0; s < 4 && row->grad[s].kind != ZR_OP_NOP; s++)
      ZR_TRY(grad_step(tape, &op, &row->grad[s]));
  }
  return tape->status;
}

/* --- printing ------------------------------------------------------------------------------- */

static void print_operand(const zr_tape_t *tape, const zr_tape_operand_t *operand, FILE *file) {
  static const char *const access_name[] = {"?", "", "=", "+"};
  if (operand->value < 0) {
    fprintf(file, " -");
    return;
  }
  const zr_value_t *value = &tape->value[operand->value];
  const char *name = value->tensor >= 0 ? tape->tensor[value->tensor].name : value->name;
  fprintf(file, " %s%s%s", access_name[operand->access & 3],
          value->kind == ZR_VALUE_PARAM_GRAD ? "d:" : "", name);
  if (operand->offset != 0 || operand->elems != value->elems)
    fprintf(file, "[%lld:%lld]", (long long)operand->offset,
            (long long)(operand->offset + operand->elems));
}

void zr_tape_print(const zr_tape_t *tape, FILE *file) {
  for (size_t i = 0; i < tape->n_ops; i++) {
    const zr_tape_op_t *op = &tape->op[i];
    if (i == tape->n_forward) fprintf(file, "-- backward\n");
    fprintf(file, "%s/%s", tape->unit_name[op->unit], zr_op_row(op->kind)->name);
    for (int k = 0; k < op->n_operands; k++) print_operand(tape, &op->operand[k], file);
    fprintf(file, "\n");
  }
}
