#include "tests/cts/hal_cts.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "tests/support/cmocka_all.h"

typedef struct {
  const zr_cts_hal_t *backend;
  zr_alloc_t alloc;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
} fixture_t;

static fixture_t open_backend(void **state) {
  fixture_t f = {.backend = *state};
  zr_alloc_init(&f.alloc);
  return f;
}

#define OPEN(f)                      \
  fixture_t f = open_backend(state); \
  assert_int_equal(f.backend->open(&f.alloc, &f.ops, &f.hal), ZR_OK)

#define CLOSE(f)                                             \
  do {                                                       \
    (f).ops->close((f).hal);                                 \
    assert_int_equal(atomic_load(&(f).alloc.live_count), 0); \
  } while (0)

/* --- memory --- */

static void memory_is_zeroed_aligned_and_copied(void **state) {
  OPEN(f);
  static const int64_t sizes[] = {1, 4096, 5000, (2 << 20) - 1, (4 << 20) + 4097};
  for (int tier = ZR_TIER_DEVICE; tier <= ZR_TIER_HOST; tier++) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      const size_t bytes = (size_t)sizes[i];
      void *memory = NULL;
      assert_int_equal(f.ops->mem_create(f.hal, (zr_tier_t)tier, sizes[i], &memory), ZR_OK);
      if (f.backend->has_memory) {
        assert_int_equal((uintptr_t)memory % 4096, 0);
        unsigned char *there = malloc(bytes), *back = malloc(bytes);
        assert_int_equal(f.ops->download(f.hal, (zr_tier_t)tier, back, memory, sizes[i]), ZR_OK);
        for (size_t b = 0; b < bytes; b++) assert_int_equal(back[b], 0);
        for (size_t b = 0; b < bytes; b++) there[b] = (unsigned char)zr_mix64(b);
        assert_int_equal(f.ops->upload(f.hal, (zr_tier_t)tier, memory, there, sizes[i]), ZR_OK);
        assert_int_equal(f.ops->download(f.hal, (zr_tier_t)tier, back, memory, sizes[i]), ZR_OK);
        assert_memory_equal(there, back, bytes);
        free(there);
        free(back);
      }
      f.ops->mem_destroy(f.hal, (zr_tier_t)tier, memory, sizes[i]);
    }
  }
  CLOSE(f);
}

static void memory_that_cannot_be_is_refused(void **state) {
  OPEN(f);
  void *memory = &f;
  assert_int_equal(f.ops->mem_create(f.hal, ZR_TIER_DEVICE, 0, &memory), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(f.ops->mem_create(f.hal, ZR_TIER_DEVICE, -1, &memory), ZR_ERR_INVALID_ARGUMENT);
  if (f.backend->has_memory) {
    assert_int_equal(f.ops->mem_create(f.hal, ZR_TIER_HOST, (int64_t)1 << 60, &memory),
                     ZR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(zr_detail(), "host"));
    assert_non_null(strstr(zr_detail(), "1152921504606846976"));
  }
  assert_ptr_equal(memory, &f);
  CLOSE(f);
}

/* --- order --- */

typedef struct {
  int64_t *log;
  int64_t n;
} appended_t;

static zr_status_t append(void *context, int64_t iteration) {
  appended_t *appended = context;
  appended->log[appended->n++] = iteration;
  return ZR_OK;
}

static void a_stream_runs_in_order_past_its_ring(void **state) {
  OPEN(f);
  enum { N = 10000 };
  static int64_t log[N];
  appended_t appended = {.log = log};
  const int64_t calls = f.alloc.n_calls;
  for (int64_t i = 0; i < N; i++) {
    const zr_work_t work = {
        .fn = append, .context = &appended, .iteration = 3 * i, .signal = (uint64_t)(2 * i + 1)};
    assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_H2D, &work), ZR_OK);
  }
  if (f.backend->submit_is_free) assert_int_equal(f.alloc.n_calls, calls);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_H2D, 2 * N - 1, -1), ZR_OK);
  assert_int_equal(f.ops->timeline(f.hal, ZR_STREAM_H2D), 2 * N - 1);
  assert_int_equal(appended.n, N);
  for (int64_t i = 0; i < N; i++) assert_int_equal(log[i], 3 * i);
  CLOSE(f);
}

