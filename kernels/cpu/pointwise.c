/* Pointwise kinds: fixed ranges of elements spread over the pool. */
#include "kernels/cpu/cpu.h"

enum { RANGE_ELEMS = 16384 };

/* What a range needs; operands as the row kernels name them. */
typedef struct {
  const zr_cpu_rows_t *rows;
  int64_t elems;
  float value;
  float *operand[5];
} pointwise_t;

static int64_t range_of(const pointwise_t *p, int64_t task, float *at[5]) {
  int64_t first = task * RANGE_ELEMS;
  for (int i = 0; i < 5; i++) at[i] = p->operand[i] == NULL ? NULL : p->operand[i] + first;
  return zr_cpu_min(RANGE_ELEMS, p->elems - first);
}

static void add_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  float *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->add(n, at[0], at[1], at[2]);
}

static void accumulate_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  float *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->accumulate(n, at[0], at[1]);
}

static void fill_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  float *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->fill(n, p->value, at[0]);
}

static void gelu_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  float *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->gelu(n, at[0], at[1]);
}

static void gelu_grad_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  float *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->gelu_grad(n, at[0], at[1], at[2]);
}

static void swiglu_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  float *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->swiglu(n, at[0], at[1], at[2]);
}

static void swiglu_grad_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  float *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->swiglu_grad(n, at[0], at[1], at[2], at[3], at[4]);
}

static zr_status_t run_ranges(zr_kern_t *kern, const zr_kern_call_t *call, zr_task_fn_t fn) {
  pointwise_t p = {kern->rows, call->shape->attr[ZR_ELEMS], (float)call->shape->real, {0}};
  for (int i = 0; i < 5; i++) p.operand[i] = call->operand[i];
  zr_parallel_for(call->pool, zr_cpu_blocks(p.elems, RANGE_ELEMS), fn, &p);
  return ZR_OK;
}

#define POINTWISE(kind)                                                        \
  static zr_status_t kind##_run(zr_kern_t *kern, const zr_kern_call_t *call) { \
    return run_ranges(kern, call, kind##_range);                               \
  }                                                                            \
  const zr_cpu_kind_t zr_cpu_##kind = {#kind, -1, NULL, NULL, kind##_run}

POINTWISE(add);
POINTWISE(accumulate);
POINTWISE(fill);
POINTWISE(gelu);
POINTWISE(gelu_grad);
POINTWISE(swiglu);
POINTWISE(swiglu_grad);
