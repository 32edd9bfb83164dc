/* One plan under construction: persistent buffers, names, scratch. */
#include "runtime/zero/build.h"

#include <string.h>

/* The same buffers with the same indices in every plan of the program. */
static zr_status_t add_persistent(zr_build_t *build) {
  zr_zero_t *zero = build->zero;
  int64_t control = (int64_t)sizeof(zr_control_t);
  ZR_TRY(zr_home_buffer(build, "", "ctl", ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_U8, control,
                        &zero->control));
  ZR_TRY(zr_home_buffer(build, "", "ctl_eval", ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_U8, control,
                        &zero->control_eval));
  build->rope = -1;
  if (zero->tape->rope_table >= 0) {
    int64_t bytes = zero->tape->value[zero->tape->rope_table].elems * 4;
    ZR_TRY(zr_home_buffer(build, "", "rope", ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_F32, bytes,
                          &build->rope));
  }
  for (size_t u = 0; u < zero->n_units; u++)
    ZR_TRY(zr_home_unit(build, &zero->unit[u], &build->grad_flat[u]));
  return zr_home_slots(build);
}

static void build_destroy(zr_build_t *build) {
  if (build == NULL) return;
  zr_alloc_t *alloc = build->zero->alloc;
  zr_plan_destroy(build->plan);
  zr_alloc_free(alloc, build->grad);
  zr_alloc_free(alloc, build->grad_flat);
  zr_alloc_free(alloc, build->value_buffer);
  zr_alloc_free(alloc, build->again);
  zr_alloc_free(alloc, build->replayed);
  zr_alloc_free(alloc, build->tree);
  zr_alloc_free(alloc, build->gathered);
  zr_alloc_free(alloc, build->gathered_phase);
  zr_alloc_free(alloc, build->segment);
  zr_alloc_free(alloc, build->tree_of_value);
  zr_alloc_free(alloc, build->tensor_begin);
  zr_alloc_free(alloc, build->gap);
  zr_alloc_free(alloc, build->forward);
  zr_alloc_free(alloc, build->backward);
  zr_boundary_fini(build);
  zr_alloc_free(alloc, build);
}

/* Where each unit's operations and each tensor are, so that lowering does not search. */
static zr_status_t index_tape(zr_build_t *build) {
  zr_alloc_t *alloc = build->zero->alloc;
  const zr_tape_t *tape = build->tape;
  size_t n_units = build->zero->n_units;
  ZR_TRY(zr_alloc_get(alloc, n_units, sizeof(zr_range_t), &build->forward));
  ZR_TRY(zr_alloc_get(alloc, n_units, sizeof(zr_range_t), &build->backward));
  ZR_TRY(zr_alloc_get(alloc, tape->n_values, sizeof(int32_t), &build->tree_of_value));
  ZR_TRY(zr_alloc_get(alloc, tape->n_tensors, sizeof(int64_t), &build->tensor_begin));
  for (size_t i = 0; i < tape->n_ops; i++) {
    bool forward = i < tape->n_forward;
    zr_range_t *range = &(forward ? build->forward : build->backward)[tape->op[i].unit];
    if (range->end == 0) range->begin = (int64_t)i;
    range->end = (int64_t)i + 1;
  }
  for (size_t t = 0; t < tape->n_tensors; t++) {
    const zr_flat_tensor_t *place = &build->zero->flat_tensor[t];
    build->tensor_begin[place->tensor] = place->begin;
  }
  return ZR_OK;
}

zr_range_t zr_build_ops(const zr_build_t *build, const zr_segment_t *segment, int part) {
  if (!(segment->kind & (part == 0 ? ZR_SEGMENT_FORWARD : ZR_SEGMENT_BACKWARD)))
    return (zr_range_t){0, 0};
  return (part == 0 ? build->forward : build->backward)[segment->unit];
}

