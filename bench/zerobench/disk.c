/* zerobench disk: reads, writes, and both at once, by the disk that the executor uses, beside fio
 * and DeepNVMe. A sweep finds the settings worth a longer look; those run in turn, round after
 * round, the order turned about in each: a drive may be slowed once it has moved much, and who
 * comes later would pay. */
#include <stdlib.h>
#include <string.h>

#include "bench/zerobench/drive.h"

enum { MOST_CONTENDERS = 10, N_BEST = 2, MOST_ROUNDS = 99, DEFAULT_ROUNDS = 5 };
enum { DEEPNVME_BYTES = 1 << 30 };

typedef struct {
  int n;
  zr_drive_setting_t setting[MOST_CONTENDERS];
  double best_gbps[MOST_CONTENDERS];
  double ratio[MOST_ROUNDS]; /* of a round: the best of ours over the best of fio's */
} contest_t;

typedef struct {
  zr_drive_t drive;
  zr_drive_sweep_t sweep;
  contest_t contest[ZR_DRIVE_MODES];
  double deepnvme_gbps[ZR_DRIVE_MODES];
  int n_rounds;
} disk_t;

/* --- who takes part --- */

static void join(contest_t *c, zr_mover_t mover, const zr_drive_setting_t *setting) {
  for (int i = 0; i < c->n; i++) {
    if (c->setting[i].mover == mover && zr_drive_same(&c->setting[i], setting)) return;
  }
  if (c->n == MOST_CONTENDERS) return;
  c->setting[c->n] = *setting;
  c->setting[c->n++].mover = mover;
}

/* The defaults, and the best points of the sweep. */
static void join_best(contest_t *c, zr_mover_t mover, const zr_drive_sweep_t *sweep,
                      const double *gbps) {
  double last = 1e30;
  join(c, mover, &zr_drive_default);
  for (int n = 0; n < N_BEST; n++) {
    int best = -1;
    for (int i = 0; i < sweep->n_points; i++) {
      if (gbps[i] > 0 && gbps[i] < last && (best < 0 || gbps[i] > gbps[best])) best = i;
    }
    if (best < 0) return;
    join(c, mover, &sweep->point[best]);
    last = gbps[best];
  }
}

static void assemble(disk_t *d) {
  for (int mode = 0; mode < ZR_DRIVE_MODES; mode++) {
    contest_t *c = &d->contest[mode];
    *c = (contest_t){0};
    if (d->drive.has_uring) join_best(c, ZR_MOVER_URING, &d->sweep, d->sweep.ours[mode]);
    join(c, ZR_MOVER_POSIX, &zr_drive_default);
    if (!d->drive.has_fio) continue;
    join_best(c, ZR_MOVER_FIO, &d->sweep, d->sweep.fio[mode]);
    join(c, ZR_MOVER_FIO_PLAIN, &zr_drive_default);
  }
}

/* --- the contest --- */

static zr_status_t run_round(disk_t *d, int round, zr_drive_mode_t mode, double seconds) {
  contest_t *c = &d->contest[mode];
  double best[ZR_N_MOVERS] = {0};
  for (int turn = 0; turn < c->n; turn++) {
    const int i = round % 2 == 0 ? turn : c->n - 1 - turn;
    const zr_mover_t mover = c->setting[i].mover;
    double gbps = 0;
    ZR_TRY(zr_drive_run(&d->drive, mode, &c->setting[i], seconds, &gbps));
    if (gbps > best[mover]) best[mover] = gbps;
    if (gbps > c->best_gbps[i]) c->best_gbps[i] = gbps;
  }
  const zr_mover_t ours = d->drive.has_uring ? ZR_MOVER_URING : ZR_MOVER_POSIX;
  c->ratio[round] = best[ZR_MOVER_FIO] > 0 ? best[ours] / best[ZR_MOVER_FIO] : 0;
  zr_bench_say(d->drive.bench, "round %d of %d: %s: ours %.2f, posix %.2f, fio %.2f GB/s",
               round + 1, d->n_rounds, zr_drive_mode_names[mode], best[ours], best[ZR_MOVER_POSIX],
               best[ZR_MOVER_FIO]);
  return ZR_OK;
}

static zr_status_t run_deepnvme(disk_t *d) {
  if (d->drive.bench->options.deepnvme[0] == NULL) return ZR_OK;
  const int64_t bytes = d->drive.bytes < DEEPNVME_BYTES ? d->drive.bytes : DEEPNVME_BYTES;
  zr_bench_say(d->drive.bench, "DeepNVMe");
  return zr_drive_run_deepnvme(&d->drive, bytes, d->deepnvme_gbps);
}

static zr_status_t measure(disk_t *d) {
  const zr_bench_options_t *o = &d->drive.bench->options;
  const double seconds = o->seconds > 0 ? o->seconds : o->quick ? 0.05 : 2;
  d->n_rounds = o->rounds > MOST_ROUNDS ? MOST_ROUNDS : (int)o->rounds;
  if (d->n_rounds == 0) d->n_rounds = o->quick ? 1 : DEFAULT_ROUNDS;
  ZR_TRY(run_deepnvme(d)); /* first: what does not work is known before minutes have passed */
  ZR_TRY(zr_drive_sweep(&d->drive, d->drive.has_fio && !o->quick, seconds / 2, &d->sweep));
  assemble(d);
  for (int round = 0; round < d->n_rounds; round++) {
    for (int mode = 0; mode < ZR_DRIVE_MODES; mode++) {
      ZR_TRY(run_round(d, round, (zr_drive_mode_t)mode, seconds));
    }
  }
  return run_deepnvme(d);
}

