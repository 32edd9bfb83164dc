/* oneDNN 2.x with OpenMP's threads. They are asked for around each call and given up after it: the
 * kernels share this thread and use one. */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include "bench/zerobench/library.h"

enum { A, B, C, N_ARGS };

struct zr_bench_library_t {
  zr_alloc_t *alloc;
  int n_threads;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t arg[N_ARGS];
};

static zr_status_t convert(dnnl_status_t status, const char *call) {
  if (status == dnnl_success) return ZR_OK;
  return zr_fail(ZR_ERR_DEVICE, "oneDNN: %s failed with status %d", call, (int)status);
}
#define TRY_DNNL(call) ZR_TRY(convert(call, #call))

int zr_bench_library_has_bf16(void) {
  unsigned effective = dnnl_get_effective_cpu_isa(), wanted = dnnl_cpu_isa_avx512_core_bf16;
  return (effective & wanted) == wanted;
}

static zr_status_t describe(dnnl_memory_desc_t *out, zr_dtype_t type, int64_t rows, int64_t cols,
                            int64_t row, int64_t col) {
  dnnl_dims_t dims = {rows, cols}, strides = {row, col};
  dnnl_data_type_t dtype = type == ZR_BF16 ? dnnl_bf16 : dnnl_f32;
  TRY_DNNL(dnnl_memory_desc_init_by_strides(out, 2, dims, dtype, strides));
  return ZR_OK;
}

static zr_status_t build(zr_bench_library_t *l, const zr_bench_product_t *p) {
  static const int names[N_ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  dnnl_memory_desc_t md[N_ARGS];
  dnnl_matmul_desc_t matmul;
  dnnl_primitive_desc_t pd;
  TRY_DNNL(dnnl_engine_create(&l->engine, dnnl_cpu, 0));
  TRY_DNNL(dnnl_stream_create(&l->stream, l->engine, dnnl_stream_default_flags));
  ZR_TRY(describe(&md[A], p->ab, p->m, p->k, p->a_row, p->a_col));
  ZR_TRY(describe(&md[B], p->ab, p->k, p->n, p->b_row, p->b_col));
  ZR_TRY(describe(&md[C], p->c, p->m, p->n, p->ldc, 1));
  TRY_DNNL(dnnl_matmul_desc_init(&matmul, &md[A], &md[B], NULL, &md[C]));
  TRY_DNNL(dnnl_primitive_desc_create(&pd, &matmul, NULL, l->engine, NULL));
  dnnl_status_t status = dnnl_primitive_create(&l->primitive, pd);
  dnnl_primitive_desc_destroy(pd);
  ZR_TRY(convert(status, "matmul"));
  for (int i = 0; i < N_ARGS; i++) {
    l->arg[i].arg = names[i];
    TRY_DNNL(dnnl_memory_create(&l->arg[i].memory, &md[i], l->engine, DNNL_MEMORY_NONE));
  }
  return ZR_OK;
}

zr_status_t zr_bench_library_create(zr_alloc_t *alloc, const zr_bench_product_t *product,
                                    int n_threads, zr_bench_library_t **out_library) {
  zr_bench_library_t *library = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *library, &library));
  library->alloc = alloc;
  library->n_threads = n_threads;
  omp_set_num_threads(n_threads);
  zr_status_t status = build(library, product);
  omp_set_num_threads(1);
  if (status != ZR_OK) {
    zr_bench_library_destroy(library);
    return status;
  }
  *out_library = library;
  return ZR_OK;
}

zr_status_t zr_bench_library_run(zr_bench_library_t *l, const void *a, const void *b, void *c) {
  void *address[N_ARGS] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c};
  for (int i = 0; i < N_ARGS; i++) {
    TRY_DNNL(dnnl_memory_set_data_handle(l->arg[i].memory, address[i]));
  }
  omp_set_num_threads(l->n_threads);
  dnnl_status_t status = dnnl_primitive_execute(l->primitive, l->stream, N_ARGS, l->arg);
  if (status == dnnl_success) status = dnnl_stream_wait(l->stream);
  omp_set_num_threads(1);
  return convert(status, "execute");
}

void zr_bench_library_destroy(zr_bench_library_t *l) {
  if (l == NULL) return;
  for (int i = 0; i < N_ARGS; i++) {
    if (l->arg[i].memory != NULL) dnnl_memory_destroy(l->arg[i].memory);
  }
  if (l->primitive != NULL) dnnl_primitive_destroy(l->primitive);
  if (l->stream != NULL) dnnl_stream_destroy(l->stream);
  if (l->engine != NULL) dnnl_engine_destroy(l->engine);
  zr_alloc_free(l->alloc, l);
}
