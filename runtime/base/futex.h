/* Waiting on a 32-bit word in the kernel, within one process. Callers that want to poll first do so
 * themselves. Any thread. */
#ifndef ZR_BASE_FUTEX_H
#define ZR_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns when *word != expected, a wake comes, or after timeout_ns (< 0: none); spurious returns
 * are possible, so callers loop. true unless the time ran out. */
bool zr_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);
void zr_futex_wake_all(_Atomic uint32_t *word);

#endif
