/* Linear layers: three products and the bias' gradient. w is [out, in], or [in, out] with w_io. */
#include "kernels/cpu/cpu.h"

enum { MAX_BIAS_BLOCKS = 64, MIN_BIAS_ROWS = 16 };

static int forward_gemms(const zr_kern_shape_t *shape, zr_cpu_gemm_need_t *need) {
  const int64_t *attr = shape->attr;
  int64_t in = attr[ZR_LINEAR_IN], out = attr[ZR_LINEAR_OUT];
  int io = attr[ZR_LINEAR_W_IO] != 0;
  need[0] = (zr_cpu_gemm_need_t){.shape = {.m = attr[ZR_LINEAR_ROWS],
                                           .n = out,
                                           .k = in,
                                           .a_row = attr[ZR_LINEAR_LDX],
                                           .a_col = 1,
                                           .b_row = io ? out : 1,
                                           .b_col = io ? 1 : in,
                                           .ldc = attr[ZR_LINEAR_LDY],
                                           .ab = zr_cpu_type(shape, 0),
                                           .c = zr_cpu_type(shape, 3)}};
  return 1;
}

/* dx [T, in] = dy [T, out] w */
static int grad_x_gemms(const zr_kern_shape_t *shape, zr_cpu_gemm_need_t *need) {
  const int64_t *attr = shape->attr;
  int64_t in = attr[ZR_LINEAR_IN], out = attr[ZR_LINEAR_OUT];
  int io = attr[ZR_LINEAR_W_IO] != 0;
  need[0] = (zr_cpu_gemm_need_t){.shape = {.m = attr[ZR_LINEAR_ROWS],
                                           .n = in,
                                           .k = out,
                                           .a_row = attr[ZR_LINEAR_LDY],
                                           .a_col = 1,
                                           .b_row = io ? 1 : in,
                                           .b_col = io ? out : 1,
                                           .ldc = attr[ZR_LINEAR_LDX],
                                           .ab = zr_cpu_type(shape, 0),
                                           .c = zr_cpu_type(shape, 2)},
                                 .accumulate = zr_cpu_accumulates(shape, 2)};
  return 1;
}

/* dw [out, in] = dy^T x, or dw [in, out] = x^T dy */
static int grad_w_gemms(const zr_kern_shape_t *shape, zr_cpu_gemm_need_t *need) {
  const int64_t *attr = shape->attr;
  int64_t in = attr[ZR_LINEAR_IN], out = attr[ZR_LINEAR_OUT];
  int64_t ldx = attr[ZR_LINEAR_LDX], ldy = attr[ZR_LINEAR_LDY];
  int io = attr[ZR_LINEAR_W_IO] != 0;
  need[0] = (zr_cpu_gemm_need_t){.shape = {.m = io ? in : out,
                                           .n = io ? out : in,
                                           .k = attr[ZR_LINEAR_ROWS],
                                           .a_row = 1,
                                           .a_col = io ? ldx : ldy,
                                           .b_row = io ? ldy : ldx,
                                           .b_col = 1,
                                           .ldc = io ? out : in,
                                           .ab = zr_cpu_type(shape, 0),
                                           .c = zr_cpu_type(shape, 2)},
                                 .accumulate = zr_cpu_accumulates(shape, 2)};
  return 1;
}

static int64_t gemm_scratch(const zr_cpu_gemm_need_t *need, int n_workers) {
  return n_workers * zr_cpu_gemm_worker_bytes(&need->shape, need->accumulate);
}

static int64_t forward_scratch(const zr_kern_shape_t *shape, int n_workers) {
  zr_cpu_gemm_need_t need;
  forward_gemms(shape, &need);
  return gemm_scratch(&need, n_workers);
}

static int64_t grad_x_scratch(const zr_kern_shape_t *shape, int n_workers) {
  zr_cpu_gemm_need_t need;
  grad_x_gemms(shape, &need);
  return gemm_scratch(&need, n_workers);
}