enum { GRAPH_WORKS = 4000 };

typedef struct graph_t graph_t;
typedef struct {
  graph_t *graph;
  int index;
} node_t;
struct graph_t {
  zr_work_t works[GRAPH_WORKS];
  zr_stream_id_t streams[GRAPH_WORKS];
  node_t nodes[GRAPH_WORKS];
  int of_signal[ZR_N_STREAMS][GRAPH_WORKS + 1];
  uint64_t result[GRAPH_WORKS]; /* plain memory: ThreadSanitizer sees a wait that orders nothing */
};

static uint64_t combine(graph_t *graph, int index) {
  uint64_t value = zr_mix64((uint64_t)index);
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    const uint64_t wait = graph->works[index].wait[s];
    if (wait) value = zr_mix64(value ^ graph->result[graph->of_signal[s][wait]]);
  }
  return value;
}

static zr_status_t run_node(void *context, int64_t iteration) {
  node_t *node = context;
  (void)iteration;
  node->graph->result[node->index] = combine(node->graph, node->index);
  return ZR_OK;
}

static graph_t *random_graph(uint64_t seed) {
  graph_t *graph = calloc(1, sizeof *graph);
  uint64_t last[ZR_N_STREAMS] = {0};
  for (int i = 0; i < GRAPH_WORKS; i++) {
    uint64_t bits = zr_rng_u64(seed, (uint64_t)i);
    const int stream = (int)(bits % ZR_N_STREAMS);
    graph->nodes[i] = (node_t){graph, i};
    graph->streams[i] = (zr_stream_id_t)stream;
    zr_work_t *work = &graph->works[i];
    *work = (zr_work_t){.fn = run_node, .context = &graph->nodes[i], .signal = ++last[stream]};
    graph->of_signal[stream][work->signal] = i;
    for (int s = 0; s < ZR_N_STREAMS; s++) {
      bits = zr_mix64(bits);
      if (s == stream || bits % 3 || !last[s]) continue;
      const uint64_t back = (bits >> 8) % 4; /* often the newest, sometimes one long done */
      work->wait[s] = last[s] > back ? last[s] - back : 1;
    }
  }
  return graph;
}

static void waits_order_streams(void **state) {
  for (uint64_t seed = 1; seed <= 3; seed++) {
    OPEN(f);
    graph_t *graph = random_graph(seed);
    uint64_t last[ZR_N_STREAMS] = {0};
    for (int i = 0; i < GRAPH_WORKS; i++) {
      assert_int_equal(f.ops->submit(f.hal, graph->streams[i], &graph->works[i]), ZR_OK);
      last[graph->streams[i]] = graph->works[i].signal;
    }
    for (int s = 0; s < ZR_N_STREAMS; s++) {
      assert_int_equal(f.ops->wait(f.hal, (zr_stream_id_t)s, last[s], -1), ZR_OK);
    }
    for (int i = 0; i < GRAPH_WORKS; i++) {
      assert_true(graph->result[i] == combine(graph, i));
    }
    CLOSE(f);
    free(graph);
  }
}

static void close_drains(void **state) {
  OPEN(f);
  enum { N = 500 };
  int64_t log[N];
  appended_t appended = {.log = log};
  for (int64_t i = 0; i < N; i++) {
    zr_work_t work = {.fn = append, .context = &appended, .signal = (uint64_t)(i + 1)};
    assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_HOST, &work), ZR_OK);
  }
  CLOSE(f);
  assert_int_equal(appended.n, N);
}

