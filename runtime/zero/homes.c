/* Homes: the persistent buffers of every state by where it lives, and the slots through which it
 * moves. */
#include <stdio.h>

#include "runtime/zero/build.h"

/* --- options --------------------------------------------------------------------------------- */

static bool is_tier(uint8_t home) {
  return home < ZR_N_TIERS;
}

zr_status_t zr_home_resolve(zr_zero_options_t *o) {
  const zr_homes_t *home = &o->home;
  if (!is_tier(home->param) || !is_tier(home->grad) || !is_tier(home->optimizer) ||
      !is_tier(home->activation))
    return zr_fail(ZR_ERR_CONFIG, "plan.homes: no such tier");
  if (o->chunk_elems == 0) o->chunk_elems = 1 << 20;
  if (o->chunk_elems < ZR_BLOCK_ELEMS || o->chunk_elems % ZR_BLOCK_ELEMS != 0)
    return zr_fail(ZR_ERR_CONFIG, "plan.chunk: %lld is not a multiple of %d elements",
                   (long long)o->chunk_elems, (int)ZR_BLOCK_ELEMS);
  if (o->n_slots == 0) o->n_slots = 8;
  if (o->n_slots < 1 || o->n_slots > ZR_MAX_SLOTS)
    return zr_fail(ZR_ERR_CONFIG, "plan.slots: %lld is not between 1 and %d", (long long)o->n_slots,
                   (int)ZR_MAX_SLOTS);
  if (o->ratio == 0) o->ratio = 1;
  if (!(o->ratio > 0 && o->ratio <= 1))
    return zr_fail(ZR_ERR_CONFIG, "offload_optimizer.ratio: %g is not above 0 and at most 1",
                   o->ratio);
  if (home->param != ZR_TIER_DEVICE && o->n_ranks > 1 && o->stage != 3)
    return zr_fail(ZR_ERR_CONFIG,
                   "parameters live on %s (offload_param, plan.homes.param) only at stage 3 or on "
                   "one rank; zero_optimization.stage is %d",
                   zr_tier_name((zr_tier_t)home->param), o->stage);
  if (home->optimizer == ZR_TIER_DEVICE &&
      (home->param != ZR_TIER_DEVICE || home->grad != ZR_TIER_DEVICE))
    return zr_fail(ZR_ERR_CONFIG,
                   "parameters or gradients away from the device need the optimizer's states away "
                   "too: set offload_optimizer.device or plan.homes.optimizer");
  if (o->ratio < 1 && home->param != ZR_TIER_DEVICE)
    return zr_fail(ZR_ERR_CONFIG,
                   "offload_optimizer.ratio below 1 updates on the device, where the parameters do "
                   "not live: remove it, or offload_param");
  return ZR_OK;
}

/* --- buffers --------------------------------------------------------------------------------- */

zr_status_t zr_home_buffer(zr_build_t *build, const char *unit, const char *what, zr_tier_t tier,
                           zr_category_t category, zr_dtype_t dtype, int64_t bytes,
                           int32_t *out_buffer) {
  char name[2 * ZR_PLAN_NAME_BYTES];
  snprintf(name, sizeof name, "%s%s%s", unit, unit[0] ? "/" : "", what);
  if (tier != ZR_TIER_DEVICE) bytes = zr_pad_bytes(bytes);
  return zr_plan_add_buffer(build->plan, name, tier, category, dtype, bytes, true, out_buffer);
}

/* A state of `elems` elements on the device, and its first ones on the host. */
static zr_status_t split_state(zr_build_t *build, const zr_zero_unit_t *unit, const char *what,
                               zr_dtype_t dtype, int64_t elems, int32_t *out_here,
                               int32_t *out_away) {
  int64_t item = zr_dtype_bytes(dtype), here = elems - unit->away_elems;
  char name[40];
  if (here > 0)
    ZR_TRY(zr_home_buffer(build, unit->name, what, ZR_TIER_DEVICE, ZR_CATEGORY_OPTIMIZER, dtype,
                          here * item, out_here));
  if (unit->away_elems == 0 || build->options->home.optimizer != ZR_TIER_HOST) return ZR_OK;
  (void)snprintf(name, sizeof name, "%s.away", what);
  return zr_home_buffer(build, unit->name, name, ZR_TIER_HOST, ZR_CATEGORY_OPTIMIZER, dtype,
                        unit->away_elems * item, out_away);
}

