/* Causal attention by tiles of 64 queries x 64 keys (Dao 2023): scores never leave a worker's
 * scratch.
 *
 *   forward   one task for each (sequence, head, tile of queries), keys in increasing order
 *   backward  one task for each (sequence, KV head), which alone writes its dq, dk and dv:
 *             for each head of the group, each tile of queries i, each tile of keys j <= i
 *
 * Tiles hold scores as s[key][query]. Rows of qkv are [q heads | k heads | v heads]. */
#include <math.h>

#include "kernels/cpu/cpu.h"

enum { TILE = ZR_CPU_ATTENTION_TILE };

typedef struct {
  const zr_cpu_rows_t *rows; /* of the type of qkv, y and their gradients */
  const zr_cpu_rows_t *f32;
  int64_t batch, seq, heads, kv_heads, dim;
  int64_t window; /* keys that a query sees; 0: all */
  int64_t ld;     /* of qkv: (heads + 2 kv_heads) dim */
  int64_t ldy;    /* of y: heads dim */
  int64_t n_tiles;
  float scale;
  const int32_t *starts; /* [batch, seq]: the first key that a row sees; NULL: the sequence's */
  const void *qkv;
  void *y;
  float *lse;
  const void *y_in, *dy;
  const float *lse_in;
  void *dqkv;
  float *scratch;
  int64_t worker_elems;
} attention_t;

static attention_t attention_of(const zr_kern_t *kern, const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  attention_t a = {.rows = zr_cpu_rows_of(kern, call->shape, 0),
                   .f32 = zr_cpu_rows_f32(kern),
                   .batch = attr[ZR_ATTENTION_BATCH],
                   .seq = attr[ZR_ATTENTION_SEQ],
                   .heads = attr[ZR_ATTENTION_HEADS],
                   .kv_heads = attr[ZR_ATTENTION_KV_HEADS],
                   .dim = attr[ZR_ATTENTION_HEAD_DIM],
                   .window = attr[ZR_ATTENTION_WINDOW],
                   .scale = (float)call->shape->real,
                   .qkv = call->operand[0]};
  a.ld = (a.heads + 2 * a.kv_heads) * a.dim;
  a.ldy = a.heads * a.dim;
  a.n_tiles = zr_cpu_blocks(a.seq, TILE);
  return a;
}

/* Element offsets in qkv of the first row of tile `tile` of a sequence. */
static int64_t q_at(const attention_t *a, int64_t b, int64_t tile, int64_t head) {
  return (b * a->seq + tile * TILE) * a->ld + head * a->dim;
}
static int64_t k_at(const attention_t *a, int64_t b, int64_t tile, int64_t kv) {
  return q_at(a, b, tile, a->heads + kv);
}
static int64_t v_at(const attention_t *a, int64_t b, int64_t tile, int64_t kv) {
  return q_at(a, b, tile, a->heads + a->kv_heads + kv);
}
static int64_t y_at(const attention_t *a, int64_t b, int64_t tile, int64_t head) {
  return (b * a->seq + tile * TILE) * a->ldy + head * a->dim;
}

/* Of row `row` of sequence b. */
static int64_t first_key(const attention_t *a, int64_t b, int64_t row) {
  int64_t first = a->starts != NULL ? a->starts[b * a->seq + row] : 0;
  int64_t window = a->window > 0 ? row - a->window + 1 : 0;
  return first > window ? first : window;
}

/* The first tile of keys that tile `i` of queries sees. first[t]: the first key of its row t; past
 * the last row 0, so that no query is blind. */
static int64_t first_keys(const attention_t *a, int64_t b, int64_t i, int32_t first[TILE]) {
  int32_t least = INT32_MAX;
  for (int64_t t = 0; t < TILE; t++) {
    int64_t row = i * TILE + t;
    first[t] = row < a->seq ? (int32_t)first_key(a, b, row) : 0;
    if (row < a->seq && first[t] < least) least = first[t];
  }
  return least / TILE;
}

/* What queries of tile i see of tile j of keys. */
static zr_cpu_mask_t mask_of(int64_t i, int64_t j, const int32_t first[TILE]) {
  int32_t latest = 0;
  for (int64_t t = 0; t < TILE; t++) latest = first[t] > latest ? first[t] : latest;
  return (zr_cpu_mask_t){i == j, (int32_t)(j * TILE), latest > j * TILE ? first : NULL};
}

