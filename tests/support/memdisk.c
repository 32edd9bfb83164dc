#include "tests/support/memdisk.h"

#include <stdatomic.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/rng.h"

/* One direction: its transfers come from one thread at a time, of reads from two. */
typedef struct {
  _Atomic int n_busy;
  _Atomic int64_t n_calls;
  _Atomic int64_t moving_bytes, moved_bytes;
} way_t;

struct zr_disk_t {
  zr_alloc_t *alloc;
  memdisk_options_t options;
  int64_t bytes;
  char *memory;
  _Atomic char *written; /* [grain] */
  bool attached;
  way_t way[2]; /* read, write */
  _Atomic int cancelled;
  zr_status_t status; /* of the cancellation; written before `cancelled` */
  char detail[ZR_DETAIL_BYTES];
};

static const char *const name_of_way[2] = {"read", "write"};

static bool mark(zr_disk_t *disk, int is_write, int64_t offset, int64_t bytes) {
  for (int64_t g = offset / ZR_DISK_ALIGN_BYTES; g < (offset + bytes) / ZR_DISK_ALIGN_BYTES; g++) {
    if (is_write) {
      atomic_store_explicit(&disk->written[g], 1, memory_order_relaxed);
    } else if (!atomic_load_explicit(&disk->written[g], memory_order_relaxed)) {
      return false;
    }
  }
  return true;
}

static zr_status_t cancelled(zr_disk_t *disk) {
  return zr_fail(disk->status, "memdisk: cancelled: %.400s", disk->detail);
}

static void delay(const zr_disk_t *disk, int is_write, int64_t call) {
  const memdisk_options_t *o = &disk->options;
  if (!is_write && o->read_delay_ns > 0) zr_clock_sleep_ns(o->read_delay_ns);
  if (!o->delay_seed || o->delay_max_ns <= 0) return;
  const uint64_t random = zr_rng_u64(o->delay_seed, (uint64_t)(2 * call + is_write));
  zr_clock_sleep_ns((int64_t)(random % ((uint64_t)o->delay_max_ns + 1)));
}

static zr_status_t move(zr_disk_t *disk, int is_write, int64_t offset, char *memory,
                        int64_t bytes) {
  const memdisk_options_t *o = &disk->options;
  const char *verb = name_of_way[is_write];
  const int64_t call = atomic_fetch_add(&disk->way[is_write].n_calls, 1) + 1;
  if (bytes <= 0 || offset < 0 || offset > disk->bytes - bytes ||
      (offset | bytes | (int64_t)(intptr_t)memory) % ZR_DISK_ALIGN_BYTES != 0) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "memdisk: %s of %lld bytes at %lld, from or to %p",
                   verb, (long long)bytes, (long long)offset, (void *)memory);
  }
  delay(disk, is_write, call);
  while (call == (is_write ? o->hang_write_at : o->hang_read_at) &&
         !atomic_load(&disk->cancelled)) {
    zr_clock_sleep_ns(1000000);
  }
  if (atomic_load(&disk->cancelled)) return cancelled(disk);
  if (call == (is_write ? o->fail_write_at : o->fail_read_at)) {
    return zr_fail(ZR_ERR_IO, "memdisk: %s of %lld bytes at %lld fails as asked", verb,
                   (long long)bytes, (long long)offset);
  }
  if (!mark(disk, is_write, offset, bytes)) {
    return zr_fail(ZR_ERR_INTERNAL, "memdisk: bytes %lld..%lld are read and were never written",
                   (long long)offset, (long long)(offset + bytes));
  }
  memcpy(is_write ? disk->memory + offset : memory, is_write ? memory : disk->memory + offset,
         (size_t)bytes);
  atomic_fetch_add(&disk->way[is_write].moved_bytes, bytes);
  return ZR_OK;
}