static zr_status_t build_init(zr_build_t *build, const char *name) {
  zr_alloc_t *alloc = build->zero->alloc;
  size_t n_units = build->zero->n_units;
  size_t n_values = (size_t)build->n_micro * build->tape->n_values;
  ZR_TRY(zr_alloc_get(alloc, n_units, sizeof(int32_t), &build->grad));
  ZR_TRY(zr_alloc_get(alloc, n_units, sizeof(int32_t), &build->grad_flat));
  ZR_TRY(zr_alloc_get(alloc, n_units, sizeof(int32_t), &build->gathered));
  ZR_TRY(zr_alloc_get(alloc, n_units, sizeof(int32_t), &build->gathered_phase));
  ZR_TRY(zr_alloc_get(alloc, n_values, sizeof(int32_t), &build->value_buffer));
  /* one tree for each unit and one tied use for the head: 2 n_units is ample */
  ZR_TRY(zr_alloc_get(alloc, 2 * n_units, sizeof *build->tree, &build->tree));
  memset(build->gathered, -1, n_units * sizeof(int32_t));
  memset(build->value_buffer, -1, n_values * sizeof(int32_t));
  ZR_TRY(index_tape(build));
  ZR_TRY(zr_plan_create(alloc, name, build->options->n_ranks, &build->plan));
  for (size_t u = 0; u < n_units; u++) {
    int16_t index;
    ZR_TRY(zr_plan_add_unit(build->plan, build->tape->unit_name[u], &index));
  }
  ZR_TRY(add_persistent(build));
  build->control = build->zero->control;
  return ZR_OK;
}

zr_status_t zr_build_create(zr_zero_t *zero, const zr_tape_t *tape, const char *name,
                            int64_t n_micro, zr_build_t **out_build) {
  zr_build_t *build = NULL;
  ZR_TRY(zr_alloc_get(zero->alloc, 1, sizeof *build, &build));
  build->zero = zero;
  build->options = &zero->options;
  build->tape = tape;
  build->n_micro = n_micro;
  build->param_dtype = (zr_dtype_t)tape->dtype;
  build->grad_dtype = zero->options.grad_dtype;
  build->param_bytes = zr_dtype_bytes(build->param_dtype);
  build->grad_bytes = zr_dtype_bytes(build->grad_dtype);
  zr_status_t status = build_init(build, name);
  if (status != ZR_OK) {
    build_destroy(build);
    return status;
  }
  *out_build = build;
  return ZR_OK;
}

zr_status_t zr_build_finish(zr_build_t *build, zr_status_t status) {
  if (status == ZR_OK) {
    status = zr_program_add(build->zero->program, build->plan);
    build->plan = NULL; /* the program owns it, or has destroyed it */
  }
  build_destroy(build);
  return status;
}

zr_status_t zr_build_buffer_in(zr_build_t *build, zr_tier_t tier, int32_t unit, const char *value,
                               int64_t number, int64_t micro, zr_category_t category,
                               zr_dtype_t dtype, int64_t bytes, int32_t *out_buffer) {
  char name[ZR_PLAN_NAME_BYTES], suffix[24] = "", hash[24] = "";
  if (number >= 0) snprintf(suffix, sizeof suffix, ".%lld", (long long)number);
  if (micro >= 0) snprintf(hash, sizeof hash, "#%lld", (long long)micro);
  int used = snprintf(name, sizeof name, "%s/%s%s%s",
                      unit >= 0 ? build->tape->unit_name[unit] : "step", value, suffix, hash);
  if (used < 0 || (size_t)used >= sizeof name)
    return zr_fail(ZR_ERR_INTERNAL, "buffer name too long: %s...", name);
  return zr_plan_add_buffer(build->plan, name, tier, category, dtype, bytes, false, out_buffer);
}

zr_status_t zr_build_buffer(zr_build_t *build, int32_t unit, const char *value, int64_t number,
                            int64_t micro, zr_category_t category, zr_dtype_t dtype, int64_t bytes,
                            int32_t *out_buffer) {
  return zr_build_buffer_in(build, ZR_TIER_DEVICE, unit, value, number, micro, category, dtype,
                            bytes, out_buffer);
}

