#include "kernels/cpu/gemm.h"

#include <stdatomic.h>
#include <string.h>

/* Scratch of a product, for the library (oneDNN's blocked product asks for about 260 KiB, its other
 * one for none) or for the row kernels, which pack B into panels of K_BLOCK x PANEL. A piece that
 * is added lies behind it. */
enum { PRODUCT_BYTES = 512 * 1024, PANEL = ZR_CPU_ATTENTION_TILE, K_BLOCK = 128 };
/* Where nothing multiplies 16-bit elements, blocks of A and B of so many inner indices are
 * converted to fp32 in scratch, and their products added up in increasing order: the same blocks
 * for any pool. So are fp32 operands whose inner indices lie pages apart, which all fall into the
 * same few lines of the cache, where the library reads them in place. */
enum { WIDE_K = 256, PAGE_ELEMS = 1024 };
_Static_assert(PANEL *K_BLOCK * sizeof(float) <= PRODUCT_BYTES, "a panel fits");

/* Pieces are this large, or smaller until there are MIN_PIECES: enough for a few threads. */
enum { PIECE_ROWS = 512, PIECE_COLS = 384, MIN_PIECES = 8, MIN_ROWS = 64, MIN_COLS = 96 };

struct zr_cpu_gemm_t {
  zr_alloc_t *alloc;
  zr_cpu_library_t *library;
  const zr_cpu_rows_set_t *rows;
  zr_cpu_gemm_shape_t shape;
  zr_cpu_gemm_cut_t cut;
  int accumulate;
  int staged; /* pieces are made in scratch, with rows cut.cols apart, then added or rounded */
  int packs_a, packs_b; /* in blocks; neither: the piece is one product */
  int n_workers;
  /* [last row of pieces][last column of pieces]; NULL: blocks, or row kernels */
  zr_cpu_product_prim_t *prim[2][2];
  zr_cpu_product_prim_t *block_prim[2][2][2]; /* ... [last inner block]; NULL: row kernels */
};

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Near-equal pieces of at most `most`, a multiple of 16. */
static int64_t balanced(int64_t total, int64_t most) {
  int64_t n = ceil_div(total, most);
  return n <= 1 ? total : min_of(most, ceil_div(ceil_div(total, n), 16) * 16);
}

zr_cpu_gemm_cut_t zr_cpu_gemm_cut(const zr_cpu_gemm_shape_t *s) {
  zr_cpu_gemm_cut_t cut = {0};
  if (s->m == 0 || s->n == 0) return cut;
  int64_t rows = min_of(PIECE_ROWS, s->m), cols = min_of(PIECE_COLS, s->n);
  while (ceil_div(s->m, rows) * ceil_div(s->n, cols) < MIN_PIECES) {
    int wide = cols >= 2 * MIN_COLS, tall = rows >= 2 * MIN_ROWS;
    if (!wide && !tall) break;
    if (wide && (!tall || cols >= rows)) {
      cols = ceil_div(cols, 2);
    } else {
      rows = ceil_div(rows, 2);
    }
  }
  cut.rows = balanced(s->m, rows);
  cut.cols = balanced(s->n, cols);
  cut.n_down = ceil_div(s->m, cut.rows);
  cut.n_across = ceil_div(s->n, cut.cols);
  return cut;
}

static int64_t piece_bytes(const zr_cpu_gemm_cut_t *cut) {
  return ceil_div(cut->rows * cut->cols * (int64_t)sizeof(float), 64) * 64;
}

static int is_staged(const zr_cpu_gemm_shape_t *shape, int accumulate) {
  return accumulate || shape->c != ZR_CPU_F32;
}

static int collides(int64_t k_stride) {
  return k_stride != 0 && k_stride % PAGE_ELEMS == 0;
}
static int may_pack_a(const zr_cpu_gemm_shape_t *shape) {
  return shape->ab != ZR_CPU_F32 || collides(shape->a_col);
}
static int may_pack_b(const zr_cpu_gemm_shape_t *shape) {
  return shape->ab != ZR_CPU_F32 || collides(shape->b_row);
}

/* Scratch of a worker: of the product | blocks of A, of B in fp32 | piece */
static int64_t a_block_bytes(const zr_cpu_gemm_shape_t *shape, const zr_cpu_gemm_cut_t *cut) {
  return may_pack_a(shape) ? cut->rows * WIDE_K * (int64_t)sizeof(float) : 0;
}
static int64_t b_block_bytes(const zr_cpu_gemm_shape_t *shape, const zr_cpu_gemm_cut_t *cut) {
  return may_pack_b(shape) ? cut->cols * WIDE_K * (int64_t)sizeof(float) : 0;
}
static int64_t product_bytes(const zr_cpu_gemm_shape_t *shape, const zr_cpu_gemm_cut_t *cut) {
  return PRODUCT_BYTES + a_block_bytes(shape, cut) + b_block_bytes(shape, cut);
}

