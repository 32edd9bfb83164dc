#include "kernels/cpu/gemm.h"

#include <stdatomic.h>
#include <string.h>

/* Scratch of a product, for the library (oneDNN's blocked product asks for about 260 KiB, its other
 * one for none) or for the row kernels, which pack B into panels of K_BLOCK x PANEL. A piece that
 * is added lies behind it. */
enum { PRODUCT_BYTES = 512 * 1024, PANEL = ZR_CPU_ATTENTION_TILE, K_BLOCK = 128 };
_Static_assert(PANEL *K_BLOCK * sizeof(float) <= PRODUCT_BYTES, "a panel fits");

/* Pieces are this large, or smaller until there are MIN_PIECES: enough for a few threads. */
enum { PIECE_ROWS = 512, PIECE_COLS = 384, MIN_PIECES = 8, MIN_ROWS = 64, MIN_COLS = 96 };

struct zr_cpu_gemm_t {
  zr_alloc_t *alloc;
  zr_cpu_library_t *library;
  const zr_cpu_rows_t *rows;
  zr_cpu_gemm_shape_t shape;
  zr_cpu_gemm_cut_t cut;
  int accumulate; /* pieces are made in scratch, with rows cut.cols apart, and added */
  int n_workers;
  zr_cpu_product_prim_t *prim[2][2]; /* [last row of pieces][last column of pieces]; NULL: rows */
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

int64_t zr_cpu_gemm_worker_bytes(const zr_cpu_gemm_shape_t *shape, int accumulate) {
  zr_cpu_gemm_cut_t cut = zr_cpu_gemm_cut(shape);
  return PRODUCT_BYTES + (accumulate ? piece_bytes(&cut) : 0);
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

static zr_status_t make_prims(zr_cpu_gemm_t *g) {
  if (g->library == NULL || g->cut.n_down == 0 || g->shape.k == 0) return ZR_OK;
  for (int i = g->cut.n_down == 1; i < 2; i++) {
    for (int j = g->cut.n_across == 1; j < 2; j++) {
      zr_cpu_gemm_shape_t piece = g->shape;
      piece.m = piece_rows(g, i);
      piece.n = piece_cols(g, j);
      piece.ldc = g->accumulate ? g->cut.cols : g->shape.ldc;
      ZR_TRY(
          zr_cpu_library_prepare(g->library, &piece, PRODUCT_BYTES, g->n_workers, &g->prim[i][j]));
    }
  }
  return ZR_OK;
}

zr_status_t zr_cpu_gemm_create(zr_alloc_t *alloc, zr_cpu_library_t *library,
                               const zr_cpu_rows_t *rows, const zr_cpu_gemm_shape_t *shape,
                               int accumulate, int n_workers, zr_cpu_gemm_t **out_gemm) {
  zr_cpu_gemm_t *g = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *g, &g));
  g->alloc = alloc;
  g->library = library;
  g->rows = rows;
  g->shape = *shape;
  g->cut = zr_cpu_gemm_cut(shape);
  g->accumulate = accumulate;
  g->n_workers = n_workers;
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
  for (int i = 0; i < 4; i++) zr_cpu_library_release(g->library, g->prim[i / 2][i % 2]);
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

/* One piece by the row kernels; each sum runs over k in increasing order, whatever the blocks. */
static void plain_piece(const zr_cpu_gemm_t *g, int64_t m, int64_t n, const float *a,
                        const float *b, float *c, int64_t ldc, float *panel) {
  const zr_cpu_gemm_shape_t *s = &g->shape;
  if (s->k == 0) {
    for (int64_t i = 0; i < m; i++) g->rows->fill(n, 0, c + i * ldc);
  }
  for (int64_t k = 0; k < s->k; k += K_BLOCK) {
    int64_t n_k = min_of(K_BLOCK, s->k - k);
    for (int64_t j = 0; j < n; j += PANEL) {
      int64_t n_cols = min_of(PANEL, n - j);
      pack_panel(g->rows, s, b + k * s->b_row + j * s->b_col, n_k, n_cols, panel);
      zr_cpu_product_t product = {
          m, n_cols, n_k, a + k * s->a_col, s->a_row, s->a_col, panel, PANEL, c + j, ldc, k > 0};
      g->rows->product(&product);
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

/* What follows the product: the sum into c, or the bias. */
static void finish_piece(const zr_cpu_gemm_t *g, int64_t m, int64_t n, const float *product,
                         const float *bias, float *c) {
  for (int64_t i = 0; i < m; i++) {
    float *row = c + i * g->shape.ldc;
    if (g->accumulate) g->rows->accumulate(n, product + i * g->cut.cols, row);
    if (bias != NULL) g->rows->add(n, row, bias, row);
  }
}

static void run_piece(void *context, int64_t task, int worker) {
  run_t *run = context;
  const zr_cpu_gemm_call_t *call = run->call;
  const zr_cpu_gemm_t *g = call->gemm;
  int64_t down = task % g->cut.n_down, across = task / g->cut.n_down;
  int edge_m = down == g->cut.n_down - 1, edge_n = across == g->cut.n_across - 1;
  int64_t m = piece_rows(g, edge_m), n = piece_cols(g, edge_n);
  int64_t i = down * g->cut.rows, j = across * g->cut.cols;
  const float *a = call->a + i * g->shape.a_row, *b = call->b + j * g->shape.b_col;
  float *c = call->c + i * g->shape.ldc + j;
  char *scratch = call->scratch + worker * call->worker_bytes;
  float *out = g->accumulate ? (float *)(scratch + PRODUCT_BYTES) : c;
  const zr_cpu_product_prim_t *prim = g->prim[edge_m][edge_n];
  if (prim != NULL) {
    zr_status_t status = zr_cpu_library_run(g->library, prim, worker, a, b, out, scratch);
    if (status != ZR_OK) fail_once(run, status);
  } else {
    int64_t ldc = g->accumulate ? g->cut.cols : g->shape.ldc;
    plain_piece(g, m, n, a, b, out, ldc, (float *)scratch);
  }
  finish_piece(g, m, n, out, call->bias == NULL ? NULL : call->bias + j, c);
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
