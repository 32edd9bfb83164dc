/* Engine: a few threads for each lane, with pread and pwrite.
 *
 *   caller    sets the transfer, generation + 1 ........ waits for n_busy == 0
 *   thread    wakes, takes requests until none is left, n_busy - 1
 *
 * All threads of a lane take part in every transfer, so that none of them can look at one while the
 * next is being set. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "offload/disk/disk_internal.h"
#include "runtime/base/clock.h"
#include "runtime/base/futex.h"

enum { SLICE_NS = 50000000, HELD_NS = 1000000 };

typedef struct {
  zr_disk_lane_t *lane;
  int n_threads;
  pthread_t thread[ZR_DISK_MOST_THREADS];
  _Atomic uint32_t generation, n_busy;
  _Atomic int is_stopping;
} posix_lane_t;

static int call(const zr_disk_t *disk, const zr_disk_request_t *r) {
  const int fd = zr_disk_request_fd(disk, r);
  const ssize_t moved = r->is_write ? pwrite(fd, r->memory, (size_t)r->bytes, r->offset)
                                    : pread(fd, r->memory, (size_t)r->bytes, r->offset);
  return moved < 0 ? -errno : (int)moved;
}

static int answer_of(zr_disk_lane_t *lane, const zr_disk_request_t *r) {
  const zr_disk_seam_t *seam = &lane->disk->seam;
  const int answer = call(lane->disk, r);
  int seen;
  while ((seen = seam->result(seam->context, r, answer)) == ZR_DISK_NOT_YET) {
    zr_clock_sleep_ns(HELD_NS);
  }
  return seen;
}

/* Sleeps until the request may go again; false when it need not any more. */
static bool wait_until_ready(const zr_disk_lane_t *lane, const zr_disk_request_t *r) {
  while (!zr_disk_lane_is_over(lane)) {
    const int64_t left_ns = r->ready_ns - zr_clock_ns();
    if (r->ready_ns == 0 || left_ns <= 0) return true;
    zr_clock_sleep_ns(left_ns < SLICE_NS ? left_ns : SLICE_NS);
  }
  return false;
}

static void take_requests(zr_disk_lane_t *lane) {
  zr_disk_request_t request;
  while (zr_disk_request_next(lane, &request)) {
    do {
      atomic_fetch_add(&lane->n_requests, 1);
    } while (zr_disk_request_settle(lane, &request, answer_of(lane, &request)) == ZR_DISK_AGAIN &&
             wait_until_ready(lane, &request));
  }
}

static void *run(void *context) {
  posix_lane_t *p = context;
  for (uint32_t seen = 0;; seen++) {
    while (atomic_load(&p->generation) == seen) (void)zr_futex_wait(&p->generation, seen, -1);
    if (atomic_load(&p->is_stopping)) return NULL;
    take_requests(p->lane);
    if (atomic_fetch_sub(&p->n_busy, 1) == 1) zr_futex_wake_all(&p->n_busy);
  }
}

static void begin(posix_lane_t *p) {
  atomic_store(&p->n_busy, (uint32_t)p->n_threads);
  atomic_fetch_add(&p->generation, 1);
  zr_futex_wake_all(&p->generation);
}

static void posix_move(zr_disk_lane_t *lane) {
  posix_lane_t *p = lane->engine;
  int64_t over_ns = 0;
  begin(p);
  for (uint32_t n_busy; (n_busy = atomic_load(&p->n_busy)) > 0;) {
    const int64_t now = zr_clock_ns();
    if (over_ns == 0 && zr_disk_lane_is_over(lane)) over_ns = now;
    if (over_ns > 0 && now - over_ns > lane->disk->seam.drain_ns) {
      zr_disk_lane_stick(lane, (int)n_busy);
      return;
    }
    (void)zr_futex_wait(&p->n_busy, n_busy, over_ns > 0 ? HELD_NS : SLICE_NS);
  }
}

static zr_status_t start_threads(posix_lane_t *p, int n_threads) {
  sigset_t all, before; /* signals are for the threads that know about them */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  while (!error && p->n_threads < n_threads) {
    error = pthread_create(&p->thread[p->n_threads], NULL, run, p);
    if (!error) p->n_threads++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (p->n_threads > 0) return ZR_OK;
  return zr_fail(ZR_ERR_OUT_OF_MEMORY, "threads for a disk: %s", strerror(error));
}

static zr_status_t posix_start(zr_disk_t *disk) {
  const int64_t wanted = (int64_t)disk->queue_depth * disk->n_files;
  const int n_threads = wanted < ZR_DISK_MOST_THREADS ? (int)wanted : ZR_DISK_MOST_THREADS;
  for (int i = 0; i < ZR_DISK_N_LANES; i++) {
    posix_lane_t *p = NULL;
    ZR_TRY(zr_alloc_get(disk->alloc, 1, sizeof *p, &p));
    p->lane = &disk->lane[i];
    disk->lane[i].engine = p;
    ZR_TRY(start_threads(p, n_threads));
  }
  return ZR_OK;
}

static void posix_attach(zr_disk_t *disk) {
  (void)disk;
}

/* Threads that hang in the kernel can not be joined: they keep what they use. */
static bool leave_behind(posix_lane_t *p) {
  const int64_t begin_ns = zr_clock_ns();
  while (atomic_load(&p->n_busy) > 0) {
    if (zr_clock_ns() - begin_ns > p->lane->disk->seam.drain_ns) {
      for (int t = 0; t < p->n_threads; t++) (void)pthread_detach(p->thread[t]);
      return true;
    }
    zr_clock_sleep_ns(HELD_NS);
  }
  return false;
}

static void posix_stop(zr_disk_t *disk) {
  for (int i = 0; i < ZR_DISK_N_LANES; i++) {
    posix_lane_t *p = disk->lane[i].engine;
    if (!p || leave_behind(p)) continue;
    atomic_store(&p->is_stopping, 1);
    atomic_fetch_add(&p->generation, 1);
    zr_futex_wake_all(&p->generation);
    for (int t = 0; t < p->n_threads; t++) (void)pthread_join(p->thread[t], NULL);
    zr_alloc_free(disk->alloc, p);
    disk->lane[i].engine = NULL;
  }
}

const zr_disk_engine_t zr_disk_engine_posix = {
    .name = "posix",
    .start = posix_start,
    .attach = posix_attach,
    .move = posix_move,
    .stop = posix_stop,
};
