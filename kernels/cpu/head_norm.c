/* RMSNorm of each head: the heads of a row are rows of the norm. Fixed blocks of rows; the weight's
 * gradient is summed over a block's rows in order, then over the blocks in a tree. */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { FORWARD_ROWS = 16, MAX_GRAD_BLOCKS = 64, MIN_GRAD_ROWS = 8 };

typedef struct {
  const zr_cpu_rows_t *kernel;
  zr_cpu_norm_rows_t whole;
  int64_t n_rows, heads, ldy, block;
} head_norm_t;

/* The heads of row t, x, stats and dx; y and dy have a row stride of their own. */
static zr_cpu_norm_rows_t heads_of(const head_norm_t *n, int64_t t) {
  zr_cpu_norm_rows_t r = n->whole;
  int64_t first = t * n->heads * r.cols;
  r.n_rows = n->heads;
  r.x = zr_cpu_at_in(n->kernel, r.x, first);
  if (r.stats != NULL) {
    r.stats += t * n->heads;
    r.y = zr_cpu_at(n->kernel, r.y, t * n->ldy);
    return r;
  }
  r.stats_in += t * n->heads;
  r.dy = zr_cpu_at_in(n->kernel, r.dy, t * n->ldy);
  r.dx = zr_cpu_at(n->kernel, r.dx, first);
  return r;
}

static head_norm_t begin(zr_kern_t *kern, const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  head_norm_t n = {.kernel = zr_cpu_rows_of(kern, call->shape, 0),
                   .n_rows = attr[ZR_HEAD_NORM_ROWS],
                   .heads = attr[ZR_HEAD_NORM_HEADS],
                   .ldy = attr[ZR_HEAD_NORM_LDY]};
  n.whole.cols = attr[ZR_HEAD_NORM_HEAD_DIM];
  n.whole.eps = (float)call->shape->real;
  n.whole.x = call->operand[0];
  n.whole.w = call->operand[1];
  return n;
}

static void forward_block(void *context, int64_t task, int worker) {
  (void)worker;
  const head_norm_t *n = context;
  int64_t end = zr_cpu_min((task + 1) * n->block, n->n_rows);
  for (int64_t t = task * n->block; t < end; t++) {
    zr_cpu_norm_rows_t r = heads_of(n, t);
    n->kernel->rmsnorm(&r);
  }
}

static zr_status_t head_norm_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  head_norm_t n = begin(kern, call);
  n.block = FORWARD_ROWS;
  n.whole.y = call->operand[2];
  n.whole.stats = call->operand[3];
  zr_parallel_for(call->pool, zr_cpu_blocks(n.n_rows, n.block), forward_block, &n);
  return ZR_OK;
}

static int64_t grad_block_rows(int64_t rows) {
  return zr_cpu_max(MIN_GRAD_ROWS, zr_cpu_blocks(rows, MAX_GRAD_BLOCKS));
}

static int64_t grad_blocks(const zr_kern_shape_t *shape) {
  int64_t rows = shape->attr[ZR_HEAD_NORM_ROWS];
  return zr_cpu_blocks(rows, grad_block_rows(rows));
}

/* [blocks, head_dim] of sums, and as much for one row's. */
static int64_t grad_scratch(const zr_kern_shape_t *shape, int n_workers) {
  (void)n_workers;
  int64_t elems = 2 * grad_blocks(shape) * shape->attr[ZR_HEAD_NORM_HEAD_DIM];
  return elems * (int64_t)sizeof(float);
}

static void grad_block(void *context, int64_t task, int worker) {
  (void)worker;
  const head_norm_t *n = context;
  int64_t cols = n->whole.cols, end = zr_cpu_min((task + 1) * n->block, n->n_rows);
  float *sum = n->whole.dw_part + task * cols, *row = n->whole.db_part + task * cols;
  memset(sum, 0, (size_t)cols * sizeof *sum);
  for (int64_t t = task * n->block; t < end; t++) {
    zr_cpu_norm_rows_t r = heads_of(n, t);
    r.dw_part = row;
    r.db_part = NULL;
    n->kernel->rmsnorm_grad(&r);
    for (int64_t c = 0; c < cols; c++) sum[c] += row[c];
  }
}

static zr_status_t head_norm_grad_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  head_norm_t n = begin(kern, call);
  int64_t n_blocks = grad_blocks(call->shape);
  float *part = call->operand[6];
  n.block = grad_block_rows(n.n_rows);
  n.whole.stats_in = call->operand[2];
  n.whole.dy = call->operand[3];
  n.whole.dx = call->operand[4];
  n.whole.dx_add = zr_cpu_accumulates(call->shape, 4);
  n.whole.dw_part = part;
  n.whole.db_part = part + n_blocks * n.whole.cols; /* a row's sums before they are added */
  zr_parallel_for(call->pool, n_blocks, grad_block, &n);
  zr_cpu_sum_blocks(kern, call, 5, n_blocks, n.whole.cols, part);
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_head_norm = {"head_norm", -1, NULL, NULL, head_norm_run};
const zr_cpu_kind_t zr_cpu_head_norm_grad = {"head_norm_grad", 6, grad_scratch, NULL,
                                             head_norm_grad_run};