int64_t zr_cpu_gemm_worker_bytes(const zr_cpu_gemm_shape_t *shape, int accumulate) {
  zr_cpu_gemm_cut_t cut = zr_cpu_gemm_cut(shape);
  return product_bytes(shape, &cut) + (is_staged(shape, accumulate) ? piece_bytes(&cut) : 0);
}

static int64_t last(int64_t total, int64_t piece, int64_t n) {
  return total - (n - 1) * piece;
}

static int64_t piece_rows(const zr_cpu_gemm_t *g, int edge) {
  return edge ? last(g->shape.m, g->cut.rows, g->cut.n_down) : g->cut.rows;
}

static int64_t piece_cols(const zr_cpu_gemm_t *g, int edge) {
  return edge ? last(g->shape.n, g->cut.cols, g->cut.n_across) : g->cut.cols;
}

static int64_t piece_ldc(const zr_cpu_gemm_t *g) {
  return g->staged ? g->cut.cols : g->shape.ldc;
}

/* The fp32 product of one inner block of a piece; packed blocks lie as A and B do, without gaps. */
static zr_cpu_gemm_shape_t block_shape(const zr_cpu_gemm_t *g, int64_t m, int64_t n, int64_t k) {
  zr_cpu_gemm_shape_t block = g->shape;
  block.m = m;
  block.n = n;
  block.k = k;
  block.ldc = piece_ldc(g);
  block.ab = block.c = ZR_CPU_F32;
  if (g->packs_a) {
    block.a_row = g->shape.a_col == 1 ? k : 1;
    block.a_col = g->shape.a_col == 1 ? 1 : m;
  }
  if (g->packs_b) {
    block.b_row = g->shape.b_col == 1 ? n : 1;
    block.b_col = g->shape.b_col == 1 ? 1 : k;
  }
  return block;
}

static int is_blocked(const zr_cpu_gemm_t *g) {
  return g->packs_a || g->packs_b;
}
static int is_packed_fp32(const zr_cpu_gemm_t *g) {
  return is_blocked(g) && g->shape.ab == ZR_CPU_F32;
}

static zr_status_t make_piece(zr_cpu_gemm_t *g, int i, int j) {
  zr_cpu_gemm_shape_t piece = g->shape;
  piece.m = piece_rows(g, i);
  piece.n = piece_cols(g, j);
  piece.ldc = piece_ldc(g);
  if (!is_packed_fp32(g)) {
    ZR_TRY(zr_cpu_library_prepare(g->library, &piece, 0, product_bytes(&g->shape, &g->cut),
                                  g->n_workers, &g->prim[i][j]));
  }
  if (g->prim[i][j] != NULL || !is_blocked(g)) return ZR_OK;
  int64_t n_blocks = ceil_div(g->shape.k, WIDE_K);
  for (int end = n_blocks == 1; end < 2; end++) {
    int64_t k = end ? last(g->shape.k, WIDE_K, n_blocks) : WIDE_K;
    zr_cpu_gemm_shape_t block = block_shape(g, piece.m, piece.n, k);
    ZR_TRY(zr_cpu_library_prepare(g->library, &block, 1, PRODUCT_BYTES, g->n_workers,
                                  &g->block_prim[i][j][end]));
  }
  return ZR_OK;
}

static zr_status_t make_prims(zr_cpu_gemm_t *g) {
  if (g->library == NULL || g->cut.n_down == 0 || g->shape.k == 0) return ZR_OK;
  for (int i = g->cut.n_down == 1; i < 2; i++)
    for (int j = g->cut.n_across == 1; j < 2; j++) ZR_TRY(make_piece(g, i, j));
  return ZR_OK;
}

zr_status_t zr_cpu_gemm_create(zr_alloc_t *alloc, zr_cpu_library_t *library,
                               const zr_cpu_rows_set_t *rows, const zr_cpu_gemm_shape_t *shape,
                               int accumulate, int n_workers, zr_cpu_gemm_t **out_gemm) {
  zr_cpu_gemm_t *g = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *g, &g));
  g->alloc = alloc;
  g->library = library;
  g->rows = rows;
  g->shape = *shape;
  g->cut = zr_cpu_gemm_cut(shape);
  g->accumulate = accumulate;
  g->staged = is_staged(shape, accumulate);
  g->n_workers = n_workers;
  int packs = shape->ab != ZR_CPU_F32 || zr_cpu_library_reads_in_place(library);
  g->packs_a = packs && may_pack_a(shape);
  g->packs_b = packs && may_pack_b(shape);
  zr_status_t status = make_prims(g);
  if (status != ZR_OK) {
    zr_cpu_gemm_destroy(g);
    return status;
  }
  *out_gemm = g;
  return ZR_OK;
}

