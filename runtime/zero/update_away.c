/* The update of what lives away from the device: on the host stream, chunk by chunk, so that it
 * hides behind the next step's forward with its traffic.
 *
 *   read    states -> slot                             write   slot -> states
 *   d2h     parameters, gradients -> slots   host  update      h2d  slot -> parameters
 *
 * Only what its home asks for: what lives on the host is updated where it lies. The host has a
 * control block of its own, copied when the step's numbers are known, so that the next step may
 * begin on the device's. */
#include <stddef.h>

#include "runtime/zero/build.h"

bool zr_away_has(const zr_build_t *build) {
  return build->zero->control_away >= 0;
}

static zr_status_t copy_control(zr_build_t *build, size_t begin, size_t end) {
  int64_t bytes = (int64_t)(end - begin);
  return zr_move(build, ZR_OP_D2H, -1, -1,
                 zr_operand_part(build->control, (int64_t)begin, bytes, ZR_READ),
                 zr_operand_part(build->zero->control_away, (int64_t)begin, bytes, ZR_WRITE));
}

/* All but what control_end keeps there from step to step: the last digests and the records. */
zr_status_t zr_away_control(zr_build_t *build) {
  ZR_TRY(copy_control(build, 0, offsetof(zr_control_t, param_digest_valid)));
  return copy_control(build, offsetof(zr_control_t, loss_scale), offsetof(zr_control_t, record));
}

/* One chunk on its way through the update. */
typedef struct {
  const zr_zero_unit_t *unit;
  int32_t index;
  zr_chunk_t elems; /* begin, elems */
  zr_chunk_t state, param, grad;
  int32_t state_slot, param_slot, grad_slot; /* -1: where it lies */
} passage_t;

static zr_operand_t part_as(int32_t buffer, int64_t offset, int64_t bytes, zr_access_t access,
                            zr_dtype_t dtype) {
  if (bytes == 0) return zr_operand_none();
  zr_operand_t operand = zr_operand_part(buffer, offset, bytes, access);
  operand.dtype = (uint8_t)dtype;
  return operand;
}

/* The chunk's parameters on the device: where they are whole, this rank's share of them. */
static zr_operand_t device_param(const zr_build_t *build, const passage_t *p, zr_access_t access) {
  int64_t item = build->param_bytes;
  zr_operand_t operand =
      zr_operand_part(p->unit->param, p->elems.begin * item, p->elems.elems * item, access);
  if (p->unit->optimizer_sharded && !p->unit->param_sharded)
    operand.rank_stride = p->unit->shard_elems * item;
  return operand;
}

static zr_operand_t slot_part(int32_t slot, int64_t bytes, zr_access_t access) {
  return zr_operand_part(slot, 0, bytes, access);
}

static zr_status_t fetch_param(zr_build_t *build, const passage_t *p) {
  if (p->param_slot < 0) return ZR_OK;
  if (build->options->home.param == ZR_TIER_DISK)
    return zr_move(build, ZR_OP_DISK_READ, p->index, -1,
                   zr_operand_part(p->unit->param, p->param.offset, p->param.bytes, ZR_READ),
                   slot_part(p->param_slot, p->param.bytes, ZR_WRITE));
  zr_operand_t from = device_param(build, p, ZR_READ);
  return zr_move(build, ZR_OP_D2H, p->index, -1, from,
                 slot_part(p->param_slot, from.bytes, ZR_WRITE));
}

static zr_status_t return_param(zr_build_t *build, const passage_t *p) {
  if (p->param_slot < 0) return ZR_OK;
  if (build->options->home.param == ZR_TIER_DISK)
    return zr_move(build, ZR_OP_DISK_WRITE, p->index, -1,
                   slot_part(p->param_slot, p->param.bytes, ZR_READ),
                   zr_operand_part(p->unit->param, p->param.offset, p->param.bytes, ZR_WRITE));
  zr_operand_t into = device_param(build, p, ZR_WRITE);
  return zr_move(build, ZR_OP_H2D, p->index, -1, slot_part(p->param_slot, into.bytes, ZR_READ),
                 into);
}

static zr_status_t fetch_grad(zr_build_t *build, const passage_t *p) {
  if (p->grad_slot < 0) return ZR_OK;
  if (p->unit->away_grad >= 0)
    return zr_move(build, ZR_OP_DISK_READ, p->index, -1,
                   zr_operand_part(p->unit->away_grad, p->grad.offset, p->grad.bytes, ZR_READ),
                   slot_part(p->grad_slot, p->grad.bytes, ZR_WRITE));
  int64_t item = build->grad_bytes, bytes = p->elems.elems * item;
  int32_t from = zr_update_gradient_of(build, p->index);
  return zr_move(build, ZR_OP_D2H, p->index, -1,
                 zr_operand_part(from, p->elems.begin * item, bytes, ZR_READ),
                 slot_part(p->grad_slot, bytes, ZR_WRITE));
}