zr_operand_t zr_build_all(const zr_build_t *build, int32_t buffer, zr_access_t access) {
  return zr_operand_all(build->plan, buffer, access);
}

static void shape_of(const zr_build_t *build, const zr_op_desc_t *desc,
                     zr_kern_shape_t *out_shape) {
  *out_shape = (zr_kern_shape_t){.kind = desc->kind, .real = desc->real};
  memcpy(out_shape->attr, desc->attr, sizeof out_shape->attr);
  for (int i = 0; i < desc->n_operands; i++) {
    const zr_operand_t *operand = &desc->operand[i];
    if (operand->buffer < 0) continue;
    out_shape->present |= (uint8_t)(1u << i);
    out_shape->dtype[i] = build->plan->buffer[operand->buffer].dtype;
    if (operand->access == ZR_ACCUMULATE) out_shape->accumulate |= 1u << i;
  }
}

static int64_t scratch_bytes(const zr_build_t *build, const zr_op_desc_t *desc) {
  if (zr_op_row(desc->kind)->collective)
    return zr_comm_exchange_scratch_bytes(build->options->n_ranks, desc->attr[ZR_COMM_SHARD_BYTES]);
  zr_kern_shape_t shape;
  shape_of(build, desc, &shape);
  return build->options->kern_ops->scratch_bytes(build->options->kern, &shape,
                                                 build->options->n_workers);
}

/* Fills the scratch operand `slot`: a buffer that lives for this operation. */
static zr_status_t add_scratch(zr_build_t *build, zr_op_desc_t *desc, int slot) {
  int64_t bytes = scratch_bytes(build, desc);
  desc->operand[slot] = zr_operand_none();
  if (bytes <= 0) return ZR_OK;
  int32_t buffer;
  ZR_TRY(zr_build_buffer(build, -1, "scratch", (int64_t)build->plan->n_ops, -1,
                         ZR_CATEGORY_WORKSPACE, ZR_U8, bytes, &buffer));
  desc->operand[slot] = zr_build_all(build, buffer, ZR_SCRATCH);
  return ZR_OK;
}

zr_status_t zr_build_op_on(zr_build_t *build, uint8_t on, int32_t kind, int32_t unit, int64_t micro,
                           const int64_t *attr, double real, int n_operands,
                           const zr_operand_t *operand) {
  const zr_op_row_t *row = zr_op_row(kind);
  zr_op_desc_t desc = {.kind = kind,
                       .on = on,
                       .unit = (int16_t)unit,
                       .micro = (int32_t)micro,
                       .phase = build->phase,
                       .real = real,
                       .n_operands = row->n_operands};
  if (row->n_attrs > 0) memcpy(desc.attr, attr, row->n_attrs * sizeof *attr);
  int scratch = -1, next = 0;
  for (int i = 0; i < row->n_operands; i++) {
    if (row->operand[i].access == ZR_SCRATCH) {
      scratch = i;
      desc.operand[i] = zr_operand_none();
    } else {
      desc.operand[i] = next < n_operands ? operand[next++] : zr_operand_none();
    }
  }
  if (scratch >= 0) ZR_TRY(add_scratch(build, &desc, scratch));
  int32_t index;
  return zr_plan_add_op(build->plan, &desc, &index);
}

zr_status_t zr_build_op(zr_build_t *build, int32_t kind, int32_t unit, int64_t micro,
                        const int64_t *attr, double real, int n_operands,
                        const zr_operand_t *operand) {
  return zr_build_op_on(build, 0, kind, unit, micro, attr, real, n_operands, operand);
}

zr_status_t zr_build_op_on_host(zr_build_t *build, int32_t kind, int32_t unit, const int64_t *attr,
                                double real, int n_operands, const zr_operand_t *operand) {
  return zr_build_op_on(build, ZR_ON(ZR_STREAM_HOST), kind, unit, -1, attr, real, n_operands,
                        operand);
}