void zr_cpu_gemm_destroy(zr_cpu_gemm_t *g) {
  if (g == NULL) return;
  for (int i = 0; i < 8; i++) {
    if (i < 4) zr_cpu_library_release(g->library, g->prim[i / 2][i % 2]);
    zr_cpu_library_release(g->library, g->block_prim[i / 4][i / 2 % 2][i % 2]);
  }
  zr_alloc_free(g->alloc, g);
}

/* panel[k][j] = B[k0 + k][j0 + j], +0 for the columns that B lacks */
static void pack_panel(const zr_cpu_rows_t *rows, const zr_cpu_gemm_shape_t *s, const float *b,
                       int64_t n_k, int64_t n_cols, float *panel) {
  if (s->b_row == 1) {
    rows->pack(n_cols, n_k, b, s->b_col, 1.0f, panel);
    return;
  }
  for (int64_t k = 0; k < n_k; k++) {
    memcpy(panel + k * PANEL, b + k * s->b_row, (size_t)n_cols * sizeof(float));
  }
}

/* s->m x s->n sums by the row kernels; each runs over k in increasing order, whatever the blocks.
 * add: it continues the sum in c. */
static void plain_piece(const zr_cpu_rows_t *rows, const zr_cpu_gemm_shape_t *s, const float *a,
                        const float *b, float *c, float *panel, int add) {
  for (int64_t k = 0; k < s->k; k += K_BLOCK) {
    int64_t n_k = min_of(K_BLOCK, s->k - k);
    for (int64_t j = 0; j < s->n; j += PANEL) {
      int64_t n_cols = min_of(PANEL, s->n - j);
      pack_panel(rows, s, b + k * s->b_row + j * s->b_col, n_k, n_cols, panel);
      zr_cpu_product_t product = {s->m,  n_cols, n_k,   a + k * s->a_col, s->a_row,    s->a_col,
                                  panel, PANEL,  c + j, s->ldc,           add || k > 0};
      rows->product(&product);
    }
  }
}

typedef struct {
  const zr_cpu_gemm_call_t *call;
  _Atomic int status;
  char detail[ZR_DETAIL_BYTES]; /* of the first failure; written by the worker that set `status` */
} run_t;

static void fail_once(run_t *run, zr_status_t status) {
  int ok = ZR_OK;
  if (atomic_compare_exchange_strong(&run->status, &ok, status)) {
    strncpy(run->detail, zr_detail(), sizeof run->detail - 1);
  }
}

/* One piece of the output. */
typedef struct {
  const zr_cpu_gemm_t *g;
  int edge_m, edge_n, worker;
  int64_t m, n;
  const char *a, *b;
  char *c;
  const char *bias; /* or NULL */
  char *scratch;
  float *sums; /* the product: in scratch, or C */
} piece_t;

/* What follows the product: bias, and the sum or rounding into C. */
static void finish_piece(const piece_t *p) {
  const zr_cpu_gemm_t *g = p->g;
  const zr_cpu_rows_t *ab = (*g->rows)[g->shape.ab], *c = (*g->rows)[g->shape.c];
  if (p->bias == NULL && !g->staged) return;
  for (int64_t i = 0; i < p->m; i++) {
    float *sums = p->sums + i * piece_ldc(g);
    if (p->bias != NULL) ab->add_bias(p->n, p->bias, sums);
    if (!g->staged) continue;
    void *row = p->c + i * g->shape.ldc * c->elem_bytes;
    (g->accumulate ? c->round_add : c->round)(p->n, sums, row);
  }
}

/* An outer x inner block with rows ld apart becomes fp32 without gaps. */
static void widen_block(const zr_cpu_rows_t *rows, int64_t outer, int64_t inner, int64_t ld,
                        const char *src, float *dst) {
  for (int64_t i = 0; i < outer; i++)
    rows->widen(inner, src + i * ld * rows->elem_bytes, dst + i * inner);
}