static zr_status_t move_states(zr_build_t *build, const passage_t *p, bool read) {
  if (p->state_slot < 0) return ZR_OK;
  zr_operand_t disk = zr_operand_part(p->unit->away_packed, p->state.offset, p->state.bytes,
                                      read ? ZR_READ : ZR_WRITE);
  zr_operand_t slot = slot_part(p->state_slot, p->state.bytes, read ? ZR_WRITE : ZR_READ);
  return read ? zr_move(build, ZR_OP_DISK_READ, p->index, -1, disk, slot)
              : zr_move(build, ZR_OP_DISK_WRITE, p->index, -1, slot, disk);
}

/* State k, or what the master has besides the parameter (k -1). */
static zr_operand_t state_operand(const zr_build_t *build, const passage_t *p, int k) {
  int64_t low = zr_low_bytes(build->zero), item = zr_dtype_bytes(build->options->state_dtype);
  int64_t n = p->elems.elems, bytes = n * (k < 0 ? low : item);
  if (k >= zr_zero_n_states(build->options) || bytes == 0) return zr_operand_none();
  if (p->state_slot < 0) {
    int32_t buffer = k < 0 ? p->unit->away_low : p->unit->away_state[k];
    return zr_operand_part(buffer, p->elems.begin * (k < 0 ? low : item), bytes, ZR_ACCUMULATE);
  }
  zr_dtype_t dtype = build->options->state_dtype;
  if (k < 0) dtype = build->param_dtype == ZR_BF16 ? ZR_I16 : ZR_F32;
  return part_as(p->state_slot, k < 0 ? 0 : n * (low + k * item), bytes, ZR_ACCUMULATE, dtype);
}

/* The operation itself; the operands stand where ZR_UPDATE_... says. */
static zr_status_t update_chunk(zr_build_t *build, const passage_t *p) {
  const zr_zero_unit_t *unit = p->unit;
  int64_t n = p->elems.elems, pb = n * build->param_bytes, gb = n * build->grad_bytes;
  int64_t begin = p->elems.begin;
  zr_operand_t param =
      p->param_slot < 0
          ? zr_operand_part(unit->param, begin * build->param_bytes, pb, ZR_ACCUMULATE)
          : part_as(p->param_slot, 0, pb, ZR_ACCUMULATE, build->param_dtype);
  zr_operand_t grad = p->grad_slot < 0
                          ? zr_operand_part(unit->away_grad, begin * build->grad_bytes, gb, ZR_READ)
                          : part_as(p->grad_slot, 0, gb, ZR_READ, build->grad_dtype);
  zr_operand_t operand[] = {
      param,
      grad,
      state_operand(build, p, 0),
      state_operand(build, p, 1),
      zr_build_all(build, unit->away_layout, ZR_READ),
      zr_operand_part(build->zero->control_away, 0, (int64_t)sizeof(zr_control_t), ZR_ACCUMULATE),
      state_operand(build, p, -1)};
  bool cut = unit->optimizer_sharded;
  int64_t attr[] = {n, begin, cut ? unit->shard_elems : 0, unit->shard_elems};
  return zr_build_op_on_host(build, build->options->optimizer, p->index, attr, 0, 7, operand);
}

static int32_t take(zr_build_t *build, zr_slots_t *slots) {
  return slots->bytes == 0 ? -1 : zr_slot_take(build, slots);
}

zr_status_t zr_away_update(zr_build_t *build, int32_t index) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  zr_chunks_t states = zr_state_chunks(build->zero, unit);
  zr_chunks_t params = zr_param_chunks(build->zero, unit);
  zr_chunks_t grads = zr_grad_chunks(build->zero, unit);
  for (int64_t c = 0; c < zr_chunks_count(&states); c++) {
    passage_t p = {.unit = unit,
                   .index = index,
                   .elems = zr_chunk_at(&states, c),
                   .state = zr_chunk_at(&states, c),
                   .param = zr_chunk_at(&params, c),
                   .grad = zr_chunk_at(&grads, c),
                   .state_slot = take(build, &build->states),
                   .param_slot = take(build, &build->params),
                   .grad_slot = take(build, &build->grads)};
    ZR_TRY(move_states(build, &p, true));
    ZR_TRY(fetch_param(build, &p));
    ZR_TRY(fetch_grad(build, &p));
    ZR_TRY(update_chunk(build, &p));
    ZR_TRY(move_states(build, &p, false));
    ZR_TRY(return_param(build, &p));
  }
  return ZR_OK;
}
