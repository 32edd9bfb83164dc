/* Memory, copies alone and beside products, streams, collectives. */
#include <math.h>
#include <stdlib.h>

#include "bench/zerobench/calibrate.h"
#include "runtime/base/clock.h"

static const int64_t large_bytes = (int64_t)64 << 20;

/* --- memory and copies ----------------------------------------------------------------------- */

static zr_status_t copy_ns(zr_bench_t *b, zr_bench_fn_t run, int64_t bytes, zr_pool_t *pool,
                           double *out_ns) {
  zr_bench_copy_t copy;
  zr_status_t status = zr_bench_copy_make(b, bytes, pool, &copy);
  if (status == ZR_OK) status = zr_bench_middle_ns(b, run, &copy, out_ns);
  zr_bench_copy_free(b, &copy);
  return status;
}

static zr_status_t memory_row(zr_bench_t *b, const char *what, double ns, double bytes_per_ns) {
  zr_bench_row_t row = {.what = what, .seconds = ns * 1e-9, .value = bytes_per_ns, .unit = "GB/s"};
  return zr_bench_row(b, &row);
}

static zr_status_t memory(zr_bench_t *b, zr_profile_t *profile) {
  double ns = 0, both = 2 * (double)large_bytes;
  ZR_TRY(copy_ns(b, zr_bench_memcpy, large_bytes, NULL, &ns));
  profile->memory_bytes_per_ns[ZR_PROFILE_ONE] = both / ns;
  ZR_TRY(memory_row(b, "memcpy, one thread", ns, both / ns));
  ZR_TRY(copy_ns(b, zr_bench_memcpy, large_bytes, b->pool, &ns));
  profile->memory_bytes_per_ns[ZR_PROFILE_ALL] = both / ns;
  return memory_row(b, "memcpy, all threads", ns, both / ns);
}

/* Device and host memory of a CPU are the same: a copy is one thread's, past the caches where it is
 * large, as the executor makes it. */
static zr_status_t copies(zr_bench_t *b, zr_profile_t *profile) {
  static const int64_t bytes[] = {4096, 65536, 1 << 20, 8 << 20, 64 << 20};
  for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
    double ns = 0;
    zr_bench_fn_t run = bytes[i] < 1 << 20 ? zr_bench_memcpy : zr_bench_copy_stream;
    ZR_TRY(copy_ns(b, run, bytes[i], NULL, &ns));
    for (int kind = ZR_OP_H2D; kind <= ZR_OP_D2H; kind++) {
      (void)zr_profile_curve_add(&profile->curve[ZR_PROFILE_ONE][kind][ZR_PROFILE_F32],
                                 (double)bytes[i], ns);
    }
  }
  return ZR_OK;
}

/* --- streams --------------------------------------------------------------------------------- */

typedef struct {
  zr_bench_fn_t run;
  void *context;
} task_t;

static zr_status_t run_task(void *context, int64_t iteration) {
  const task_t *task = context;
  (void)iteration;
  return task->run(task->context);
}

static zr_status_t nothing(void *context) {
  (void)context;
  return ZR_OK;
}

static zr_status_t submit(zr_bench_t *b, zr_stream_id_t stream, task_t *task, int count,
                          uint64_t *signal) {
  for (int i = 0; i < count; i++) {
    zr_work_t work = {.fn = run_task, .context = task, .signal = ++*signal};
    ZR_TRY(b->hal_ops->submit(b->hal, stream, &work));
  }
  return ZR_OK;
}

/* From an operation to the next one of the same stream. */
static zr_status_t overhead(zr_bench_t *b, zr_profile_t *profile, uint64_t *signal) {
  enum { COUNT = 1000 };
  task_t task = {nothing, NULL};
  double least_ns = 1e9;
  for (int round = 0; round < 5; round++) {
    int64_t begin_ns = zr_clock_ns();
    ZR_TRY(submit(b, ZR_STREAM_COMPUTE, &task, COUNT, signal));
    ZR_TRY(b->hal_ops->wait(b->hal, ZR_STREAM_COMPUTE, *signal, -1));
    double ns = (double)(zr_clock_ns() - begin_ns) / COUNT;
    if (ns < least_ns) least_ns = ns;
  }
  profile->overhead_ns = least_ns;
  return zr_bench_fact(b, "us from an operation to the next", least_ns * 1e-3);
}

/* Submits as many of each as take the span alone, and waits; `which` < 0: both at once. */
static zr_status_t span(zr_bench_t *b, task_t task[2], const int count[2], int which,
                        uint64_t signal[2], double *out_ns) {
  const zr_stream_id_t stream[2] = {ZR_STREAM_COMPUTE, ZR_STREAM_D2H};
  int64_t begin_ns = zr_clock_ns();
  for (int i = 0; i < 2; i++) {
    if (which < 0 || which == i) ZR_TRY(submit(b, stream[i], &task[i], count[i], &signal[i]));
  }
  for (int i = 0; i < 2; i++) ZR_TRY(b->hal_ops->wait(b->hal, stream[i], signal[i], -1));
  *out_ns = (double)(zr_clock_ns() - begin_ns);
  return ZR_OK;
}

