/* The one tree: sums of leaves arriving in order, as a stack of partial sums (a binary counter). A
 * node over n leaves splits at the largest power of two below n. Slots are stack positions: slot k
 * is the buffer of the k-th partial sum. */
#ifndef ZR_ZERO_TREE_H
#define ZR_ZERO_TREE_H

#include <stdbool.h>
#include <stdint.h>

enum { ZR_TREE_SLOTS = 40 };

typedef struct {
  int64_t n_leaves, next;
  int depth;                   /* partial sums on the stack */
  int64_t size[ZR_TREE_SLOTS]; /* leaves in each */
} zr_tree_t;

/* What to do with one leaf: make it in `slot` (overwrite, or add: accumulate), then add slot k into
 * slot k - 1 for k = slot, slot - 1, ... `n_merges` times. done: the sum of all leaves is in slot
 * 0. */
typedef struct {
  int slot;
  bool accumulate;
  int n_merges;
  bool done;
} zr_tree_step_t;

void zr_tree_init(zr_tree_t *tree, int64_t n_leaves);
zr_tree_step_t zr_tree_next(zr_tree_t *tree);
/* Where the next leaf goes, without taking the step. */
zr_tree_step_t zr_tree_peek(const zr_tree_t *tree);

#endif