static int64_t grad_w_scratch(const zr_kern_shape_t *shape, int n_workers) {
  zr_cpu_gemm_need_t need;
  grad_w_gemms(shape, &need);
  return gemm_scratch(&need, n_workers);
}

/* c = a b with the shape's one gemm. */
static zr_status_t run_gemm(const zr_kern_call_t *call, const void *a, const void *b, void *c,
                            const void *bias, int scratch, int64_t scratch_bytes) {
  const zr_cpu_prepared_t *prepared = call->prepared;
  zr_cpu_gemm_call_t gemm = {
      .gemm = prepared->gemm[0],
      .a = a,
      .b = b,
      .c = c,
      .bias = bias,
      .scratch = call->operand[scratch],
      .worker_bytes = scratch_bytes,
  };
  return zr_cpu_gemm_run(call->pool, &gemm);
}

static zr_status_t forward_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  (void)kern;
  return run_gemm(call, call->operand[0], call->operand[1], call->operand[3], call->operand[2], 4,
                  forward_scratch(call->shape, 1));
}

static zr_status_t grad_x_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  (void)kern;
  return run_gemm(call, call->operand[0], call->operand[1], call->operand[2], NULL, 3,
                  grad_x_scratch(call->shape, 1));
}

static zr_status_t grad_w_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  (void)kern;
  const void *x = call->operand[0], *dy = call->operand[1];
  int io = call->shape->attr[ZR_LINEAR_W_IO] != 0;
  return run_gemm(call, io ? x : dy, io ? dy : x, call->operand[2], NULL, 3,
                  grad_w_scratch(call->shape, 1));
}

/* --- db: blocks of rows, then their sums in a tree ----------------------------------------------
 */

static int64_t bias_block_rows(int64_t rows) {
  return zr_cpu_max(MIN_BIAS_ROWS, zr_cpu_blocks(rows, MAX_BIAS_BLOCKS));
}

static int64_t grad_b_scratch(const zr_kern_shape_t *shape, int n_workers) {
  (void)n_workers;
  int64_t rows = shape->attr[ZR_LINEAR_ROWS];
  return zr_cpu_blocks(rows, bias_block_rows(rows)) * shape->attr[ZR_LINEAR_OUT] *
         (int64_t)sizeof(float);
}

typedef struct {
  const zr_cpu_rows_t *rows;
  const void *dy;
  float *part; /* [blocks, out] */
  int64_t n_rows, block, out, ldy;
} bias_t;

static void bias_block(void *context, int64_t task, int worker) {
  (void)worker;
  const bias_t *b = context;
  int64_t row = task * b->block, n = zr_cpu_min(b->block, b->n_rows - row);
  const void *dy = zr_cpu_at_in(b->rows, b->dy, row * b->ldy);
  b->rows->column_sum(n, b->out, dy, b->ldy, b->part + task * b->out);
}

static zr_status_t grad_b_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  bias_t b = {zr_cpu_rows_of(kern, call->shape, 0),
              call->operand[0],
              call->operand[2],
              attr[ZR_LINEAR_ROWS],
              bias_block_rows(attr[ZR_LINEAR_ROWS]),
              attr[ZR_LINEAR_OUT],
              attr[ZR_LINEAR_LDY]};
  int64_t n_blocks = zr_cpu_blocks(b.n_rows, b.block);
  zr_parallel_for(call->pool, n_blocks, bias_block, &b);
  zr_cpu_sum_blocks(kern, call, 1, n_blocks, b.out, b.part);
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_linear = {"linear", 4, forward_scratch, forward_gemms, forward_run};
const zr_cpu_kind_t zr_cpu_linear_grad_x = {"linear_grad_x", 3, grad_x_scratch, grad_x_gemms,
                                            grad_x_run};
const zr_cpu_kind_t zr_cpu_linear_grad_w = {"linear_grad_w", 3, grad_w_scratch, grad_w_gemms,
                                            grad_w_run};
const zr_cpu_kind_t zr_cpu_linear_grad_b = {"linear_grad_b", 2, grad_b_scratch, NULL, grad_b_run};
