/* The optimizer's one pass over parameters, gradients and states: bytes a second beside a copy of
 * memory by the same workers. Under mpirun every rank updates at once; numbers are of all ranks. */
#include <string.h>

#include "bench/zerobench/bench.h"
#include "kernels/control.h"

typedef struct {
  const char *name, *types; /* types: bench.h; operands: param, grad, states, layout, ctl, low */
  int32_t kind;
  bool norm; /* with the norm in front */
  int64_t digest;
  bool only_all, only_bf16;
} update_t;

static const update_t updates[] = {
    {"AdamW", "tsffbbl", ZR_OP_ADAMW, false, 0, false, false},
    {"norm, then AdamW", "tsffbbl", ZR_OP_ADAMW, true, 0, false, false},
    {"AdamW, bf16 gradients", "thffbbl", ZR_OP_ADAMW, false, 0, false, true},
    {"norm, then AdamW, bf16 gradients", "thffbbl", ZR_OP_ADAMW, true, 0, true, true},
    {"AdamW with digests", "tsffbbl", ZR_OP_ADAMW, false, 2, true, false},
    {"AdamW, bf16 states", "tshhbbl", ZR_OP_ADAMW, false, 0, true, false},
    {"SGD", "ts--bbl", ZR_OP_SGD, false, 0, true, false},
    {"SGD with momentum", "tsf-bbl", ZR_OP_SGD, false, 0, true, false},
    {"Lion", "tsf-bbl", ZR_OP_LION, false, 0, true, false},
    {"Adagrad", "tsf-bbl", ZR_OP_ADAGRAD, false, 0, true, false},
};
enum { N_UPDATES = sizeof updates / sizeof updates[0] };

/* Norm and update share the gradient, as in a step. */
typedef struct {
  zr_bench_kernel_t update, norm;
  bool with_norm;
} pass_t;

static zr_status_t run_pass(void *context) {
  pass_t *pass = context;
  if (pass->with_norm) ZR_TRY(zr_bench_kernel_run(&pass->norm));
  return zr_bench_kernel_run(&pass->update);
}

static zr_status_t make_norm(zr_bench_t *b, int64_t elems, pass_t *pass) {
  int64_t attr[ZR_MAX_ATTRS] = {elems};
  zr_kern_shape_t shape = zr_bench_shape(ZR_OP_BLOCK_NORM, attr, "sb", ZR_F32);
  shape.dtype[0] = pass->update.shape.dtype[ZR_UPDATE_GRAD];
  zr_bench_kernel_t *norm = &pass->norm;
  *norm = (zr_bench_kernel_t){.bench = b, .shape = shape, .call = {.pool = b->pool}};
  for (int i = 0; i < 2; i++) {
    int from = i == 0 ? ZR_UPDATE_GRAD : ZR_UPDATE_CTL;
    norm->call.operand[i] = pass->update.call.operand[from]; /* lent */
    norm->call.bytes[i] = pass->update.call.bytes[from];
  }
  norm->bytes = (double)norm->call.bytes[0];
  return b->kern_ops->prepare(b->kern, &norm->shape, b->n_threads, &norm->call.prepared);
}

static zr_status_t make(zr_bench_t *b, const update_t *u, zr_dtype_t dtype, int64_t elems,
                        pass_t *pass) {
  int64_t attr[ZR_MAX_ATTRS] = {elems, 0, 0, elems};
  zr_kern_shape_t shape = zr_bench_shape(u->kind, attr, u->types, dtype);
  ZR_TRY(zr_bench_kernel_make(b, &shape, &pass->update));
  ((zr_control_t *)pass->update.call.operand[ZR_UPDATE_CTL])->digest = u->digest;
  pass->with_norm = u->norm;
  return u->norm ? make_norm(b, elems, pass) : ZR_OK;
}

static zr_status_t report(zr_bench_t *b, const char *name, zr_dtype_t dtype, int64_t elems,
                          const pass_t *pass, const zr_bench_work_t work[3], int64_t copied) {
  double bytes = pass->update.bytes + (pass->with_norm ? pass->norm.bytes : 0);
  double ranks = (double)b->n_ranks;
  double copy = work[1].seconds < work[2].seconds ? work[1].seconds : work[2].seconds;
  char what[64];
  (void)snprintf(what, sizeof what, "%s %s, %.0f B/param", zr_dtype_name(dtype), name,
                 bytes / (double)elems);
  return zr_bench_row(b, &(zr_bench_row_t){.what = what,
                                           .seconds = work[0].seconds,
                                           .value = ranks * bytes / work[0].seconds * 1e-9,
                                           .unit = "GB/s",
                                           .ceiling = ranks * 2e-9 * (double)copied / copy,
                                           .ceiling_of = "best copy by all workers"});
}

static zr_status_t measure(zr_bench_t *b, const update_t *u, zr_dtype_t dtype, int64_t elems,
                           zr_bench_copy_t *copy) {
  pass_t pass = {0};
  zr_bench_say(b, "%s, %s, %lld parameters", zr_dtype_name(dtype), u->name, (long long)elems);
  zr_status_t status = make(b, u, dtype, elems, &pass);
  zr_bench_work_t work[3] = {
      {run_pass, &pass, 0}, {zr_bench_memcpy, copy, 0}, {zr_bench_copy_stream, copy, 0}};
  if (status == ZR_OK) status = zr_bench_time(b, work, 3, 7, 2);
  if (status == ZR_OK) status = report(b, u->name, dtype, elems, &pass, work, copy->bytes);
  zr_bench_kernel_free(b, &pass.update);
  return status;
}

zr_status_t zr_bench_adam(zr_bench_t *b) {
  int64_t bytes = b->options.quick ? (int64_t)4 << 20 : (int64_t)1 << 30;
  if (b->options.bytes > 0) bytes = b->options.bytes;
  int64_t elems = (bytes / 16 + ZR_BLOCK_ELEMS - 1) / ZR_BLOCK_ELEMS * ZR_BLOCK_ELEMS;
  zr_dtype_t dtype[3];
  int n_dtypes;
  ZR_TRY(zr_bench_dtypes(b, dtype, &n_dtypes));
  zr_bench_copy_t copy; /* as many bytes as AdamW moves: who disturbs one disturbs the other */
  ZR_TRY(zr_bench_copy_make(b, 14 * elems, b->pool, &copy));
  zr_status_t status = ZR_OK;
  for (int t = 0; t < n_dtypes && status == ZR_OK; t++) {
    for (int i = 0; i < N_UPDATES && status == ZR_OK; i++) {
      if (updates[i].only_all && !b->options.all) continue;
      if (updates[i].only_bf16 && dtype[t] != ZR_BF16) continue;
      status = measure(b, &updates[i], dtype[t], elems, &copy);
    }
  }
  zr_bench_copy_free(b, &copy);
  return status;
}
