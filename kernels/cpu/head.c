/* The head: logits and cross-entropy in chunks of rows, so that logits are never whole.
 *
 *   for each chunk:   logits = x w^T   ->   loss and, in place, gradients   ->   dx = d w
 *                                                                           ->   dw (+)= d^T x
 *
 * A leaf's dw must be complete before it is added to an accumulated dw, or rounded to 16 bits, so
 * with several chunks it is then first summed in scratch. Logits are fp32; their gradients take the
 * type of x and w, in the same rows. */
#include <string.h>

#include "kernels/control.h"
#include "kernels/cpu/cpu.h"

/* Positions in `prepared`: for whole chunks, then for a shorter last one. */
enum { LOGITS = 0, DX, DW, DW_ADD, N_WHOLE, LOGITS_LAST = N_WHOLE, DX_LAST, DW_LAST };

typedef struct {
  int64_t rows, hidden, vocab, vocab_padded, chunk;
  int64_t n_whole, last; /* chunks of `chunk` rows, then one of `last` < chunk rows if > 0 */
  int grad;
  int accumulate;
  int own_sum;         /* dw is summed in scratch first */
  zr_cpu_type_t x, dw; /* types of x, w and dx, and of dw */
  int64_t ldd;         /* of the logits' gradients, in elements */
} head_t;

static head_t head_of(const zr_kern_shape_t *shape) {
  const int64_t *attr = shape->attr;
  head_t h = {.rows = attr[ZR_HEAD_ROWS],
              .hidden = attr[ZR_HEAD_HIDDEN],
              .vocab = attr[ZR_HEAD_VOCAB],
              .vocab_padded = attr[ZR_HEAD_VOCAB_PADDED],
              .chunk = zr_cpu_min(attr[ZR_HEAD_CHUNK], attr[ZR_HEAD_ROWS]),
              .grad = shape->kind == ZR_OP_HEAD_LOSS};
  if (h.chunk <= 0) h.chunk = h.rows;
  h.n_whole = h.chunk > 0 ? h.rows / h.chunk : 0;
  h.last = h.rows - h.n_whole * h.chunk;
  h.accumulate = h.grad && zr_cpu_accumulates(shape, 6);
  h.x = zr_cpu_type(shape, 0);
  h.dw = h.grad ? zr_cpu_type(shape, 6) : ZR_CPU_F32;
  h.ldd = h.vocab_padded * (h.x == ZR_CPU_F32 ? 1 : 2);
  h.own_sum = (h.accumulate || h.dw != ZR_CPU_F32) && h.n_whole + (h.last > 0) > 1;
  return h;
}

static zr_cpu_gemm_need_t logits_need(const head_t *h, int64_t rows) {
  return (zr_cpu_gemm_need_t){.shape = {.m = rows,
                                        .n = h->vocab_padded,
                                        .k = h->hidden,
                                        .a_row = h->hidden,
                                        .a_col = 1,
                                        .b_row = 1,
                                        .b_col = h->hidden,
                                        .ldc = h->vocab_padded,
                                        .ab = h->x}};
}

static zr_cpu_gemm_need_t dx_need(const head_t *h, int64_t rows) {
  return (zr_cpu_gemm_need_t){.shape = {.m = rows,
                                        .n = h->hidden,
                                        .k = h->vocab_padded,
                                        .a_row = h->ldd,
                                        .a_col = 1,
                                        .b_row = h->hidden,
                                        .b_col = 1,
                                        .ldc = h->hidden,
                                        .ab = h->x,
                                        .c = h->x}};
}

static zr_cpu_gemm_need_t dw_need(const head_t *h, int64_t rows, int accumulate) {
  return (zr_cpu_gemm_need_t){.shape = {.m = h->vocab_padded,
                                        .n = h->hidden,
                                        .k = rows,
                                        .a_row = 1,
                                        .a_col = h->ldd,
                                        .b_row = h->hidden,
                                        .b_col = 1,
                                        .ldc = h->hidden,
                                        .ab = h->x,
                                        .c = h->own_sum ? ZR_CPU_F32 : h->dw},
                              .accumulate = accumulate};
}

