/* Copies of memory as fast as this machine makes them. */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "bench/zerobench/bench.h"

enum { PIECE_BYTES = 1 << 20 };

static void copy_plain(char *to, const char *from, int64_t bytes) {
  memcpy(to, from, (size_t)bytes);
}

/* Stores that go past the cache do not read what they overwrite. */
static void copy_past_cache(char *to, const char *from, int64_t bytes) {
#ifdef __SSE2__
  int64_t whole = bytes / 64 * 64;
  for (int64_t i = 0; i < whole; i += 64) {
    for (int64_t j = i; j < i + 64; j += 16) {
      __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(from + j));
      _mm_stream_si128((__m128i *)(void *)(to + j), v);
    }
  }
  _mm_sfence();
  copy_plain(to + whole, from + whole, bytes - whole);
#else
  copy_plain(to, from, bytes);
#endif
}

typedef struct {
  const zr_bench_copy_t *copy;
  void (*piece)(char *to, const char *from, int64_t bytes);
} job_t;

static void run_piece(void *context, int64_t task, int worker) {
  const job_t *job = context;
  int64_t begin = task * PIECE_BYTES, left = job->copy->bytes - begin;
  job->piece(job->copy->to + begin, job->copy->from + begin,
             left < PIECE_BYTES ? left : PIECE_BYTES);
  (void)worker;
}

static zr_status_t run(const zr_bench_copy_t *copy, void (*piece)(char *, const char *, int64_t)) {
  job_t job = {copy, piece};
  int64_t n_pieces = (copy->bytes + PIECE_BYTES - 1) / PIECE_BYTES;
  if (copy->pool == NULL) {
    piece(copy->to, copy->from, copy->bytes);
  } else {
    zr_parallel_for(copy->pool, n_pieces, run_piece, &job);
  }
  __asm__ volatile("" : : "r"(copy->to) : "memory");
  return ZR_OK;
}

zr_status_t zr_bench_memcpy(void *copy) {
  return run(copy, copy_plain);
}

zr_status_t zr_bench_copy_stream(void *copy) {
  return run(copy, copy_past_cache);
}

/* Mapped as the runtime maps its arenas, so that both have pages of the same size. */
zr_status_t zr_bench_copy_make(zr_bench_t *b, int64_t bytes, zr_pool_t *pool,
                               zr_bench_copy_t *out_copy) {
  void *to = NULL, *from = NULL;
  *out_copy = (zr_bench_copy_t){.bytes = bytes, .pool = pool};
  ZR_TRY(b->hal_ops->mem_create(b->hal, ZR_TIER_HOST, bytes, &to));
  zr_status_t status = b->hal_ops->mem_create(b->hal, ZR_TIER_HOST, bytes, &from);
  if (status != ZR_OK) {
    b->hal_ops->mem_destroy(b->hal, ZR_TIER_HOST, to, bytes);
    return status;
  }
  memset(to, 1, (size_t)bytes);
  memset(from, 2, (size_t)bytes);
  out_copy->to = to;
  out_copy->from = from;
  return ZR_OK;
}

void zr_bench_copy_free(zr_bench_t *b, zr_bench_copy_t *copy) {
  if (copy->to == NULL) return;
  b->hal_ops->mem_destroy(b->hal, ZR_TIER_HOST, copy->to, copy->bytes);
  b->hal_ops->mem_destroy(b->hal, ZR_TIER_HOST, (void *)(uintptr_t)copy->from, copy->bytes);
  copy->to = NULL;
}
