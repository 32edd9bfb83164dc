/* A disk that misbehaves on purpose: wraps another one, and fails, delays, corrupts or hangs one
 * transfer, or delays every one by a pseudo-random time. Reads and writes are counted together. */
#include <stdio.h>

#include "offload/disk/verdict.h"
#include "offload/tier.h"
#include "runtime/base/clock.h"
#include "runtime/base/rng.h"

enum { HANG_POLL_NS = 1000000 };

struct zr_disk_t {
  zr_disk_ops_t ops; /* the table is this object's own: its name has the inner one's in it */
  char name[64];
  zr_alloc_t *alloc;
  zr_fault_t fault;
  const zr_disk_ops_t *inner_ops;
  zr_disk_t *inner;
  _Atomic int64_t n_calls;
  zr_verdict_t cancelled;
};

/* Before a transfer: error, delay, or a hang until somebody cancels. */
static zr_status_t before(zr_disk_t *disk, const char *what, bool *out_is_hit) {
  const zr_fault_t *fault = &disk->fault;
  const int64_t n = atomic_fetch_add(&disk->n_calls, 1) + 1;
  *out_is_hit = fault->random_seed == 0 && n == fault->at;
  if (fault->random_seed != 0 && fault->delay_ns > 0) {
    const uint64_t bits = zr_rng_u64(fault->random_seed, (uint64_t)n);
    zr_clock_sleep_ns((int64_t)(bits % ((uint64_t)fault->delay_ns + 1)));
  }
  if (!*out_is_hit) return ZR_OK;
  switch (fault->kind) {
    case ZR_FAULT_ERROR:
      return zr_fail(ZR_ERR_IO, "%s: %s fails as asked (call %lld)", disk->name, what,
                     (long long)n);
    case ZR_FAULT_DELAY:
      zr_clock_sleep_ns(fault->delay_ns);
      break;
    case ZR_FAULT_HANG:
      while (!zr_verdict_is_set(&disk->cancelled)) zr_clock_sleep_ns(HANG_POLL_NS);
      return zr_verdict_get(&disk->cancelled);
    case ZR_FAULT_NONE:
    case ZR_FAULT_CORRUPT:
      break;
  }
  return ZR_OK;
}

static void fault_close(zr_disk_t *disk) {
  if (!disk) return;
  disk->inner_ops->close(disk->inner);
  zr_alloc_free(disk->alloc, disk);
}

static zr_status_t fault_attach(zr_disk_t *disk, void *memory, int64_t bytes) {
  return disk->inner_ops->attach(disk->inner, memory, bytes);
}

static zr_status_t fault_read(zr_disk_t *disk, int64_t offset, void *memory, int64_t bytes) {
  bool is_hit;
  ZR_TRY(before(disk, "read", &is_hit));
  ZR_TRY(disk->inner_ops->read(disk->inner, offset, memory, bytes));
  if (is_hit && disk->fault.kind == ZR_FAULT_CORRUPT) ((unsigned char *)memory)[bytes / 2] ^= 1u;
  return ZR_OK;
}

/* The caller's memory is not touched: a corruption that falls on a write changes nothing. */
static zr_status_t fault_write(zr_disk_t *disk, int64_t offset, const void *memory, int64_t bytes) {
  bool is_hit;
  ZR_TRY(before(disk, "write", &is_hit));
  return disk->inner_ops->write(disk->inner, offset, memory, bytes);
}

static void fault_stats(const zr_disk_t *disk, zr_disk_stats_t *out_stats) {
  disk->inner_ops->stats(disk->inner, out_stats);
}

static void fault_cancel(zr_disk_t *disk, zr_status_t status, const char *detail) {
  zr_verdict_set(&disk->cancelled, status, detail);
  disk->inner_ops->cancel(disk->inner, status, detail);
}

static const char *fault_describe(const zr_disk_t *disk) {
  return disk->inner_ops->describe(disk->inner);
}

static const zr_disk_ops_t fault_ops = {
    .close = fault_close,
    .attach = fault_attach,
    .read = fault_read,
    .write = fault_write,
    .stats = fault_stats,
    .cancel = fault_cancel,
    .describe = fault_describe,
};

zr_status_t zr_disk_fault_open(zr_alloc_t *alloc, const zr_fault_t *fault,
                               const zr_disk_ops_t *inner_ops, zr_disk_t *inner,
                               const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) {
  zr_disk_t *disk = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *disk, &disk));
  disk->alloc = alloc;
  disk->fault = *fault;
  disk->inner_ops = inner_ops;
  disk->inner = inner;
  (void)snprintf(disk->name, sizeof disk->name, "fault(%s)", inner_ops->name);
  disk->ops = fault_ops;
  disk->ops.name = disk->name;
  *out_ops = &disk->ops;
  *out_disk = disk;
  return ZR_OK;
}
