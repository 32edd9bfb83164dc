/* Where a state's elements lie, whatever their home. */
#include "runtime/zero/chunk.h"
#include "runtime/zero/zero.h"

static int64_t state_bytes(const zr_zero_t *zero) {
  return zr_dtype_bytes(zero->options.state_dtype);
}

static int64_t held_elems(const zr_zero_unit_t *unit, int held) {
  return zr_held_elems(unit, held == ZR_HELD_PARAM ? unit->param_sharded : unit->optimizer_sharded);
}

static zr_zero_place_t place_param(const zr_zero_t *zero, const zr_zero_unit_t *unit,
                                   int64_t elem) {
  zr_chunks_t chunks = zr_param_chunks(zero, unit);
  int64_t item = chunks.item;
  if (zero->options.home.param != ZR_TIER_DISK)
    return (zr_zero_place_t){unit->param, elem * item, chunks.elems - elem};
  zr_chunk_t chunk = zr_chunk_of(&chunks, elem);
  return (zr_zero_place_t){unit->param, chunk.offset + (elem - chunk.begin) * item,
                           chunk.begin + chunk.elems - elem};
}

static zr_zero_place_t place_packed(const zr_zero_t *zero, const zr_zero_unit_t *unit, int held,
                                    int64_t elem) {
  int64_t low = zr_low_bytes(zero), state = state_bytes(zero);
  zr_chunks_t chunks = zr_state_chunks(zero, unit);
  zr_chunk_t chunk = zr_chunk_of(&chunks, elem);
  int64_t item = held == ZR_HELD_LOW ? low : state;
  int64_t before = held == ZR_HELD_LOW ? 0 : low + (held - ZR_HELD_STATE) * state;
  return (zr_zero_place_t){unit->away_packed,
                           chunk.offset + chunk.elems * before + (elem - chunk.begin) * item,
                           chunk.begin + chunk.elems - elem};
}

zr_zero_place_t zr_zero_place(const zr_zero_t *zero, size_t index, int held, int64_t elem) {
  const zr_zero_unit_t *unit = &zero->unit[index];
  if (held == ZR_HELD_PARAM) return place_param(zero, unit, elem);
  int k = held - ZR_HELD_STATE;
  int64_t item = held == ZR_HELD_LOW ? zr_low_bytes(zero) : state_bytes(zero);
  if (elem >= unit->away_elems)
    return (zr_zero_place_t){held == ZR_HELD_LOW ? unit->low : unit->state[k],
                             (elem - unit->away_elems) * item, held_elems(unit, held) - elem};
  if (unit->away_packed >= 0) return place_packed(zero, unit, held, elem);
  return (zr_zero_place_t){held == ZR_HELD_LOW ? unit->away_low : unit->away_state[k], elem * item,
                           unit->away_elems - elem};
}