static int64_t tile_rows(const attention_t *a, int64_t tile) {
  return zr_cpu_min(TILE, a->seq - tile * TILE);
}

/* c[m][TILE] (+)= a b for a [m][k] with the strides given and b, c rows of TILE queries */
static void product(const attention_t *at, int64_t m, int64_t k, const float *a, int64_t a_row,
                    int64_t a_col, const float *b, float *c, int add) {
  zr_cpu_product_t p = {m, TILE, k, a, a_row, a_col, b, TILE, c, TILE, add};
  at->f32->product(&p);
}

/* A tile of `cols` numbers a row in fp32: where it lies, or converted to `copy`. */
typedef struct {
  const float *at;
  int64_t ld;
} tile_t;

static tile_t tile_of(const attention_t *a, int64_t n_rows, int64_t cols, const void *base,
                      int64_t first, int64_t ld, float *copy) {
  const void *from = zr_cpu_at_in(a->rows, base, first);
  if (a->rows == a->f32) return (tile_t){from, ld};
  for (int64_t t = 0; t < n_rows; t++)
    a->rows->widen(cols, zr_cpu_at_in(a->rows, from, t * ld), copy + t * cols);
  return (tile_t){copy, cols};
}

/* --- forward ------------------------------------------------------------------------------------
 */

/* Scratch of a worker: q^T and y^T [dim][TILE], s [TILE][TILE], max, sum, factor [TILE], a tile of
 * keys or values in fp32 [TILE][dim]. */
static int64_t forward_elems(int64_t dim) {
  return TILE * (3 * dim + TILE + 3);
}

static void forward_tile(void *context, int64_t task, int worker) {
  const attention_t *a = context;
  /* The longest rows of tiles first, so that the last tasks are short. */
  int64_t i = a->n_tiles - 1 - task / (a->batch * a->heads);
  int64_t b = task % (a->batch * a->heads) / a->heads, h = task % a->heads;
  int64_t kv = h / (a->heads / a->kv_heads), n_queries = tile_rows(a, i);
  float *q = a->scratch + worker * a->worker_elems, *y = q + a->dim * TILE;
  float *s = y + a->dim * TILE, *max = s + TILE * TILE, *sum = max + TILE, *factor = sum + TILE;
  float *copy = factor + TILE;
  a->rows->pack(n_queries, a->dim, zr_cpu_at_in(a->rows, a->qkv, q_at(a, b, i, h)), a->ld, a->scale,
                q);
  int32_t first[TILE];
  int64_t j0 = first_keys(a, b, i, first);
  for (int64_t j = j0; j <= i; j++) {
    int64_t n_keys = tile_rows(a, j);
    zr_cpu_mask_t mask = mask_of(i, j, first);
    tile_t k = tile_of(a, n_keys, a->dim, a->qkv, k_at(a, b, j, kv), a->ld, copy);
    product(a, n_keys, a->dim, k.at, k.ld, 1, q, s, 0);
    a->f32->softmax_tile(n_keys, j == j0, &mask, s, max, sum, factor);
    if (j > j0) a->f32->scale_tile(a->dim, factor, y);
    tile_t v = tile_of(a, n_keys, a->dim, a->qkv, v_at(a, b, j, kv), a->ld, copy);
    product(a, a->dim, n_keys, v.at, 1, v.ld, s, y, j > j0);
  }
  float *lse = a->lse + (b * a->seq + i * TILE) * a->heads + h;
  for (int64_t t = 0; t < TILE; t++) factor[t] = 1.0f / sum[t];
  for (int64_t t = 0; t < n_queries; t++) lse[t * a->heads] = max[t] + logf(sum[t]);
  a->rows->unpack(n_queries, a->dim, y, factor, zr_cpu_at(a->rows, a->y, y_at(a, b, i, h)), a->ldy);
}

static int64_t forward_scratch(const zr_kern_shape_t *shape, int n_workers) {
  return n_workers * forward_elems(shape->attr[ZR_ATTENTION_HEAD_DIM]) * (int64_t)sizeof(float);
}

