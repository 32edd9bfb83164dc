/* Copies between tiers, cut into chunks where they go through slots. */
#include "runtime/zero/build.h"

int32_t zr_slot_take(const zr_build_t *build, zr_slots_t *slots) {
  return slots->buffer[slots->next++ % build->options->n_slots];
}

zr_status_t zr_move(zr_build_t *build, int32_t kind, int32_t unit, int64_t micro,
                    zr_operand_t source, zr_operand_t destination) {
  zr_operand_t operand[] = {source, destination};
  return zr_build_op(build, kind, unit, micro, &source.bytes, 0, 2, operand);
}

static bool is_on_disk(const zr_build_t *build, int32_t buffer) {
  return build->plan->buffer[buffer].tier == ZR_TIER_DISK;
}

/* --- values ---------------------------------------------------------------------------------- */

/* The pieces of a value that go through the disk's slots. */
static zr_chunks_t value_chunks(const zr_build_t *build, int32_t value) {
  return (zr_chunks_t){build->plan->buffer[value].bytes, build->values.bytes, 1};
}

zr_status_t zr_move_out(zr_build_t *build, int32_t unit, int64_t micro, int32_t value,
                        int32_t away) {
  int64_t bytes = build->plan->buffer[value].bytes;
  if (!is_on_disk(build, away))
    return zr_move(build, ZR_OP_D2H, unit, micro, zr_build_all(build, value, ZR_READ),
                   zr_operand_part(away, 0, bytes, ZR_WRITE));
  zr_chunks_t chunks = value_chunks(build, value);
  for (int64_t c = 0; c < zr_chunks_count(&chunks); c++) {
    zr_chunk_t chunk = zr_chunk_at(&chunks, c);
    int32_t slot = zr_slot_take(build, &build->values);
    ZR_TRY(zr_move(build, ZR_OP_D2H, unit, micro,
                   zr_operand_part(value, chunk.begin, chunk.elems, ZR_READ),
                   zr_operand_part(slot, 0, chunk.elems, ZR_WRITE)));
    ZR_TRY(zr_move(build, ZR_OP_DISK_WRITE, unit, micro,
                   zr_operand_part(slot, 0, chunk.bytes, ZR_READ),
                   zr_operand_part(away, chunk.offset, chunk.bytes, ZR_WRITE)));
  }
  return ZR_OK;
}

zr_status_t zr_move_in(zr_build_t *build, int32_t unit, int64_t micro, int32_t away,
                       int32_t value) {
  int64_t bytes = build->plan->buffer[value].bytes;
  if (!is_on_disk(build, away))
    return zr_move(build, ZR_OP_H2D, unit, micro, zr_operand_part(away, 0, bytes, ZR_READ),
                   zr_build_all(build, value, ZR_WRITE));
  zr_chunks_t chunks = value_chunks(build, value);
  for (int64_t c = 0; c < zr_chunks_count(&chunks); c++) {
    zr_chunk_t chunk = zr_chunk_at(&chunks, c);
    int32_t slot = zr_slot_take(build, &build->values);
    ZR_TRY(zr_move(build, ZR_OP_DISK_READ, unit, micro,
                   zr_operand_part(away, chunk.offset, chunk.bytes, ZR_READ),
                   zr_operand_part(slot, 0, chunk.bytes, ZR_WRITE)));
    ZR_TRY(zr_move(build, ZR_OP_H2D, unit, micro, zr_operand_part(slot, 0, chunk.elems, ZR_READ),
                   zr_operand_part(value, chunk.begin, chunk.elems, ZR_WRITE)));
  }
  return ZR_OK;
}

/* --- parameters and gradients ---------------------------------------------------------------- */

/* On h2d: among the reads it would stand behind all of the last step's updates. */
static zr_status_t load_chunk(zr_build_t *build, int32_t index, int32_t disk,
                              const zr_chunk_t *chunk, int32_t slot) {
  zr_operand_t operand[] = {zr_operand_part(disk, chunk->offset, chunk->bytes, ZR_READ),
                            zr_operand_part(slot, 0, chunk->bytes, ZR_WRITE)};
  return zr_build_op_on(build, ZR_ON(ZR_STREAM_H2D), ZR_OP_DISK_READ, index, -1, &chunk->bytes, 0,
                        2, operand);
}

zr_status_t zr_move_param(zr_build_t *build, int32_t index, int32_t into) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  zr_chunks_t chunks = zr_home_param_chunks(build, unit);
  int64_t item = chunks.item;
  if (!is_on_disk(build, unit->param))
    return zr_move(build, ZR_OP_H2D, index, -1,
                   zr_operand_part(unit->param, 0, chunks.elems * item, ZR_READ),
                   zr_build_all(build, into, ZR_WRITE));
  for (int64_t c = 0; c < zr_chunks_count(&chunks); c++) {
    zr_chunk_t chunk = zr_chunk_at(&chunks, c);
    int32_t slot = zr_slot_take(build, &build->loads);
    ZR_TRY(load_chunk(build, index, unit->param, &chunk, slot));
    ZR_TRY(zr_move(build, ZR_OP_H2D, index, -1,
                   zr_operand_part(slot, 0, chunk.elems * item, ZR_READ),
                   zr_operand_part(into, chunk.begin * item, chunk.elems * item, ZR_WRITE)));
  }
  return ZR_OK;
}

zr_status_t zr_move_grad(zr_build_t *build, int32_t index, int32_t from) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  zr_chunks_t chunks = zr_home_grad_chunks(build, unit);
  int64_t item = chunks.item;
  if (!is_on_disk(build, unit->away_grad))
    return zr_move(build, ZR_OP_D2H, index, -1,
                   zr_operand_part(from, 0, chunks.elems * item, ZR_READ),
                   zr_operand_part(unit->away_grad, 0, chunks.elems * item, ZR_WRITE));
  for (int64_t c = 0; c < zr_chunks_count(&chunks); c++) {
    zr_chunk_t chunk = zr_chunk_at(&chunks, c);
    int32_t slot = zr_slot_take(build, &build->spills);
    ZR_TRY(zr_move(build, ZR_OP_D2H, index, -1,
                   zr_operand_part(from, chunk.begin * item, chunk.elems * item, ZR_READ),
                   zr_operand_part(slot, 0, chunk.elems * item, ZR_WRITE)));
    ZR_TRY(zr_move(build, ZR_OP_DISK_WRITE, index, -1,
                   zr_operand_part(slot, 0, chunk.bytes, ZR_READ),
                   zr_operand_part(unit->away_grad, chunk.offset, chunk.bytes, ZR_WRITE)));
  }
  return ZR_OK;
}
