/* One line for each thing, words separated by one space:
 *
 *   zerorun plan 1
 *   plan step ranks 2 finished
 *   arena device 4096 host 0 disk 0            (likewise peak, bound)
 *   unit layers.0
 *   buffer flat device gathered fp32 4096 persistent at 0
 *   op 0 all_gather comm unit layers.0 micro 0 phase 1 shard_bytes 2048
 *     shard R flat v0 0 +2048 rank 2048
 *     flat W flat v1 0 +4096
 *     wait 7 back placement
 */
#include <stdlib.h>

#include "runtime/plan/text.h"
#include "runtime/plan/text_internal.h"

static void write_tiers(FILE *file, const char *what, const int64_t bytes[ZR_N_TIERS]) {
  fprintf(file, "%s", what);
  for (int tier = 0; tier < ZR_N_TIERS; tier++)
    fprintf(file, " %s %lld", zr_tier_name((zr_tier_t)tier), (long long)bytes[tier]);
  fputc('\n', file);
}

static void write_buffer(FILE *file, const zr_buffer_t *buffer) {
  fprintf(file, "buffer %s %s %s %s %lld%s at ", buffer->name,
          zr_tier_name((zr_tier_t)buffer->tier), zr_category_name((zr_category_t)buffer->category),
          zr_dtype_name((zr_dtype_t)buffer->dtype), (long long)buffer->bytes,
          buffer->persistent ? " persistent" : "");
  if (buffer->offset < 0)
    fputs("-\n", file);
  else
    fprintf(file, "%lld\n", (long long)buffer->offset);
}

/* The shortest decimal that reads back to the same double. */
static void write_real(FILE *file, const char *name, double value) {
  char text[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  fprintf(file, " %s %s", name, text);
}

static void write_operand(FILE *file, const zr_plan_t *plan, const char *name,
                          const zr_operand_t *operand) {
  fprintf(file, "  %s %c %s v%u %lld +%lld", name, zr_text_access_letter(operand->access),
          plan->buffer[operand->buffer].name, operand->version, (long long)operand->offset,
          (long long)operand->bytes);
  if (operand->dtype != ZR_U8) fprintf(file, " as %s", zr_dtype_name((zr_dtype_t)operand->dtype));
  if (operand->rank_stride != 0) fprintf(file, " rank %lld", (long long)operand->rank_stride);
  fputc('\n', file);
}

static void write_op(FILE *file, const zr_plan_t *plan, size_t at) {
  const zr_op_t *op = &plan->op[at];
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  fprintf(file, "op %zu %s %s", at, row->name, zr_stream_name((zr_stream_id_t)op->stream));
  if (op->unit >= 0) fprintf(file, " unit %s", plan->unit_name[op->unit]);
  if (op->micro >= 0) fprintf(file, " micro %d", op->micro);
  fprintf(file, " phase %d", op->phase);
  for (int i = 0; i < row->n_attrs; i++)
    fprintf(file, " %s %lld", row->attr[i], (long long)op->shape.attr[i]);
  if (row->has_real) write_real(file, row->real_name, op->shape.real);
  fputc('\n', file);
  for (int i = 0; i < row->n_operands; i++) {
    if (op->operand[i].buffer >= 0)
      write_operand(file, plan, row->operand[i].name, &op->operand[i]);
  }
  for (int i = 0; i < op->n_waits; i++)
    fprintf(file, "  wait %d%s%s\n", op->wait[i].op, op->wait[i].back ? " back" : "",
            op->wait[i].placement_only ? " placement" : "");
}

zr_status_t zr_text_write(const zr_plan_t *plan, FILE *file) {
  fprintf(file, "%s\nplan %s ranks %d%s\n", ZR_TEXT_HEADER, plan->name, plan->n_ranks,
          plan->finished ? " finished" : "");
  write_tiers(file, "arena", plan->arena_bytes);
  write_tiers(file, "peak", plan->peak_bytes);
  write_tiers(file, "bound", plan->lower_bound_bytes);
  for (size_t i = 0; i < plan->n_units; i++) fprintf(file, "unit %s\n", plan->unit_name[i]);
  for (size_t i = 0; i < plan->n_buffers; i++) write_buffer(file, &plan->buffer[i]);
  for (size_t i = 0; i < plan->n_ops; i++) write_op(file, plan, i);
  if (fflush(file) != 0 || ferror(file))
    return zr_fail(ZR_ERR_IO, "plan %s: its text form can not be written: %m", plan->name);
  return ZR_OK;
}
