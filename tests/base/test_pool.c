#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/pool.h"
#include "tests/support/cmocka_all.h"

static const int thread_counts[] = {1, 2, 3, 8};
enum { N_COUNTS = 4, MOST_TASKS = 300, MOST_WORKERS = 8 };

typedef struct {
  int64_t done[MOST_TASKS];        /* plain: each task is one writer, read after the call */
  int64_t by_worker[MOST_WORKERS]; /* plain: a worker runs one task at a time */
  _Atomic int inside[MOST_WORKERS];
  _Atomic int64_t overlaps;
  int n_workers;
  zr_pool_t *pool;
} counts_t;

static void count_task(void *context, int64_t task, int worker) {
  counts_t *counts = context;
  if (worker < 0 || worker >= counts->n_workers || atomic_fetch_add(&counts->inside[worker], 1)) {
    atomic_fetch_add(&counts->overlaps, 1);
    return;
  }
  counts->done[task] += 1;
  counts->by_worker[worker] += 1;
  atomic_fetch_sub(&counts->inside[worker], 1);
}

static void every_task_runs_once(void **state) {
  (void)state;
  static counts_t counts;
  for (int c = 0; c < N_COUNTS; ++c) {
    zr_pool_t *pool = NULL;
    assert_int_equal(zr_pool_create(NULL, thread_counts[c], &pool), ZR_OK);
    assert_int_equal(zr_pool_n_workers(pool), thread_counts[c]);
    memset(&counts, 0, sizeof counts);
    counts.n_workers = thread_counts[c];
    int64_t total = 0;
    for (int round = 0; round < 1000; ++round) {
      int n_tasks = round % 11 == 0 ? MOST_TASKS : round % 7;
      zr_parallel_for(pool, n_tasks, count_task, &counts);
      total += n_tasks;
      if (round % 100 == 0) zr_clock_sleep_ns(200000); /* lets the workers fall asleep */
    }
    int64_t done = 0, worked = 0;
    for (int i = 0; i < MOST_TASKS; ++i) done += counts.done[i];
    for (int i = 0; i < MOST_WORKERS; ++i) worked += counts.by_worker[i];
    assert_int_equal(done, total);
    assert_int_equal(worked, total);
    assert_int_equal(counts.overlaps, 0);
    assert_int_equal(counts.done[MOST_TASKS - 1], 91);
    zr_pool_destroy(pool);
  }
}

static void no_pool_runs_in_order(void **state) {
  (void)state;
  static counts_t counts;
  memset(&counts, 0, sizeof counts);
  counts.n_workers = 1;
  zr_parallel_for(NULL, 20, count_task, &counts);
  zr_parallel_for(NULL, 0, count_task, &counts);
  zr_parallel_for(NULL, -3, count_task, &counts);
  assert_int_equal(counts.by_worker[0], 20);
  assert_int_equal(zr_pool_n_workers(NULL), 1);
  zr_pool_destroy(NULL);
}

typedef struct {
  zr_pool_t *pool, *other;
  _Atomic int64_t sum, wrong_worker;
} nested_t;

typedef struct {
  nested_t *nested;
  int worker;
} inner_t;

static void inner_task(void *context, int64_t task, int worker) {
  inner_t *inner = context;
  if (worker != inner->worker) atomic_fetch_add(&inner->nested->wrong_worker, 1);
  atomic_fetch_add(&inner->nested->sum, task + 1);
}

static void outer_task(void *context, int64_t task, int worker) {
  (void)task;
  nested_t *nested = context;
  inner_t inner = {.nested = nested, .worker = worker};
  zr_parallel_for(nested->pool, 10, inner_task, &inner);
}

static void nested_calls_stay_on_their_worker(void **state) {
  (void)state;
  for (int c = 0; c < N_COUNTS; ++c) {
    nested_t nested = {0};
    assert_int_equal(zr_pool_create(NULL, thread_counts[c], &nested.pool), ZR_OK);
    for (int round = 0; round < 100; ++round) {
      zr_parallel_for(nested.pool, 13, outer_task, &nested);
    }
    assert_int_equal(nested.sum, 100 * 13 * 55);
    assert_int_equal(nested.wrong_worker, 0);
    zr_pool_destroy(nested.pool);
  }
}

static void third_level(void *context, int64_t task, int worker) {
  (void)worker;
  atomic_fetch_add(&((nested_t *)context)->sum, task + 1);
}

static void second_level(void *context, int64_t task, int worker) {
  (void)task, (void)worker;
  nested_t *nested = context;
  zr_parallel_for(nested->pool, 4, third_level, nested); /* back in the first pool */
}

static void first_level(void *context, int64_t task, int worker) {
  (void)task, (void)worker;
  nested_t *nested = context;
  zr_parallel_for(nested->other, 1, second_level, nested);
}

