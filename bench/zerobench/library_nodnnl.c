#include <stddef.h>

#include "bench/zerobench/library.h"

int zr_bench_library_has_bf16(void) {
  return 0;
}

zr_status_t zr_bench_library_create(zr_alloc_t *alloc, const zr_bench_product_t *product,
                                    int n_threads, zr_bench_library_t **out_library) {
  (void)alloc, (void)product, (void)n_threads;
  *out_library = NULL;
  return ZR_OK;
}

zr_status_t zr_bench_library_run(zr_bench_library_t *library, const void *a, const void *b,
                                 void *c) {
  (void)library, (void)a, (void)b, (void)c;
  return zr_fail(ZR_ERR_UNSUPPORTED, "no library of matrix products is built in");
}

void zr_bench_library_destroy(zr_bench_library_t *library) {
  (void)library;
}
