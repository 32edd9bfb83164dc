/* Thread pool: plain threads on futexes. Work is cut by shape, never by thread count, so which
 * worker runs a task can not change a bit of the result.
 *
 * One parallel_for runs at a time; a second caller blocks until the first is done. The calling
 * thread works too, as worker 0. Idle workers poll for at most 50 us, then sleep in the kernel. No
 * allocation and no lock per call. */
#ifndef ZR_BASE_POOL_H
#define ZR_BASE_POOL_H

#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

typedef struct zr_pool_t zr_pool_t;

/* Runs task `task` of n; `worker` is in [0, n_workers) and no two tasks run at once with the same
 * worker. */
typedef void (*zr_task_fn_t)(void *context, int64_t task, int worker);

/* n_threads >= 1 counts the caller: n_threads - 1 threads are started. */
zr_status_t zr_pool_create(zr_alloc_t *alloc, int n_threads, zr_pool_t **out_pool) ZR_MUST_CHECK;
void zr_pool_destroy(zr_pool_t *pool);
int zr_pool_n_workers(const zr_pool_t *pool); /* NULL pool: 1 */

/* Runs all tasks 0..n_tasks-1 and returns when each is done; NULL pool runs them in order on the
 * caller. Called from inside a task it runs its tasks on that worker alone. */
void zr_parallel_for(zr_pool_t *pool, int64_t n_tasks, zr_task_fn_t fn, void *context);

#endif