static zr_status_t transfer(zr_disk_t *disk, int is_write, int64_t offset, char *memory,
                            int64_t bytes) {
  way_t *way = &disk->way[is_write];
  if (atomic_fetch_add(&way->n_busy, 1) >= (is_write ? 1 : 2)) {
    return zr_fail(ZR_ERR_INTERNAL, "memdisk: too many threads %s at once", name_of_way[is_write]);
  }
  atomic_fetch_add(&way->moving_bytes, bytes);
  const zr_status_t status = move(disk, is_write, offset, memory, bytes);
  atomic_fetch_add(&way->moving_bytes, -bytes);
  atomic_fetch_sub(&way->n_busy, 1);
  return status;
}

static zr_status_t mem_read(zr_disk_t *disk, int64_t offset, void *memory, int64_t bytes) {
  return transfer(disk, 0, offset, memory, bytes);
}

static zr_status_t mem_write(zr_disk_t *disk, int64_t offset, const void *memory, int64_t bytes) {
  return transfer(disk, 1, offset, (char *)(uintptr_t)memory, bytes);
}

static zr_status_t mem_attach(zr_disk_t *disk, void *memory, int64_t bytes) {
  if (disk->attached || disk->way[0].n_calls || disk->way[1].n_calls || !memory || bytes <= 0) {
    return zr_fail(ZR_ERR_INTERNAL, "memdisk: attached twice, late, or nothing");
  }
  disk->attached = true;
  return ZR_OK;
}

static void mem_stats(const zr_disk_t *disk, zr_disk_stats_t *out_stats) {
  *out_stats = (zr_disk_stats_t){.read_bytes = atomic_load(&disk->way[0].moved_bytes),
                                 .written_bytes = atomic_load(&disk->way[1].moved_bytes),
                                 .reading_bytes = atomic_load(&disk->way[0].moving_bytes),
                                 .writing_bytes = atomic_load(&disk->way[1].moving_bytes),
                                 .n_requests = disk->way[0].n_calls + disk->way[1].n_calls};
}

static void mem_cancel(zr_disk_t *disk, zr_status_t status, const char *detail) {
  if (atomic_load(&disk->cancelled)) return;
  disk->status = status;
  strncpy(disk->detail, detail, sizeof disk->detail - 1);
  atomic_store(&disk->cancelled, 1);
}

static const char *mem_describe(const zr_disk_t *disk) {
  (void)disk;
  return "memory";
}

static void mem_close(zr_disk_t *disk) {
  if (!disk) return;
  zr_alloc_free(disk->alloc, disk->memory);
  zr_alloc_free(disk->alloc, (void *)(uintptr_t)disk->written);
  zr_alloc_free(disk->alloc, disk);
}

static const zr_disk_ops_t memdisk_ops = {
    .name = "memory",
    .close = mem_close,
    .attach = mem_attach,
    .read = mem_read,
    .write = mem_write,
    .stats = mem_stats,
    .cancel = mem_cancel,
    .describe = mem_describe,
};

zr_status_t memdisk_open(zr_alloc_t *alloc, int64_t bytes, const memdisk_options_t *options,
                         const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) {
  zr_disk_t *disk = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *disk, &disk));
  disk->alloc = alloc;
  disk->bytes = bytes;
  if (options) disk->options = *options;
  const size_t n_grains = (size_t)(bytes / ZR_DISK_ALIGN_BYTES);
  zr_status_t status = zr_alloc_get(alloc, 1, (size_t)bytes, &disk->memory);
  if (status == ZR_OK) status = zr_alloc_get(alloc, n_grains, 1, &disk->written);
  if (status != ZR_OK) {
    mem_close(disk);
    return status;
  }
  *out_ops = &memdisk_ops;
  *out_disk = disk;
  return ZR_OK;
}

void memdisk_set(zr_disk_t *disk, const memdisk_options_t *options) {
  disk->options = *options;
  disk->way[0].n_calls = disk->way[1].n_calls = 0;
}

const char *memdisk_memory(const zr_disk_t *disk) {
  return disk->memory;
}
