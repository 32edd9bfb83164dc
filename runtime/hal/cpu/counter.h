/* A 64-bit number that only grows, and threads that sleep until it has grown enough.
 *
 * Timelines and both ends of a stream's ring are such counters. A waiter polls for 20 us, then
 * leaves the value it wants in `wanted` and sleeps on `word`; who advances the counter makes a
 * system call only when a wanted value is reached. Any thread may wait; the comments say who may
 * advance. All accesses are sequentially consistent: the waiter writes `wanted` and reads `value`,
 * the other side writes `value` and reads `wanted`, and one of the two must see the other. */
#ifndef ZR_HAL_CPU_COUNTER_H
#define ZR_HAL_CPU_COUNTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  _Alignas(64) _Atomic uint64_t value;
  _Atomic uint64_t wanted; /* the smallest value somebody sleeps for; UINT64_MAX: nobody */
  _Atomic uint32_t word;   /* changes whenever sleepers must look again */
} zr_cpu_counter_t;

typedef enum { ZR_CPU_REACHED, ZR_CPU_STOPPED, ZR_CPU_LATE } zr_cpu_wait_t;

/* Asked while the value is not reached; true ends the wait. Whoever changes its answer pokes. */
typedef bool (*zr_cpu_stop_fn_t)(const void *context);

void zr_cpu_counter_init(zr_cpu_counter_t *counter);
/* One thread advances; another may set UINT64_MAX, which stays. */
void zr_cpu_counter_advance(zr_cpu_counter_t *counter, uint64_t value);
void zr_cpu_counter_poke(zr_cpu_counter_t *counter); /* all sleepers look again */
/* timeout_ns < 0: none. stop may be NULL. A reached value wins over stop and timeout. */
zr_cpu_wait_t zr_cpu_counter_wait(zr_cpu_counter_t *counter, uint64_t value, zr_cpu_stop_fn_t stop,
                                  const void *context, int64_t timeout_ns);

static inline uint64_t zr_cpu_counter_get(const zr_cpu_counter_t *counter) {
  return atomic_load(&counter->value);
}

#endif
