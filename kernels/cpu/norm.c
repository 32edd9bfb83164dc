/* LayerNorm and RMSNorm: fixed blocks of rows; the weights' gradients are summed over a block, then
 * over the blocks in a tree. */
#include "kernels/cpu/cpu.h"

enum { FORWARD_ROWS = 16, MAX_GRAD_BLOCKS = 64, MIN_GRAD_ROWS = 16 };

typedef struct {
  void (*rows)(const zr_cpu_norm_rows_t *rows);
  zr_cpu_norm_rows_t whole; /* of all rows; a task takes its part */
  int64_t block, elem_bytes;
  int stats_width;
} norm_t;

static zr_cpu_norm_rows_t part_of(const norm_t *n, int64_t task) {
  zr_cpu_norm_rows_t r = n->whole;
  int64_t row = task * n->block;
  r.n_rows = zr_cpu_min(n->block, n->whole.n_rows - row);
  r.x = (const char *)r.x + row * r.cols * n->elem_bytes;
  return r;
}

static void forward_block(void *context, int64_t task, int worker) {
  (void)worker;
  const norm_t *n = context;
  zr_cpu_norm_rows_t r = part_of(n, task);
  r.y = (char *)r.y + task * n->block * r.cols * n->elem_bytes;
  r.stats += task * n->block * n->stats_width;
  n->rows(&r);
}

static void forward(const zr_kern_call_t *call, norm_t *n) {
  const int64_t *attr = call->shape->attr;
  n->block = FORWARD_ROWS;
  n->whole.n_rows = attr[ZR_NORM_ROWS];
  n->whole.cols = attr[ZR_NORM_COLS];
  n->whole.eps = (float)call->shape->real;
  n->whole.x = call->operand[0];
  n->whole.w = call->operand[1];
  zr_parallel_for(call->pool, zr_cpu_blocks(n->whole.n_rows, n->block), forward_block, n);
}

static zr_status_t layernorm_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const zr_cpu_rows_t *rows = zr_cpu_rows_of(kern, call->shape, 0);
  norm_t n = {.rows = rows->layernorm, .elem_bytes = rows->elem_bytes, .stats_width = 2};
  n.whole.b = call->operand[2];
  n.whole.y = call->operand[3];
  n.whole.stats = call->operand[4];
  forward(call, &n);
  return ZR_OK;
}

static zr_status_t rmsnorm_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const zr_cpu_rows_t *rows = zr_cpu_rows_of(kern, call->shape, 0);
  norm_t n = {.rows = rows->rmsnorm, .elem_bytes = rows->elem_bytes, .stats_width = 1};
  n.whole.y = call->operand[2];
  n.whole.stats = call->operand[3];
  forward(call, &n);
  return ZR_OK;
}

static int64_t grad_block_rows(int64_t rows) {
  return zr_cpu_max(MIN_GRAD_ROWS, zr_cpu_blocks(rows, MAX_GRAD_BLOCKS));
}

/* [blocks, cols] for dw, and as much for db */
static int64_t part_elems(const zr_kern_shape_t *shape) {
  int64_t rows = shape->attr[ZR_NORM_ROWS];
  return zr_cpu_blocks(rows, grad_block_rows(rows)) * shape->attr[ZR_NORM_COLS];
}

static int64_t layernorm_grad_scratch(const zr_kern_shape_t *shape, int n_workers) {
  (void)n_workers;
  return 2 * part_elems(shape) * (int64_t)sizeof(float);
}

static int64_t rmsnorm_grad_scratch(const zr_kern_shape_t *shape, int n_workers) {
  (void)n_workers;
  return part_elems(shape) * (int64_t)sizeof(float);
}

static void grad_block(void *context, int64_t task, int worker) {
  (void)worker;
  const norm_t *n = context;
  zr_cpu_norm_rows_t r = part_of(n, task);
  int64_t row = task * n->block;
  r.dy = (const char *)r.dy + row * r.cols * n->elem_bytes;
  r.dx = (char *)r.dx + row * r.cols * n->elem_bytes;
  r.stats_in += row * n->stats_width;
  r.dw_part += task * r.cols;
  if (r.db_part != NULL) r.db_part += task * r.cols;
  n->rows(&r);
}

/* dw at operand 5 and, for layernorm, db at operand 6; scratch behind them. */
static void grad(zr_kern_t *kern, const zr_kern_call_t *call, norm_t *n, float *part, int has_db) {
  const zr_kern_shape_t *shape = call->shape;
  zr_cpu_norm_rows_t *w = &n->whole;
  w->n_rows = shape->attr[ZR_NORM_ROWS];
  w->cols = shape->attr[ZR_NORM_COLS];
  w->x = call->operand[0];
  w->w = call->operand[1];
  w->stats_in = call->operand[2];
  w->dy = call->operand[3];
  w->dx = call->operand[4];
  w->dx_add = zr_cpu_accumulates(shape, 4);
  w->dw_part = part;
  w->db_part = has_db ? part + part_elems(shape) : NULL;
  n->block = grad_block_rows(w->n_rows);
  int64_t n_blocks = zr_cpu_blocks(w->n_rows, n->block);
  zr_parallel_for(call->pool, n_blocks, grad_block, n);
  zr_cpu_sum_blocks(kern, call, 5, n_blocks, w->cols, w->dw_part);
  if (has_db) {
    zr_cpu_sum_blocks(kern, call, 6, n_blocks, w->cols, w->db_part);
  }
}

static zr_status_t layernorm_grad_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const zr_cpu_rows_t *rows = zr_cpu_rows_of(kern, call->shape, 0);
  norm_t n = {.rows = rows->layernorm_grad, .elem_bytes = rows->elem_bytes, .stats_width = 2};
  grad(kern, call, &n, call->operand[7], 1);
  return ZR_OK;
}

static zr_status_t rmsnorm_grad_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const zr_cpu_rows_t *rows = zr_cpu_rows_of(kern, call->shape, 0);
  norm_t n = {.rows = rows->rmsnorm_grad, .elem_bytes = rows->elem_bytes, .stats_width = 1};
  grad(kern, call, &n, call->operand[6], 0);
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_layernorm = {"layernorm", -1, NULL, NULL, layernorm_run};
const zr_cpu_kind_t zr_cpu_rmsnorm = {"rmsnorm", -1, NULL, NULL, rmsnorm_run};
const zr_cpu_kind_t zr_cpu_layernorm_grad = {"layernorm_grad", 7, layernorm_grad_scratch, NULL,
                                             layernorm_grad_run};
const zr_cpu_kind_t zr_cpu_rmsnorm_grad = {"rmsnorm_grad", 6, rmsnorm_grad_scratch, NULL,
                                           rmsnorm_grad_run};
