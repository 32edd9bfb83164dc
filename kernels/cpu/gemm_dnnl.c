/* Matrix products by oneDNN 2.x, one thread each.
 *
 * oneDNN takes its thread count from OpenMP when a primitive is made and when it runs, so both
 * happen with OpenMP set to one thread: which worker runs a product then changes no bit. The
 * scratchpad is the caller's: oneDNN's own is shared by concurrent executions. */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/gemm_library.h"

struct zr_cpu_library_t {
  zr_alloc_t *alloc;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
};

enum { ARG_A = 0, ARG_B, ARG_C, ARG_SCRATCH, N_ARGS };

/* Memory objects carry an address, so each worker has its own. */
typedef struct {
  dnnl_exec_arg_t arg[N_ARGS];
} worker_args_t;

struct zr_cpu_product_prim_t {
  dnnl_primitive_t primitive;
  int n_workers;
  worker_args_t *worker; /* [n_workers] */
};

static zr_status_t convert(dnnl_status_t status, const char *call) {
  if (status == dnnl_success) return ZR_OK;
  if (status == dnnl_out_of_memory) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "oneDNN: %s", call);
  return zr_fail(ZR_ERR_DEVICE, "oneDNN: %s failed with status %d", call, (int)status);
}
#define TRY_DNNL(call) ZR_TRY(convert(call, #call))

static void use_one_thread(void) {
  static _Thread_local bool done;
  if (!done) omp_set_num_threads(1);
  done = true;
}

/* oneDNN picks its instruction set once for the process; a kern of another one must not differ by
 * what was opened before it, so it does without. */
static bool serves(zr_cpu_isa_t isa) {
  if (isa == ZR_CPU_BASELINE) return false;
  if (isa == ZR_CPU_AVX2) {
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2); /* refused once it is picked: checked below */
    return dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_avx2;
  }
  unsigned effective = dnnl_get_effective_cpu_isa(), wanted = dnnl_cpu_isa_avx512_core;
  return (effective & wanted) == wanted;
}

/* Without the processor's own bf16 products oneDNN imitates them, at less than half the speed of
 * fp32 products of converted operands. It has no fp16 products. */
static bool multiplies(zr_cpu_type_t type) {
  unsigned effective = dnnl_get_effective_cpu_isa(), wanted = dnnl_cpu_isa_avx512_core_bf16;
  return type == ZR_CPU_F32 || (type == ZR_CPU_BF16 && (effective & wanted) == wanted);
}

zr_status_t zr_cpu_library_open(zr_alloc_t *alloc, zr_cpu_isa_t isa,
                                zr_cpu_library_t **out_library) {
  *out_library = NULL;
  if (!serves(isa)) return ZR_OK;
  zr_cpu_library_t *library = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *library, &library));
  library->alloc = alloc;
  use_one_thread();
  dnnl_status_t status = dnnl_engine_create(&library->engine, dnnl_cpu, 0);
  if (status == dnnl_success)
    status = dnnl_stream_create(&library->stream, library->engine, dnnl_stream_default_flags);
  if (status != dnnl_success) {
    zr_cpu_library_close(library);
    return convert(status, "engine and stream");
  }
  *out_library = library;
  return ZR_OK;
}

void zr_cpu_library_close(zr_cpu_library_t *library) {
  if (library == NULL) return;
  if (library->stream != NULL) dnnl_stream_destroy(library->stream);
  if (library->engine != NULL) dnnl_engine_destroy(library->engine);
  zr_alloc_free(library->alloc, library);
}

static zr_status_t describe(dnnl_memory_desc_t *out, zr_cpu_type_t type, int64_t rows, int64_t cols,
                            int64_t row, int64_t col) {
  dnnl_dims_t dims = {rows, cols}, strides = {row, col};
  dnnl_data_type_t dtype = type == ZR_CPU_BF16 ? dnnl_bf16 : dnnl_f32;
  TRY_DNNL(dnnl_memory_desc_init_by_strides(out, 2, dims, dtype, strides));
  return ZR_OK;
}

static dnnl_status_t set_attributes(dnnl_primitive_attr_t attr, int add) {
  dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
  if (status != dnnl_success || !add) return status;
  dnnl_post_ops_t ops;
  status = dnnl_post_ops_create(&ops);
  if (status != dnnl_success) return status;
  status = dnnl_post_ops_append_sum(ops, 1.0f);
  if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
  dnnl_post_ops_destroy(ops);
  return status;
}

