/* Pointwise kinds: fixed ranges of elements spread over the pool. */
#include "kernels/cpu/cpu.h"

enum { RANGE_ELEMS = 16384 };

/* What a range needs; operands as the row kernels name them. */
typedef struct {
  const zr_cpu_rows_t *rows;
  int64_t elems;
  float value;
  int act;
  void *operand[5];
} pointwise_t;

static int64_t range_of(const pointwise_t *p, int64_t task, void *at[5]) {
  int64_t first = task * RANGE_ELEMS;
  for (int i = 0; i < 5; i++)
    at[i] = p->operand[i] == NULL ? NULL : zr_cpu_at(p->rows, p->operand[i], first);
  return zr_cpu_min(RANGE_ELEMS, p->elems - first);
}

static void add_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  void *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->add(n, at[0], at[1], at[2]);
}

static void fill_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  void *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->fill(n, p->value, at[0]);
}

static void gelu_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  void *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->gelu[p->act](n, at[0], at[1]);
}

static void gelu_grad_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  void *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->gelu_grad[p->act](n, at[0], at[1], at[2]);
}

static void swiglu_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  void *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->swiglu[p->act](n, at[0], at[1], at[2]);
}

static void swiglu_grad_range(void *context, int64_t task, int worker) {
  (void)worker;
  const pointwise_t *p = context;
  void *at[5];
  int64_t n = range_of(p, task, at);
  p->rows->swiglu_grad[p->act](n, at[0], at[1], at[2], at[3], at[4]);
}

static zr_status_t run_ranges(zr_kern_t *kern, const zr_kern_call_t *call, zr_task_fn_t fn) {
  pointwise_t p = {.rows = zr_cpu_rows_of(kern, call->shape, 0),
                   .elems = call->shape->attr[ZR_ELEMS],
                   .value = (float)call->shape->real,
                   .act = zr_kern_act(call->shape)};
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
POINTWISE(fill);
POINTWISE(gelu);
POINTWISE(gelu_grad);
POINTWISE(swiglu);
POINTWISE(swiglu_grad);

/* --- accumulate: the source and the sum may differ in type, if one of them is fp32 -------------
 */

typedef struct {
  const zr_cpu_rows_t *src_rows, *dst_rows, *f32;
  int64_t elems;
  const void *src;
  void *dst;
} accumulate_t;

static void accumulate_range(void *context, int64_t task, int worker) {
  (void)worker;
  const accumulate_t *a = context;
  int64_t first = task * RANGE_ELEMS, n = zr_cpu_min(RANGE_ELEMS, a->elems - first);
  const void *src = zr_cpu_at_in(a->src_rows, a->src, first);
  void *dst = zr_cpu_at(a->dst_rows, a->dst, first);
  if (a->src_rows == a->dst_rows) {
    a->src_rows->accumulate(n, src, dst);
  } else if (a->dst_rows == a->f32) {
    a->src_rows->widen_add(n, src, dst);
  } else {
    a->dst_rows->round_add(n, src, dst);
  }
}

static zr_status_t accumulate_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  accumulate_t a = {zr_cpu_rows_of(kern, call->shape, 0),
                    zr_cpu_rows_of(kern, call->shape, 1),
                    zr_cpu_rows_f32(kern),
                    call->shape->attr[ZR_ELEMS],
                    call->operand[0],
                    call->operand[1]};
  zr_parallel_for(call->pool, zr_cpu_blocks(a.elems, RANGE_ELEMS), accumulate_range, &a);
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_accumulate = {"accumulate", -1, NULL, NULL, accumulate_run};
