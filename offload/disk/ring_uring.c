/* Engine: io_uring. One ring for each lane, because a lane is driven by a thread of its own; it
 * serves all files, so that a transfer over several paths keeps all of them busy with one wait.
 *
 *   fill     requests into free slots, as many as there are
 *   enter    submits them and waits for one result, for a slice of time: then a cancel is seen
 *   reap     results; what is short or refused goes again from its slot
 *
 * Registered: each file twice (direct, buffered), and the attached memory in buffers that no
 * request straddles. */
#include <errno.h>
#include <liburing.h>
#include <string.h>

#include "offload/disk/disk_internal.h"
#include "runtime/base/clock.h"

enum { SLICE_NS = 50000000, SHORT_SLICE_NS = 1000000 };

typedef enum { SLOT_FREE = 0, SLOT_FLIES, SLOT_HELD, SLOT_WAITS } slot_state_t;

typedef struct {
  zr_disk_request_t request;
  slot_state_t state;
  int answer; /* held back */
} slot_t;

typedef struct {
  zr_disk_lane_t *lane;
  struct io_uring ring;
  bool has_ring, has_buffers, is_refused; /* refused: it may not be entered any more */
  int n_slots, n_flying, n_parked;        /* parked: held or waiting */
  int n_free;
  int *free_slot; /* [n_free] of [n_slots] */
  slot_t *slot;
  int64_t refused_ns; /* since when entering is refused; 0: it is not */
} ring_t;

static int ask(const zr_disk_t *disk, zr_disk_call_t call) {
  return disk->seam.call(disk->seam.context, call);
}

/* --- requests --- */

static int buffer_index(const zr_disk_t *disk, const zr_disk_request_t *r) {
  if (r->memory < disk->attached) return -1;
  const int64_t place = r->memory - disk->attached;
  return place < disk->attached_bytes ? (int)(place / disk->seam.buffer_bytes) : -1;
}

static void prepare(struct io_uring_sqe *sqe, const ring_t *ring, const zr_disk_request_t *r) {
  const zr_disk_t *disk = ring->lane->disk;
  const int fd = 2 * r->file + (r->is_buffered ? 1 : 0);
  const int buffer = ring->has_buffers ? buffer_index(disk, r) : -1;
  const unsigned bytes = (unsigned)r->bytes;
  const uint64_t offset = (uint64_t)r->offset;
  if (buffer >= 0 && r->is_write) {
    io_uring_prep_write_fixed(sqe, fd, r->memory, bytes, offset, buffer);
  } else if (buffer >= 0) {
    io_uring_prep_read_fixed(sqe, fd, r->memory, bytes, offset, buffer);
  } else if (r->is_write) {
    io_uring_prep_write(sqe, fd, r->memory, bytes, offset);
  } else {
    io_uring_prep_read(sqe, fd, r->memory, bytes, offset);
  }
  io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
}

static void park(ring_t *ring, int index, slot_state_t state) {
  ring->slot[index].state = state;
  ring->n_parked++;
}

static void fly(ring_t *ring, int index) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);
  if (!sqe) { /* not while there are as many entries as slots */
    park(ring, index, SLOT_WAITS);
    return;
  }
  prepare(sqe, ring, &ring->slot[index].request);
  io_uring_sqe_set_data64(sqe, (unsigned)index);
  ring->slot[index].state = SLOT_FLIES;
  ring->n_flying++;
  atomic_fetch_add(&ring->lane->n_requests, 1);
}

static void release(ring_t *ring, int index) {
  ring->slot[index].state = SLOT_FREE;
  ring->free_slot[ring->n_free++] = index;
}

static void settle(ring_t *ring, int index, int answer) {
  slot_t *slot = &ring->slot[index];
  const zr_disk_seam_t *seam = &ring->lane->disk->seam;
  const int seen = seam->result(seam->context, &slot->request, answer);
  if (seen == ZR_DISK_NOT_YET) {
    slot->answer = answer;
    park(ring, index, SLOT_HELD);
  } else if (zr_disk_request_settle(ring->lane, &slot->request, seen) != ZR_DISK_AGAIN) {
    release(ring, index);
  } else if (slot->request.ready_ns == 0 && !zr_disk_lane_is_over(ring->lane)) {
    fly(ring, index);
  } else {
    park(ring, index, SLOT_WAITS);
  }
}

/* Held ones are asked for again; waiting ones fly when it is time, and are let go when the transfer
 * is over. */
static void unpark(ring_t *ring) {
  const bool is_over = zr_disk_lane_is_over(ring->lane);
  const int64_t now = zr_clock_ns();
  for (int i = 0; i < ring->n_slots && ring->n_parked > 0; i++) {
    slot_t *slot = &ring->slot[i];
    if (slot->state == SLOT_HELD) {
      ring->n_parked--;
      settle(ring, i, slot->answer);
    } else if (slot->state == SLOT_WAITS && is_over) {
      ring->n_parked--;
      release(ring, i);
    } else if (slot->state == SLOT_WAITS && slot->request.ready_ns <= now) {
      ring->n_parked--;
      fly(ring, i);
    }
  }
}

