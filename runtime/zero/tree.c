#include "runtime/zero/tree.h"

void zr_tree_init(zr_tree_t *tree, int64_t n_leaves) {
  *tree = (zr_tree_t){.n_leaves = n_leaves};
}

zr_tree_step_t zr_tree_next(zr_tree_t *tree) {
  zr_tree_step_t step = {0};
  bool last = ++tree->next == tree->n_leaves;
  if (tree->depth > 0 && tree->size[tree->depth - 1] == 1) {
    step.accumulate = true; /* an odd leaf completes a pair: it is added as it is made */
    tree->size[tree->depth - 1] = 2;
  } else {
    tree->size[tree->depth++] = 1;
  }
  step.slot = tree->depth - 1;
  /* Equal neighbours are a full node; behind the last leaf the rest folds from the right. */
  while (tree->depth > 1 && (last || tree->size[tree->depth - 1] == tree->size[tree->depth - 2])) {
    tree->size[tree->depth - 2] += tree->size[tree->depth - 1];
    tree->depth--;
    step.n_merges++;
  }
  step.done = last;
  return step;
}

zr_tree_step_t zr_tree_peek(const zr_tree_t *tree) {
  zr_tree_t copy = *tree;
  return zr_tree_next(&copy);
}
