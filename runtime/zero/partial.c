/* Partial sums of gradients between two micro-batches, where gradients live away from the device:
 * what a leaf does not touch stays away, what it touches comes in before it and leaves after it. In
 * `breadth` a unit's leaves follow each other, and nothing leaves between them. */
#include "runtime/zero/build.h"

static bool is_on(const zr_build_t *build, const zr_grad_tree_t *tree) {
  const zr_zero_options_t *o = build->options;
  return o->home.grad != ZR_TIER_DEVICE && o->order == ZR_ORDER_DEPTH &&
         build->grad_flat[tree->unit] < 0;
}

static zr_status_t bring(zr_build_t *build, zr_grad_tree_t *tree, const char *name, int slot,
                         int32_t *here, int32_t *away, int64_t number) {
  if (away[slot] < 0) return ZR_OK;
  int64_t bytes = build->plan->buffer[here[slot]].bytes;
  ZR_TRY(zr_build_buffer(build, tree->unit, name, number, -1, ZR_CATEGORY_PARTIAL,
                         build->grad_dtype, bytes, &here[slot]));
  ZR_TRY(zr_move_in(build, tree->unit, -1, away[slot], here[slot]));
  away[slot] = -1;
  return ZR_OK;
}

/* The slots that a step touches: its own if it adds to it, and those it is merged into. */
static zr_status_t bring_for(zr_build_t *build, zr_grad_tree_t *tree, const char *name,
                             const zr_tree_step_t *step, int32_t *here, int32_t *away) {
  int first = step->accumulate ? step->slot : step->slot - 1;
  for (int k = first; k >= step->slot - step->n_merges && k >= 0; k--)
    ZR_TRY(bring(build, tree, name, k, here, away, tree->n_moves++));
  return ZR_OK;
}

static zr_status_t leave(zr_build_t *build, zr_grad_tree_t *tree, const char *name, int depth,
                         const int32_t *here, int32_t *away) {
  for (int k = 0; k < depth; k++) {
    if (away[k] >= 0) continue;
    int64_t bytes = zr_pad_bytes(build->plan->buffer[here[k]].bytes);
    ZR_TRY(zr_build_buffer_in(build, (zr_tier_t)build->options->home.grad, tree->unit, name,
                              tree->n_moves++, -1, ZR_CATEGORY_PARTIAL, ZR_U8, bytes, &away[k]));
    ZR_TRY(zr_move_out(build, tree->unit, -1, here[k], away[k]));
  }
  return ZR_OK;
}

void zr_partial_init(zr_grad_tree_t *tree) {
  for (int k = 0; k < ZR_TREE_SLOTS; k++) tree->away_flat[k] = tree->away_shard[k] = -1;
}

zr_status_t zr_partial_before_leaf(zr_build_t *build, zr_grad_tree_t *tree) {
  if (!is_on(build, tree)) return ZR_OK;
  zr_tree_step_t step = zr_tree_peek(&tree->leaves);
  return bring_for(build, tree, tree->tied ? "tied_part" : "part", &step, tree->flat,
                   tree->away_flat);
}

zr_status_t zr_partial_after_leaf(zr_build_t *build, zr_grad_tree_t *tree) {
  if (!is_on(build, tree)) return ZR_OK;
  return leave(build, tree, tree->tied ? "tied_part.away" : "part.away", tree->leaves.depth,
               tree->flat, tree->away_flat);
}

zr_status_t zr_partial_before_group(zr_build_t *build, zr_grad_tree_t *tree) {
  if (!is_on(build, tree)) return ZR_OK;
  zr_tree_step_t step = zr_tree_peek(&tree->groups);
  return bring_for(build, tree, tree->tied ? "tied_sum_part" : "sum_part", &step, tree->shard,
                   tree->away_shard);
}

zr_status_t zr_partial_after_group(zr_build_t *build, zr_grad_tree_t *tree) {
  if (!is_on(build, tree)) return ZR_OK;
  return leave(build, tree, tree->tied ? "tied_sum_part.away" : "sum_part.away", tree->groups.depth,
               tree->shard, tree->away_shard);
}
