/* Shard: all_gather before use, the tree of gradient sums, reduce_scatter behind a group's last
 * leaf. */
#include <stddef.h>

#include "runtime/zero/build.h"

static zr_grad_tree_t *find_tree(zr_build_t *build, int32_t unit, int32_t use_unit) {
  for (size_t i = 0; i < build->n_trees; i++) {
    zr_grad_tree_t *tree = &build->tree[i];
    if (tree->unit == unit && tree->use_unit == use_unit) return tree;
  }
  return NULL;
}

static int64_t group_leaves(const zr_build_t *build) {
  return build->options->n_ranks == 1 ? build->n_micro : (int64_t)1 << build->options->group;
}

static bool tree_writes(const zr_build_t *build, int32_t tree, int32_t tensor) {
  for (size_t v = 0; v < build->tape->n_values; v++) {
    const zr_value_t *value = &build->tape->value[v];
    if (value->kind == ZR_VALUE_PARAM_GRAD && value->tensor == tensor &&
        build->tree_of_value[v] == tree)
      return true;
  }
  return false;
}

static void add_gap(zr_build_t *build, zr_grad_tree_t *tree, int64_t begin, int64_t end) {
  if (begin >= end) return;
  build->gap[build->n_gaps++] = (zr_range_t){begin, end};
  tree->n_gaps++;
}

/* What no operation of this use writes: padding, and tensors of the unit that it does not touch. */
static void find_gaps(zr_build_t *build, int32_t index) {
  zr_grad_tree_t *tree = &build->tree[index];
  const zr_zero_unit_t *unit = &build->zero->unit[tree->unit];
  tree->first_gap = build->n_gaps;
  int64_t done = 0;
  for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->n_tensors; t++) {
    const zr_flat_tensor_t *place = &build->zero->flat_tensor[t];
    const zr_tape_tensor_t *tensor = &build->tape->tensor[place->tensor];
    if (!tree_writes(build, index, place->tensor)) continue;
    add_gap(build, tree, done, place->begin);
    done = place->begin + tensor->padded_rows * tensor->cols;
  }
  add_gap(build, tree, done, unit->flat_elems);
}

zr_status_t zr_shard_trees(zr_build_t *build) {
  for (size_t v = 0; v < build->tape->n_values; v++) {
    const zr_value_t *value = &build->tape->value[v];
    if (value->kind != ZR_VALUE_PARAM_GRAD) continue;
    int32_t unit = build->tape->tensor[value->tensor].unit;
    zr_grad_tree_t *tree = find_tree(build, unit, value->use_unit);
    if (tree == NULL) {
      tree = &build->tree[build->n_trees++];
      tree->unit = unit;
      tree->use_unit = value->use_unit;
      tree->tied = unit != value->use_unit;
      tree->result = -1;
      zr_partial_init(tree);
      zr_tree_init(&tree->leaves, group_leaves(build));
      zr_tree_init(&tree->groups, build->n_micro / group_leaves(build));
    }
    build->tree_of_value[v] = (int32_t)(tree - build->tree);
  }
  size_t most = build->tape->n_tensors * 2 + build->n_trees;
  ZR_TRY(zr_alloc_get(build->zero->alloc, most, sizeof *build->gap, &build->gap));
  for (size_t i = 0; i < build->n_trees; i++) find_gaps(build, (int32_t)i);
  return ZR_OK;
}

/* --- parameters ----------------------------------------------------------------------------- */

static zr_status_t all_gather(zr_build_t *build, int32_t index, int32_t shard) {
  zr_operand_t operand[] = {zr_build_all(build, shard, ZR_READ),
                            zr_build_all(build, build->gathered[index], ZR_WRITE)};
  int64_t bytes = build->zero->unit[index].shard_elems * build->param_bytes;
  return zr_build_op(build, ZR_OP_ALL_GATHER, index, -1, &bytes, 0, 2, operand);
}

/* From the home: straight to its place, or this rank's shard first. */
static zr_status_t load_unit(zr_build_t *build, int32_t index) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  if (!unit->param_sharded) return zr_move_param(build, index, build->gathered[index]);
  int32_t shard;
  ZR_TRY(zr_build_buffer(build, index, "shard", build->phase, -1, ZR_CATEGORY_GATHERED,
                         build->param_dtype, unit->shard_elems * build->param_bytes, &shard));
  ZR_TRY(zr_move_param(build, index, shard));
  return all_gather(build, index, shard);
}