static void nesting_through_another_pool_does_not_deadlock(void **state) {
  (void)state;
  nested_t nested = {0};
  assert_int_equal(zr_pool_create(NULL, 2, &nested.pool), ZR_OK);
  assert_int_equal(zr_pool_create(NULL, 1, &nested.other), ZR_OK);
  zr_parallel_for(nested.pool, 1, first_level, &nested);
  assert_int_equal(nested.sum, 10);
  zr_pool_destroy(nested.pool);
  zr_pool_destroy(nested.other);
}

static void *calling_thread(void *context) {
  counts_t *counts = context;
  for (int round = 0; round < 400; ++round) {
    zr_parallel_for(counts->pool, round % 5, count_task, counts);
  }
  return NULL;
}

static void callers_take_turns(void **state) {
  (void)state;
  static counts_t counts;
  for (int c = 0; c < N_COUNTS; ++c) {
    memset(&counts, 0, sizeof counts);
    counts.n_workers = thread_counts[c];
    assert_int_equal(zr_pool_create(NULL, thread_counts[c], &counts.pool), ZR_OK);
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) {
      assert_int_equal(pthread_create(&threads[i], NULL, calling_thread, &counts), 0);
    }
    for (int i = 0; i < 3; ++i) assert_int_equal(pthread_join(threads[i], NULL), 0);
    zr_pool_destroy(counts.pool);
    /* Plain counters are right only if no two calls overlapped. */
    assert_int_equal(counts.overlaps, 0);
    int64_t worked = 0;
    for (int i = 0; i < MOST_WORKERS; ++i) worked += counts.by_worker[i];
    assert_int_equal(worked, 3 * 400 * 2);
    assert_int_equal(counts.done[0], 3 * 320);
  }
}

static void slow_task(void *context, int64_t task, int worker) {
  (void)worker;
  zr_clock_sleep_ns(1000000);
  ((int64_t *)context)[task] = task;
}

static void results_are_there_when_the_call_returns(void **state) {
  (void)state;
  zr_pool_t *pool = NULL;
  assert_int_equal(zr_pool_create(NULL, 3, &pool), ZR_OK);
  for (int round = 0; round < 20; ++round) {
    int64_t out[7] = {0};
    zr_parallel_for(pool, 7, slow_task, out);
    for (int64_t i = 0; i < 7; ++i) assert_int_equal(out[i], i);
  }
  zr_pool_destroy(pool);
}

static void every_failing_allocation_is_an_error(void **state) {
  (void)state;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  int64_t n = 1;
  for (; status != ZR_OK; ++n) {
    zr_alloc_t alloc;
    zr_alloc_init(&alloc);
    alloc.fail_at = n;
    zr_pool_t *pool = NULL;
    status = zr_pool_create(&alloc, 3, &pool);
    if (status != ZR_OK) {
      assert_int_equal(status, ZR_ERR_OUT_OF_MEMORY);
      assert_null(pool);
    }
    zr_pool_destroy(pool);
    assert_int_equal(alloc.live_count, 0);
    assert_int_equal(alloc.live_bytes, 0);
  }
  assert_true(n > 2);
  zr_pool_t *pool = NULL;
  assert_int_equal(zr_pool_create(NULL, 0, &pool), ZR_ERR_INVALID_ARGUMENT);
  assert_null(pool);
}

/* Linked in place of pthread_create: fails at the n-th call from now when fail_thread_at > 0. */
static int fail_thread_at;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context) {
  if (fail_thread_at > 0 && --fail_thread_at == 0) return EAGAIN;
  return __real_pthread_create(thread, attributes, start, context);
}

static void a_thread_that_does_not_start_is_an_error(void **state) {
  (void)state;
  for (int n = 1; n <= 3; ++n) {
    zr_alloc_t alloc;
    zr_alloc_init(&alloc);
    zr_pool_t *pool = NULL;
    fail_thread_at = n;
    assert_int_equal(zr_pool_create(&alloc, 4, &pool), ZR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(zr_detail(), "run.threads"));
    assert_null(pool);
    assert_int_equal(alloc.live_count, 0);
  }
  fail_thread_at = 0;
}

static void calls_allocate_nothing(void **state) {
  (void)state;
  static counts_t counts;
  memset(&counts, 0, sizeof counts);
  counts.n_workers = 2;
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  zr_pool_t *pool = NULL;
  assert_int_equal(zr_pool_create(&alloc, 2, &pool), ZR_OK);
  int64_t before = alloc.n_calls;
  for (int i = 0; i < 50; ++i) zr_parallel_for(pool, 9, count_task, &counts);
  assert_int_equal(alloc.n_calls, before);
  zr_pool_destroy(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_task_runs_once),
      cmocka_unit_test(no_pool_runs_in_order),
      cmocka_unit_test(nested_calls_stay_on_their_worker),
      cmocka_unit_test(nesting_through_another_pool_does_not_deadlock),
      cmocka_unit_test(callers_take_turns),
      cmocka_unit_test(results_are_there_when_the_call_returns),
      cmocka_unit_test(every_failing_allocation_is_an_error),
      cmocka_unit_test(a_thread_that_does_not_start_is_an_error),
      cmocka_unit_test(calls_allocate_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
