/* A drive, moved by ours and by others: what `disk` and `tune-disk` share.
 *
 * One file, written wholly before anything is read, serves every mover and setting: ours reach it
 * through offload/tier.h in transfers of a chunk, as the executor does; others by the descriptor,
 * so that nothing is left behind whatever happens. One thread reads, another one writes. */
#ifndef ZR_BENCH_DRIVE_H
#define ZR_BENCH_DRIVE_H

#include "bench/zerobench/bench.h"
#include "offload/tier.h"

typedef enum { ZR_DRIVE_READ = 0, ZR_DRIVE_WRITE, ZR_DRIVE_MIXED, ZR_DRIVE_MODES } zr_drive_mode_t;
typedef enum {
  ZR_MOVER_URING = 0,
  ZR_MOVER_POSIX,
  ZR_MOVER_FIO,
  ZR_MOVER_FIO_PLAIN,
  ZR_N_MOVERS
} zr_mover_t;

typedef struct {
  zr_mover_t mover;
  int64_t block_bytes;
  int depth;
} zr_drive_setting_t;

typedef struct {
  zr_bench_t *bench;
  const char *path;
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  char *memory; /* a few chunks to read into, as many to write */
  int64_t bytes, chunk_bytes;
  bool has_uring, has_fio;
  bool fio_registers;     /* files and buffers: not where little memory may be locked */
  zr_drive_setting_t now; /* of the disk */
} zr_drive_t;

extern const char *const zr_drive_mode_names[ZR_DRIVE_MODES];
extern const char *const zr_mover_names[ZR_N_MOVERS];
/* What `zerorun` takes when its `aio` says nothing. */
extern const zr_drive_setting_t zr_drive_default;

/* Checks --path, --bytes, --chunk and the free space (more_bytes for others' files, too), makes the
 * file and writes all of it. Close also after a failure. */
zr_status_t zr_drive_open(zr_bench_t *bench, int64_t more_bytes,
                          zr_drive_t *out_drive) ZR_MUST_CHECK;
void zr_drive_close(zr_drive_t *drive);
/* Moves for so long from the file's begin on; mixed: reads from the first half, writes the other.
 * GB/s, of both together. */
zr_status_t zr_drive_run(zr_drive_t *drive, zr_drive_mode_t mode, const zr_drive_setting_t *setting,
                         double seconds, double *out_gbps) ZR_MUST_CHECK;
/* The same by fio: at its best, with huge pages and registered files and buffers as ours, or PLAIN,
 * as it runs when nobody asks for those. ZR_ERR_UNSUPPORTED: it is not there, or can not. */
zr_status_t zr_drive_run_fio(const zr_drive_t *drive, zr_drive_mode_t mode,
                             const zr_drive_setting_t *setting, double seconds,
                             double *out_gbps) ZR_MUST_CHECK;
/* The best read and write that the script of --deepnvme reports, where that is more than
 * best_gbps[READ] and [WRITE] were. `bytes` of a file of its own, which has no name either. */
zr_status_t zr_drive_run_deepnvme(const zr_drive_t *drive, int64_t bytes,
                                  double best_gbps[ZR_DRIVE_MODES]) ZR_MUST_CHECK;
/* "4 MiB x 16" */
const char *zr_drive_text(const zr_drive_setting_t *setting, char out_text[32]);
/* Is it the same block and depth? */
bool zr_drive_same(const zr_drive_setting_t *a, const zr_drive_setting_t *b);

/* --- the sweep --- */

enum { ZR_DRIVE_MOST_POINTS = 25 };

typedef struct {
  int n_points;
  zr_drive_setting_t point[ZR_DRIVE_MOST_POINTS]; /* of ours */
  /* GB/s; 0: not measured. fio's with the same block and depth. */
  double ours[ZR_DRIVE_MODES][ZR_DRIVE_MOST_POINTS], fio[ZR_DRIVE_MODES][ZR_DRIVE_MOST_POINTS];
} zr_drive_sweep_t;

/* Each block with each depth, ours and fio's in turn; tells how far it is. */
zr_status_t zr_drive_sweep(zr_drive_t *drive, bool with_fio, double seconds,
                           zr_drive_sweep_t *out_sweep) ZR_MUST_CHECK;

#endif
