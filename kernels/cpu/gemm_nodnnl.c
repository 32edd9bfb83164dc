/* No library for matrix products: gemm.c uses the row kernels. */
#include <stddef.h>

#include "kernels/cpu/gemm_library.h"

zr_status_t zr_cpu_library_open(zr_alloc_t *alloc, zr_cpu_isa_t isa,
                                zr_cpu_library_t **out_library) {
  (void)alloc;
  (void)isa;
  *out_library = NULL;
  return ZR_OK;
}

void zr_cpu_library_close(zr_cpu_library_t *library) {
  (void)library;
}

int zr_cpu_library_reads_in_place(const zr_cpu_library_t *library) {
  (void)library;
  return 0;
}

zr_status_t zr_cpu_library_prepare(zr_cpu_library_t *library, const zr_cpu_gemm_shape_t *shape,
                                   int add, int64_t max_scratch_bytes, int n_workers,
                                   zr_cpu_product_prim_t **out_prim) {
  (void)library;
  (void)shape;
  (void)add;
  (void)max_scratch_bytes;
  (void)n_workers;
  *out_prim = NULL;
  return ZR_OK;
}

void zr_cpu_library_release(zr_cpu_library_t *library, zr_cpu_product_prim_t *prim) {
  (void)library;
  (void)prim;
}

zr_status_t zr_cpu_library_run(zr_cpu_library_t *library, const zr_cpu_product_prim_t *prim,
                               int worker, const void *a, const void *b, float *c, void *scratch) {
  (void)library;
  (void)prim;
  (void)worker;
  (void)a;
  (void)b;
  (void)c;
  (void)scratch;
  return zr_fail(ZR_ERR_INTERNAL, "cpu: a product of a library that is not built in");
}
