#include "runtime/hal/cpu/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, HUGE_BYTES = 2 << 20 };

static size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

zr_status_t zr_cpu_memory_map(zr_tier_t tier, int64_t bytes, void **out_memory) {
  if (bytes <= 0) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "%s arena of %lld bytes", zr_tier_name(tier),
                   (long long)bytes);
  }
  if (tier != ZR_TIER_DEVICE && tier != ZR_TIER_HOST) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "the cpu device has no %s arenas", zr_tier_name(tier));
  }
  const size_t kept = round_up((size_t)bytes, PAGE_BYTES);
  const size_t slack = kept >= HUGE_BYTES ? HUGE_BYTES : 0;
  char *raw = mmap(NULL, kept + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "%s arena of %lld bytes: %s", zr_tier_name(tier),
                   (long long)bytes, strerror(errno));
  }
  char *memory = raw;
  if (slack) { /* huge pages need an aligned start; the ends go back */
    memory = (char *)round_up((size_t)raw, HUGE_BYTES);
    const size_t head = (size_t)(memory - raw);
    if (head) munmap(raw, head);
    if (slack - head) munmap(memory + kept, slack - head);
    madvise(memory, kept, MADV_HUGEPAGE); /* advice: refused is fine */
  }
  *out_memory = memory;
  return ZR_OK;
}

void zr_cpu_memory_unmap(void *memory, int64_t bytes) {
  if (memory) munmap(memory, round_up((size_t)bytes, PAGE_BYTES));
}
