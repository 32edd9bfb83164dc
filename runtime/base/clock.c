#include "runtime/base/clock.h"

#include <errno.h>
#include <time.h>

enum { NS_PER_S = 1000000000 };

static int64_t read_clock(clockid_t id) {
  struct timespec now;
  (void)clock_gettime(id, &now);
  return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t zr_clock_ns(void) {
  return read_clock(CLOCK_MONOTONIC);
}
int64_t zr_clock_thread_cpu_ns(void) {
  return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void zr_clock_sleep_ns(int64_t duration_ns) {
  if (duration_ns <= 0) return;
  struct timespec left = {.tv_sec = duration_ns / NS_PER_S, .tv_nsec = duration_ns % NS_PER_S};
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}
