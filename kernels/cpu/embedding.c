/* Token and position embeddings. Their gradients sum the rows of each token in the order of the
 * rows, found through a list for each token. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { FORWARD_ROWS = 16, GRAD_ROWS = 16, GRAD_COLS = 1024 };

typedef struct {
  const zr_cpu_rows_t *rows; /* of activations and parameters */
  const zr_cpu_rows_t *sums; /* of the gradient */
  int64_t n_rows, hidden, vocab, seq, pos_rows;
  const int32_t *tokens; /* [n_rows] */
  const int32_t *starts; /* [n_rows]: where the row's document begins in its sample; NULL: at 0 */
  const void *table, *pos, *dy;
  void *y;
  void *grad; /* dtable or dpos */
  int64_t grad_rows;
  int accumulate;
  const int32_t *head; /* [vocab] or [pos_rows]: a token's or position's first row, -1: none */
  const int32_t *next; /* [n_rows]: its next row, -1: none */
} embedding_t;

static embedding_t embedding_of(const zr_kern_t *kern, const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  return (embedding_t){.rows = zr_cpu_rows_of(kern, call->shape, 1),
                       .n_rows = attr[ZR_EMBEDDING_ROWS],
                       .hidden = attr[ZR_EMBEDDING_HIDDEN],
                       .vocab = attr[ZR_EMBEDDING_VOCAB],
                       .seq = attr[ZR_EMBEDDING_SEQ],
                       .pos_rows = attr[ZR_EMBEDDING_POS_ROWS],
                       .tokens = call->operand[0]};
}

static int64_t position(const embedding_t *e, int64_t t) {
  return t % e->seq - (e->starts != NULL ? e->starts[t] : 0);
}

static void forward_block(void *context, int64_t task, int worker) {
  (void)worker;
  const embedding_t *e = context;
  int64_t end = zr_cpu_min((task + 1) * FORWARD_ROWS, e->n_rows);
  for (int64_t t = task * FORWARD_ROWS; t < end; t++) {
    const void *row = zr_cpu_at_in(e->rows, e->table, e->tokens[t] * e->hidden);
    void *y = zr_cpu_at(e->rows, e->y, t * e->hidden);
    if (e->pos != NULL) {
      e->rows->add(e->hidden, row, zr_cpu_at_in(e->rows, e->pos, position(e, t) * e->hidden), y);
    } else {
      memcpy(y, row, (size_t)(e->hidden * e->rows->elem_bytes));
    }
  }
}

static zr_status_t forward_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  embedding_t e = embedding_of(kern, call);
  e.starts = call->operand[4];
  ZR_TRY(zr_cpu_check_indices(e.tokens, e.n_rows, 0, e.vocab));
  ZR_TRY(zr_cpu_check_starts(e.starts, e.n_rows, e.seq));
  e.table = call->operand[1];
  e.pos = call->operand[2];
  e.y = call->operand[3];
  zr_parallel_for(call->pool, zr_cpu_blocks(e.n_rows, FORWARD_ROWS), forward_block, &e);
  return ZR_OK;
}

/* Row v of the gradient, columns [c, c + n): the sum of dy over a chain of rows t, next(t), ... */
static void grad_row(const embedding_t *e, int64_t v, int64_t c, int64_t n) {
  float sum[GRAD_COLS] __attribute__((aligned(64)));
  void *out = zr_cpu_at(e->sums, e->grad, v * e->hidden + c);
  memset(sum, 0, (size_t)n * sizeof(float));
  for (int64_t t = e->head[v]; t >= 0; t = e->next[t])
    e->rows->widen_add(n, zr_cpu_at_in(e->rows, e->dy, t * e->hidden + c), sum);
  (e->accumulate ? e->sums->round_add : e->sums->round)(n, sum, out);
}

static int64_t n_across(const embedding_t *e) {
  return zr_cpu_blocks(e->hidden, GRAD_COLS);
}

static void grad_rows(void *context, int64_t task, int worker) {
  (void)worker;
  const embedding_t *e = context;
  int64_t down = task / n_across(e), c = task % n_across(e) * GRAD_COLS;
  int64_t n = zr_cpu_min(GRAD_COLS, e->hidden - c);
  int64_t end = zr_cpu_min((down + 1) * GRAD_ROWS, e->grad_rows);
  for (int64_t v = down * GRAD_ROWS; v < end; v++) grad_row(e, v, c, n);
}

/* next [rows] and head [vocab], then [pos_rows] */
static int64_t grad_scratch(const zr_kern_shape_t *shape, int n_workers) {
  (void)n_workers;
  const int64_t *attr = shape->attr;
  int64_t vocab = attr[ZR_EMBEDDING_VOCAB], pos_rows = attr[ZR_EMBEDDING_POS_ROWS];
  return ((vocab > pos_rows ? vocab : pos_rows) + attr[ZR_EMBEDDING_ROWS]) *
         (int64_t)sizeof(int32_t);
}

/* From the last row to the first, so that a list runs in increasing order. */
static void list_rows(embedding_t *e, int by_position, int32_t *scratch) {
  int32_t *next = scratch, *head = scratch + e->n_rows;
  memset(head, 0xff, (size_t)e->grad_rows * sizeof *head);
  for (int64_t t = e->n_rows - 1; t >= 0; t--) {
    int64_t v = by_position ? position(e, t) : e->tokens[t];
    next[t] = head[v];
    head[v] = (int32_t)t;
  }
  e->head = head;
  e->next = next;
}

/* The gradient that is operand `operand`, of `n` rows. */
static void grad_of(zr_kern_t *kern, const zr_kern_call_t *call, embedding_t *e, int operand,
                    int64_t n) {
  e->grad = call->operand[operand];
  e->sums = zr_cpu_rows_of(kern, call->shape, operand);
  e->grad_rows = n;
  e->accumulate = zr_cpu_accumulates(call->shape, operand);
  list_rows(e, operand == 3, call->operand[5]);
  zr_parallel_for(call->pool, zr_cpu_blocks(n, GRAD_ROWS) * n_across(e), grad_rows, e);
}

static zr_status_t grad_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  embedding_t e = embedding_of(kern, call);
  e.starts = call->operand[4];
  ZR_TRY(zr_cpu_check_indices(e.tokens, e.n_rows, 0, e.vocab));
  ZR_TRY(zr_cpu_check_starts(e.starts, e.n_rows, e.seq));
  if (e.n_rows > INT32_MAX)
    return zr_fail(ZR_ERR_UNSUPPORTED, "cpu: embedding_grad of more than 2^31 rows");
  if (e.pos_rows < zr_cpu_min(e.seq, e.n_rows) && call->operand[3] != NULL)
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "cpu: fewer rows of positions than a sample has");
  e.dy = call->operand[1];
  grad_of(kern, call, &e, 2, e.vocab);
  if (call->operand[3] != NULL) grad_of(kern, call, &e, 3, e.pos_rows);
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_embedding = {"embedding", -1, NULL, NULL, forward_run};
const zr_cpu_kind_t zr_cpu_embedding_grad = {"embedding_grad", 5, grad_scratch, NULL, grad_run};
