/* The update: norm, agreement, fused optimizer in the order in which the next forward needs the
 * parameters. */
#include <stddef.h>

#include "runtime/zero/build.h"

/* The finished sum of a unit's gradient: its own tree's, with the tied uses' added last. */
static zr_status_t unit_sum(zr_build_t *build, int32_t unit, int32_t *out_buffer) {
  zr_grad_tree_t *own = NULL, *tied = NULL;
  for (size_t i = 0; i < build->n_trees; i++) {
    if (build->tree[i].unit != unit) continue;
    if (build->tree[i].tied) {
      tied = &build->tree[i];
    } else {
      own = &build->tree[i];
    }
  }
  if (own == NULL || own->result < 0)
    return zr_fail(ZR_ERR_INTERNAL, "unit %s has no gradient", build->zero->unit[unit].name);
  *out_buffer = own->result;
  if (tied == NULL) return ZR_OK;
  int64_t elems = build->plan->buffer[tied->result].bytes / build->grad_bytes;
  zr_operand_t operand[] = {zr_build_all(build, tied->result, ZR_READ),
                            zr_build_all(build, own->result, ZR_ACCUMULATE)};
  int32_t kind = build->options->n_ranks == 1 ? ZR_OP_ACCUMULATE : ZR_OP_SHARD_ADD;
  return zr_build_op(build, kind, unit, -1, &elems, 0, 2, operand);
}

/* Stage 0 updates everywhere: the sum's shards are gathered for everyone. */
static bool gathers_gradient(const zr_build_t *build) {
  return build->options->n_ranks > 1 && build->options->stage == 0;
}

static zr_status_t gather_gradient(zr_build_t *build, int32_t unit) {
  int64_t bytes = build->zero->unit[unit].shard_elems * build->grad_bytes;
  zr_operand_t gather[] = {zr_build_all(build, build->grad[unit], ZR_READ),
                           zr_build_all(build, build->grad_flat[unit], ZR_WRITE)};
  return zr_build_op(build, ZR_OP_ALL_GATHER, unit, -1, &bytes, 0, 2, gather);
}

static zr_status_t norm_of(zr_build_t *build, int32_t unit) {
  int32_t grad = build->grad[unit];
  int64_t elems = build->plan->buffer[grad].bytes / build->grad_bytes;
  zr_operand_t norm[] = {zr_build_all(build, grad, ZR_READ),
                         zr_build_all(build, build->control, ZR_ACCUMULATE)};
  return zr_build_op(build, ZR_OP_BLOCK_NORM, unit, -1, &elems, 0, 2, norm);
}

/* A gradient that goes away leaves its norm behind. Over ranks it is a reduction that has just been
 * asked for: compute takes its norm one unit later, so that it need not wait. */
static zr_status_t leave_norm(zr_build_t *build, int32_t unit) {
  if (build->norm_unit >= 0) ZR_TRY(norm_of(build, build->norm_unit));
  build->norm_unit = -1;
  if (unit < 0 || build->options->n_ranks == 1) return unit < 0 ? ZR_OK : norm_of(build, unit);
  build->norm_unit = unit;
  return ZR_OK;
}

/* The gather overlaps the backward of the units before; the first unit's, which is finished last,
 * comes behind the norm's all_reduce. */
zr_status_t zr_update_gradient(zr_build_t *build, int32_t unit) {
  ZR_TRY(unit_sum(build, unit, &build->grad[unit]));
  if (build->zero->unit[unit].away_grad >= 0) {
    ZR_TRY(leave_norm(build, unit));
    return zr_move_grad(build, unit, build->grad[unit]);
  }
  if (!gathers_gradient(build) || unit == 0) return ZR_OK;
  return gather_gradient(build, unit);
}

int32_t zr_update_gradient_of(const zr_build_t *build, int32_t unit) {
  return gathers_gradient(build) ? build->grad_flat[unit] : build->grad[unit];
}

/* All of a buffer, or nothing where there is none. */
static zr_operand_t changed(const zr_build_t *build, int32_t buffer) {
  return buffer < 0 ? zr_operand_none() : zr_build_all(build, buffer, ZR_ACCUMULATE);
}

/* A buffer's elements from `first` on. */
static zr_operand_t rest_of(int32_t buffer, int64_t first, int64_t elems, int64_t item,
                            zr_access_t access) {
  return zr_operand_part(buffer, first * item, (elems - first) * item, access);
}

/* What of the unit is updated on the device: all of it, or what is not away. */
static zr_status_t update_unit(zr_build_t *build, int32_t index) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  int64_t shard_bytes = unit->shard_elems * build->param_bytes, first = unit->away_elems;
  bool cut = unit->optimizer_sharded;
  int64_t elems = cut ? unit->shard_elems : unit->flat_elems;
  if (first == elems) return ZR_OK;
  int32_t grad = zr_update_gradient_of(build, index);
  zr_operand_t param = rest_of(unit->param, first, elems, build->param_bytes, ZR_ACCUMULATE);
  if (cut && !unit->param_sharded) param.rank_stride = shard_bytes;
  zr_operand_t operand[] = {param,
                            rest_of(grad, first, elems, build->grad_bytes, ZR_READ),
                            changed(build, unit->state[0]),
                            changed(build, unit->state[1]),
                            zr_build_all(build, unit->layout, ZR_READ),
                            zr_build_all(build, build->control, ZR_ACCUMULATE),
                            changed(build, unit->low)};
  int64_t attr[] = {elems - first, first, cut ? unit->shard_elems : 0, unit->shard_elems};
  return zr_build_op(build, build->options->optimizer, index, -1, attr, 0, 7, operand);
}