static zr_status_t gather_unit(zr_build_t *build, int32_t index) {
  const zr_zero_unit_t *unit = &build->zero->unit[index];
  bool away = build->options->home.param != ZR_TIER_DEVICE;
  if (!unit->param_sharded && !away) {
    build->gathered[index] = unit->param;
    return ZR_OK;
  }
  /* The copy is still there if the prefetched gather would start before it is released. */
  int32_t start = build->phase - (int32_t)build->options->prefetch;
  if (build->gathered[index] < 0 || start > build->gathered_phase[index] + 1) {
    ZR_TRY(zr_build_buffer(build, index, "gathered", build->phase, -1, ZR_CATEGORY_GATHERED,
                           build->param_dtype, unit->flat_elems * build->param_bytes,
                           &build->gathered[index]));
    ZR_TRY(away ? load_unit(build, index) : all_gather(build, index, unit->param));
  }
  build->gathered_phase[index] = build->phase;
  return ZR_OK;
}

static zr_status_t gather_for_op(zr_build_t *build, const zr_tape_op_t *op) {
  for (int k = 0; k < op->n_operands; k++) {
    if (op->operand[k].value < 0) continue;
    const zr_value_t *value = &build->tape->value[op->operand[k].value];
    if (value->kind != ZR_VALUE_PARAM) continue;
    int32_t unit = build->tape->tensor[value->tensor].unit;
    if (build->gathered[unit] >= 0 && build->gathered_phase[unit] == build->phase) continue;
    ZR_TRY(gather_unit(build, unit));
  }
  return ZR_OK;
}

zr_status_t zr_shard_gather(zr_build_t *build, const zr_segment_t *segment) {
  for (int part = 0; part < 2; part++) {
    zr_range_t ops = zr_build_ops(build, segment, part);
    for (int64_t i = ops.begin; i < ops.end; i++) ZR_TRY(gather_for_op(build, &build->tape->op[i]));
  }
  if (segment->kind != ZR_SEGMENT_BACKWARD) return ZR_OK;
  zr_range_t replay = build->forward[segment->unit];
  for (int64_t i = replay.begin; i < replay.end; i++)
    if (build->replayed[i]) ZR_TRY(gather_for_op(build, &build->tape->op[i]));
  return ZR_OK;
}

/* --- gradients ------------------------------------------------------------------------------ */

static bool tree_in_segment(const zr_grad_tree_t *tree, const zr_segment_t *segment) {
  return tree->use_unit == segment->unit && (segment->kind & ZR_SEGMENT_BACKWARD) != 0;
}

static zr_status_t fill_gaps(zr_build_t *build, const zr_grad_tree_t *tree, int32_t flat) {
  for (size_t i = tree->first_gap; i < tree->first_gap + tree->n_gaps; i++) {
    int64_t begin = build->gap[i].begin, elems = build->gap[i].end - begin;
    zr_operand_t operand =
        zr_operand_part(flat, begin * build->grad_bytes, elems * build->grad_bytes, ZR_WRITE);
    ZR_TRY(zr_build_op(build, ZR_OP_FILL, tree->unit, -1, &elems, 0.0, 1, &operand));
  }
  return ZR_OK;
}

/* In `breadth` a unit's groups follow each other: every second one, counted from the last, is made
 * in the unit's own flat, so that no group waits for the reduction of the one before. */
static bool uses_own_flat(const zr_build_t *build, const zr_grad_tree_t *tree, int slot) {
  if (slot != 0 || tree->tied || build->grad_flat[tree->unit] < 0) return false;
  int64_t to_come = tree->groups.n_leaves - 1 - tree->groups.next;
  return build->options->order == ZR_ORDER_DEPTH || to_come % 2 == 0;
}

static zr_status_t flat_slot(zr_build_t *build, zr_grad_tree_t *tree, int slot) {
  if (uses_own_flat(build, tree, slot)) {
    tree->flat[0] = build->grad_flat[tree->unit];
    return ZR_OK;
  }
  return zr_build_buffer(build, tree->unit, tree->tied ? "tied_grad" : "grad", tree->n_flats_made++,
                         -1, ZR_CATEGORY_PARTIAL, build->grad_dtype,
                         build->zero->unit[tree->unit].flat_elems * build->grad_bytes,
                         &tree->flat[slot]);
}

