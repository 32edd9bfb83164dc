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
  int64_t elems = build->plan->buffer[tied->result].bytes / 4;
  zr_operand_t operand[] = {zr_build_all(build, tied->result, ZR_READ),
                            zr_build_all(build, own->result, ZR_ACCUMULATE)};
  int32_t kind = build->options->n_ranks == 1 ? ZR_OP_ACCUMULATE : ZR_OP_SHARD_ADD;
  return zr_build_op(build, kind, unit, -1, &elems, 0, 2, operand);
}

/* Norm of the unit's sum, in the order in which sums are finished; stage 0 then gathers it for
 * everyone. */
static zr_status_t finish_gradient(zr_build_t *build, int32_t index, int32_t *out_grad) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  ZR_TRY(unit_sum(build, index, out_grad));
  int64_t elems = build->plan->buffer[*out_grad].bytes / 4, bytes = unit->shard_elems * 4;
  zr_operand_t norm[] = {zr_build_all(build, *out_grad, ZR_READ),
                         zr_build_all(build, build->control, ZR_ACCUMULATE)};
  ZR_TRY(zr_build_op(build, ZR_OP_BLOCK_NORM, index, -1, &elems, 0, 2, norm));
  if (build->options->n_ranks == 1 || build->options->stage > 0) return ZR_OK;
  zr_operand_t gather[] = {zr_build_all(build, *out_grad, ZR_READ),
                           zr_build_all(build, build->grad_flat[index], ZR_WRITE)};
  ZR_TRY(zr_build_op(build, ZR_OP_ALL_GATHER, index, -1, &bytes, 0, 2, gather));
  *out_grad = build->grad_flat[index];
  return ZR_OK;
}

static zr_status_t update_unit(zr_build_t *build, int32_t index, int32_t grad) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  int64_t shard_bytes = unit->shard_elems * 4;
  bool cut = unit->optimizer_sharded;
  zr_operand_t param = zr_build_all(build, unit->param, ZR_ACCUMULATE);
  if (cut && !unit->param_sharded)
    param = zr_operand_shard(unit->param, shard_bytes, ZR_ACCUMULATE);
  zr_operand_t operand[] = {param,
                            zr_build_all(build, grad, ZR_READ),
                            zr_build_all(build, unit->exp_avg, ZR_ACCUMULATE),
                            zr_build_all(build, unit->exp_avg_sq, ZR_ACCUMULATE),
                            zr_build_all(build, unit->layout, ZR_READ),
                            zr_build_all(build, build->control, ZR_ACCUMULATE)};
  int64_t attr[] = {cut ? unit->shard_elems : unit->flat_elems, 0, cut ? unit->shard_elems : 0,
                    unit->shard_elems};
  ZR_TRY(zr_build_op(build, ZR_OP_ADAMW, index, -1, attr, 0, 6, operand));
  if (!cut || unit->param_sharded) return ZR_OK;
  zr_operand_t gather[] = {zr_operand_shard(unit->param, shard_bytes, ZR_READ),
                           zr_build_all(build, unit->param, ZR_WRITE)};
  return zr_build_op(build, ZR_OP_ALL_GATHER, index, -1, &shard_bytes, 0, 2, gather);
}

static zr_status_t emit(zr_build_t *build, int32_t *grad) {
  int32_t n_units = (int32_t)build->zero->n_units;
  build->phase++;
  for (int32_t u = n_units; u-- > 0;) ZR_TRY(finish_gradient(build, u, &grad[u]));
  int64_t norm = offsetof(zr_control_t, norm);
  ZR_TRY(zr_shard_all_reduce(build, norm, (int64_t)offsetof(zr_control_t, flags) + 8 - norm));
  ZR_TRY(zr_steps_control(build, ZR_OP_CONTROL_UPDATE));
  for (int32_t u = 0; u < n_units; u++) ZR_TRY(update_unit(build, u, grad[u]));
  if (build->options->digest)
    ZR_TRY(zr_shard_all_reduce(build, offsetof(zr_control_t, digest_sum), 24));
  return zr_steps_control(build, ZR_OP_CONTROL_END);
}

zr_status_t zr_update_emit(zr_build_t *build) {
  int32_t *grad = NULL;
  ZR_TRY(zr_alloc_get(build->zero->alloc, build->zero->n_units, sizeof *grad, &grad));
  zr_status_t status = emit(build, grad);
  zr_alloc_free(build->zero->alloc, grad);
  return status;
}
