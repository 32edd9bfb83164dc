/* When each piece of work of one stream began and ended in virtual time, found by its signal. */
#ifndef ZR_HAL_NULL_HISTORY_H
#define ZR_HAL_NULL_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/alloc.h"

typedef struct {
  uint64_t signal;
  int64_t begin_ns, end_ns;
} zr_null_entry_t;

typedef struct {
  zr_null_entry_t *entries; /* signals ascend, ends do not descend */
  size_t n_entries, capacity;
} zr_null_history_t;

zr_status_t zr_null_history_add(zr_null_history_t *history, zr_alloc_t *alloc, uint64_t signal,
                                int64_t begin_ns, int64_t end_ns) ZR_MUST_CHECK;
/* The first entry whose signal is at least `value`; NULL when none is. */
const zr_null_entry_t *zr_null_history_find(const zr_null_history_t *history, uint64_t value);

#endif
