/* From a configuration to a compiled program: what `zerorun` and `zerorun plan` share. One thread.
 */
#ifndef ZR_TRAIN_SETUP_H
#define ZR_TRAIN_SETUP_H

#include "runtime/train/config.h"
#include "runtime/zero/zero.h"

/* Where the rank runs; equal on all ranks, or their plans would differ. */
typedef struct {
  int n_ranks;
  int n_workers;        /* threads of the compute stream */
  int64_t budget_bytes; /* of a rank's device; 0: unlimited */
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
} zr_setup_place_t;

/* memory.device for one of n_local_ranks of this node: what was asked for, or what is free less
 * memory.headroom. */
int64_t zr_setup_budget(const zr_config_t *values, int n_local_ranks);
/* A resolved configuration (after zr_config_batch) as options of the compiler; `eval`: the run
 * evaluates. */
void zr_setup_zero_options(const zr_config_file_t *config, const zr_setup_place_t *place,
                           zr_zero_options_t *out_options);

#endif
