/* A small program for the executor's tests, made by hand: it has every stream in use, values that
 * flow both ways between them, a control block with records, and two plans.
 *
 *   step:  fetch and count micro-batches; gather each unit's state, run forward and backward over
 *          it, reduce the gradient, add it on the comm stream, take its norm, change the state
 *   eval:  gather each unit's state and sum it up */
#ifndef ZR_TESTS_EXEC_MINI_H
#define ZR_TESTS_EXEC_MINI_H

#include "runtime/exec/exec.h"
#include "tests/support/cmocka_all.h"

enum { MINI_MAX_UNITS = 8, MINI_STEP = 0, MINI_EVAL = 1, MINI_ROWS = 16 };

typedef struct {
  int n_units;
  int64_t shard_elems; /* a multiple of 1024 */
  int64_t n_micro;
  double value; /* in the plan: makes another plan */
} mini_shape_t;

typedef struct {
  zr_alloc_t alloc;
  zr_program_t *program;
  int32_t control, probe, layout, state[MINI_MAX_UNITS]; /* layout: mini_tiers.h */
  int n_units;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  zr_pool_t *pool;
  const zr_disk_ops_t *disk_ops; /* NULL: no disk */
  zr_disk_t *disk;
  int64_t fetch_fails_at; /* iteration; 0: never */

  zr_exec_options_t options;
  zr_exec_t *exec;
} mini_t;

extern const mini_shape_t mini_shape; /* 3 units, 2 micro-batches */

/* Device "cpu", comm "self", kernels "ref" and the program; fills options. */
void mini_open(mini_t *mini, const mini_shape_t *shape);
/* The same over an open comm (owned from here on). */
void mini_open_comm(mini_t *mini, const mini_shape_t *shape, const zr_comm_ops_t *comm_ops,
                    zr_comm_t *comm);
/* Backends alone; the program is the caller's to make. Then the options. */
void mini_open_backends(mini_t *mini, const zr_comm_ops_t *comm_ops, zr_comm_t *comm);
void mini_fill_options(mini_t *mini);
void mini_use_cpu_kernels(mini_t *mini);
void mini_fault_hal(mini_t *mini, zr_fault_kind_t kind, int64_t at);
void mini_fault_comm(mini_t *mini, zr_fault_kind_t kind, int64_t at);
/* Kernels that fail the n-th run (from 1) of a kind; one set at a time. */
void mini_fault_kern(mini_t *mini, int32_t kind, int64_t at);
void mini_start(mini_t *mini); /* create and first contents */
void mini_close(mini_t *mini); /* everything; checks that nothing is left */

/* Index of the n-th operation (from 0) of a kind in a plan. */
int32_t mini_find_op(const mini_t *mini, int plan, int32_t kind, int n);
/* Bytes of all persistent buffers, in order; malloc'd. */
void *mini_contents(mini_t *mini, int64_t *out_bytes);

#define assert_ok(expr)                                                                       \
  do {                                                                                        \
    const zr_status_t mini_status_ = (expr);                                                  \
    if (mini_status_ != ZR_OK) fail_msg("%s: %s", zr_status_name(mini_status_), zr_detail()); \
  } while (0)
#define assert_detail(text)                                                             \
  do {                                                                                  \
    if (!strstr(zr_detail(), text)) fail_msg("'%s' is not in '%s'", text, zr_detail()); \
  } while (0)

#endif