static zr_status_t optimizer_states(zr_build_t *build, zr_zero_unit_t *unit, int64_t elems) {
  const zr_zero_options_t *o = build->options;
  zr_dtype_t low = build->param_dtype == ZR_BF16 ? ZR_I16 : ZR_F32;
  unit->low = unit->away_low = unit->away_packed = -1;
  if (build->param_dtype != ZR_F32)
    ZR_TRY(split_state(build, unit, "low", low, elems, &unit->low, &unit->away_low));
  for (int k = 0; k < ZR_MAX_STATES; k++) {
    unit->state[k] = unit->away_state[k] = -1;
    if (k >= zr_zero_n_states(o)) continue;
    ZR_TRY(split_state(build, unit, zr_zero_state_name(o, k), o->state_dtype, elems,
                       &unit->state[k], &unit->away_state[k]));
  }
  if (unit->away_elems == 0 || o->home.optimizer != ZR_TIER_DISK) return ZR_OK;
  zr_chunks_t chunks = zr_state_chunks(build->zero, unit);
  if (chunks.item == 0) return ZR_OK; /* SGD without momentum keeps nothing */
  return zr_home_buffer(build, unit->name, "states", ZR_TIER_DISK, ZR_CATEGORY_OPTIMIZER, ZR_U8,
                        zr_chunks_bytes(&chunks), &unit->away_packed);
}

static zr_status_t layouts(zr_build_t *build, zr_zero_unit_t *unit, int64_t elems) {
  int64_t bytes =
      (int64_t)sizeof(zr_kern_layout_t) + unit->n_tensors * (int64_t)sizeof(zr_kern_tensor_t);
  unit->layout = unit->away_layout = -1;
  if (unit->away_elems < elems)
    ZR_TRY(zr_home_buffer(build, unit->name, "layout", ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_U8,
                          bytes, &unit->layout));
  if (unit->away_elems == 0) return ZR_OK;
  return zr_home_buffer(build, unit->name, "layout.away", ZR_TIER_HOST, ZR_CATEGORY_DATA, ZR_U8,
                        bytes, &unit->away_layout);
}

static zr_status_t parameters(zr_build_t *build, zr_zero_unit_t *unit) {
  zr_tier_t home = (zr_tier_t)build->options->home.param;
  zr_chunks_t chunks = zr_param_chunks(build->zero, unit);
  int64_t bytes = home == ZR_TIER_DISK ? zr_chunks_bytes(&chunks) : chunks.elems * chunks.item;
  return zr_home_buffer(build, unit->name, "param", home, ZR_CATEGORY_PARAM,
                        home == ZR_TIER_DISK ? ZR_U8 : build->param_dtype, bytes, &unit->param);
}

static zr_status_t gradients(zr_build_t *build, zr_zero_unit_t *unit, int32_t *out_grad) {
  const zr_zero_options_t *o = build->options;
  bool everywhere = o->n_ranks > 1 && o->stage == 0; /* gathered on the device at last */
  unit->away_grad = *out_grad = -1;
  if (o->home.grad != ZR_TIER_DEVICE && !everywhere) {
    zr_chunks_t chunks = zr_grad_chunks(build->zero, unit);
    bool on_disk = o->home.grad == ZR_TIER_DISK;
    int64_t bytes = on_disk ? zr_chunks_bytes(&chunks) : chunks.elems * chunks.item;
    return zr_home_buffer(build, unit->name, "grad", (zr_tier_t)o->home.grad, ZR_CATEGORY_GRAD,
                          on_disk ? ZR_U8 : build->grad_dtype, bytes, &unit->away_grad);
  }
  if (o->stage >= 2) return ZR_OK;
  return zr_home_buffer(build, unit->name, "grad", ZR_TIER_DEVICE, ZR_CATEGORY_GRAD,
                        build->grad_dtype, unit->flat_elems * build->grad_bytes, out_grad);
}

