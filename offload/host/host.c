/* Host memory: one mapping, bound to the node, touched by all cores of this process, then locked.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "offload/host/node.h"
#include "offload/host/pages.h"
#include "offload/tier.h"
#include "runtime/base/pool.h"

enum { PAGE_BYTES = 4096, HUGE_BYTES = 2 << 20, TOUCH_BYTES = 32 << 20, MOST_THREADS = 16 };

static size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/* Huge pages want an aligned start: what is mapped too much at both ends goes back. */
static void *map_aligned(size_t kept) {
  const size_t slack = kept >= HUGE_BYTES ? HUGE_BYTES : 0;
  char *raw = mmap(NULL, kept + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  if (slack == 0) return raw;
  char *memory = (char *)round_up((size_t)raw, HUGE_BYTES);
  const size_t head = (size_t)(memory - raw);
  if (head) (void)munmap(raw, head);
  if (slack - head) (void)munmap(memory + kept, slack - head);
  return memory;
}

typedef struct {
  char *memory;
  size_t bytes;
} touched_t;

static void touch(void *context, int64_t task, int worker) {
  const touched_t *t = context;
  (void)worker;
  const size_t begin = (size_t)task * TOUCH_BYTES;
  const size_t end = begin + TOUCH_BYTES < t->bytes ? begin + TOUCH_BYTES : t->bytes;
  for (size_t at = begin; at < end; at += PAGE_BYTES) ((volatile char *)t->memory)[at] = 0;
}

static int n_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int n = CPU_COUNT(&set);
  return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
}

/* The kernel zeroes a page when it is touched: that is the time, and cores share it. */
static void touch_all(char *memory, size_t bytes) {
  touched_t touched = {memory, bytes};
  const int64_t n_tasks = (int64_t)((bytes + TOUCH_BYTES - 1) / TOUCH_BYTES);
  zr_pool_t *pool = NULL;
  const int n_threads = n_tasks < n_cores() ? (int)n_tasks : n_cores();
  /* Without threads the caller touches alone. */
  if (n_threads > 1 && zr_pool_create(NULL, n_threads, &pool) != ZR_OK) pool = NULL;
  zr_parallel_for(pool, n_tasks, touch, &touched);
  zr_pool_destroy(pool);
}

static void lock(zr_host_memory_t *memory, size_t kept) {
  if (mlock(memory->memory, kept) == 0) {
    memory->is_pinned = true;
    return;
  }
  const int error = errno;
  struct rlimit limit = {0};
  (void)getrlimit(RLIMIT_MEMLOCK, &limit);
  (void)munlock(memory->memory, kept); /* a part may have been locked */
  (void)snprintf(memory->notice, sizeof memory->notice,
                 "host memory is not pinned (mlock of %lld bytes: %s): it may be swapped out, and "
                 "copies from and to it may be slower. Its limit is %llu KiB: raise `ulimit -l` to "
                 "%zu or more, or unlimited",
                 (long long)memory->bytes, strerror(error),
                 (unsigned long long)limit.rlim_cur / 1024, kept / 1024);
}

zr_status_t zr_host_map(int64_t bytes, bool pin, zr_host_memory_t *out_memory) {
  if (bytes <= 0) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "host memory of %lld bytes", (long long)bytes);
  }
  const int64_t available = zr_host_available_bytes();
  if (available >= 0 && bytes > available) {
    return zr_fail(ZR_ERR_OUT_OF_MEMORY,
                   "host memory of %lld bytes: %lld bytes are available, %lld are missing: lower "
                   "memory.host or move states to the disk",
                   (long long)bytes, (long long)available, (long long)(bytes - available));
  }
  const size_t kept = round_up((size_t)bytes, PAGE_BYTES);
  void *mapped = map_aligned(kept);
  if (!mapped) {
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "host memory of %lld bytes: %s", (long long)bytes,
                   strerror(errno));
  }
  zr_host_memory_t memory = {.memory = mapped, .bytes = bytes};
  const bool advised = kept >= HUGE_BYTES && madvise(mapped, kept, MADV_HUGEPAGE) == 0;
  zr_host_bind_to_node(mapped, kept);
  touch_all(mapped, kept);
  if (pin) lock(&memory, kept);
  memory.is_huge = advised && zr_host_huge_bytes(mapped, bytes) >= bytes / 2;
  *out_memory = memory;
  return ZR_OK;
}

void zr_host_unmap(zr_host_memory_t *memory) {
  if (memory->memory) (void)munmap(memory->memory, round_up((size_t)memory->bytes, PAGE_BYTES));
  *memory = (zr_host_memory_t){0};
}
