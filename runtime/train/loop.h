/* The run: data, plan, executor, parameters or a checkpoint, then steps, evaluations and saves
 * until it is done or asked to stop.
 *
 * Collective; one thread. One step is kept in flight ahead of the one being logged; evaluation and
 * saving drain first. Backends come from launch/. */
#ifndef ZR_TRAIN_LOOP_H
#define ZR_TRAIN_LOOP_H

#include "offload/tier.h"
#include "runtime/exec/exec.h"
#include "runtime/train/config.h"
#include "runtime/train/job.h"

typedef struct {
  zr_config_file_t *config; /* checked, with its batch; run.steps may still hang on the data */
  zr_job_t *job;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  /* zr_disk_open: for what lives on disk. NULL: nothing may. */
  zr_status_t (*open_disk)(zr_alloc_t *alloc, const zr_disk_options_t *options,
                           const zr_disk_ops_t **out_ops, zr_disk_t **out_disk);
  /* zr_host_map and zr_host_unmap: for what lives on the host. NULL: the device's own. */
  zr_status_t (*host_map)(int64_t bytes, bool pin, zr_host_memory_t *out_memory);
  void (*host_unmap)(zr_host_memory_t *memory);
  int n_threads;       /* of this rank; the least of all ranks counts */
  bool json;           /* events on standard output */
  bool piped;          /* standard output may look like a terminal and is not one */
  bool check_only;     /* stop before the first step: everything is there and fits */
  const char *version; /* for the log */
  /* Each operation, with run.serial: the run is made to be looked at, and writes and says nothing.
   * NULL: a run as usual. */
  zr_observe_fn_t observe;
  void *observe_context;
} zr_loop_options_t;

/* Every failure is either settled between the ranks (zr_job_agree) or spread (zr_job_abort) when
 * this returns. */
zr_status_t zr_loop_run(zr_alloc_t *alloc, const zr_loop_options_t *options) ZR_MUST_CHECK;

#endif
