#include "runtime/hal/cpu/counter.h"

#include <sched.h>

#include "runtime/base/clock.h"
#include "runtime/base/futex.h"

enum { POLL_NS = 20000 };

void zr_cpu_counter_init(zr_cpu_counter_t *counter) {
  atomic_store(&counter->value, 0);
  atomic_store(&counter->wanted, UINT64_MAX);
  atomic_store(&counter->word, 0);
}

void zr_cpu_counter_poke(zr_cpu_counter_t *counter) {
  /* `wanted` goes first: a waiter that writes it later read `word` before the change below, or
   * after it and will not sleep past this poke; either way it registers again. */
  atomic_store(&counter->wanted, UINT64_MAX);
  atomic_fetch_add(&counter->word, 1);
  zr_futex_wake_all(&counter->word);
}

void zr_cpu_counter_advance(zr_cpu_counter_t *counter, uint64_t value) {
  uint64_t before = atomic_load(&counter->value);
  do {
    if (before >= value) return;
  } while (!atomic_compare_exchange_weak(&counter->value, &before, value));
  if (value >= atomic_load(&counter->wanted)) zr_cpu_counter_poke(counter);
}

static void want(zr_cpu_counter_t *counter, uint64_t value) {
  uint64_t wanted = atomic_load(&counter->wanted);
  while (wanted > value && !atomic_compare_exchange_weak(&counter->wanted, &wanted, value)) {
  }
}

zr_cpu_wait_t zr_cpu_counter_wait(zr_cpu_counter_t *counter, uint64_t value, zr_cpu_stop_fn_t stop,
                                  const void *context, int64_t timeout_ns) {
  if (zr_cpu_counter_get(counter) >= value) return ZR_CPU_REACHED;
  const int64_t begin_ns = zr_clock_ns();
  int64_t waited_ns = 0;
  while (waited_ns < POLL_NS && (timeout_ns < 0 || waited_ns < timeout_ns)) {
    sched_yield();
    if (zr_cpu_counter_get(counter) >= value) return ZR_CPU_REACHED;
    waited_ns = zr_clock_ns() - begin_ns;
  }
  for (;;) {
    const uint32_t seen = atomic_load(&counter->word);
    want(counter, value);
    if (zr_cpu_counter_get(counter) >= value) return ZR_CPU_REACHED;
    if (stop && stop(context)) return ZR_CPU_STOPPED;
    int64_t left_ns = -1;
    if (timeout_ns >= 0) {
      left_ns = timeout_ns - (zr_clock_ns() - begin_ns);
      if (left_ns <= 0) return ZR_CPU_LATE;
    }
    zr_futex_wait(&counter->word, seen, left_ns);
  }
}