/* Stages 1 and 2: everyone's shards of the new parameters. */
static zr_status_t gather_param(zr_build_t *build, int32_t index) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  if (!unit->optimizer_sharded || unit->param_sharded) return ZR_OK;
  int64_t shard_bytes = unit->shard_elems * build->param_bytes;
  zr_operand_t gather[] = {zr_operand_shard(unit->param, shard_bytes, ZR_READ),
                           zr_build_all(build, unit->param, ZR_WRITE)};
  return zr_build_op(build, ZR_OP_ALL_GATHER, index, -1, &shard_bytes, 0, 2, gather);
}

/* On the comm stream: compute goes on with the next forward. Where the update is the host's, so is
 * the end of the step: the next step's gathers need not wait for it. */
static zr_status_t end_step(zr_build_t *build) {
  bool away = zr_away_has(build);
  int32_t control = build->control;
  if (away) build->control = build->zero->control_away;
  zr_status_t status = ZR_OK;
  if (build->options->digest)
    status = zr_shard_all_reduce(build, offsetof(zr_control_t, digest_sum), 24);
  build->control = control;
  ZR_TRY(status);
  if (!away) return zr_steps_control(build, ZR_OP_CONTROL_END);
  zr_operand_t block =
      zr_operand_part(build->zero->control_away, 0, (int64_t)sizeof(zr_control_t), ZR_ACCUMULATE);
  return zr_build_op_on_host(build, ZR_OP_CONTROL_END, -1, NULL, 0, 1, &block);
}

/* Gathers follow their updates, except that the digests and the end of the step go before those of
 * the units from which on the next step touches the control block. */
static zr_status_t update_forward_order(zr_build_t *build) {
  int32_t n_units = (int32_t)build->zero->n_units, n_early = zr_steps_count_unit(build);
  for (int32_t u = 0; u < n_units; u++) {
    ZR_TRY(update_unit(build, u));
    if (u < n_early) ZR_TRY(gather_param(build, u));
  }
  ZR_TRY(end_step(build));
  for (int32_t u = n_early; u < n_units; u++) ZR_TRY(gather_param(build, u));
  return ZR_OK;
}

/* Nothing is gathered after it: the unit whose gradient comes last goes last. */
static zr_status_t update_backward_order(zr_build_t *build) {
  ZR_TRY(gather_gradient(build, 0));
  for (int32_t u = (int32_t)build->zero->n_units; u-- > 0;) ZR_TRY(update_unit(build, u));
  return end_step(build);
}

/* What stays on the device first: its part of the digests is in the control block that the host
 * gets. */
static zr_status_t update_away(zr_build_t *build) {
  int32_t n_units = (int32_t)build->zero->n_units;
  if (gathers_gradient(build)) ZR_TRY(gather_gradient(build, 0));
  for (int32_t u = 0; u < n_units; u++) ZR_TRY(update_unit(build, u));
  ZR_TRY(zr_away_control(build));
  for (int32_t u = 0; u < n_units; u++) {
    ZR_TRY(zr_away_update(build, u));
    ZR_TRY(gather_param(build, u));
  }
  return end_step(build);
}

int zr_zero_n_states(const zr_zero_options_t *options) {
  if (options->optimizer == ZR_OP_NOP || options->optimizer == ZR_OP_ADAMW) return 2;
  return options->optimizer == ZR_OP_SGD && options->no_momentum ? 0 : 1;
}

const char *zr_zero_state_name(const zr_zero_options_t *options, int state) {
  int32_t kind = options->optimizer == ZR_OP_NOP ? ZR_OP_ADAMW : options->optimizer;
  return zr_op_row(kind)->operand[ZR_UPDATE_STATE + state].name;
}

zr_status_t zr_update_emit(zr_build_t *build) {
  build->phase++;
  ZR_TRY(leave_norm(build, -1));
  for (int32_t u = (int32_t)build->zero->n_units; u-- > 0;)
    if (build->zero->unit[u].away_grad < 0) ZR_TRY(norm_of(build, u));
  int64_t norm = offsetof(zr_control_t, norm);
  ZR_TRY(zr_shard_all_reduce(build, norm, (int64_t)offsetof(zr_control_t, flags) + 8 - norm));
  ZR_TRY(zr_steps_control(build, ZR_OP_CONTROL_UPDATE));
  if (zr_away_has(build)) return update_away(build);
  return gathers_gradient(build) ? update_backward_order(build) : update_forward_order(build);
}
