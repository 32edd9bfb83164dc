/* zerobench tune-disk: the `aio` block that suits a drive, and what the defaults lose. A setting is
 * worth what it keeps of the best reads, writes and mixed transfers: a step does all three. */
#include "bench/zerobench/drive.h"

enum { MOST_FINALISTS = 4, DEFAULT_ROUNDS = 5 };

typedef struct {
  int n;
  zr_drive_setting_t setting[MOST_FINALISTS]; /* the defaults are the first */
  double gbps[ZR_DRIVE_MODES][MOST_FINALISTS];
} final_t;

/* score[i]: the mean over the modes of rate over the mode's best. */
static void score_all(const double *const gbps[ZR_DRIVE_MODES], int n, double *out_score) {
  for (int i = 0; i < n; i++) out_score[i] = 0;
  for (int mode = 0; mode < ZR_DRIVE_MODES; mode++) {
    double best = 0;
    for (int i = 0; i < n; i++) best = gbps[mode][i] > best ? gbps[mode][i] : best;
    for (int i = 0; i < n && best > 0; i++) out_score[i] += gbps[mode][i] / best / ZR_DRIVE_MODES;
  }
}

static int highest(const double *score, int n) {
  int best = 0;
  for (int i = 1; i < n; i++) best = score[i] > score[best] ? i : best;
  return best;
}

static void choose(const zr_drive_t *drive, const zr_drive_sweep_t *sweep, final_t *out) {
  const double *const gbps[ZR_DRIVE_MODES] = {sweep->ours[0], sweep->ours[1], sweep->ours[2]};
  double score[ZR_DRIVE_MOST_POINTS];
  score_all(gbps, sweep->n_points, score);
  *out = (final_t){.n = 1, .setting = {zr_drive_default}};
  if (!drive->has_uring) out->setting[0].mover = ZR_MOVER_POSIX;
  for (int left = sweep->n_points; left > 0 && out->n < MOST_FINALISTS; left--) {
    const int best = highest(score, sweep->n_points);
    score[best] = -1;
    if (zr_drive_same(&sweep->point[best], &out->setting[0])) continue;
    out->setting[out->n++] = sweep->point[best];
  }
}

static zr_status_t contest(zr_drive_t *drive, final_t *f, int n_rounds, double seconds) {
  for (int round = 0; round < n_rounds; round++) {
    zr_bench_say(drive->bench, "round %d of %d: the defaults and the %d best", round + 1, n_rounds,
                 f->n - 1);
    for (int n = 0; n < ZR_DRIVE_MODES * f->n; n++) {
      const int mode = n / f->n, turn = n % f->n, i = round % 2 == 0 ? turn : f->n - 1 - turn;
      double gbps = 0;
      ZR_TRY(zr_drive_run(drive, (zr_drive_mode_t)mode, &f->setting[i], seconds, &gbps));
      if (gbps > f->gbps[mode][i]) f->gbps[mode][i] = gbps;
    }
  }
  return ZR_OK;
}

static zr_status_t report_rows(zr_bench_t *b, const final_t *f, int64_t chunk_bytes) {
  for (int mode = 0; mode < ZR_DRIVE_MODES; mode++) {
    const double best = f->gbps[mode][highest(f->gbps[mode], f->n)];
    for (int i = 0; i < f->n; i++) {
      char what[64], text[32];
      (void)snprintf(what, sizeof what, "%s, %s%s", zr_drive_mode_names[mode],
                     zr_drive_text(&f->setting[i], text), i == 0 ? ", default" : "");
      const double gbps = f->gbps[mode][i];
      zr_bench_row_t row = {.what = what,
                            .seconds = (double)chunk_bytes * 1e-9 / gbps,
                            .value = gbps,
                            .unit = "GB/s",
                            .ceiling = best,
                            .ceiling_of = "the best of these"};
      ZR_TRY(zr_bench_row(b, &row));
    }
  }
  return ZR_OK;
}

static zr_status_t report(const zr_drive_t *drive, const final_t *f) {
  zr_bench_t *b = drive->bench;
  const double *const gbps[ZR_DRIVE_MODES] = {f->gbps[0], f->gbps[1], f->gbps[2]};
  double score[MOST_FINALISTS];
  score_all(gbps, f->n, score);
  const int best = highest(score, f->n);
  ZR_TRY(report_rows(b, f, drive->chunk_bytes));
  json_t *aio =
      json_pack("{s:I, s:i, s:i, s:b, s:b}", "block_size", (json_int_t)f->setting[best].block_bytes,
                "queue_depth", f->setting[best].depth, "thread_count", 1, "single_submit", 0,
                "overlap_events", 1);
  if (aio == NULL || json_object_set_new(b->facts, "aio", aio) != 0) {
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for the report");
  }
  ZR_TRY(zr_bench_fact(b, "best_over_default", score[best] / score[0]));
  return zr_bench_note(
      b,
      "the defaults lose %.1f %% (a mean over reads, writes and both at once); the "
      "line \"aio\" goes into the configuration as it is",
      100 * (1 - score[0] / score[best]));
}

zr_status_t zr_bench_tune_disk(zr_bench_t *b) {
  const zr_bench_options_t *o = &b->options;
  const double seconds = o->seconds > 0 ? o->seconds : o->quick ? 0.05 : 1;
  const int n_rounds = o->rounds > 0 ? (int)o->rounds : o->quick ? 1 : DEFAULT_ROUNDS;
  zr_drive_t drive;
  zr_drive_sweep_t sweep;
  final_t f;
  zr_status_t status = zr_drive_open(b, 0, &drive);
  if (status == ZR_OK) status = zr_drive_sweep(&drive, false, seconds / 2, &sweep);
  if (status == ZR_OK) {
    choose(&drive, &sweep, &f);
    status = contest(&drive, &f, n_rounds, seconds);
  }
  if (status == ZR_OK) status = report(&drive, &f);
  zr_drive_close(&drive);
  return status;
}
