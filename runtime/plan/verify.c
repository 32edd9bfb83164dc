/* The verifier's entry and its messages. */
#include "runtime/plan/verify.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/plan/verify_internal.h"

const char *zr_verify_op_text(const zr_verify_t *v, int32_t op, char text[ZR_VERIFY_NAME_BYTES]) {
  char name[ZR_PLAN_NAME_BYTES + 24];
  zr_plan_op_name(v->plan, op, name, sizeof name);
  snprintf(text, ZR_VERIFY_NAME_BYTES, "op %d %s on %s", op, name,
           zr_stream_name((zr_stream_id_t)v->plan->op[op].stream));
  return text;
}

zr_status_t zr_verify_fail(const zr_verify_t *v, int32_t op, int32_t other_op, const char *format,
                           ...) {
  va_list arguments;
  va_start(arguments, format);
  v->violation->op = op;
  v->violation->other_op = other_op;
  vsnprintf(v->violation->text, sizeof v->violation->text, format, arguments);
  va_end(arguments);
  return zr_fail(ZR_ERR_VERIFY, "plan %s: %s", v->plan->name, v->violation->text);
}

int32_t zr_verify_user(const zr_plan_t *plan, int32_t buffer, uint8_t access, int32_t from) {
  for (int32_t op = from; op < (int32_t)plan->n_ops; op++) {
    for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
      const zr_operand_t *operand = &plan->op[op].operand[i];
      if (operand->buffer == buffer && (operand->access & access) != 0) return op;
    }
  }
  return -1;
}

zr_verify_range_t zr_verify_range(const zr_verify_t *v, const zr_operand_t *operand, int rank) {
  const zr_buffer_t *buffer = &v->plan->buffer[operand->buffer];
  int64_t begin = v->tier_base[buffer->tier] + buffer->offset + operand->offset;
  if (rank != ZR_VERIFY_ALL_RANKS) {
    begin += rank * operand->rank_stride;
    return (zr_verify_range_t){begin, begin + operand->bytes};
  }
  int64_t moved = (v->plan->n_ranks - 1) * operand->rank_stride;
  return (zr_verify_range_t){begin + (moved < 0 ? moved : 0),
                             begin + operand->bytes + (moved > 0 ? moved : 0)};
}

zr_status_t zr_verify_any_stream(const zr_plan_t *plan, const int64_t *budget_bytes,
                                 zr_violation_t *out_violation) {
  zr_violation_t violation = {.op = -1, .other_op = -1};
  zr_verify_t v = {plan, plan->alloc, out_violation != NULL ? out_violation : &violation, {0}};
  *v.violation = violation;
  ZR_TRY(zr_verify_rows(&v, budget_bytes));
  for (int tier = 1; tier < ZR_N_TIERS; tier++) {
    v.tier_base[tier] = v.tier_base[tier - 1] + plan->arena_bytes[tier - 1];
  }
  ZR_TRY(zr_verify_list(&v));
  return zr_verify_order(&v);
}

zr_status_t zr_verify(const zr_plan_t *plan, const int64_t budget_bytes[ZR_N_TIERS],
                      zr_violation_t *out_violation) {
  ZR_TRY(zr_verify_any_stream(plan, budget_bytes, out_violation));
  zr_violation_t violation = {.op = -1, .other_op = -1};
  zr_verify_t v = {plan, plan->alloc, out_violation != NULL ? out_violation : &violation, {0}};
  return zr_verify_streams(&v);
}
