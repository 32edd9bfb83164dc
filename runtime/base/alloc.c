#include "runtime/base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Stands in the 64 bytes before each block. */
typedef struct {
  void *raw;
  size_t bytes;
} block_header_t;

enum { ALIGN_BYTES = 64 };

void zr_alloc_init(zr_alloc_t *alloc) {
  memset(alloc, 0, sizeof *alloc);
}

zr_alloc_t *zr_alloc_default(void) {
  static zr_alloc_t alloc;
  return &alloc;
}

static void count_in(zr_alloc_t *alloc, size_t bytes) {
  int64_t live = atomic_fetch_add(&alloc->live_bytes, (int64_t)bytes) + (int64_t)bytes;
  atomic_fetch_add(&alloc->live_count, 1);
  int64_t peak = atomic_load(&alloc->peak_bytes);
  while (live > peak && !atomic_compare_exchange_weak(&alloc->peak_bytes, &peak, live)) {
  }
}

zr_status_t zr_alloc_get(zr_alloc_t *alloc, size_t count, size_t item_bytes, void *out_memory) {
  if (!alloc) alloc = zr_alloc_default();
  int64_t call = atomic_fetch_add(&alloc->n_calls, 1) + 1;
  size_t bytes;
  if (__builtin_mul_overflow(count, item_bytes, &bytes) || bytes > PTRDIFF_MAX - 2 * ALIGN_BYTES) {
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "out of host memory: %zu items of %zu bytes", count,
                   item_bytes);
  }
  char *raw = NULL;
  if (alloc->fail_at == 0 || call < alloc->fail_at) raw = calloc(1, bytes + 2 * ALIGN_BYTES);
  if (!raw) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "out of host memory: %zu bytes", bytes);
  /* At least sizeof(block_header_t) lies between raw and the next multiple but one. */
  uintptr_t place =
      ((uintptr_t)raw + sizeof(block_header_t) + ALIGN_BYTES - 1) & ~(uintptr_t)(ALIGN_BYTES - 1);
  void *memory = (void *)place;
  block_header_t *header = (block_header_t *)memory - 1;
  header->raw = raw;
  header->bytes = bytes;
  count_in(alloc, bytes);
  memcpy(out_memory, &memory, sizeof memory);
  return ZR_OK;
}

zr_status_t zr_alloc_grow(zr_alloc_t *alloc, void *memory, size_t *capacity, size_t count,
                          size_t item_bytes) {
  if (count <= *capacity) return ZR_OK;
  size_t wanted = *capacity > SIZE_MAX / 2 ? count : 2 * *capacity;
  if (wanted < count) wanted = count;
  void *old, *grown = NULL;
  memcpy(&old, memory, sizeof old);
  ZR_TRY(zr_alloc_get(alloc, wanted, item_bytes, &grown));
  if (old) memcpy(grown, old, *capacity * item_bytes);
  zr_alloc_free(alloc, old);
  memcpy(memory, &grown, sizeof grown);
  *capacity = wanted;
  return ZR_OK;
}

zr_status_t zr_alloc_strdup(zr_alloc_t *alloc, const char *text, char **out_text) {
  size_t bytes = strlen(text) + 1;
  char *copy = NULL;
  ZR_TRY(zr_alloc_get(alloc, bytes, 1, &copy));
  memcpy(copy, text, bytes);
  *out_text = copy;
  return ZR_OK;
}

void zr_alloc_free(zr_alloc_t *alloc, void *memory) {
  if (!memory) return;
  if (!alloc) alloc = zr_alloc_default();
  block_header_t *header = (block_header_t *)memory - 1;
  atomic_fetch_sub(&alloc->live_bytes, (int64_t)header->bytes);
  atomic_fetch_sub(&alloc->live_count, 1);
  free(header->raw);
}