static int gemms(const zr_kern_shape_t *shape, zr_cpu_gemm_need_t *need) {
  head_t h = head_of(shape);
  need[LOGITS] = logits_need(&h, h.chunk);
  need[LOGITS_LAST] = logits_need(&h, h.last);
  if (!h.grad) {
    for (int i = DX; i < N_WHOLE; i++) need[i] = (zr_cpu_gemm_need_t){0};
    return LOGITS_LAST + 1;
  }
  need[DX] = dx_need(&h, h.chunk);
  need[DW] = dw_need(&h, h.chunk, h.accumulate && !h.own_sum);
  need[DW_ADD] = h.n_whole > 1 ? dw_need(&h, h.chunk, 1) : (zr_cpu_gemm_need_t){0};
  need[DX_LAST] = dx_need(&h, h.last);
  need[DW_LAST] = h.last > 0 ? dw_need(&h, h.last, 1) : (zr_cpu_gemm_need_t){0};
  return DW_LAST + 1;
}

static int64_t worker_bytes(const zr_kern_shape_t *shape) {
  zr_cpu_gemm_need_t need[ZR_CPU_MAX_GEMMS];
  int64_t most = 0;
  for (int i = gemms(shape, need) - 1; i >= 0; i--)
    most = zr_cpu_max(most, zr_cpu_gemm_worker_bytes(&need[i].shape, need[i].accumulate));
  return most;
}

static int64_t logits_bytes(const head_t *h) {
  return zr_cpu_round_64(h->chunk * h->vocab_padded * (int64_t)sizeof(float));
}

static int64_t sum_bytes(const head_t *h) {
  return h->own_sum ? zr_cpu_round_64(h->vocab_padded * h->hidden * (int64_t)sizeof(float)) : 0;
}

/* logits of a chunk | sum of dw | the workers' */
static int64_t scratch_bytes(const zr_kern_shape_t *shape, int n_workers) {
  head_t h = head_of(shape);
  return logits_bytes(&h) + sum_bytes(&h) + n_workers * worker_bytes(shape);
}

/* --- run ----------------------------------------------------------------------------------------
 */

typedef struct {
  head_t h;
  zr_kern_t *kern;
  const zr_kern_call_t *call;
  const zr_cpu_rows_t *rows; /* of x's type */
  const void *x, *w;
  const int32_t *targets;
  double *loss;
  void *dx, *dw; /* NULL without gradients; dw: where this leaf is summed */
  float *logits;
  char *workers;
  int64_t worker_bytes;
  float inv_tokens;
} run_t;

typedef struct {
  const run_t *run;
  int64_t first;
} chunk_t;

static void loss_row(void *context, int64_t task, int worker) {
  (void)worker;
  const chunk_t *c = context;
  const run_t *r = c->run;
  int64_t t = c->first + task;
  zr_cpu_head_row_t row = {r->logits + task * r->h.vocab_padded,
                           r->h.vocab,
                           r->h.vocab_padded,
                           r->targets[t],
                           r->dx != NULL,
                           r->inv_tokens};
  r->loss[t] = r->rows->head_row(&row);
}

static zr_status_t run_gemm(const run_t *r, int which, const void *a, const void *b, void *c) {
  const zr_cpu_prepared_t *prepared = r->call->prepared;
  zr_cpu_gemm_call_t gemm = {.gemm = prepared->gemm[which],
                             .a = a,
                             .b = b,
                             .c = c,
                             .scratch = r->workers,
                             .worker_bytes = r->worker_bytes};
  return zr_cpu_gemm_run(r->call->pool, &gemm);
}

