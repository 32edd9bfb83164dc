/* What the loop's files share. Private to runtime/train/loop*.c. */
#ifndef ZR_TRAIN_LOOP_STATE_H
#define ZR_TRAIN_LOOP_STATE_H

#include "runtime/train/checkpoint.h"
#include "runtime/train/data.h"
#include "runtime/train/events.h"
#include "runtime/train/files.h"
#include "runtime/train/loop.h"
#include "runtime/train/predict.h"
#include "runtime/train/states.h"

enum { ZR_LOOP_TAKEN = 256, ZR_LOOP_ALONE_OF = 5 };

/* loop_bound.c: rank 0's, but for the second and third. */
typedef struct {
  zr_profile_t *profile;
  bool travels;            /* copies between tiers are part of a step */
  int64_t alone_iteration; /* the step made one operation at a time; -1 */
  zr_prediction_t prediction;
  int64_t *op_ns; /* [n_ops] of the step */
  zr_bound_t bound;
  int64_t n_steps, n_taken;     /* logged; of the summary */
  double step_s[ZR_LOOP_TAKEN]; /* of the last ones */
  double exposed_s[ZR_N_STREAMS];
} zr_loop_bound_t;

typedef struct {
  zr_alloc_t *alloc;
  const zr_loop_options_t *options;
  zr_config_t *v;
  zr_job_t *job;
  int rank, n_ranks;

  zr_data_t *train, *eval;
  zr_events_t *events; /* rank 0 */
  zr_zero_t *zero;
  zr_pool_t *pool;
  const zr_disk_ops_t *disk_ops; /* NULL: nothing lives on disk */
  zr_disk_t *disk;
  zr_exec_t *exec;
  zr_states_t states;
  zr_checkpoint_t *resumed; /* open until its states are loaded */
  int plan_load, plan_step, plan_eval, plan_eval_end;
  int n_workers;
  char checkpoints[ZR_PATH_BYTES];

  zr_checkpoint_counters_t start; /* zero, or the checkpoint's */
  int64_t step;                   /* updates done, as logged */
  int64_t next_iteration;         /* the next step to start, from 0 */
  int64_t next_record;            /* the next step to log */
  int64_t saved_step, evaluated_step;
  int64_t requests; /* what the ranks asked for, as recorded */
  int64_t begun_ns, last_ns;
  zr_exec_stats_t last_stats;
  double last_loss, last_eval_loss;
  zr_loop_bound_t bound;
} zr_loop_t;

/* loop_fetch.c: the data source and what signals ask, for the executor. */
zr_status_t zr_loop_fetch(void *context, int plan, int64_t iteration, int64_t micro,
                          int32_t *out_tokens, int32_t *out_targets, int32_t *out_starts,
                          int64_t rows);
int64_t zr_loop_ask(void *context, int plan);
int64_t zr_loop_batch_samples(const zr_loop_t *loop); /* of a step, all ranks */

/* loop_setup.c */
zr_status_t zr_loop_open(zr_loop_t *loop) ZR_MUST_CHECK;   /* up to a compiled program */
zr_status_t zr_loop_create(zr_loop_t *loop) ZR_MUST_CHECK; /* up to the first step */
void zr_loop_close(zr_loop_t *loop);

/* loop_tiers.c: what memory holds besides the device's */
int32_t zr_loop_control(const zr_loop_t *loop); /* the buffer that keeps a run's counters */
zr_status_t zr_loop_check_memory(const zr_loop_t *loop) ZR_MUST_CHECK; /* all of it fits */
zr_status_t zr_loop_open_disk(zr_loop_t *loop) ZR_MUST_CHECK;          /* collective */
void zr_loop_say_tiers(const zr_loop_t *loop);
json_t *zr_loop_tiers_json(const zr_loop_t *loop);
/* Bytes written to the disks of all ranks so far; collective, streams drained. */
zr_status_t zr_loop_disk_written(const zr_loop_t *loop, int64_t *out_bytes) ZR_MUST_CHECK;

/* loop_bound.c */
zr_status_t zr_loop_bound_open(zr_loop_t *loop) ZR_MUST_CHECK; /* the plan is there */
void zr_loop_bound_close(zr_loop_t *loop);
int64_t zr_loop_ahead(const zr_loop_t *loop); /* steps in flight when the next one may start */
zr_status_t zr_loop_start_step(zr_loop_t *loop) ZR_MUST_CHECK; /* and counts next_iteration */
/* Before the step's line; last_stats are those of the line before. */
zr_status_t zr_loop_bound_step(zr_loop_t *loop, const zr_step_record_t *record, double step_s,
                               const zr_exec_stats_t *stats) ZR_MUST_CHECK;
bool zr_loop_bound_is_alone(const zr_loop_t *loop, const zr_step_record_t *record);
json_t *zr_loop_bound_end(zr_loop_t *loop); /* says it, too */

/* loop_log.c */
zr_status_t zr_loop_log_start(zr_loop_t *loop) ZR_MUST_CHECK;
zr_status_t zr_loop_log_step(zr_loop_t *loop, const zr_step_record_t *record) ZR_MUST_CHECK;
zr_status_t zr_loop_log_end(zr_loop_t *loop, const char *why, int64_t disk_written) ZR_MUST_CHECK;
void zr_loop_rest_clock(zr_loop_t *loop); /* the next step's time begins now */

/* loop_save.c; streams drained */
zr_status_t zr_loop_save(zr_loop_t *loop) ZR_MUST_CHECK;
zr_status_t zr_loop_evaluate(zr_loop_t *loop) ZR_MUST_CHECK;

#endif
