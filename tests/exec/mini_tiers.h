/* A small program over all three tiers, made by hand: states on disk, updated on the host; an
 * activation of each unit goes to the disk and comes back. Host slots are reused, so that every
 * stream waits for others.
 *
 *   step:  read a state, copy its parameter up, compute, copy the result down and write it; read it
 *          back, copy it up, compute a gradient, copy that down; read the state again, update it on
 *          the host, write it. Control operations on the host
 *   eval:  sum of all parameters */
#ifndef ZR_TESTS_EXEC_MINI_TIERS_H
#define ZR_TESTS_EXEC_MINI_TIERS_H

#include "mini.h"
#include "tests/support/memdisk.h"

enum {
  TIERS_UNITS = 4,
  TIERS_ELEMS = 4096, /* of a unit's parameter */
  TIERS_PART_BYTES = TIERS_ELEMS * 4,
  TIERS_STATE_BYTES = 3 * TIERS_PART_BYTES /* [param | exp_avg | exp_avg_sq] */
};

/* Bytes that one execution moves over each link. */
extern const int64_t tiers_step_bytes[ZR_N_LINKS], tiers_eval_bytes[ZR_N_LINKS];

/* mini_t's control and layout are on the host here, its states on disk, its probe on the device.
 * The disk is a memdisk (options as there). */
void tiers_open(mini_t *mini, const memdisk_options_t *disk_options);
/* The same on the null device (nothing is stored or run), without a disk. */
void tiers_open_virtual(mini_t *mini);
/* Create and first contents; then the disk gets its options, whose counts begin here. */
void tiers_start(mini_t *mini, const memdisk_options_t *disk_options);
int64_t tiers_disk_bytes(const mini_t *mini);

#endif
