/* Monotonic time in nanoseconds, and sleeping. Any thread. */
#ifndef ZR_BASE_CLOCK_H
#define ZR_BASE_CLOCK_H

#include <stdint.h>

int64_t zr_clock_ns(void);            /* CLOCK_MONOTONIC */
int64_t zr_clock_thread_cpu_ns(void); /* CPU time of the calling thread */
void zr_clock_sleep_ns(int64_t duration_ns);

#endif