static void wait_knows_reached_and_late(void **state) {
  OPEN(f);
  assert_int_equal(f.ops->timeline(f.hal, ZR_STREAM_COMM), 0);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_COMM, 0, 0), ZR_OK);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_COMM, 1, 0), ZR_PENDING);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_COMM, 1, 2000000), ZR_PENDING);
  const zr_work_t nothing = {.signal = 5};
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_COMM, &nothing), ZR_OK);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_COMM, 3, -1), ZR_OK);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_COMM, 5, -1), ZR_OK);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_COMM, 6, 1000), ZR_PENDING);
  CLOSE(f);
}

static void wrong_signals_are_refused(void **state) {
  OPEN(f);
  zr_work_t work = {.signal = 5};
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &work), ZR_OK);
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &work), ZR_ERR_INVALID_ARGUMENT);
  work.signal = 4;
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &work), ZR_ERR_INVALID_ARGUMENT);
  work.signal = ZR_TIMELINE_FAILED;
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &work), ZR_ERR_INVALID_ARGUMENT);
  work.signal = 6;
  work.wait[ZR_STREAM_READ] = 6; /* for itself */
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &work), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(f.ops->submit(f.hal, ZR_N_STREAMS, &work), ZR_ERR_INVALID_ARGUMENT);
  work.wait[ZR_STREAM_READ] = 5;
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &work), ZR_OK);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_READ, 6, -1), ZR_OK);
  CLOSE(f);
}

/* --- failure --- */

static zr_status_t break_down(void *context, int64_t iteration) {
  return zr_fail(ZR_ERR_IO, "%s at %lld", (const char *)context, (long long)iteration);
}

static void assert_failed(fixture_t *f, zr_stream_id_t stream, zr_status_t status,
                          const char *detail) {
  zr_detail_set("");
  assert_int_equal(f->ops->wait(f->hal, stream, 1, -1), status);
  assert_string_equal(zr_detail(), detail);
  assert_true(f->ops->timeline(f->hal, stream) == ZR_TIMELINE_FAILED);
}

static void a_failure_sticks_and_spreads(void **state) {
  OPEN(f);
  int64_t log[8];
  appended_t after = {.log = log}, independent = {.log = log + 4};
  const zr_work_t good = {.signal = 1};
  const zr_work_t bad = {
      .fn = break_down, .context = (void *)"the disk", .iteration = 7, .signal = 2};
  const zr_work_t later = {.fn = append, .context = &after, .signal = 3};
  const zr_work_t waits = {
      .fn = append, .context = &after, .signal = 1, .wait = {[ZR_STREAM_READ] = 3}};
  const zr_work_t waits_again = {
      .fn = append, .context = &after, .signal = 1, .wait = {[ZR_STREAM_COMPUTE] = 1}};
  const zr_work_t alone = {.fn = append, .context = &independent, .signal = 9};
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &good), ZR_OK);
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &bad), ZR_OK);
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &later), ZR_OK);
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_COMPUTE, &waits), ZR_OK);
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_WRITE, &waits_again), ZR_OK);
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_HOST, &alone), ZR_OK);
  assert_failed(&f, ZR_STREAM_WRITE, ZR_ERR_IO, "the disk at 7");
  assert_failed(&f, ZR_STREAM_COMPUTE, ZR_ERR_IO, "the disk at 7");
  assert_failed(&f, ZR_STREAM_READ, ZR_ERR_IO, "the disk at 7");
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_HOST, 9, -1), ZR_OK);
  const zr_work_t much_later = {.fn = append, .context = &after, .signal = 100};
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_READ, &much_later), ZR_OK);
  assert_failed(&f, ZR_STREAM_READ, ZR_ERR_IO, "the disk at 7");
  CLOSE(f);
  assert_int_equal(after.n, 0);
  assert_int_equal(independent.n, 1);
}