static void fill(ring_t *ring) {
  while (ring->n_free > 0) {
    const int index = ring->free_slot[ring->n_free - 1];
    if (!zr_disk_request_next(ring->lane, &ring->slot[index].request)) return;
    ring->n_free--;
    fly(ring, index);
  }
}

/* --- the loop --- */

static int enter(ring_t *ring, int64_t slice_ns) {
  const int refused = ask(ring->lane->disk, ZR_DISK_CALL_ENTER);
  if (refused) return refused;
  struct io_uring_cqe *cqe;
  struct __kernel_timespec slice = {.tv_nsec = slice_ns};
  return io_uring_submit_and_wait_timeout(&ring->ring, &cqe, 1, &slice, NULL);
}

/* Out of memory or of room for results: again, for a while. Anything else ends the transfer. */
static void enter_refused(ring_t *ring, int error) {
  zr_disk_lane_t *lane = ring->lane;
  const int64_t now = zr_clock_ns();
  if (ring->refused_ns == 0) ring->refused_ns = now;
  const bool is_passing = error == EAGAIN || error == EBUSY || error == ENOMEM;
  if (is_passing && now - ring->refused_ns <= lane->disk->seam.retry_ns) {
    atomic_fetch_add(&lane->n_retried, 1);
    zr_clock_sleep_ns(SHORT_SLICE_NS);
    return;
  }
  ring->is_refused = true;
  const zr_status_t status =
      zr_fail(ZR_ERR_IO, "%s: io_uring_enter: %s: memory.disk_backend: posix does without io_uring",
              lane->disk->file[0].path, strerror(error));
  zr_verdict_set(&lane->failure, status, zr_detail());
}

static void reap(ring_t *ring) {
  struct io_uring_cqe *cqe;
  while (io_uring_peek_cqe(&ring->ring, &cqe) == 0) {
    const int index = (int)io_uring_cqe_get_data64(cqe), answer = cqe->res;
    io_uring_cqe_seen(&ring->ring, cqe);
    ring->n_flying--;
    settle(ring, index, answer);
  }
}

static void step(ring_t *ring, bool is_over) {
  const bool in_hurry = ring->n_parked > 0 || is_over;
  if (ring->is_refused) {
    zr_clock_sleep_ns(SHORT_SLICE_NS);
    reap(ring);
  } else if (ring->n_flying > 0) {
    const int answer = enter(ring, in_hurry ? SHORT_SLICE_NS : SLICE_NS);
    if (answer < 0 && answer != -ETIME && answer != -EINTR) {
      enter_refused(ring, -answer);
    } else {
      ring->refused_ns = 0;
    }
    reap(ring);
  } else if (ring->n_parked > 0) {
    zr_clock_sleep_ns(SHORT_SLICE_NS);
  }
  if (ring->n_parked > 0) unpark(ring);
}

/* Of a ring that may not be entered, what was not submitted will never run. */
static bool is_dead(const ring_t *ring) {
  return ring->is_refused && ring->n_parked == 0 &&
         (unsigned)ring->n_flying <= io_uring_sq_ready(&ring->ring);
}

static void uring_move(zr_disk_lane_t *lane) {
  ring_t *ring = lane->engine;
  int64_t over_ns = 0;
  for (;;) {
    const bool is_over = zr_disk_lane_is_over(lane);
    if (!is_over) fill(ring);
    if (ring->n_flying == 0 && ring->n_parked == 0) return;
    if (is_dead(ring)) {
      lane->is_stuck = true;
      return;
    }
    if (is_over) {
      const int64_t now = zr_clock_ns();
      if (over_ns == 0) over_ns = now;
      if (now - over_ns > lane->disk->seam.drain_ns) {
        zr_disk_lane_stick(lane, ring->n_flying + ring->n_parked);
        return;
      }
    }
    step(ring, is_over);
  }
}

/* --- life --- */

static zr_status_t refuse(const char *what, int error) {
  return zr_fail(ZR_ERR_UNSUPPORTED, "io_uring refused (%s: %s)", what, strerror(error));
}

static zr_status_t set_up_ring(ring_t *ring, const zr_disk_t *disk) {
  int error = -ask(disk, ZR_DISK_CALL_SETUP);
  /* Completions wait for the thread to enter anyway: no interrupt for each (Linux 5.19). */
  const unsigned flags[] = {IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN, IORING_SETUP_CLAMP};
  for (int i = 0; i < 2 && !ring->has_ring && error == 0; i++) {
    struct io_uring_params params = {.flags = flags[i]};
    error = -io_uring_queue_init_params((unsigned)ring->n_slots, &ring->ring, &params);
    ring->has_ring = error == 0;
    if (error == EINVAL && i == 0) error = 0;
  }
  if (error) return refuse("setup", error);
  if (!(ring->ring.features & IORING_FEAT_EXT_ARG)) return refuse("Linux before 5.11", ENOSYS);
  return ZR_OK;
}

