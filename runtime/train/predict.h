/* What a step will take, before it runs: the simulator's time and the bound, from a machine
 * profile. One thread. */
#ifndef ZR_TRAIN_PREDICT_H
#define ZR_TRAIN_PREDICT_H

#include <jansson.h>

#include "runtime/sim/sim.h"

typedef struct {
  zr_sim_result_t sim;
  zr_bound_t bound;
  const zr_profile_t *profile; /* what it was predicted with */
} zr_prediction_t;

/* The plan is compiled; n_workers threads on n_cores of the node's cores. */
zr_status_t zr_predict(const zr_plan_t *step, const zr_profile_t *profile, int n_workers,
                       int n_cores, zr_prediction_t *out_prediction) ZR_MUST_CHECK;
/* "1.234 s a step (bound 1.100 s: compute), by /home/u/.cache/zerorun/profile.json" */
void zr_predict_text(const zr_prediction_t *prediction, char *out_text, size_t bytes);
/* A table for people: step, bound by its parts, streams busy, compute exposed. */
void zr_predict_print(const zr_prediction_t *prediction, FILE *out);
json_t *zr_predict_json(const zr_prediction_t *prediction);
/* What the bound is made of: "chain", "cores", "drive", or the stream's name. */
const char *zr_predict_bound_name(const zr_bound_t *bound);

#endif