static zr_status_t run_chunk(const run_t *r, int64_t first) {
  int whole = r->h.rows - first >= r->h.chunk;
  int64_t n_rows = whole ? r->h.chunk : r->h.last;
  const void *x = zr_cpu_at_in(r->rows, r->x, first * r->h.hidden);
  ZR_TRY(run_gemm(r, whole ? LOGITS : LOGITS_LAST, x, r->w, r->logits));
  chunk_t chunk = {r, first};
  zr_parallel_for(r->call->pool, n_rows, loss_row, &chunk);
  if (r->dx == NULL) return ZR_OK;
  void *dx = zr_cpu_at(r->rows, r->dx, first * r->h.hidden);
  ZR_TRY(run_gemm(r, whole ? DX : DX_LAST, r->logits, r->w, dx));
  int dw = !whole ? DW_LAST : first > 0 ? DW_ADD : DW;
  return run_gemm(r, dw, r->logits, x, r->dw);
}

/* dst (+)= src over ranges */
typedef struct {
  const zr_cpu_rows_t *rows; /* of dst */
  int64_t elems;
  const float *src; /* NULL: zeros */
  void *dst;
  int accumulate;
} add_t;

enum { ADD_ELEMS = 16384 };

static void add_range(void *context, int64_t task, int worker) {
  (void)worker;
  const add_t *a = context;
  int64_t at = task * ADD_ELEMS, n = zr_cpu_min(ADD_ELEMS, a->elems - at);
  void *dst = zr_cpu_at(a->rows, a->dst, at);
  if (a->src != NULL) {
    (a->accumulate ? a->rows->round_add : a->rows->round)(n, a->src + at, dst);
  } else if (!a->accumulate) {
    a->rows->fill(n, 0, dst);
  }
}

static zr_status_t run_head(run_t *r) {
  float *sum = (float *)((char *)r->logits + logits_bytes(&r->h));
  void *dw = r->dw;
  if (r->h.own_sum) r->dw = sum;
  for (int64_t first = 0; first < r->h.rows; first += r->h.chunk) ZR_TRY(run_chunk(r, first));
  if (r->h.own_sum || (r->h.rows == 0 && dw != NULL)) {
    add_t add = {zr_cpu_rows_of(r->kern, r->call->shape, 6), r->h.vocab_padded * r->h.hidden,
                 r->h.own_sum ? sum : NULL, dw, r->h.accumulate};
    zr_parallel_for(r->call->pool, zr_cpu_blocks(add.elems, ADD_ELEMS), add_range, &add);
  }
  return ZR_OK;
}

static run_t run_of(zr_kern_t *kern, const zr_kern_call_t *call, void *scratch) {
  run_t r = {.h = head_of(call->shape),
             .kern = kern,
             .rows = zr_cpu_rows_of(kern, call->shape, 0),
             .call = call,
             .x = call->operand[0],
             .w = call->operand[1],
             .targets = call->operand[2],
             .logits = scratch,
             .worker_bytes = worker_bytes(call->shape)};
  r.workers = (char *)scratch + logits_bytes(&r.h) + sum_bytes(&r.h);
  return r;
}

static zr_status_t loss_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  run_t r = run_of(kern, call, call->operand[7]);
  ZR_TRY(zr_cpu_check_indices(r.targets, r.h.rows, INT32_MIN, r.h.vocab));
  r.inv_tokens = ((const zr_control_t *)call->operand[3])->inv_tokens;
  r.loss = call->operand[4];
  r.dx = call->operand[5];
  r.dw = call->operand[6];
  return run_head(&r);
}

static zr_status_t eval_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  run_t r = run_of(kern, call, call->operand[4]);
  ZR_TRY(zr_cpu_check_indices(r.targets, r.h.rows, INT32_MIN, r.h.vocab));
  r.loss = call->operand[3];
  return run_head(&r);
}

const zr_cpu_kind_t zr_cpu_head_loss = {"head_loss", 7, scratch_bytes, gemms, loss_run};
const zr_cpu_kind_t zr_cpu_head_eval = {"head_eval", 4, scratch_bytes, gemms, eval_run};