static int by_value(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

/* Products on all workers beside copies, each as many as take T alone, in turns with each alone.
 * With c the share of their speed that C cores still give to W workers and a copier, both are done
 * after T (W + 1) / (C c); the middle one of several c. */
static zr_status_t beside(zr_bench_t *b, task_t task[2], const double alone_ns[2],
                          zr_profile_t *profile, uint64_t signal[2]) {
  enum { ROUNDS = 7 };
  double span_ns = b->options.quick ? 1e6 : 4e7, crowded[ROUNDS], workers = b->n_threads;
  int count[2];
  for (int i = 0; i < 2; i++) count[i] = (int)fmax(1, fmin(1000, span_ns / alone_ns[i]));
  for (int round = 0; round < ROUNDS; round++) {
    double ns[2], both_ns;
    for (int i = 0; i < 2; i++) ZR_TRY(span(b, task, count, i, signal, &ns[i]));
    ZR_TRY(span(b, task, count, -1, signal, &both_ns));
    crowded[round] = (workers * ns[0] + ns[1]) / (workers * both_ns);
  }
  qsort(crowded, ROUNDS, sizeof crowded[0], by_value);
  profile->crowded_cores = fmax(0.3, fmin(crowded[ROUNDS / 2], (workers + 1) / workers));
  return zr_bench_fact(b, "share of the cores' speed when crowded", profile->crowded_cores);
}

static zr_status_t crowd(zr_bench_t *b, zr_profile_t *profile, uint64_t signal[2]) {
  const int64_t attr[ZR_MAX_ATTRS] = {512, 768, 768, 768, 768, 0};
  zr_kern_shape_t shape = zr_bench_shape(ZR_OP_LINEAR, attr, "tttt.", ZR_F32);
  zr_bench_kernel_t kernel;
  zr_bench_copy_t copy;
  task_t task[2] = {{zr_bench_kernel_run, &kernel}, {zr_bench_copy_stream, &copy}};
  double alone_ns[2] = {0};
  ZR_TRY(zr_bench_copy_make(b, (int64_t)8 << 20, NULL, &copy));
  zr_status_t status = zr_bench_kernel_make(b, &shape, &kernel);
  for (int i = 0; status == ZR_OK && i < 2; i++) {
    status = zr_bench_middle_ns(b, task[i].run, task[i].context, &alone_ns[i]);
  }
  if (status == ZR_OK) status = beside(b, task, alone_ns, profile, signal);
  zr_bench_kernel_free(b, &kernel);
  zr_bench_copy_free(b, &copy);
  return status;
}

/* --- collectives ----------------------------------------------------------------------------- */

typedef struct {
  zr_bench_t *bench;
  int32_t kind;
  char *flat, *shard, *scratch;
  int64_t shard_bytes;
} collective_t;

static zr_status_t run_collective(void *context) {
  collective_t *c = context;
  const zr_comm_ops_t *ops = c->bench->comm_ops;
  zr_comm_t *comm = c->bench->comm;
  switch (c->kind) {
    case ZR_OP_ALL_GATHER:
      return ops->all_gather(comm, c->shard, c->flat, c->shard_bytes);
    case ZR_OP_REDUCE_SCATTER:
      return ops->reduce_scatter(comm, c->flat, c->shard, c->shard_bytes, ZR_F32, 0, c->scratch);
    default:
      return ops->all_reduce(comm, (int64_t *)(void *)c->shard, c->shard_bytes / 8, c->scratch);
  }
}

static zr_status_t collective(zr_bench_t *b, int32_t kind, int64_t shard_bytes,
                              zr_profile_t *profile) {
  collective_t c = {.bench = b, .kind = kind, .shard_bytes = shard_bytes};
  size_t scratch = (size_t)b->comm_ops->scratch_bytes(b->comm, shard_bytes);
  double ns = 0;
  zr_status_t status = zr_alloc_get(b->alloc, (size_t)b->n_ranks, (size_t)shard_bytes, &c.flat);
  if (status == ZR_OK) status = zr_alloc_get(b->alloc, 1, (size_t)shard_bytes, &c.shard);
  if (status == ZR_OK) status = zr_alloc_get(b->alloc, 1, scratch + 64, &c.scratch);
  if (status == ZR_OK) status = zr_bench_middle_ns(b, run_collective, &c, &ns);
  zr_alloc_free(b->alloc, c.flat);
  zr_alloc_free(b->alloc, c.shard);
  zr_alloc_free(b->alloc, c.scratch);
  ZR_TRY(status);
  double sent = (double)(b->n_ranks - 1) * (double)shard_bytes;
  (void)zr_profile_curve_add(&profile->curve[ZR_PROFILE_ONE][kind][ZR_PROFILE_F32], sent, ns);
  profile->link_bytes_per_ns = sent / ns; /* of the last, the largest */
  return ZR_OK;
}

static zr_status_t collectives(zr_bench_t *b, zr_profile_t *profile) {
  static const int64_t bytes[] = {4096, 65536, 1 << 20, 8 << 20};
  static const int32_t kinds[] = {ZR_OP_ALL_REDUCE, ZR_OP_REDUCE_SCATTER, ZR_OP_ALL_GATHER};
  if (b->n_ranks == 1) {
    return zr_bench_note(b, "collectives were not measured: run it under mpirun -n N for that");
  }
  for (int k = 0; k < 3; k++) {
    int n_sizes = kinds[k] == ZR_OP_ALL_REDUCE ? 2 : 4;
    zr_bench_say(b, "%s", zr_op_row(kinds[k])->name);
    for (int i = 0; i < n_sizes; i++) ZR_TRY(collective(b, kinds[k], bytes[i], profile));
  }
  return memory_row(b, "all_gather, sent by a rank", 0, profile->link_bytes_per_ns);
}

zr_status_t zr_bench_calibrate_links(zr_bench_t *b, zr_profile_t *profile) {
  uint64_t signal[2] = {0};
  zr_bench_say(b, "memory, copies, streams");
  ZR_TRY(memory(b, profile));
  ZR_TRY(copies(b, profile));
  ZR_TRY(overhead(b, profile, &signal[0]));
  ZR_TRY(crowd(b, profile, signal));
  return collectives(b, profile);
}
