/* From a configuration to a compiled program: what `zerorun` and `zerorun plan` share. One thread.
 */
#ifndef ZR_TRAIN_SETUP_H
#define ZR_TRAIN_SETUP_H

#include "runtime/train/config.h"
#include "runtime/zero/zero.h"

/* Where the rank runs; equal on all ranks, or their plans would differ. */
typedef struct {
  int n_ranks;
  int n_workers;                    /* threads of the compute stream */
  int64_t budget_bytes[ZR_N_TIERS]; /* of a rank; 0: unlimited */
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
} zr_setup_place_t;

/* memory.device, host and disk for one of n_local_ranks of this node: what was asked for (that of a
 * device is each rank's, the others the node's), a share of what there is, or what is free less
 * memory.headroom; of a disk left open (0), since opening it looks for space. */
void zr_setup_budgets(const zr_config_t *values, int n_local_ranks, int64_t out_bytes[ZR_N_TIERS]);
/* Those that are given as sizes alone, for the plan of another machine; others are 0. */
void zr_setup_given_budgets(const zr_config_t *values, int n_local_ranks,
                            int64_t out_bytes[ZR_N_TIERS]);
/* A resolved configuration (after zr_config_batch) as options of the compiler; `eval`: the run
 * evaluates. */
void zr_setup_zero_options(const zr_config_file_t *config, const zr_setup_place_t *place,
                           zr_zero_options_t *out_options);

#endif
