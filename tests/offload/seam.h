/* A script of what the kernel is to have answered, and a disk that is opened with it. */
#ifndef ZR_TESTS_OFFLOAD_SEAM_H
#define ZR_TESTS_OFFLOAD_SEAM_H

#include "offload/disk/disk_internal.h"

enum { SEAM_GRAIN = ZR_DISK_ALIGN_BYTES, SEAM_N_CALLS = 6 };

typedef struct {
  /* calls: the first `skip` of a kind go through, the next `times` are refused (0: all) */
  int refuse[SEAM_N_CALLS]; /* -errno; 0: none */
  int skip[SEAM_N_CALLS], times[SEAM_N_CALLS];
  _Atomic int n_calls[SEAM_N_CALLS];
  /* results: those from the at-th (from 1), `n` of them, are `answer`: -errno, or fewer bytes; what
   * was moved beyond those is spoilt */
  int at, n, answer;
  bool only_direct;
  _Atomic int n_results;
  uint64_t shuffle;     /* != 0: each result is held back for a pseudo-random while */
  _Atomic int is_hung;  /* results are held back ... */
  int64_t hang_begin;   /* ... of requests from here on the disk; > 0: of writes only */
  _Atomic int is_over;  /* a transfer has returned: no result may come */
  _Atomic int n_late;   /* results that came all the same */
  int64_t flip_at;      /* > 0: the byte at this offset of the disk is wrong when it is read */
  int64_t n_straddling; /* requests that lie in two registered buffers */
  zr_disk_seam_t seam;
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  char *memory; /* [SEAM_BYTES] */
} seam_t;

enum { SEAM_BYTES = 300 * SEAM_GRAIN };

/* Nothing is replaced yet. */
void seam_init(seam_t *s);
/* A disk of SEAM_BYTES at `path`; blocks of 32 KiB. */
zr_status_t seam_open(seam_t *s, const char *path, int kind, int queue_depth, bool checksums);
void seam_close(seam_t *s);
void seam_fill(seam_t *s, int version);
int64_t seam_n_wrong(const seam_t *s, int version); /* words of `memory` that are not as filled */
zr_disk_stats_t seam_stats(const seam_t *s);

#endif