/* The first elements, in whole chunks. */
static int64_t away_elems(const zr_zero_options_t *o, int64_t held) {
  if (o->home.optimizer == ZR_TIER_DEVICE) return 0;
  int64_t chunk = o->chunk_elems;
  int64_t n_chunks = (int64_t)((double)held * o->ratio / (double)chunk + 0.999999);
  return o->ratio >= 1 || n_chunks * chunk > held ? held : n_chunks * chunk;
}

zr_status_t zr_home_unit(zr_build_t *build, zr_zero_unit_t *unit, int32_t *out_grad) {
  const zr_zero_options_t *o = build->options;
  int stage = o->n_ranks > 1 ? o->stage : 0;
  unit->param_sharded = stage >= 3;
  unit->optimizer_sharded = stage >= 1;
  int64_t held = zr_held_elems(unit, unit->optimizer_sharded);
  unit->away_elems = away_elems(o, held);
  ZR_TRY(layouts(build, unit, held));
  ZR_TRY(parameters(build, unit));
  ZR_TRY(optimizer_states(build, unit, held));
  return gradients(build, unit, out_grad);
}

/* --- slots ----------------------------------------------------------------------------------- */

/* The bytes of the largest chunk of any unit. */
static int64_t largest_chunk(const zr_build_t *build,
                             zr_chunks_t (*chunks_of)(const zr_zero_t *, const zr_zero_unit_t *)) {
  int64_t most = 0;
  for (size_t u = 0; u < build->zero->n_units; u++) {
    zr_chunks_t chunks = chunks_of(build->zero, &build->zero->unit[u]);
    if (chunks.elems == 0) continue;
    int64_t bytes = zr_chunk_at(&chunks, 0).bytes;
    if (bytes > most) most = bytes;
  }
  return most;
}

static zr_status_t add_slots(zr_build_t *build, const char *what, zr_category_t category,
                             int64_t bytes, zr_slots_t *slots) {
  if (bytes == 0) return ZR_OK;
  slots->bytes = zr_pad_bytes(bytes);
  for (int64_t k = 0; k < build->options->n_slots; k++) {
    char name[32];
    snprintf(name, sizeof name, "slot.%s.%lld", what, (long long)k);
    ZR_TRY(zr_home_buffer(build, "", name, ZR_TIER_HOST, category, ZR_U8, slots->bytes,
                          &slots->buffer[k]));
  }
  return ZR_OK;
}

zr_status_t zr_home_slots(zr_build_t *build) {
  const zr_homes_t *home = &build->options->home;
  build->norm_unit = -1;
  build->zero->control_away = -1;
  int64_t params = largest_chunk(build, zr_param_chunks);
  int64_t grads = largest_chunk(build, zr_grad_chunks);
  if (home->optimizer != ZR_TIER_DEVICE) {
    ZR_TRY(zr_home_buffer(build, "", "ctl.away", ZR_TIER_HOST, ZR_CATEGORY_DATA, ZR_U8,
                          (int64_t)sizeof(zr_control_t), &build->zero->control_away));
    if (home->param != ZR_TIER_HOST)
      ZR_TRY(add_slots(build, "param", ZR_CATEGORY_PARAM, params, &build->params));
    if (home->grad != ZR_TIER_HOST || build->zero->unit[0].away_grad < 0)
      ZR_TRY(add_slots(build, "grad", ZR_CATEGORY_GRAD, grads, &build->grads));
  }
  if (home->optimizer == ZR_TIER_DISK)
    ZR_TRY(add_slots(build, "states", ZR_CATEGORY_OPTIMIZER, largest_chunk(build, zr_state_chunks),
                     &build->states));
  if (home->param == ZR_TIER_DISK)
    ZR_TRY(add_slots(build, "load", ZR_CATEGORY_GATHERED, params, &build->loads));
  if (home->grad == ZR_TIER_DISK)
    ZR_TRY(add_slots(build, "spill", ZR_CATEGORY_GRAD, grads, &build->spills));
  bool partials = home->grad == ZR_TIER_DISK && build->options->order == ZR_ORDER_DEPTH &&
                  build->options->n_micro > 1;
  if (home->activation == ZR_TIER_DISK || partials)
    ZR_TRY(add_slots(build, "value", ZR_CATEGORY_ACTIVATION, build->options->chunk_elems * 4,
                     &build->values));
  return ZR_OK;
}