zr_status_t zr_shard_begin_leaf(zr_build_t *build, const zr_segment_t *segment) {
  for (size_t i = 0; i < build->n_trees; i++) {
    zr_grad_tree_t *tree = &build->tree[i];
    if (!tree_in_segment(tree, segment)) continue;
    zr_tree_step_t step = zr_tree_peek(&tree->leaves);
    ZR_TRY(zr_partial_before_leaf(build, tree));
    if (step.accumulate) continue;
    ZR_TRY(flat_slot(build, tree, step.slot));
    ZR_TRY(fill_gaps(build, tree, tree->flat[step.slot]));
  }
  return ZR_OK;
}

static zr_status_t add_into(zr_build_t *build, int32_t kind, int32_t unit, int32_t from,
                            int32_t into) {
  int64_t elems = build->plan->buffer[from].bytes / build->grad_bytes;
  zr_operand_t operand[] = {zr_build_all(build, from, ZR_READ),
                            zr_build_all(build, into, ZR_ACCUMULATE)};
  return zr_build_op(build, kind, unit, -1, &elems, 0, 2, operand);
}

static zr_status_t reduce_group(zr_build_t *build, zr_grad_tree_t *tree) {
  const zr_zero_unit_t *unit = &build->zero->unit[tree->unit];
  ZR_TRY(zr_partial_before_group(build, tree));
  zr_tree_step_t step = zr_tree_next(&tree->groups);
  int64_t bytes = unit->shard_elems * build->grad_bytes;
  if (!step.accumulate)
    ZR_TRY(zr_build_buffer(build, tree->unit, tree->tied ? "tied_sum" : "sum",
                           tree->n_shards_made++, -1, ZR_CATEGORY_GRAD, build->grad_dtype, bytes,
                           &tree->shard[step.slot]));
  zr_operand_t operand[] = {
      zr_build_all(build, tree->flat[0], ZR_READ),
      zr_build_all(build, tree->shard[step.slot], step.accumulate ? ZR_ACCUMULATE : ZR_WRITE)};
  ZR_TRY(zr_build_op(build, ZR_OP_REDUCE_SCATTER, tree->unit, -1, &bytes, 0, 2, operand));
  for (int k = step.slot, n = step.n_merges; n > 0; n--, k--)
    ZR_TRY(add_into(build, ZR_OP_SHARD_ADD, tree->unit, tree->shard[k], tree->shard[k - 1]));
  if (!step.done) return zr_partial_after_group(build, tree);
  tree->result = tree->shard[0];
  return ZR_OK;
}

/* All uses of the unit have their sums. */
static bool unit_is_done(const zr_build_t *build, int32_t unit) {
  for (size_t i = 0; i < build->n_trees; i++) {
    if (build->tree[i].unit == unit && build->tree[i].result < 0) return false;
  }
  return true;
}

zr_status_t zr_shard_end_leaf(zr_build_t *build, const zr_segment_t *segment) {
  for (size_t i = 0; i < build->n_trees; i++) {
    zr_grad_tree_t *tree = &build->tree[i];
    if (!tree_in_segment(tree, segment)) continue;
    zr_tree_step_t step = zr_tree_next(&tree->leaves);
    for (int k = step.slot, n = step.n_merges; n > 0; n--, k--)
      ZR_TRY(add_into(build, ZR_OP_ACCUMULATE, tree->unit, tree->flat[k], tree->flat[k - 1]));
    if (!step.done) {
      ZR_TRY(zr_partial_after_leaf(build, tree));
      continue;
    }
    zr_tree_init(&tree->leaves, group_leaves(build));
    if (build->options->n_ranks == 1) {
      tree->result = tree->flat[0];
    } else {
      ZR_TRY(reduce_group(build, tree));
    }
    if (unit_is_done(build, tree->unit)) ZR_TRY(zr_update_gradient(build, tree->unit));
  }
  return ZR_OK;
}

zr_status_t zr_shard_all_reduce(zr_build_t *build, int64_t offset, int64_t bytes) {
  if (build->options->n_ranks == 1) return ZR_OK;
  zr_operand_t operand = zr_operand_part(build->control, offset, bytes, ZR_ACCUMULATE);
  return zr_build_op(build, ZR_OP_ALL_REDUCE, -1, -1, &bytes, 0, 1, &operand);
}
