/* Host allocator with counters and fail-at-N.
 *
 * Passed as a parameter to every constructor; NULL means zr_alloc_default(). Memory comes zeroed
 * and aligned to 64 bytes. Thread-safe. Nothing on the step path may call it: tests read `n_calls`
 * before and after. */
#ifndef ZR_BASE_ALLOC_H
#define ZR_BASE_ALLOC_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

typedef struct zr_alloc_t {
  _Atomic int64_t n_calls;    /* allocations so far, failed ones too */
  _Atomic int64_t live_bytes; /* asked for and not yet freed */
  _Atomic int64_t live_count;
  _Atomic int64_t peak_bytes;
  int64_t fail_at; /* the n-th call (from 1) and all after it fail; 0 = never */
} zr_alloc_t;

void zr_alloc_init(zr_alloc_t *alloc);
zr_alloc_t *zr_alloc_default(void);

/* Zeroed memory for count x item_bytes (overflow checked). On failure returns ZR_ERR_OUT_OF_MEMORY
 * with the byte count in the detail and leaves *out_memory alone. count or item_bytes 0 gives a
 * valid pointer of its own. */
zr_status_t zr_alloc_get(zr_alloc_t *alloc, size_t count, size_t item_bytes,
                         void *out_memory) ZR_MUST_CHECK;
/* Grows to at least `count` items, at least doubling; new items zeroed. *memory may be NULL with
 * *capacity 0. */
zr_status_t zr_alloc_grow(zr_alloc_t *alloc, void *memory, size_t *capacity, size_t count,
                          size_t item_bytes) ZR_MUST_CHECK;
zr_status_t zr_alloc_strdup(zr_alloc_t *alloc, const char *text, char **out_text) ZR_MUST_CHECK;
void zr_alloc_free(zr_alloc_t *alloc, void *memory); /* NULL is fine */

#endif