/* --- the report --- */

static int best_of(const contest_t *c, zr_mover_t mover) {
  int best = -1;
  for (int i = 0; i < c->n; i++) {
    if (c->setting[i].mover != mover) continue;
    if (best < 0 || c->best_gbps[i] > c->best_gbps[best]) best = i;
  }
  return best;
}

static zr_status_t row(const disk_t *d, const char *what, double gbps, double ceiling,
                       const char *ceiling_of) {
  zr_bench_row_t row = {.what = what,
                        .seconds = (double)d->drive.chunk_bytes * 1e-9 / gbps,
                        .value = gbps,
                        .unit = "GB/s",
                        .ceiling = ceiling,
                        .ceiling_of = ceiling > 0 ? ceiling_of : NULL};
  return zr_bench_row(d->drive.bench, &row);
}

static zr_status_t report_sweep(const disk_t *d) {
  for (int mode = 0; mode < ZR_DRIVE_MODES; mode++) {
    for (int i = 0; i < d->sweep.n_points; i++) {
      char what[64], text[32];
      (void)snprintf(what, sizeof what, "%s, sweep, %s", zr_drive_mode_names[mode],
                     zr_drive_text(&d->sweep.point[i], text));
      ZR_TRY(row(d, what, d->sweep.ours[mode][i], d->sweep.fio[mode][i], "fio, the same point"));
    }
  }
  return ZR_OK;
}

static int by_value(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

static zr_status_t report_ratio(disk_t *d, zr_drive_mode_t mode) {
  contest_t *c = &d->contest[mode];
  char name[64];
  if (!d->drive.has_fio) return ZR_OK;
  qsort(c->ratio, (size_t)d->n_rounds, sizeof c->ratio[0], by_value);
  (void)snprintf(name, sizeof name, "%s_over_fio_median_of_rounds", zr_drive_mode_names[mode]);
  return zr_bench_fact(d->drive.bench, name, c->ratio[d->n_rounds / 2]);
}

/* The best that others make of it; without others, the best that is ours. */
static double find_ceiling(const disk_t *d, zr_drive_mode_t mode, const char **out_of) {
  const contest_t *c = &d->contest[mode];
  const int fio = best_of(c, ZR_MOVER_FIO), ours = best_of(c, ZR_MOVER_URING);
  const double fio_gbps = fio >= 0 ? c->best_gbps[fio] : 0;
  const bool is_deepnvme = d->deepnvme_gbps[mode] > fio_gbps;
  *out_of = is_deepnvme ? "DeepNVMe's best" : fio >= 0 ? "fio's best" : "our best";
  if (is_deepnvme) return d->deepnvme_gbps[mode];
  if (fio >= 0) return fio_gbps;
  return c->best_gbps[ours >= 0 ? ours : best_of(c, ZR_MOVER_POSIX)];
}

static zr_status_t report(disk_t *d, zr_drive_mode_t mode) {
  const contest_t *c = &d->contest[mode];
  const char *of, *name = zr_drive_mode_names[mode];
  const double ceiling = find_ceiling(d, mode, &of);
  char what[96], text[32];
  for (int i = 0; i < c->n; i++) {
    const zr_drive_setting_t *s = &c->setting[i];
    const bool is_default = zr_drive_same(s, &zr_drive_default);
    const bool is_best = s->mover != ZR_MOVER_FIO_PLAIN && i == best_of(c, s->mover),
               is_fio = s->mover >= ZR_MOVER_FIO;
    (void)snprintf(what, sizeof what, "%s, %s, %s%s%s", name, zr_mover_names[s->mover],
                   zr_drive_text(s, text), is_best ? ", best" : "", is_default ? ", default" : "");
    ZR_TRY(row(d, what, c->best_gbps[i], is_fio ? 0 : ceiling, of));
  }
  if (d->deepnvme_gbps[mode] > 0) {
    (void)snprintf(what, sizeof what, "%s, DeepNVMe, best", name);
    ZR_TRY(row(d, what, d->deepnvme_gbps[mode], 0, NULL));
  }
  return report_ratio(d, mode);
}

static zr_status_t report_all(disk_t *d) {
  if (d->drive.bench->options.all || d->drive.bench->options.quick) ZR_TRY(report_sweep(d));
  for (int mode = 0; mode < ZR_DRIVE_MODES; mode++) ZR_TRY(report(d, (zr_drive_mode_t)mode));
  return zr_bench_note(d->drive.bench,
                       "the file was written wholly first; ms: of %lld KiB, a transfer; mixed: one "
                       "thread reads, one writes, both together; best of %d rounds in turn, since "
                       "drives are shared, and slowed after much traffic",
                       (long long)(d->drive.chunk_bytes >> 10), d->n_rounds);
}

zr_status_t zr_bench_disk(zr_bench_t *b) {
  disk_t *d = NULL;
  ZR_TRY(zr_alloc_get(b->alloc, 1, sizeof *d, &d));
  zr_status_t status =
      zr_drive_open(b, b->options.deepnvme[0] == NULL ? 0 : DEEPNVME_BYTES, &d->drive);
  if (status == ZR_OK) status = measure(d);
  if (status == ZR_OK) status = report_all(d);
  zr_drive_close(&d->drive);
  zr_alloc_free(b->alloc, d);
  return status;
}