static zr_status_t register_files(ring_t *ring, const zr_disk_t *disk) {
  int fd[2 * ZR_DISK_MOST_PATHS];
  for (int i = 0; i < disk->n_files; i++) {
    fd[2 * i] = disk->file[i].direct_fd;
    fd[2 * i + 1] = disk->file[i].buffered_fd;
  }
  int error = -ask(disk, ZR_DISK_CALL_REGISTER_FILES);
  if (!error) error = -io_uring_register_files(&ring->ring, fd, 2 * (unsigned)disk->n_files);
  return error > 0 ? refuse("register", error) : ZR_OK;
}

/* One request that does nothing: a filter may allow the setup and refuse to enter. */
static zr_status_t prove(ring_t *ring) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);
  if (!sqe) return refuse("no entry", ENOMEM);
  io_uring_prep_nop(sqe);
  struct io_uring_cqe *cqe;
  int answer = enter(ring, SLICE_NS);
  for (int i = 0; i < 100 && (answer == -EINTR || answer == -ETIME); i++) {
    answer = enter(ring, SLICE_NS);
  }
  if (answer < 0) return refuse("enter", -answer);
  if (io_uring_peek_cqe(&ring->ring, &cqe) != 0) return refuse("enter", ETIME);
  answer = cqe->res;
  io_uring_cqe_seen(&ring->ring, cqe);
  return answer < 0 ? refuse("nop", -answer) : ZR_OK;
}

static zr_status_t make_ring(zr_disk_t *disk, zr_disk_lane_t *lane) {
  ring_t *ring = NULL;
  ZR_TRY(zr_alloc_get(disk->alloc, 1, sizeof *ring, &ring));
  lane->engine = ring;
  ring->lane = lane;
  const int64_t wanted = (int64_t)disk->queue_depth * disk->n_files;
  ring->n_slots = wanted < ZR_DISK_MOST_IN_FLIGHT ? (int)wanted : ZR_DISK_MOST_IN_FLIGHT;
  const size_t n_slots = (size_t)ring->n_slots;
  ZR_TRY(zr_alloc_get(disk->alloc, n_slots, sizeof *ring->slot, &ring->slot));
  ZR_TRY(zr_alloc_get(disk->alloc, n_slots, sizeof *ring->free_slot, &ring->free_slot));
  for (int i = ring->n_slots; i-- > 0;) release(ring, i);
  ZR_TRY(set_up_ring(ring, disk));
  ZR_TRY(register_files(ring, disk));
  return prove(ring);
}

static zr_status_t uring_start(zr_disk_t *disk) {
  for (int i = 0; i < ZR_DISK_N_LANES; i++) ZR_TRY(make_ring(disk, &disk->lane[i]));
  return ZR_OK;
}

static int register_buffers(ring_t *ring, const zr_disk_t *disk, const struct iovec *buffer,
                            unsigned n_buffers) {
  int error = -ask(disk, ZR_DISK_CALL_REGISTER_BUFFERS);
  if (!error) error = -io_uring_register_buffers(&ring->ring, buffer, n_buffers);
  ring->has_buffers = error <= 0;
  return error > 0 ? error : 0;
}

static void uring_attach(zr_disk_t *disk) {
  const int64_t most = disk->seam.buffer_bytes;
  const size_t n = (size_t)((disk->attached_bytes + most - 1) / most);
  struct iovec *buffer = NULL;
  int error = zr_alloc_get(disk->alloc, n, sizeof *buffer, &buffer) == ZR_OK ? 0 : ENOMEM;
  for (size_t i = 0; !error && i < n; i++) {
    const int64_t at = (int64_t)i * most, left = disk->attached_bytes - at;
    buffer[i] = (struct iovec){disk->attached + at, (size_t)(left < most ? left : most)};
  }
  for (int i = 0; i < ZR_DISK_N_LANES && !error; i++) {
    error = register_buffers(disk->lane[i].engine, disk, buffer, (unsigned)n);
  }
  if (error) {
    zr_disk_note(disk, "buffers are not registered (%s: raise `ulimit -l`), which costs a little",
                 strerror(error));
  }
  zr_alloc_free(disk->alloc, buffer);
}

static void uring_stop(zr_disk_t *disk) {
  for (int i = 0; i < ZR_DISK_N_LANES; i++) {
    ring_t *ring = disk->lane[i].engine;
    if (!ring) continue;
    if (ring->has_ring) io_uring_queue_exit(&ring->ring);
    zr_alloc_free(disk->alloc, ring->slot);
    zr_alloc_free(disk->alloc, ring->free_slot);
    zr_alloc_free(disk->alloc, ring);
    disk->lane[i].engine = NULL;
  }
}

const zr_disk_engine_t zr_disk_engine_uring = {
    .name = "uring",
    .start = uring_start,
    .attach = uring_attach,
    .move = uring_move,
    .stop = uring_stop,
};
