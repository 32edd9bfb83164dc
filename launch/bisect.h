/* zerorun bisect: from two run folders to the first step, state and operation at which they differ.
 * Private to launch/bisect*.c. */
#ifndef ZR_LAUNCH_BISECT_H
#define ZR_LAUNCH_BISECT_H

#include <jansson.h>

#include "launch/command.h"
#include "runtime/train/files.h"

typedef struct {
  int64_t step;
  json_t *line;  /* the `step` event */
  json_t *start; /* the `start` event it was made under; borrowed */
} zr_bisect_step_t;

/* One run's log: the steps as they count in the end, rising. */
typedef struct {
  zr_alloc_t *alloc;
  const char *dir;
  zr_bisect_step_t *step;
  size_t n_steps, capacity;
  json_t *starts; /* array of `start` events */
} zr_bisect_run_t;

typedef struct {
  zr_alloc_t *alloc;
  const zr_command_t *command;
  zr_bisect_run_t run[2];
  json_t *report;
  int64_t first_step; /* that differs by the logs; 0: none */
  int64_t last_equal; /* newest common checkpoint before the first that differs; 0: none */
  int64_t first_bad;  /* oldest common checkpoint that differs; 0: none */
} zr_bisect_t;

/* bisect_log.c */
zr_status_t zr_bisect_log_read(zr_alloc_t *alloc, const char *dir,
                               zr_bisect_run_t *out_run) ZR_MUST_CHECK;
void zr_bisect_log_free(zr_bisect_run_t *run); /* zeroed is fine */
const zr_bisect_step_t *zr_bisect_log_find(const zr_bisect_run_t *run, int64_t step);
/* What configuration made `step` or would make it. */
const json_t *zr_bisect_log_start(const zr_bisect_run_t *run, int64_t step);
/* Report keys "steps", "first_step", "fields", "options". */
zr_status_t zr_bisect_logs(zr_bisect_t *bisect) ZR_MUST_CHECK;
zr_status_t zr_bisect_options(zr_bisect_t *bisect) ZR_MUST_CHECK;
/* The configuration of a run, parsed, of a `start` event. */
zr_status_t zr_bisect_config(zr_alloc_t *alloc, const zr_bisect_run_t *run, int64_t step,
                             zr_config_file_t **out_config) ZR_MUST_CHECK;

/* bisect_states.c; report keys "checkpoints", "last_equal_checkpoint", "state". */
zr_status_t zr_bisect_states(zr_bisect_t *bisect) ZR_MUST_CHECK;

/* bisect_rerun.c; report key "operation" or "rerun". */
zr_status_t zr_bisect_rerun(zr_bisect_t *bisect) ZR_MUST_CHECK;

#endif
