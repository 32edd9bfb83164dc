#include "runtime/base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/clock.h"
#include "runtime/base/futex.h"

/* One call of zr_parallel_for, as the workers see it:
 *
 *   caller   write job, gate = OPEN, epoch++ | run tasks | gate &= ~OPEN | wait for n_inside == 0
 *   worker        wait for a new epoch | gate: n_inside++ if OPEN | run tasks | n_inside-- | wait
 *
 * The job is written only while the gate is shut and nobody is inside, so a worker that is inside
 * reads it safely. Each task is claimed by the caller or by a worker inside, so all are done when
 * the last one leaves. A worker that comes late finds the gate shut and is not waited for. */
enum {
  GATE_OPEN = 1 << 30,   /* workers may enter */
  GATE_WAITED = 1 << 29, /* the caller sleeps on the gate */
  POLL_NS = 50000
};

typedef struct {
  zr_pool_t *pool;
  pthread_t thread;
  int worker;
  bool started;
} pool_thread_t;

struct zr_pool_t {
  zr_alloc_t *alloc;
  int n_workers;
  int64_t poll_ns; /* 0 when the workers outnumber the cores: polling would take one's turn */
  pool_thread_t *threads; /* [n_workers - 1] */

  /* the job: written while the gate is shut */
  zr_task_fn_t fn;
  void *context;
  int64_t n_tasks;

  _Alignas(64) _Atomic int64_t next_task;
  _Alignas(64) _Atomic uint32_t gate;  /* flags and the number of workers inside */
  _Alignas(64) _Atomic uint32_t epoch; /* counts jobs; workers sleep on it */
  _Atomic uint32_t n_sleepers;
  _Atomic bool stop;
  _Alignas(64) _Atomic uint32_t busy; /* 0 free, 1 one caller, 2 others may be waiting */
};

/* The tasks that this thread is inside of, innermost first. */
typedef struct frame_t {
  const zr_pool_t *pool;
  int worker;
  const struct frame_t *outer;
} frame_t;
static _Thread_local const frame_t *innermost_frame;

static void cpu_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* Polls until *word differs from `value` or the time is over. */
static bool poll_change(_Atomic uint32_t *word, uint32_t value, int64_t poll_ns) {
  enum { LOOKS = 32 };
  int64_t deadline_ns = poll_ns > 0 ? zr_clock_ns() + poll_ns : 0;
  do {
    for (int i = 0; i < LOOKS; ++i) {
      if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
      cpu_pause();
    }
  } while (poll_ns > 0 && zr_clock_ns() < deadline_ns);
  return false;
}

static void run_tasks(zr_pool_t *pool, int worker) {
  frame_t frame = {.pool = pool, .worker = worker, .outer = innermost_frame};
  innermost_frame = &frame;
  int64_t n_tasks = pool->n_tasks;
  for (;;) {
    int64_t task = atomic_fetch_add_explicit(&pool->next_task, 1, memory_order_relaxed);
    if (task >= n_tasks) break;
    pool->fn(pool->context, task, worker);
  }
  innermost_frame = frame.outer;
}