static zr_status_t wide_block(const piece_t *p, int64_t at, int64_t k, float *a, float *b) {
  const zr_cpu_gemm_t *g = p->g;
  const zr_cpu_gemm_shape_t *s = &g->shape;
  const zr_cpu_rows_t *ab = (*g->rows)[s->ab];
  zr_cpu_gemm_shape_t block = block_shape(g, p->m, p->n, k);
  const char *from_a = p->a + at * s->a_col * ab->elem_bytes;
  const char *from_b = p->b + at * s->b_row * ab->elem_bytes;
  if (g->packs_a && s->a_col == 1) widen_block(ab, p->m, k, s->a_row, from_a, a);
  if (g->packs_a && s->a_col != 1) widen_block(ab, k, p->m, s->a_col, from_a, a);
  if (g->packs_b && s->b_col == 1) widen_block(ab, k, p->n, s->b_row, from_b, b);
  if (g->packs_b && s->b_col != 1) widen_block(ab, p->n, k, s->b_col, from_b, b);
  const void *block_a = g->packs_a ? (const void *)a : from_a;
  const void *block_b = g->packs_b ? (const void *)b : from_b;
  const zr_cpu_product_prim_t *prim = g->block_prim[p->edge_m][p->edge_n][at + k == s->k];
  if (prim != NULL)
    return zr_cpu_library_run(g->library, prim, p->worker, block_a, block_b, p->sums, p->scratch);
  plain_piece((*g->rows)[ZR_CPU_F32], &block, block_a, block_b, p->sums, (void *)p->scratch, 1);
  return ZR_OK;
}

static void clear_sums(const piece_t *p) {
  for (int64_t i = 0; i < p->m; i++)
    memset(p->sums + i * piece_ldc(p->g), 0, (size_t)p->n * sizeof(float));
}

static zr_status_t multiply(const piece_t *p) {
  const zr_cpu_gemm_t *g = p->g;
  const zr_cpu_product_prim_t *prim = g->prim[p->edge_m][p->edge_n];
  if (prim != NULL)
    return zr_cpu_library_run(g->library, prim, p->worker, p->a, p->b, p->sums, p->scratch);
  if (g->shape.k == 0 || is_blocked(g)) clear_sums(p);
  if (!is_blocked(g)) {
    zr_cpu_gemm_shape_t whole = g->shape;
    whole.m = p->m;
    whole.n = p->n;
    whole.ldc = piece_ldc(g);
    plain_piece((*g->rows)[ZR_CPU_F32], &whole, (const void *)p->a, (const void *)p->b, p->sums,
                (void *)p->scratch, 0);
    return ZR_OK;
  }
  float *a = (float *)(void *)(p->scratch + PRODUCT_BYTES);
  float *b = a + a_block_bytes(&g->shape, &g->cut) / (int64_t)sizeof(float);
  for (int64_t k = 0; k < g->shape.k; k += WIDE_K)
    ZR_TRY(wide_block(p, k, min_of(WIDE_K, g->shape.k - k), a, b));
  return ZR_OK;
}

static void run_piece(void *context, int64_t task, int worker) {
  run_t *run = context;
  const zr_cpu_gemm_call_t *call = run->call;
  const zr_cpu_gemm_t *g = call->gemm;
  const int64_t ab_bytes = (*g->rows)[g->shape.ab]->elem_bytes;
  const int64_t c_bytes = (*g->rows)[g->shape.c]->elem_bytes;
  int64_t down = task % g->cut.n_down, across = task / g->cut.n_down;
  int64_t i = down * g->cut.rows, j = across * g->cut.cols;
  piece_t p = {.g = g,
               .edge_m = down == g->cut.n_down - 1,
               .edge_n = across == g->cut.n_across - 1,
               .worker = worker,
               .a = (const char *)call->a + i * g->shape.a_row * ab_bytes,
               .b = (const char *)call->b + j * g->shape.b_col * ab_bytes,
               .c = (char *)call->c + (i * g->shape.ldc + j) * c_bytes,
               .bias = call->bias == NULL ? NULL : (const char *)call->bias + j * ab_bytes,
               .scratch = call->scratch + worker * call->worker_bytes};
  p.m = piece_rows(g, p.edge_m);
  p.n = piece_cols(g, p.edge_n);
  char *sums = g->staged ? p.scratch + product_bytes(&g->shape, &g->cut) : p.c;
  p.sums = (float *)(void *)sums;
  zr_status_t status = multiply(&p);
  if (status != ZR_OK) fail_once(run, status);
  finish_piece(&p);
}

zr_status_t zr_cpu_gemm_run(zr_pool_t *pool, const zr_cpu_gemm_call_t *call) {
  const zr_cpu_gemm_t *g = call->gemm;
  if (zr_pool_n_workers(pool) > g->n_workers) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "cpu: a product made for %d workers runs on %d",
                   g->n_workers, zr_pool_n_workers(pool));
  }
  run_t run = {.call = call};
  zr_parallel_for(pool, g->cut.n_down * g->cut.n_across, run_piece, &run);
  if (run.status != ZR_OK) return zr_fail(run.status, "%s", run.detail);
  return ZR_OK;
}
