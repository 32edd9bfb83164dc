#include "runtime/base/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool zr_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns) {
  if (atomic_load_explicit(word, memory_order_acquire) != expected) return true;
  struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
  long result = syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, expected,
                        timeout_ns < 0 ? NULL : &timeout, NULL, 0);
  return !(result == -1 && errno == ETIMEDOUT);
}

void zr_futex_wake_all(_Atomic uint32_t *word) {
  (void)syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
