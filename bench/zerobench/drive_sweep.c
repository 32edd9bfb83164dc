/* Every block with every depth, a short while each. */
#include "bench/zerobench/drive.h"

static const int64_t blocks[] = {256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20};
static const int depths[] = {1, 4, 16, 32, 64};
enum { N_BLOCKS = sizeof blocks / sizeof blocks[0], N_DEPTHS = sizeof depths / sizeof depths[0] };
#define FIO_START_S 0.7 /* for the time that is left */

static void choose(const zr_drive_t *drive, zr_drive_sweep_t *sweep) {
  const bool quick = drive->bench->options.quick;
  *sweep = (zr_drive_sweep_t){0};
  for (int i = 0; i < N_BLOCKS * N_DEPTHS; i++) {
    const zr_drive_setting_t point = {drive->has_uring ? ZR_MOVER_URING : ZR_MOVER_POSIX,
                                      blocks[i / N_DEPTHS], depths[i % N_DEPTHS]};
    if (quick && (point.block_bytes != zr_drive_default.block_bytes || point.depth > 16)) continue;
    sweep->point[sweep->n_points++] = point;
  }
}

/* Ours and fio's, the first one changing. */
static zr_status_t measure(zr_drive_t *drive, bool with_fio, double seconds, zr_drive_mode_t mode,
                           int i, zr_drive_sweep_t *sweep) {
  const zr_drive_setting_t ours = sweep->point[i];
  zr_drive_setting_t fio = ours;
  fio.mover = ZR_MOVER_FIO;
  for (int turn = 0; turn < 2; turn++) {
    if ((turn + i) % 2 == 0) {
      ZR_TRY(zr_drive_run(drive, mode, &ours, seconds, &sweep->ours[mode][i]));
    } else if (with_fio) {
      ZR_TRY(zr_drive_run(drive, mode, &fio, seconds, &sweep->fio[mode][i]));
    }
  }
  return ZR_OK;
}

static void tell(const zr_drive_t *drive, const zr_drive_sweep_t *sweep, zr_drive_mode_t mode,
                 int i, double run_s) {
  char text[32], fio[32] = "";
  const int done = i * ZR_DRIVE_MODES + (int)mode + 1, all = sweep->n_points * ZR_DRIVE_MODES;
  if (sweep->fio[mode][i] > 0) {
    (void)snprintf(fio, sizeof fio, ", fio %.2f", sweep->fio[mode][i]);
  }
  zr_bench_say(drive->bench, "%d of %d: %s, %s: %.2f%s GB/s; %.0f s left of the sweep", done, all,
               zr_drive_mode_names[mode], zr_drive_text(&sweep->point[i], text),
               sweep->ours[mode][i], fio, run_s * (all - done));
}

zr_status_t zr_drive_sweep(zr_drive_t *drive, bool with_fio, double seconds,
                           zr_drive_sweep_t *sweep) {
  const double run_s = with_fio ? 2 * seconds + FIO_START_S : seconds;
  choose(drive, sweep);
  for (int i = 0; i < sweep->n_points; i++) {
    for (int mode = 0; mode < ZR_DRIVE_MODES; mode++) {
      ZR_TRY(measure(drive, with_fio, seconds, (zr_drive_mode_t)mode, i, sweep));
      tell(drive, sweep, (zr_drive_mode_t)mode, i, run_s);
    }
  }
  return ZR_OK;
}
