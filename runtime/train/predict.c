#include "runtime/train/predict.h"

static zr_status_t bound(const zr_plan_t *step, const zr_profile_t *profile, int n_workers,
                         int n_cores, zr_bound_t *out_bound) {
  /* Of a drive that was never asked, what is the least that can be said. */
  zr_bound_machine_t machine = {.n_workers = n_workers,
                                .n_cores = n_cores,
                                .mixed_drive = profile->is_measured ? profile->mixed_drive : 2};
  int64_t *ns = NULL;
  ZR_TRY(zr_alloc_get(step->alloc, step->n_ops, sizeof *ns, &ns));
  zr_cost_times(step, profile, n_workers, ns);
  zr_status_t status = zr_cost_bound_on(step, ns, &machine, out_bound);
  zr_alloc_free(step->alloc, ns);
  return status;
}

zr_status_t zr_predict(const zr_plan_t *step, const zr_profile_t *profile, int n_workers,
                       int n_cores, zr_prediction_t *out_prediction) {
  zr_prediction_t prediction = {.profile = profile};
  ZR_TRY(zr_sim_plan(step, profile, n_workers, n_cores, &prediction.sim));
  ZR_TRY(bound(step, profile, n_workers, n_cores, &prediction.bound));
  *out_prediction = prediction;
  return ZR_OK;
}

const char *zr_predict_bound_name(const zr_bound_t *b) {
  if (b->bound_ns == b->busy_ns) return zr_stream_name((zr_stream_id_t)b->busiest);
  if (b->bound_ns == b->chain_ns) return "chain";
  return b->bound_ns == b->cores_ns ? "cores" : "drive";
}

static double seconds(int64_t ns) {
  return (double)ns * 1e-9;
}

void zr_predict_text(const zr_prediction_t *p, char *out_text, size_t bytes) {
  (void)snprintf(out_text, bytes, "%.4g s a step, at least %.4g s (%s), by %s%s",
                 seconds(p->sim.step_ns), seconds(p->bound.bound_ns),
                 zr_predict_bound_name(&p->bound), p->profile->source,
                 p->profile->is_measured ? "" : " numbers; `zerobench calibrate` measures yours");
}

void zr_predict_print(const zr_prediction_t *p, FILE *out) {
  char text[512];
  zr_predict_text(p, text, sizeof text);
  (void)fprintf(out, "\npredicted: %s\n", text);
  (void)fprintf(out,
                "  longest chain %.4g s, cores %.4g s, drive %.4g s, one after the other %.4g s\n",
                seconds(p->bound.chain_ns), seconds(p->bound.cores_ns), seconds(p->bound.drive_ns),
                seconds(p->bound.serial_ns));
  (void)fprintf(out, "  %-10s %12s %18s\n", "stream", "busy, s", "compute waits, s");
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (p->sim.busy_ns[s] == 0) continue;
    (void)fprintf(out, "  %-10s %12.4g %18.4g\n", zr_stream_name((zr_stream_id_t)s),
                  seconds(p->sim.busy_ns[s]), seconds(p->sim.exposed_ns[s]));
  }
  if (p->sim.crowded_ns > 0) {
    (void)fprintf(out, "  compute is slowed by %.4g s by what runs beside it\n",
                  seconds(p->sim.crowded_ns));
  }
}

static json_t *by_stream(const int64_t ns[ZR_N_STREAMS], bool compute_too) {
  json_t *object = json_object();
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (s == ZR_STREAM_COMPUTE && !compute_too) continue;
    (void)json_object_set_new(object, zr_stream_name((zr_stream_id_t)s), json_real(seconds(ns[s])));
  }
  return object;
}

json_t *zr_predict_json(const zr_prediction_t *p) {
  return json_pack("{s:s, s:b, s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:o, s:o, s:f}", "profile",
                   p->profile->source, "measured", (int)p->profile->is_measured, "step_s",
                   seconds(p->sim.step_ns), "bound_s", seconds(p->bound.bound_ns), "bound_by",
                   zr_predict_bound_name(&p->bound), "chain_s", seconds(p->bound.chain_ns),
                   "cores_s", seconds(p->bound.cores_ns), "drive_s", seconds(p->bound.drive_ns),
                   "serial_s", seconds(p->bound.serial_ns), "busy_s",
                   by_stream(p->sim.busy_ns, true), "exposed_s",
                   by_stream(p->sim.exposed_ns, false), "crowded_s", seconds(p->sim.crowded_ns));
}
