#include "runtime/hal/null/history.h"

zr_status_t zr_null_history_add(zr_null_history_t *history, zr_alloc_t *alloc, uint64_t signal,
                                int64_t begin_ns, int64_t end_ns) {
  ZR_TRY(zr_alloc_grow(alloc, &history->entries, &history->capacity, history->n_entries + 1,
                       sizeof *history->entries));
  history->entries[history->n_entries++] = (zr_null_entry_t){signal, begin_ns, end_ns};
  return ZR_OK;
}

const zr_null_entry_t *zr_null_history_find(const zr_null_history_t *history, uint64_t value) {
  size_t low = 0, high = history->n_entries;
  if (high > 0 && history->entries[high - 1].signal < value) return NULL;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (history->entries[middle].signal < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < history->n_entries ? &history->entries[low] : NULL;
}