static zr_status_t forward_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  attention_t a = attention_of(kern, call);
  a.y = call->operand[1];
  a.lse = call->operand[2];
  a.starts = call->operand[3];
  a.scratch = call->operand[4];
  ZR_TRY(zr_cpu_check_starts(a.starts, a.batch * a.seq, a.seq));
  a.worker_elems = forward_elems(a.dim);
  zr_parallel_for(call->pool, a.batch * a.heads * a.n_tiles, forward_tile, &a);
  return ZR_OK;
}

/* --- backward -----------------------------------------------------------------------------------
 */

/* Scratch of a worker: q^T, dy^T [dim][TILE], p, ds [TILE][TILE], lse, delta [TILE]. For 16-bit
 * types also fp32 tiles of q, k, v, dy, dq [TILE][dim], and dk, dv of all keys [n_tiles TILE][dim].
 */
static int64_t backward_elems(int64_t dim, int64_t n_tiles, int half) {
  return TILE * (2 * dim + 2 * TILE + 2) + (half ? TILE * dim * (5 + 2 * n_tiles) : 0);
}

typedef struct {
  float *q, *dy, *p, *ds, *lse, *delta;
  float *q_copy, *k_copy, *v_copy, *dy_copy, *dq, *dk, *dv;
  tile_t q_tile, dy_tile;
  int64_t j0;          /* first tile of keys */
  int32_t first[TILE]; /* keys */
} backward_scratch_t;

static backward_scratch_t backward_scratch_of(const attention_t *a, int worker) {
  backward_scratch_t s = {0};
  s.q = a->scratch + worker * a->worker_elems;
  s.dy = s.q + a->dim * TILE;
  s.p = s.dy + a->dim * TILE;
  s.ds = s.p + TILE * TILE;
  s.lse = s.ds + TILE * TILE;
  s.delta = s.lse + TILE;
  s.q_copy = s.delta + TILE;
  s.k_copy = s.q_copy + TILE * a->dim;
  s.v_copy = s.k_copy + TILE * a->dim;
  s.dy_copy = s.v_copy + TILE * a->dim;
  s.dq = s.dy_copy + TILE * a->dim;
  s.dk = s.dq + TILE * a->dim;
  s.dv = s.dk + a->n_tiles * TILE * a->dim;
  return s;
}

/* What depends on the queries alone: q^T scaled, dy^T, lse, and delta = y . dy. */
static void load_queries(const attention_t *a, int64_t b, int64_t h, int64_t i,
                         backward_scratch_t *s) {
  int64_t n = tile_rows(a, i), at = y_at(a, b, i, h), q = q_at(a, b, i, h);
  const float *lse = a->lse_in + (b * a->seq + i * TILE) * a->heads + h;
  const void *y = zr_cpu_at_in(a->rows, a->y_in, at), *dy = zr_cpu_at_in(a->rows, a->dy, at);
  a->rows->pack(n, a->dim, zr_cpu_at_in(a->rows, a->qkv, q), a->ld, a->scale, s->q);
  a->rows->pack(n, a->dim, dy, a->ldy, 1.0f, s->dy);
  for (int64_t t = 0; t < TILE; t++) {
    int64_t row = t * a->ldy;
    s->lse[t] = t < n ? lse[t * a->heads] : 0;
    s->delta[t] =
        t < n ? a->rows->dot(a->dim, zr_cpu_at_in(a->rows, y, row), zr_cpu_at_in(a->rows, dy, row))
              : 0;
  }
  s->j0 = first_keys(a, b, i, s->first);
  s->q_tile = tile_of(a, n, a->dim, a->qkv, q, a->ld, s->q_copy);
  s->dy_tile = tile_of(a, n, a->dim, a->dy, at, a->ldy, s->dy_copy);
}

/* Rows of a gradient, being summed in fp32: `at` of dqkv itself, or a tile of scratch. */
static tile_t sum_of(const attention_t *a, int64_t at, float *own) {
  if (a->rows == a->f32) return (tile_t){(const float *)a->dqkv + at, a->ld};
  return (tile_t){own, a->dim};
}

/* rows of out [m][dim] (+)= a[m][k] (rows of b [k][dim]) */
static void product_rows(const attention_t *at, int64_t m, int64_t k, const float *a, int64_t a_row,
                         int64_t a_col, tile_t b, tile_t out, int add) {
  zr_cpu_product_t p = {m,      at->dim, k, a, a_row, a_col, b.at, b.ld, (float *)(uintptr_t)out.at,
                        out.ld, add};
  at->f32->product(&p);
}

