/* Hoist: moves each gather of parameters, and what brings them from their home, to the start of the
 * phase `prefetch` segments before its use, and there before the reductions that end the phase
 * before: those wait for gradients that are still being computed, and a gather behind them would
 * wait too. Nothing it passes writes the shard it reads: updates come last. */
#include "runtime/zero/build.h"

static bool is_reduction(const zr_op_t *op) {
  return op->shape.kind == ZR_OP_REDUCE_SCATTER || op->shape.kind == ZR_OP_SHARD_ADD;
}

static bool is_load(const zr_plan_t *plan, const zr_op_t *op) {
  int32_t kind = op->shape.kind;
  if (kind != ZR_OP_ALL_GATHER && kind != ZR_OP_H2D && kind != ZR_OP_DISK_READ) return false;
  return plan->buffer[op->operand[1].buffer].category == ZR_CATEGORY_GATHERED;
}

zr_status_t zr_hoist(zr_build_t *build) {
  zr_plan_t *plan = build->plan;
  size_t n_phases = (size_t)build->phase + 2;
  int32_t *start = NULL; /* where the next gather of a phase goes */
  ZR_TRY(zr_alloc_get(build->zero->alloc, n_phases, sizeof *start, &start));
  int32_t phase = 0;
  for (size_t i = 0; i < plan->n_ops; i++)
    for (; phase < plan->op[i].phase; phase++) {
      int32_t at = (int32_t)i;
      while (at > 0 && is_reduction(&plan->op[at - 1])) at--;
      start[phase + 1] = at;
    }
  for (int32_t i = 0; i < (int32_t)plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    if (!is_load(plan, op)) continue;
    int32_t use = op->phase, target = use - (int32_t)build->options->prefetch;
    if (target < 1) target = 1;
    int32_t to = start[target];
    if (to < i) zr_plan_move_op(plan, i, to);
    plan->op[to < i ? to : i].phase = target;
    for (int32_t p = target; p <= use; p++)
      if (start[p] <= i) start[p]++;
  }
  zr_alloc_free(build->zero->alloc, start);
  return ZR_OK;
}