static void a_stream_is_failed_from_outside_once(void **state) {
  OPEN(f);
  const zr_work_t good = {.signal = 1};
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_COMM, &good), ZR_OK);
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_COMM, 1, -1), ZR_OK);
  f.ops->fail(f.hal, ZR_STREAM_COMM, ZR_ERR_TIMEOUT, "late");
  f.ops->fail(f.hal, ZR_STREAM_COMM, ZR_ERR_PEER, "later");
  f.ops->fail(f.hal, ZR_STREAM_H2D, ZR_ERR_PEER, NULL);
  assert_failed(&f, ZR_STREAM_COMM, ZR_ERR_TIMEOUT, "late");
  assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_H2D, 1, -1), ZR_ERR_PEER);
  assert_non_null(strstr(zr_detail(), "h2d"));
  const zr_work_t waits = {.signal = 1, .wait = {[ZR_STREAM_COMM] = 1}};
  assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_D2H, &waits), ZR_OK);
  assert_failed(&f, ZR_STREAM_D2H, ZR_ERR_TIMEOUT, "late");
  CLOSE(f);
}

static void fail_wakes_a_waiting_stream(void **state) {
  OPEN(f);
  if (f.backend->has_threads) {
    const zr_work_t waits = {.signal = 1, .wait = {[ZR_STREAM_COMM] = 1}};
    assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_COMPUTE, &waits), ZR_OK);
    const zr_work_t second = {.signal = 1, .wait = {[ZR_STREAM_COMPUTE] = 1}};
    assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_HOST, &second), ZR_OK);
    assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_HOST, 1, 2000000), ZR_PENDING);
    f.ops->fail(f.hal, ZR_STREAM_COMPUTE, ZR_ERR_TIMEOUT, "watchdog");
    assert_failed(&f, ZR_STREAM_HOST, ZR_ERR_TIMEOUT, "watchdog");
    /* The comm stream itself is well, and its first work may still come. */
    const zr_work_t first = {.signal = 1};
    assert_int_equal(f.ops->submit(f.hal, ZR_STREAM_COMM, &first), ZR_OK);
    assert_int_equal(f.ops->wait(f.hal, ZR_STREAM_COMM, 1, -1), ZR_OK);
  }
  CLOSE(f);
}

static void close_ends_waits_that_nobody_answers(void **state) {
  OPEN(f);
  int64_t log[1];
  appended_t appended = {.log = log};
  const zr_work_t waits = {
      .fn = append, .context = &appended, .signal = 1, .wait = {[ZR_STREAM_COMM] = 1}};
  const zr_status_t status = f.ops->submit(f.hal, ZR_STREAM_COMPUTE, &waits);
  assert_int_equal(status, f.backend->has_threads ? ZR_OK : ZR_ERR_INVALID_ARGUMENT);
  CLOSE(f);
  assert_int_equal(appended.n, 0);
}

static void open_survives_any_failed_allocation(void **state) {
  fixture_t f = open_backend(state);
  for (f.alloc.fail_at = 1;; f.alloc.fail_at++) {
    assert_true(f.alloc.fail_at < 100);
    f.alloc.n_calls = 0;
    f.hal = (zr_hal_t *)&f;
    const zr_status_t status = f.backend->open(&f.alloc, &f.ops, &f.hal);
    if (status == ZR_OK) break;
    assert_int_equal(status, ZR_ERR_OUT_OF_MEMORY);
    assert_ptr_equal(f.hal, &f);
    assert_int_equal(atomic_load(&f.alloc.live_count), 0);
  }
  assert_true(f.alloc.fail_at > 1);
  CLOSE(f);
}

int zr_cts_hal(const zr_cts_hal_t *backend, const char *name) {
  void *state = (void *)(uintptr_t)backend;
#define CASE(test) \
  { #test, test, NULL, NULL, state }
  const struct CMUnitTest tests[] = {
      CASE(memory_is_zeroed_aligned_and_copied),
      CASE(memory_that_cannot_be_is_refused),
      CASE(a_stream_runs_in_order_past_its_ring),
      CASE(waits_order_streams),
      CASE(close_drains),
      CASE(wait_knows_reached_and_late),
      CASE(wrong_signals_are_refused),
      CASE(a_failure_sticks_and_spreads),
      CASE(a_stream_is_failed_from_outside_once),
      CASE(fail_wakes_a_waiting_stream),
      CASE(close_ends_waits_that_nobody_answers),
      CASE(open_survives_any_failed_allocation),
  };
#undef CASE
  return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