/* One tile. The first tile of queries that a tile of keys meets is its own, in the group's first
 * head: that one writes dk and dv, the others add. */
static void backward_tile(const attention_t *a, int64_t b, int64_t h, int64_t i, int64_t j,
                          const backward_scratch_t *s) {
  int64_t group = a->heads / a->kv_heads, kv = h / group, keys = j * TILE * a->dim;
  int64_t n_queries = tile_rows(a, i), n_keys = tile_rows(a, j);
  tile_t k = tile_of(a, n_keys, a->dim, a->qkv, k_at(a, b, j, kv), a->ld, s->k_copy);
  tile_t v = tile_of(a, n_keys, a->dim, a->qkv, v_at(a, b, j, kv), a->ld, s->v_copy);
  int add = h % group != 0 || i != j;
  zr_cpu_mask_t mask = mask_of(i, j, s->first);
  product(a, n_keys, a->dim, k.at, k.ld, 1, s->q, s->p, 0);
  product(a, n_keys, a->dim, v.at, v.ld, 1, s->dy, s->ds, 0);
  a->f32->softmax_tile_grad(n_keys, &mask, s->lse, s->delta, a->scale, s->p, s->ds);
  product_rows(a, n_keys, n_queries, s->p, TILE, 1, s->dy_tile,
               sum_of(a, v_at(a, b, j, kv), s->dv + keys), add);
  product_rows(a, n_keys, n_queries, s->ds, TILE, 1, s->q_tile,
               sum_of(a, k_at(a, b, j, kv), s->dk + keys), add);
  product_rows(a, n_queries, n_keys, s->ds, 1, TILE, k, sum_of(a, q_at(a, b, i, h), s->dq),
               j > s->j0);
}

/* Complete sums of n rows, rounded into dqkv from element `at` on. */
static void round_rows(const attention_t *a, int64_t n, const float *sum, int64_t at) {
  if (a->rows == a->f32) return;
  for (int64_t t = 0; t < n; t++)
    a->rows->round(a->dim, sum + t * a->dim, zr_cpu_at(a->rows, a->dqkv, at + t * a->ld));
}

static void backward_task(void *context, int64_t task, int worker) {
  const attention_t *a = context;
  int64_t b = task / a->kv_heads, kv = task % a->kv_heads, group = a->heads / a->kv_heads;
  backward_scratch_t s = backward_scratch_of(a, worker);
  for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
    for (int64_t i = 0; i < a->n_tiles; i++) {
      load_queries(a, b, h, i, &s);
      for (int64_t j = s.j0; j <= i; j++) backward_tile(a, b, h, i, j, &s);
      round_rows(a, tile_rows(a, i), s.dq, q_at(a, b, i, h));
    }
  }
  round_rows(a, a->seq, s.dk, k_at(a, b, 0, kv));
  round_rows(a, a->seq, s.dv, v_at(a, b, 0, kv));
}

static int64_t backward_worker_elems(const zr_kern_shape_t *shape) {
  const int64_t *attr = shape->attr;
  return backward_elems(attr[ZR_ATTENTION_HEAD_DIM], zr_cpu_blocks(attr[ZR_ATTENTION_SEQ], TILE),
                        zr_cpu_type(shape, 0) != ZR_CPU_F32);
}

static int64_t backward_scratch(const zr_kern_shape_t *shape, int n_workers) {
  return n_workers * backward_worker_elems(shape) * (int64_t)sizeof(float);
}

static zr_status_t backward_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  attention_t a = attention_of(kern, call);
  a.y_in = call->operand[1];
  a.lse_in = call->operand[2];
  a.dy = call->operand[3];
  a.dqkv = call->operand[4];
  a.starts = call->operand[5];
  a.scratch = call->operand[6];
  ZR_TRY(zr_cpu_check_starts(a.starts, a.batch * a.seq, a.seq));
  a.worker_elems = backward_worker_elems(call->shape);
  zr_parallel_for(call->pool, a.batch * a.kv_heads, backward_task, &a);
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_attention = {"attention", 4, forward_scratch, NULL, forward_run};
const zr_cpu_kind_t zr_cpu_attention_grad = {"attention_grad", 6, backward_scratch, NULL,
                                             backward_run};
