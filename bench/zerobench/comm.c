/* Collectives by size: bytes that each rank sends in a second, beside copies of as many bytes by
 * every rank at once. */
#include <string.h>

#include "bench/zerobench/bench.h"

typedef struct {
  zr_bench_t *bench;
  char *flat, *shard; /* [n_ranks * shard_bytes], [shard_bytes] */
  void *scratch;
  int64_t shard_bytes, count; /* count: of all_reduce's integers */
  zr_bench_copy_t copy;
} area_t;

static zr_status_t all_gather(void *context) {
  area_t *a = context;
  return a->bench->comm_ops->all_gather(a->bench->comm, a->shard, a->flat, a->shard_bytes);
}

static zr_status_t reduce_scatter(void *context) {
  area_t *a = context;
  return a->bench->comm_ops->reduce_scatter(a->bench->comm, a->flat, a->shard, a->shard_bytes,
                                            ZR_F32, 0, a->scratch);
}

static zr_status_t reduce_scatter_bf16(void *context) {
  area_t *a = context;
  return a->bench->comm_ops->reduce_scatter(a->bench->comm, a->flat, a->shard, a->shard_bytes,
                                            ZR_BF16, 0, a->scratch);
}

/* Zeroes stay zeroes: nothing overflows, however often it runs. */
static zr_status_t all_reduce(void *context) {
  area_t *a = context;
  return a->bench->comm_ops->all_reduce(a->bench->comm, (int64_t *)(void *)a->flat, a->count,
                                        a->scratch);
}

static const struct {
  const char *name;
  zr_bench_fn_t run;
} collectives[] = {{"all_gather", all_gather},
                   {"reduce_scatter fp32", reduce_scatter},
                   {"reduce_scatter bf16", reduce_scatter_bf16}};
enum { N_COLLECTIVES = sizeof collectives / sizeof collectives[0] };

static void size_text(int64_t bytes, char *out, size_t out_bytes) {
  bool large = bytes >= 1 << 20;
  (void)snprintf(out, out_bytes, "%lld %s", (long long)(bytes >> (large ? 20 : 10)),
                 large ? "MiB" : "KiB");
}

static zr_status_t report(zr_bench_t *b, const char *name, int64_t shard_bytes, double seconds,
                          double copy_seconds) {
  char what[64], size[32];
  size_text(shard_bytes, size, sizeof size);
  (void)snprintf(what, sizeof what, "%s %s", name, size);
  double sent = (double)(b->n_ranks > 1 ? b->n_ranks - 1 : 1) * (double)shard_bytes;
  return zr_bench_row(b, &(zr_bench_row_t){.what = what,
                                           .seconds = seconds,
                                           .value = sent / seconds * 1e-9,
                                           .unit = "GB/s",
                                           .ceiling = sent / copy_seconds * 1e-9,
                                           .ceiling_of = "memcpy of as much, all ranks"});
}

static zr_status_t measure(zr_bench_t *b, area_t *a, int64_t shard_bytes) {
  int64_t others = b->n_ranks > 1 ? b->n_ranks - 1 : 1;
  zr_bench_work_t work[N_COLLECTIVES + 1] = {0};
  a->shard_bytes = shard_bytes;
  a->copy.bytes = others * shard_bytes;
  work[0] = (zr_bench_work_t){zr_bench_memcpy, &a->copy, 0};
  for (int i = 0; i < N_COLLECTIVES; i++) work[i + 1] = (zr_bench_work_t){collectives[i].run, a, 0};
  zr_bench_say(b, "shards of %lld bytes", (long long)shard_bytes);
  ZR_TRY(zr_bench_time(b, work, N_COLLECTIVES + 1, 10, 0.5));
  for (int i = 0; i < N_COLLECTIVES; i++) {
    ZR_TRY(report(b, collectives[i].name, shard_bytes, work[i + 1].seconds, work[0].seconds));
  }
  return ZR_OK;
}

/* The control block's: small. */
static zr_status_t measure_small(zr_bench_t *b, area_t *a, int64_t bytes) {
  zr_bench_work_t work[2] = {{zr_bench_memcpy, &a->copy, 0}, {all_reduce, a, 0}};
  int64_t others = b->n_ranks > 1 ? b->n_ranks - 1 : 1;
  a->count = bytes / (int64_t)sizeof(int64_t);
  a->copy.bytes = others * bytes;
  memset(a->flat, 0, (size_t)bytes);
  zr_bench_say(b, "all_reduce of %lld integers", (long long)a->count);
  ZR_TRY(zr_bench_time(b, work, 2, 50, 0.1));
  return report(b, "all_reduce", bytes, work[1].seconds, work[0].seconds);
}

static zr_status_t all_sizes(zr_bench_t *b, area_t *a, int64_t most) {
  for (int64_t bytes = 1024; bytes <= 16384 && bytes <= most; bytes *= 16) {
    ZR_TRY(measure_small(b, a, bytes));
  }
  for (int64_t bytes = most > 65536 ? 65536 : most; bytes <= most; bytes *= 8) {
    ZR_TRY(measure(b, a, bytes));
  }
  return zr_bench_note(b, "sizes are of a rank's shard; GB/s is what one of %d ranks sends",
                       b->n_ranks);
}

static zr_status_t make(zr_bench_t *b, area_t *a, int64_t most) {
  int64_t flat_bytes = b->n_ranks * most, scratch = b->comm_ops->scratch_bytes(b->comm, most);
  void *flat = NULL, *shard = NULL;
  ZR_TRY(zr_alloc_get(b->alloc, 1, (size_t)flat_bytes, &flat));
  a->flat = flat;
  ZR_TRY(zr_alloc_get(b->alloc, 1, (size_t)most, &shard));
  a->shard = shard;
  ZR_TRY(zr_alloc_get(b->alloc, 1, (size_t)(scratch > most ? scratch : most), &a->scratch));
  memset(a->flat, 0, (size_t)flat_bytes);
  memset(a->shard, 0, (size_t)most);
  return zr_bench_copy_make(b, flat_bytes, NULL, &a->copy);
}

zr_status_t zr_bench_comm(zr_bench_t *b) {
  int64_t most = b->options.quick ? 65536 : (int64_t)32 << 20;
  if (b->options.bytes > 0) most = (b->options.bytes + 4095) / 4096 * 4096;
  area_t area = {.bench = b};
  zr_status_t status = make(b, &area, most);
  int64_t mapped = area.copy.bytes;
  if (status == ZR_OK) status = all_sizes(b, &area, most);
  area.copy.bytes = mapped;
  zr_bench_copy_free(b, &area.copy);
  zr_alloc_free(b->alloc, area.scratch);
  zr_alloc_free(b->alloc, area.shard);
  zr_alloc_free(b->alloc, area.flat);
  return status;
}