/* --- what the load plan fills ---------------------------------------------------------------- */

static zr_status_t fill_part(zr_build_t *build, int32_t unit, int32_t slot, int64_t offset,
                             int64_t bytes, zr_dtype_t dtype, double value) {
  if (bytes == 0) return ZR_OK;
  int64_t elems = bytes / zr_dtype_bytes(dtype);
  zr_operand_t operand = zr_operand_part(slot, offset, bytes, ZR_WRITE);
  operand.dtype = (uint8_t)dtype;
  return zr_build_op_on_host(build, ZR_OP_FILL, unit, &elems, value, 1, &operand);
}

/* Every byte of the disk is written before any is read. */
static zr_status_t fill_disk(zr_build_t *build, int32_t unit, int32_t buffer, zr_chunks_t chunks,
                             zr_slots_t *slots, int64_t low_bytes, double state_value) {
  for (int64_t c = 0; c < zr_chunks_count(&chunks); c++) {
    zr_chunk_t chunk = zr_chunk_at(&chunks, c);
    int32_t slot = zr_slot_take(build, slots);
    int64_t low = chunk.elems * low_bytes, all = chunk.elems * chunks.item;
    zr_dtype_t dtype = low_bytes == chunks.item ? ZR_F32 : build->options->state_dtype;
    ZR_TRY(fill_part(build, unit, slot, 0, low, ZR_F32, 0));
    ZR_TRY(fill_part(build, unit, slot, low, all - low, dtype, state_value));
    ZR_TRY(fill_part(build, unit, slot, all, chunk.bytes - all, ZR_F32, 0));
    ZR_TRY(zr_move(build, ZR_OP_DISK_WRITE, unit, -1,
                   zr_operand_part(slot, 0, chunk.bytes, ZR_READ),
                   zr_operand_part(buffer, chunk.offset, chunk.bytes, ZR_WRITE)));
  }
  return ZR_OK;
}

static zr_status_t fill_states(zr_build_t *build, int32_t index) {
  const zr_zero_options_t *o = build->options;
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  int64_t item = zr_dtype_bytes(o->state_dtype);
  for (int k = 0; k < zr_zero_n_states(o); k++) {
    if (unit->state[k] >= 0) {
      int64_t elems = build->plan->buffer[unit->state[k]].bytes / item;
      zr_operand_t operand = zr_build_all(build, unit->state[k], ZR_WRITE);
      ZR_TRY(zr_build_op(build, ZR_OP_FILL, index, -1, &elems, o->state_fill, 1, &operand));
    }
    if (unit->away_state[k] < 0) continue;
    zr_operand_t operand =
        zr_operand_part(unit->away_state[k], 0, unit->away_elems * item, ZR_WRITE);
    ZR_TRY(zr_build_op_on_host(build, ZR_OP_FILL, index, &unit->away_elems, o->state_fill, 1,
                               &operand));
  }
  if (unit->away_packed < 0) return ZR_OK;
  return fill_disk(build, index, unit->away_packed, zr_state_chunks(build->zero, unit),
                   &build->states, zr_low_bytes(build->zero), o->state_fill);
}

zr_status_t zr_home_fill(zr_build_t *build) {
  const zr_homes_t *home = &build->options->home;
  for (int32_t u = 0; u < (int32_t)build->zero->n_units; u++) {
    const zr_zero_unit_t *unit = &build->zero->unit[u];
    ZR_TRY(fill_states(build, u));
    if (home->param == ZR_TIER_DISK)
      ZR_TRY(fill_disk(build, u, unit->param, zr_param_chunks(build->zero, unit), &build->loads,
                       build->param_bytes, 0));
    if (home->grad == ZR_TIER_DISK && unit->away_grad >= 0)
      ZR_TRY(fill_disk(build, u, unit->away_grad, zr_grad_chunks(build->zero, unit), &build->spills,
                       build->grad_bytes, 0));
  }
  return ZR_OK;
}