static zr_status_t describe_product(zr_cpu_library_t *library, const zr_cpu_gemm_shape_t *s,
                                    int add, dnnl_memory_desc_t md[3], dnnl_primitive_desc_t *out) {
  ZR_TRY(describe(&md[ARG_A], s->ab, s->m, s->k, s->a_row, s->a_col));
  ZR_TRY(describe(&md[ARG_B], s->ab, s->k, s->n, s->b_row, s->b_col));
  ZR_TRY(describe(&md[ARG_C], ZR_CPU_F32, s->m, s->n, s->ldc, 1));
  dnnl_matmul_desc_t matmul;
  TRY_DNNL(dnnl_matmul_desc_init(&matmul, &md[ARG_A], &md[ARG_B], NULL, &md[ARG_C]));
  dnnl_primitive_attr_t attr;
  TRY_DNNL(dnnl_primitive_attr_create(&attr));
  dnnl_status_t status = set_attributes(attr, add);
  if (status == dnnl_success)
    status = dnnl_primitive_desc_create(out, &matmul, attr, library->engine, NULL);
  dnnl_primitive_attr_destroy(attr);
  return convert(status, "matmul description");
}

/* Fills a half-built `prim`; the caller releases it on failure. */
static zr_status_t build(zr_cpu_library_t *library, zr_cpu_product_prim_t *prim,
                         const dnnl_memory_desc_t md[3], dnnl_primitive_desc_t pd, int n_workers) {
  static const int names[N_ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                    DNNL_ARG_SCRATCHPAD};
  const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  ZR_TRY(zr_alloc_get(library->alloc, (size_t)n_workers, sizeof *prim->worker, &prim->worker));
  prim->n_workers = n_workers;
  TRY_DNNL(dnnl_primitive_create(&prim->primitive, pd));
  for (int w = 0; w < n_workers; w++) {
    for (int i = 0; i < N_ARGS; i++) {
      dnnl_exec_arg_t *arg = &prim->worker[w].arg[i];
      arg->arg = names[i];
      TRY_DNNL(dnnl_memory_create(&arg->memory, i == ARG_SCRATCH ? pad : &md[i], library->engine,
                                  DNNL_MEMORY_NONE));
    }
  }
  return ZR_OK;
}

static int64_t scratchpad_bytes(dnnl_primitive_desc_t pd) {
  const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  return (int64_t)dnnl_memory_desc_get_size(pad);
}

int zr_cpu_library_reads_in_place(const zr_cpu_library_t *library) {
  unsigned effective = dnnl_get_effective_cpu_isa(), wanted = dnnl_cpu_isa_avx512_core;
  return library != NULL && (effective & wanted) != wanted;
}

zr_status_t zr_cpu_library_prepare(zr_cpu_library_t *library, const zr_cpu_gemm_shape_t *shape,
                                   int add, int64_t max_scratch_bytes, int n_workers,
                                   zr_cpu_product_prim_t **out_prim) {
  *out_prim = NULL;
  if (!multiplies(shape->ab)) return ZR_OK;
  use_one_thread();
  dnnl_memory_desc_t md[3];
  dnnl_primitive_desc_t pd;
  ZR_TRY(describe_product(library, shape, add, md, &pd));
  zr_cpu_product_prim_t *prim = NULL;
  zr_status_t status = ZR_OK;
  if (scratchpad_bytes(pd) <= max_scratch_bytes) {
    status = zr_alloc_get(library->alloc, 1, sizeof *prim, &prim);
    if (status == ZR_OK) status = build(library, prim, md, pd, n_workers);
  }
  dnnl_primitive_desc_destroy(pd);
  if (status != ZR_OK) {
    zr_cpu_library_release(library, prim);
    return status;
  }
  *out_prim = prim;
  return ZR_OK;
}

void zr_cpu_library_release(zr_cpu_library_t *library, zr_cpu_product_prim_t *prim) {
  if (prim == NULL) return;
  for (int w = 0; w < prim->n_workers; w++) {
    for (int i = 0; i < N_ARGS; i++) {
      if (prim->worker[w].arg[i].memory != NULL) dnnl_memory_destroy(prim->worker[w].arg[i].memory);
    }
  }
  if (prim->primitive != NULL) dnnl_primitive_destroy(prim->primitive);
  zr_alloc_free(library->alloc, prim->worker);
  zr_alloc_free(library->alloc, prim);
}

zr_status_t zr_cpu_library_run(zr_cpu_library_t *library, const zr_cpu_product_prim_t *prim,
                               int worker, const void *a, const void *b, float *c, void *scratch) {
  use_one_thread();
  const dnnl_exec_arg_t *arg = prim->worker[worker].arg;
  void *address[N_ARGS] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c, scratch};
  for (int i = 0; i < N_ARGS; i++) {
    TRY_DNNL(dnnl_memory_set_data_handle(arg[i].memory, address[i]));
  }
  TRY_DNNL(dnnl_primitive_execute(prim->primitive, library->stream, N_ARGS, arg));
  return ZR_OK;
}
