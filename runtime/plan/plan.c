#include "runtime/plan/plan.h"

#include <string.h>

#include "runtime/plan/plan_internal.h"

const char *zr_category_name(zr_category_t category) {
  static const char *const name[ZR_N_CATEGORIES] = {
      "param", "grad", "optimizer", "activation", "gathered", "partial", "workspace", "data"};
  return (unsigned)category < ZR_N_CATEGORIES ? name[category] : "?";
}

/* The text form separates words by spaces, so a name has none. */
static zr_status_t copy_name(const char *what, const char *name, char *out, size_t bytes) {
  size_t length = strlen(name);
  if (length == 0 || length >= bytes)
    return zr_fail(ZR_ERR_INTERNAL, "plan: the name of a %s has 1 to %zu bytes: \"%s\"", what,
                   bytes - 1, name);
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f)
      return zr_fail(ZR_ERR_INTERNAL,
                     "plan: the name of a %s has a space or control character: "
                     "\"%s\"",
                     what, name);
  }
  memcpy(out, name, length + 1);
  return ZR_OK;
}

zr_status_t zr_plan_create(zr_alloc_t *alloc, const char *name, int n_ranks, zr_plan_t **out_plan) {
  if (alloc == NULL) alloc = zr_alloc_default();
  if (n_ranks < 1) return zr_fail(ZR_ERR_INTERNAL, "plan %s: %d ranks", name, n_ranks);
  zr_plan_t *plan = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *plan, &plan));
  plan->alloc = alloc;
  plan->n_ranks = n_ranks;
  zr_status_t status = copy_name("plan", name, plan->name, sizeof plan->name);
  if (status != ZR_OK) goto fail;
  *out_plan = plan;
  return ZR_OK;
fail:
  zr_plan_destroy(plan);
  return status;
}

void zr_plan_destroy(zr_plan_t *plan) {
  if (plan == NULL) return;
  zr_alloc_t *alloc = plan->alloc;
  zr_alloc_free(alloc, plan->buffer);
  zr_alloc_free(alloc, plan->op);
  zr_alloc_free(alloc, plan->unit_name);
  zr_alloc_free(alloc, plan);
}

zr_status_t zr_plan_add_unit(zr_plan_t *plan, const char *name, int16_t *out_unit) {
  char copy[ZR_PLAN_NAME_BYTES] = {0};
  if (plan->n_units >= INT16_MAX)
    return zr_fail(ZR_ERR_INTERNAL, "plan %s: more than %d units", plan->name, INT16_MAX);
  ZR_TRY(copy_name("unit", name, copy, sizeof copy));
  for (size_t i = 0; i < plan->n_units; i++) {
    if (strcmp(plan->unit_name[i], name) == 0)
      return zr_fail(ZR_ERR_INTERNAL, "plan %s: two units are named %s", plan->name, name);
  }
  ZR_TRY(zr_alloc_grow(plan->alloc, &plan->unit_name, &plan->unit_capacity, plan->n_units + 1,
                       sizeof *plan->unit_name));
  memcpy(plan->unit_name[plan->n_units], copy, sizeof copy);
  *out_unit = (int16_t)plan->n_units++;
  return ZR_OK;
}

zr_status_t zr_plan_add_buffer(zr_plan_t *plan, const char *name, zr_tier_t tier,
                               zr_category_t category, zr_dtype_t dtype, int64_t bytes,
                               bool persistent, int32_t *out_buffer) {
  zr_buffer_t buffer = {.tier = (uint8_t)tier,
                        .category = (uint8_t)category,
                        .dtype = (uint8_t)dtype,
                        .persistent = persistent,
                        .bytes = bytes,
                        .offset = -1};
  ZR_TRY(copy_name("buffer", name, buffer.name, sizeof buffer.name));
  if (plan->finished)
    return zr_fail(ZR_ERR_INTERNAL, "plan %s is finished: no buffer %s", plan->name, name);
  if (bytes <= 0 || (unsigned)tier >= ZR_N_TIERS || (unsigned)category >= ZR_N_CATEGORIES ||
      (unsigned)dtype >= ZR_N_DTYPES)
    return zr_fail(ZR_ERR_INTERNAL, "plan %s: buffer %s: %lld bytes, tier %d, category %d, type %d",
                   plan->name, name, (long long)bytes, (int)tier, (int)category, (int)dtype);
  if (persistent && plan->n_buffers > 0 && !plan->buffer[plan->n_buffers - 1].persistent)
    return zr_fail(ZR_ERR_INTERNAL, "plan %s: persistent buffer %s comes after a transient one",
                   plan->name, name);
  if (plan->n_buffers >= INT32_MAX)
    return zr_fail(ZR_ERR_INTERNAL, "plan %s: too many buffers", plan->name);
  ZR_TRY(zr_alloc_grow(plan->alloc, &plan->buffer, &plan->buffer_capacity, plan->n_buffers + 1,
                       sizeof *plan->buffer));
  plan->buffer[plan->n_buffers] = buffer;
  *out_buffer = (int32_t)plan->n_buffers++;
  return ZR_OK;
}

zr_operand_t zr_operand_none(void) {
  return (zr_operand_t){.buffer = -1};
}

zr_operand_t zr_operand_all(const zr_plan_t *plan, int32_t buffer, zr_access_t access) {
  bool known = buffer >= 0 && (size_t)buffer < plan->n_buffers;
  return (zr_operand_t){
      .buffer = buffer, .bytes = known ? plan->buffer[buffer].bytes : 0, .access = (uint8_t)access};
}

zr_operand_t zr_operand_part(int32_t buffer, int64_t offset, int64_t bytes, zr_access_t access) {
  return (zr_operand_t){
      .buffer = buffer, .offset = offset, .bytes = bytes, .access = (uint8_t)access};
}

zr_operand_t zr_operand_shard(int32_t buffer, int64_t shard_bytes, zr_access_t access) {
  return (zr_operand_t){.buffer = buffer,
                        .bytes = shard_bytes,
                        .rank_stride = shard_bytes,
                        .access = (uint8_t)access};
}

int64_t zr_plan_operand_begin(const zr_plan_t *plan, const zr_operand_t *operand, int rank) {
  return plan->buffer[operand->buffer].offset + operand->offset + operand->rank_stride * rank;
}

void zr_plan_op_name(const zr_plan_t *plan, int32_t op, char *out_name, size_t bytes) {
  if (op < 0 || (size_t)op >= plan->n_ops) {
    snprintf(out_name, bytes, "?");
    return;
  }
  zr_op_name_format(plan, &plan->op[op], out_name, bytes);
}

void zr_op_name_format(const zr_plan_t *plan, const zr_op_t *op, char *out_name, size_t bytes) {
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  bool has_unit = op->unit >= 0 && (size_t)op->unit < plan->n_units;
  char micro[16] = "";
  if (op->micro >= 0) snprintf(micro, sizeof micro, "#%d", op->micro);
  snprintf(out_name, bytes, "%s%s%s%s", has_unit ? plan->unit_name[op->unit] : "",
           has_unit ? "/" : "", row != NULL ? row->name : "?", micro);
}
