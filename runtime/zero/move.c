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

static zr_operand_t piece(int32_t buffer, const zr_chunks_t *chunks, const zr_chunk_t *chunk,
                          zr_access_t access) {
  return zr_operand_part(buffer, chunk->begin * chunks->item, chunk->elems * chunks->item, access);
}

/* From a buffer on the device to the host, or through slots to the disk. */
static zr_status_t move_out(zr_build_t *build, int32_t unit, int64_t micro, int32_t from,
                            int32_t away, zr_chunks_t chunks, zr_slots_t *slots) {
  int64_t bytes = chunks.elems * chunks.item;
  if (!is_on_disk(build, away))
    return zr_move(build, ZR_OP_D2H, unit, micro, zr_operand_part(from, 0, bytes, ZR_READ),
                   zr_operand_part(away, 0, bytes, ZR_WRITE));
  for (int64_t c = 0; c < zr_chunks_count(&chunks); c++) {
    zr_chunk_t chunk = zr_chunk_at(&chunks, c);
    int32_t slot = zr_slot_take(build, slots);
    ZR_TRY(zr_move(build, ZR_OP_D2H, unit, micro, piece(from, &chunks, &chunk, ZR_READ),
                   zr_operand_part(slot, 0, chunk.elems * chunks.item, ZR_WRITE)));
    ZR_TRY(zr_move(build, ZR_OP_DISK_WRITE, unit, micro,
                   zr_operand_part(slot, 0, chunk.bytes, ZR_READ),
                   zr_operand_part(away, chunk.offset, chunk.bytes, ZR_WRITE)));
  }
  return ZR_OK;
}

/* And back; the disk is read on stream `on` (0: its own). */
static zr_status_t move_in(zr_build_t *build, uint8_t on, int32_t unit, int64_t micro, int32_t away,
                           int32_t into, zr_chunks_t chunks, zr_slots_t *slots) {
  int64_t bytes = chunks.elems * chunks.item;
  if (!is_on_disk(build, away))
    return zr_move(build, ZR_OP_H2D, unit, micro, zr_operand_part(away, 0, bytes, ZR_READ),
                   zr_operand_part(into, 0, bytes, ZR_WRITE));
  for (int64_t c = 0; c < zr_chunks_count(&chunks); c++) {
    zr_chunk_t chunk = zr_chunk_at(&chunks, c);
    int32_t slot = zr_slot_take(build, slots);
    zr_operand_t read[] = {zr_operand_part(away, chunk.offset, chunk.bytes, ZR_READ),
                           zr_operand_part(slot, 0, chunk.bytes, ZR_WRITE)};
    ZR_TRY(zr_build_op_on(build, on, ZR_OP_DISK_READ, unit, micro, &chunk.bytes, 0, 2, read));
    ZR_TRY(zr_move(build, ZR_OP_H2D, unit, micro,
                   zr_operand_part(slot, 0, chunk.elems * chunks.item, ZR_READ),
                   piece(into, &chunks, &chunk, ZR_WRITE)));
  }
  return ZR_OK;
}

/* A value goes through the disk's slots in pieces of their size. */
static zr_chunks_t value_chunks(const zr_build_t *build, int32_t value) {
  return (zr_chunks_t){build->plan->buffer[value].bytes, build->values.bytes, 1};
}

zr_status_t zr_move_out(zr_build_t *build, int32_t unit, int64_t micro, int32_t value,
                        int32_t away) {
  return move_out(build, unit, micro, value, away, value_chunks(build, value), &build->values);
}

zr_status_t zr_move_in(zr_build_t *build, int32_t unit, int64_t micro, int32_t away,
                       int32_t value) {
  return move_in(build, 0, unit, micro, away, value, value_chunks(build, value), &build->values);
}

/* On h2d: among the reads it would stand behind all of the last step's updates. */
zr_status_t zr_move_param(zr_build_t *build, int32_t index, int32_t into) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  return move_in(build, ZR_ON(ZR_STREAM_H2D), index, -1, unit->param, into,
                 zr_param_chunks(build->zero, unit), &build->loads);
}

zr_status_t zr_move_grad(zr_build_t *build, int32_t index, int32_t from) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  return move_out(build, index, -1, from, unit->away_grad, zr_grad_chunks(build->zero, unit),
                  &build->spills);
}
