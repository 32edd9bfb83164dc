/* How fast memory is copied: by one thread and all workers, between the device's and the host's
 * memory on the streams that do it, one way and both at once. Under mpirun all ranks copy at the
 * same time and the numbers are sums over the ranks. Bytes are those read and those written. */
#include <string.h>

#include "bench/zerobench/bench.h"

typedef struct {
  zr_bench_t *bench;
  zr_bench_copy_t *h2d, *d2h; /* NULL: not this way */
  uint64_t *signal;           /* [ZR_N_STREAMS]: last value submitted */
} streams_t;

static zr_status_t work(void *context, int64_t iteration) {
  (void)iteration;
  return zr_bench_copy_stream(context); /* as the executor copies what is large */
}

static zr_status_t submit(streams_t *s, zr_stream_id_t stream, zr_bench_copy_t *copy) {
  if (copy == NULL) return ZR_OK;
  zr_work_t item = {.fn = work, .context = copy, .signal = ++s->signal[stream]};
  return s->bench->hal_ops->submit(s->bench->hal, stream, &item);
}

static zr_status_t wait(streams_t *s, zr_stream_id_t stream, const zr_bench_copy_t *copy) {
  if (copy == NULL) return ZR_OK;
  return s->bench->hal_ops->wait(s->bench->hal, stream, s->signal[stream], -1);
}

static zr_status_t on_streams(void *context) {
  streams_t *s = context;
  ZR_TRY(submit(s, ZR_STREAM_H2D, s->h2d));
  ZR_TRY(submit(s, ZR_STREAM_D2H, s->d2h));
  ZR_TRY(wait(s, ZR_STREAM_H2D, s->h2d));
  return wait(s, ZR_STREAM_D2H, s->d2h);
}

/* Device and host memory, and their copies either way. */
typedef struct {
  void *device, *host;
  zr_bench_copy_t down, up; /* to the device, to the host: halves of the arenas */
  zr_bench_copy_t down_pool, up_pool;
} arenas_t;

static zr_status_t make_arenas(zr_bench_t *b, int64_t bytes, arenas_t *a) {
  ZR_TRY(b->hal_ops->mem_create(b->hal, ZR_TIER_DEVICE, 2 * bytes, &a->device));
  ZR_TRY(b->hal_ops->mem_create(b->hal, ZR_TIER_HOST, 2 * bytes, &a->host));
  memset(a->device, 1, (size_t)(2 * bytes));
  memset(a->host, 2, (size_t)(2 * bytes));
  a->down = (zr_bench_copy_t){a->device, a->host, bytes, NULL};
  a->up = (zr_bench_copy_t){(char *)a->host + bytes, (char *)a->device + bytes, bytes, NULL};
  a->down_pool = a->down;
  a->up_pool = a->up;
  a->down_pool.pool = a->up_pool.pool = b->pool;
  return ZR_OK;
}

static void free_arenas(zr_bench_t *b, int64_t bytes, arenas_t *a) {
  if (a->device != NULL) b->hal_ops->mem_destroy(b->hal, ZR_TIER_DEVICE, a->device, 2 * bytes);
  if (a->host != NULL) b->hal_ops->mem_destroy(b->hal, ZR_TIER_HOST, a->host, 2 * bytes);
}

enum { PLAIN_1, PAST_1, PLAIN_ALL, PAST_ALL, H2D_POOL, D2H_POOL, H2D, D2H, BOTH, N_ROWS };

static const char *const names[N_ROWS] = {
    [PLAIN_1] = "memcpy, 1 thread",
    [PAST_1] = "past the cache, 1 thread",
    [PLAIN_ALL] = "memcpy, all workers",
    [PAST_ALL] = "past the cache, all workers",
    [H2D_POOL] = "host to device, all workers",
    [D2H_POOL] = "device to host, all workers",
    [H2D] = "host to device, its stream",
    [D2H] = "device to host, its stream",
    [BOTH] = "both ways at once, two streams",
};

static zr_status_t report(zr_bench_t *b, const zr_bench_work_t *w, int64_t bytes) {
  double one = w[PLAIN_1].seconds < w[PAST_1].seconds ? w[PLAIN_1].seconds : w[PAST_1].seconds;
  double all =
      w[PLAIN_ALL].seconds < w[PAST_ALL].seconds ? w[PLAIN_ALL].seconds : w[PAST_ALL].seconds;
  double best = 2e-9 * (double)b->n_ranks * (double)bytes;
  for (int i = 0; i < N_ROWS; i++) {
    bool is_one = i == H2D || i == D2H, is_two = i == BOTH;
    double moved = is_two ? 2 * best : best;
    zr_bench_row_t row = {
        .what = names[i], .seconds = w[i].seconds, .value = moved / w[i].seconds, .unit = "GB/s"};
    if (i >= H2D_POOL) {
      row.ceiling = best / (is_one ? one : all);
      row.ceiling_of = is_one ? "best copy by 1 thread" : "best copy by all workers";
    }
    ZR_TRY(zr_bench_row(b, &row));
  }
  return zr_bench_note(b, "%lld MiB a copy; bytes read and bytes written, all ranks together",
                       (long long)(bytes >> 20));
}

static zr_status_t measure(zr_bench_t *b, zr_bench_copy_t *plain, arenas_t *a) {
  uint64_t signal[ZR_N_STREAMS] = {0};
  zr_bench_copy_t one = *plain, all = *plain;
  all.pool = b->pool;
  streams_t down = {b, &a->down, NULL, signal}, up = {b, NULL, &a->up, signal};
  streams_t both = {b, &a->down, &a->up, signal};
  zr_bench_work_t w[N_ROWS] = {
      [PLAIN_1] = {zr_bench_memcpy, &one, 0},
      [PAST_1] = {zr_bench_copy_stream, &one, 0},
      [PLAIN_ALL] = {zr_bench_memcpy, &all, 0},
      [PAST_ALL] = {zr_bench_copy_stream, &all, 0},
      [H2D_POOL] = {zr_bench_memcpy, &a->down_pool, 0},
      [D2H_POOL] = {zr_bench_memcpy, &a->up_pool, 0},
      [H2D] = {on_streams, &down, 0},
      [D2H] = {on_streams, &up, 0},
      [BOTH] = {on_streams, &both, 0},
  };
  zr_bench_say(b, "%lld MiB, %d copies in turn", (long long)(plain->bytes >> 20), (int)N_ROWS);
  ZR_TRY(zr_bench_time(b, w, N_ROWS, 7, b->options.all ? 20 : 5));
  return report(b, w, plain->bytes);
}

zr_status_t zr_bench_copy(zr_bench_t *b) {
  int64_t bytes =
      b->options.bytes > 0 ? b->options.bytes : (int64_t)(b->options.quick ? 4 : 256) << 20;
  zr_bench_copy_t plain = {0};
  arenas_t arenas = {0};
  zr_status_t status = zr_bench_copy_make(b, bytes, NULL, &plain);
  if (status == ZR_OK) status = make_arenas(b, bytes, &arenas);
  if (status == ZR_OK) status = measure(b, &plain, &arenas);
  free_arenas(b, bytes, &arenas);
  zr_bench_copy_free(b, &plain);
  return status;
}