static bool enter(zr_pool_t *pool) {
  uint32_t gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
  while (gate & GATE_OPEN) {
    if (atomic_compare_exchange_weak_explicit(&pool->gate, &gate, gate + 1, memory_order_acquire,
                                              memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

static void leave(zr_pool_t *pool) {
  uint32_t before = atomic_fetch_sub_explicit(&pool->gate, 1, memory_order_release);
  if (before == (GATE_WAITED | 1)) zr_futex_wake_all(&pool->gate);
}

static void wait_for_job(zr_pool_t *pool, uint32_t epoch) {
  if (poll_change(&pool->epoch, epoch, pool->poll_ns)) return;
  /* Said before looking again: the caller either sees a sleeper or is seen to have raised the
   * epoch. */
  atomic_fetch_add(&pool->n_sleepers, 1);
  while (atomic_load(&pool->epoch) == epoch) (void)zr_futex_wait(&pool->epoch, epoch, -1);
  atomic_fetch_sub(&pool->n_sleepers, 1);
}

static void *worker_main(void *context) {
  pool_thread_t *self = context;
  zr_pool_t *pool = self->pool;
  for (;;) {
    uint32_t epoch = atomic_load(&pool->epoch);
    if (atomic_load(&pool->stop)) return NULL;
    if (enter(pool)) {
      run_tasks(pool, self->worker);
      leave(pool);
    }
    wait_for_job(pool, epoch);
  }
}

static void announce(zr_pool_t *pool) {
  atomic_fetch_add(&pool->epoch, 1);
  if (atomic_load(&pool->n_sleepers) > 0) zr_futex_wake_all(&pool->epoch);
}

static int usable_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

static zr_status_t start_threads(zr_pool_t *pool) {
  for (int i = 0; i + 1 < pool->n_workers; ++i) {
    pool_thread_t *thread = &pool->threads[i];
    *thread = (pool_thread_t){.pool = pool, .worker = i + 1};
    int error = pthread_create(&thread->thread, NULL, worker_main, thread);
    if (error != 0) {
      return zr_fail(ZR_ERR_OUT_OF_MEMORY,
                     "thread %d of %d can not be started (error %d): lower "
                     "run.threads or raise the limit on processes",
                     i + 1, pool->n_workers, error);
    }
    thread->started = true;
  }
  return ZR_OK;
}

zr_status_t zr_pool_create(zr_alloc_t *alloc, int n_threads, zr_pool_t **out_pool) {
  if (n_threads < 1) return zr_fail(ZR_ERR_INVALID_ARGUMENT, "a pool of %d threads", n_threads);
  zr_pool_t *pool = NULL;
  zr_status_t status = zr_alloc_get(alloc, 1, sizeof *pool, &pool);
  if (status != ZR_OK) goto fail;
  pool->alloc = alloc;
  pool->n_workers = n_threads;
  pool->poll_ns = n_threads <= usable_cores() ? POLL_NS : 0;
  status = zr_alloc_get(alloc, (size_t)(n_threads - 1), sizeof *pool->threads, &pool->threads);
  if (status != ZR_OK) goto fail;
  status = start_threads(pool);
  if (status != ZR_OK) goto fail;
  *out_pool = pool;
  return ZR_OK;
fail:
  zr_pool_destroy(pool);
  return status;
}

void zr_pool_destroy(zr_pool_t *pool) {
  if (!pool) return;
  atomic_store(&pool->stop, true);
  announce(pool);
  for (int i = 0; pool->threads && i + 1 < pool->n_workers; ++i) {
    if (pool->threads[i].started) (void)pthread_join(pool->threads[i].thread, NULL);
  }
  zr_alloc_free(pool->alloc, pool->threads);
  zr_alloc_free(pool->alloc, pool);
}

int zr_pool_n_workers(const zr_pool_t *pool) {
  return pool ? pool->n_workers : 1;
}

static void take(zr_pool_t *pool) {
  uint32_t state = 0;
  if (atomic_compare_exchange_strong(&pool->busy, &state, 1)) return;
  while (atomic_exchange(&pool->busy, 2) != 0) (void)zr_futex_wait(&pool->busy, 2, -1);
}

static void give(zr_pool_t *pool) {
  if (atomic_exchange(&pool->busy, 0) == 2) zr_futex_wake_all(&pool->busy);
}

static void wait_until_empty(zr_pool_t *pool) {
  uint32_t gate =
      atomic_fetch_and_explicit(&pool->gate, ~(uint32_t)GATE_OPEN, memory_order_acquire) &
      ~(uint32_t)GATE_OPEN;
  int64_t deadline_ns = gate != 0 && pool->poll_ns > 0 ? zr_clock_ns() + pool->poll_ns : 0;
  while (gate != 0 && deadline_ns > 0 && zr_clock_ns() < deadline_ns) {
    (void)poll_change(&pool->gate, gate, 0);
    gate = atomic_load_explicit(&pool->gate, memory_order_acquire);
  }
  if (gate != 0) gate = atomic_fetch_or_explicit(&pool->gate, GATE_WAITED, memory_order_acquire);
  while ((gate & ~(uint32_t)GATE_WAITED) != 0) {
    (void)zr_futex_wait(&pool->gate, gate | GATE_WAITED, -1);
    gate = atomic_load_explicit(&pool->gate, memory_order_acquire);
  }
}

static void run_shared(zr_pool_t *pool, int64_t n_tasks, zr_task_fn_t fn, void *context) {
  pool->fn = fn;
  pool->context = context;
  pool->n_tasks = n_tasks;
  atomic_store_explicit(&pool->next_task, 0, memory_order_relaxed);
  if (n_tasks == 1 || pool->n_workers == 1) {
    run_tasks(pool, 0);
    return;
  }
  atomic_store_explicit(&pool->gate, GATE_OPEN, memory_order_release);
  announce(pool);
  run_tasks(pool, 0);
  wait_until_empty(pool);
}

void zr_parallel_for(zr_pool_t *pool, int64_t n_tasks, zr_task_fn_t fn, void *context) {
  if (n_tasks <= 0) return;
  const frame_t *frame = innermost_frame;
  while (frame && frame->pool != pool) frame = frame->outer;
  if (!pool || frame) {
    int worker = pool ? frame->worker : 0;
    for (int64_t task = 0; task < n_tasks; ++task) fn(context, task, worker);
    return;
  }
  take(pool);
  run_shared(pool, n_tasks, fn, context);
  give(pool);
}
