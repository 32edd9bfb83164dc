/* Cutting a transfer into requests, and what their results mean. */
#include <errno.h>
#include <string.h>

#include "offload/disk/disk_internal.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

enum { BACKOFF_NS = 1000000, MOST_BACKOFF_NS = 100000000 };

bool zr_disk_lane_is_over(const zr_disk_lane_t *lane) {
  return zr_verdict_is_set(&lane->failure) || zr_verdict_is_set(&lane->disk->cancelled);
}

int zr_disk_request_fd(const zr_disk_t *disk, const zr_disk_request_t *request) {
  const zr_disk_file_t *file = &disk->file[request->file];
  return request->is_buffered ? file->buffered_fd : file->direct_fd;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* A request ends with its block where blocks go to several files, and with its registered buffer.
 */
static int64_t cut(const zr_disk_t *disk, int64_t offset, const char *memory, int64_t bytes) {
  int64_t most = disk->block_bytes;
  if (disk->n_files > 1) most -= offset % disk->block_bytes;
  if (disk->attached && memory >= disk->attached) {
    const int64_t place = memory - disk->attached;
    if (place < disk->attached_bytes) {
      const int64_t buffer_bytes = disk->seam.buffer_bytes;
      most = least(most, buffer_bytes - place % buffer_bytes);
      most = least(most, disk->attached_bytes - place);
    }
  }
  return least(bytes, most);
}

bool zr_disk_request_next(zr_disk_lane_t *lane, zr_disk_request_t *out_request) {
  zr_disk_t *disk = lane->disk;
  int64_t at = atomic_load(&lane->cursor), bytes;
  do {
    if (at >= lane->bytes || zr_disk_lane_is_over(lane)) return false;
    bytes = cut(disk, lane->offset + at, lane->memory + at, lane->bytes - at);
  } while (!atomic_compare_exchange_weak(&lane->cursor, &at, at + bytes));
  const int64_t offset = lane->offset + at, block = offset / disk->block_bytes;
  *out_request = (zr_disk_request_t){
      .file = (int)(block % disk->n_files),
      .is_write = lane->is_write,
      .begin = offset,
      .begin_bytes = bytes,
      .offset = block / disk->n_files * disk->block_bytes + offset % disk->block_bytes,
      .bytes = bytes,
      .memory = lane->memory + at};
  out_request->is_buffered = disk->file[out_request->file].direct_fd < 0;
  if (lane->is_write && disk->checksum) zr_disk_checksum_set(disk, out_request);
  return true;
}

/* Fails the lane by this thread's detail. */
static zr_disk_outcome_t fail_lane(zr_disk_lane_t *lane, zr_status_t status) {
  zr_verdict_set(&lane->failure, status, zr_detail());
  return ZR_DISK_FAILED;
}

static zr_disk_outcome_t fail_request(zr_disk_lane_t *lane, const zr_disk_request_t *r,
                                      const char *cause, const char *remedy) {
  const zr_disk_file_t *file = &lane->disk->file[r->file];
  return fail_lane(lane, zr_fail(ZR_ERR_IO, "%s: %s of %lld bytes at %lld: %s%s", file->name,
                                 r->is_write ? "write" : "read", (long long)r->bytes,
                                 (long long)r->offset, cause, remedy));
}

static zr_disk_outcome_t retry(zr_disk_lane_t *lane, zr_disk_request_t *r, int error) {
  const int64_t now = zr_clock_ns();
  if (r->refused_ns == 0) r->refused_ns = now;
  const int64_t late_ns = now - r->refused_ns;
  if (late_ns > lane->disk->seam.retry_ns) {
    return fail_request(lane, r, strerror(error),
                        ", again and again: is the machine out of memory or requests?");
  }
  /* As long again as it has been so far: 1, 1, 2, 4, ... ms. */
  const int64_t wait_ns = late_ns < BACKOFF_NS ? BACKOFF_NS : least(late_ns, MOST_BACKOFF_NS);
  r->ready_ns = error == EINTR && late_ns == 0 ? 0 : now + wait_ns;
  atomic_fetch_add(&lane->n_retried, 1);
  return ZR_DISK_AGAIN;
}

/* The file took direct transfers when it was opened, and refuses this one. */
static zr_disk_outcome_t retry_buffered(zr_disk_lane_t *lane, zr_disk_request_t *r) {
  zr_disk_t *disk = lane->disk;
  r->is_buffered = true;
  r->ready_ns = 0;
  atomic_fetch_add(&lane->n_retried, 1);
  if (!atomic_exchange(&disk->has_said_buffered, 1)) {
    zr_warn(
        "%s: a direct %s of %lld bytes at %lld was refused (%s): moved through the page cache, "
        "which is slower",
        disk->file[r->file].name, r->is_write ? "write" : "read", (long long)r->bytes,
        (long long)r->offset, strerror(EINVAL));
  }
  return ZR_DISK_AGAIN;
}

static zr_disk_outcome_t settle_error(zr_disk_lane_t *lane, zr_disk_request_t *r, int error) {
  const zr_disk_t *disk = lane->disk;
  if (error == EAGAIN || error == EINTR) return retry(lane, r, error);
  if (error == EINVAL && !r->is_buffered) return retry_buffered(lane, r);
  if (r->is_write && (error == ENOSPC || error == EDQUOT)) {
    return fail_lane(lane, zr_disk_fail_space(disk, r->file, error));
  }
  return fail_request(lane, r, strerror(error), ": see `dmesg` and the drive's health");
}

/* Direct transfers go on at a multiple of their alignment: the odd bytes are moved once more. */
static void advance(zr_disk_lane_t *lane, zr_disk_request_t *r, int64_t bytes) {
  const int64_t align = lane->disk->file[r->file].align_bytes;
  if (!r->is_buffered && bytes < r->bytes && bytes % align != 0) {
    if (bytes < align) {
      r->is_buffered = true;
    } else {
      bytes -= bytes % align;
    }
  }
  r->offset += bytes;
  r->memory += bytes;
  r->bytes -= bytes;
  r->refused_ns = r->ready_ns = 0;
  atomic_fetch_add(&lane->moved_bytes, bytes);
  atomic_fetch_sub(&lane->moving_bytes, bytes);
}

zr_disk_outcome_t zr_disk_request_settle(zr_disk_lane_t *lane, zr_disk_request_t *r, int answer) {
  if (answer < 0) return settle_error(lane, r, -answer);
  if (answer > r->bytes) return fail_request(lane, r, "more bytes than asked for", "");
  if (answer == 0) {
    return r->is_write ? fail_request(lane, r, "no bytes were written", "")
                       : fail_request(lane, r, "the file is shorter", ": did somebody cut it?");
  }
  advance(lane, r, answer);
  if (r->bytes > 0) {
    atomic_fetch_add(&lane->n_resumed, 1);
    return ZR_DISK_AGAIN;
  }
  if (!r->is_write && lane->disk->checksum) {
    const zr_status_t status = zr_disk_checksum_check(lane->disk, r);
    if (status != ZR_OK) return fail_lane(lane, status);
  }
  return ZR_DISK_DONE;
}

void zr_disk_lane_stick(zr_disk_lane_t *lane, int n_requests) {
  lane->is_stuck = true;
  const zr_disk_t *disk = lane->disk;
  const char *cause = "";
  if (zr_verdict_get(&lane->failure) != ZR_OK || zr_verdict_get(&disk->cancelled) != ZR_OK) {
    cause = zr_detail();
  }
  zr_error("%s: %d %s never completed: the drive hangs, and their memory may still change (%.300s)",
           disk->file[0].path, n_requests, lane->is_write ? "writes" : "reads", cause);
}
