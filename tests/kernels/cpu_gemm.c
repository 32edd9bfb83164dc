/* Matrix products of the cpu backend at sizes where blocking, packing and piece edges matter: the
 * library and the row kernels agree, in all element types, and bits do not depend on threads,
 * addresses or neighbours. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/gemm.h"
#include "runtime/base/half.h"
#include "runtime/base/rng.h"
#include "tests/kernels/check.h"

typedef struct {
  const char *name;
  zr_cpu_gemm_shape_t shape;
} product_t;

static const product_t products[] = {
    {"x w^T", {130, 400, 300, 304, 1, 1, 300, 408, 0, 0}},
    {"dy w", {70, 500, 420, 420, 1, 500, 1, 500, 0, 0}},
    {"dy^T x", {530, 200, 140, 1, 530, 200, 1, 200, 0, 0}},
    {"inner indices pages apart", {150, 400, 300, 1, 1024, 2048, 1, 400, 0, 0}},
    {"those of B pages apart", {130, 200, 520, 520, 1, 1024, 1, 1024, 0, 0}},
    {"a row", {1, 800, 333, 333, 1, 1, 333, 800, 0, 0}},
    {"a column", {900, 1, 129, 129, 1, 1, 1, 1, 0, 0}},
    {"no inner index", {40, 50, 0, 1, 1, 50, 1, 50, 0, 0}},
    {"no rows", {0, 50, 10, 10, 1, 50, 1, 50, 0, 0}},
};
enum { N_PRODUCTS = sizeof products / sizeof products[0], GUARD = 16 };

typedef struct {
  float *a, *b, *c, *bias;
  int64_t n_a, n_b, n_c;
  char *scratch;
} memory_t;

static int64_t extent(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return rows > 0 && cols > 0 ? (rows - 1) * row + (cols - 1) * col + 1 : 0;
}

static float *numbers(int64_t n, uint64_t key, int64_t shift) {
  float *x = aligned_alloc(64, (size_t)(n + 64 + shift) * 4 / 64 * 64 + 64);
  assert_non_null(x);
  for (int64_t i = 0; i < n; i++) x[i + shift] = (float)(2 * zr_rng_uniform(key, (uint64_t)i) - 1);
  return x;
}

static memory_t memory_of(const zr_cpu_gemm_shape_t *s, int n_workers, int64_t shift) {
  memory_t m = {.n_a = extent(s->m, s->k, s->a_row, s->a_col),
                .n_b = extent(s->k, s->n, s->b_row, s->b_col),
                .n_c = extent(s->m, s->n, s->ldc, 1)};
  m.a = numbers(m.n_a, 1, shift);
  m.b = numbers(m.n_b, 2, shift);
  m.c = numbers(m.n_c + GUARD, 3, shift);
  m.bias = numbers(s->n, 4, shift);
  int64_t scratch = n_workers * zr_cpu_gemm_worker_bytes(s, 1);
  m.scratch = aligned_alloc(64, (size_t)scratch);
  assert_non_null(m.scratch);
  memset(m.scratch, 0xff, (size_t)scratch);
  return m;
}

static void free_memory(memory_t *m) {
  free(m->a);
  free(m->b);
  free(m->c);
  free(m->bias);
  free(m->scratch);
}

/* n floats become elements of the type, in place and from the start; and back. */
static void narrow(zr_cpu_type_t type, float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint16_t half = type == ZR_CPU_BF16 ? zr_bf16_from_f32(x[i]) : zr_f16_from_f32(x[i]);
    if (type != ZR_CPU_F32) memcpy((char *)x + 2 * i, &half, sizeof half);
  }
}

static void widen(zr_cpu_type_t type, float *x, int64_t n) {
  for (int64_t i = n - 1; i >= 0 && type != ZR_CPU_F32; i--) {
    uint16_t half;
    memcpy(&half, (char *)x + 2 * i, sizeof half);
    x[i] = type == ZR_CPU_BF16 ? zr_bf16_to_f32(half) : zr_f16_to_f32(half);
  }
}

static void narrow_all(const zr_cpu_gemm_shape_t *s, memory_t *m, int64_t shift) {
  narrow(s->ab, m->a + shift, m->n_a);
  narrow(s->ab, m->b + shift, m->n_b);
  narrow(s->ab, m->bias + shift, s->n);
  narrow(s->c, m->c + shift, m->n_c + GUARD);
}

typedef struct {
  const zr_cpu_rows_set_t *rows;
  zr_cpu_library_t *library;
  int n_threads, accumulate, bias;
  int64_t shift;
} how_t;

/* c starts as numbers(3); returns it, to be freed. */
static float *multiply(const zr_cpu_gemm_shape_t *s, how_t how) {
  zr_pool_t *pool = NULL;
  zr_cpu_gemm_t *gemm = NULL;
  memory_t m = memory_of(s, how.n_threads, how.shift);
  narrow_all(s, &m, how.shift);
  assert_int_equal(zr_pool_create(NULL, how.n_threads, &pool), ZR_OK);
  assert_int_equal(
      zr_cpu_gemm_create(NULL, how.library, how.rows, s, how.accumulate, how.n_threads, &gemm),
      ZR_OK);
  zr_cpu_gemm_call_t call = {.gemm = gemm,
                             .a = m.a + how.shift,
                             .b = m.b + how.shift,
                             .c = m.c + how.shift,
                             .bias = how.bias ? m.bias + how.shift : NULL,
                             .scratch = m.scratch,
                             .worker_bytes = zr_cpu_gemm_worker_bytes(s, how.accumulate)};
  assert_int_equal(zr_cpu_gemm_run(pool, &call), ZR_OK);
  float *c = malloc((size_t)(m.n_c + GUARD) * sizeof(float));
  memcpy(c, m.c + how.shift, (size_t)(m.n_c + GUARD) * sizeof(float));
  widen(s->c, c, m.n_c + GUARD);
  zr_cpu_gemm_destroy(gemm);
  zr_pool_destroy(pool);
  free_memory(&m);
  return c;
}

/* c (+)= a b + bias in double; the guard and the gaps of rows as they were. */
static float *expected(const zr_cpu_gemm_shape_t *s, how_t how) {
  memory_t m = memory_of(s, 1, 0);
  narrow_all(s, &m, 0);
  widen(s->ab, m.a, m.n_a);
  widen(s->ab, m.b, m.n_b);
  widen(s->ab, m.bias, s->n);
  widen(s->c, m.c, m.n_c + GUARD);
  for (int64_t i = 0; i < s->m; i++) {
    for (int64_t j = 0; j < s->n; j++) {
      double sum = 0;
      for (int64_t k = 0; k < s->k; k++)
        sum += (double)m.a[i * s->a_row + k * s->a_col] * (double)m.b[k * s->b_row + j * s->b_col];
      float *c = &m.c[i * s->ldc + j];
      float value = (float)sum;
      narrow(s->c, &value, how.accumulate);
      widen(s->c, &value, how.accumulate);
      *c = how.accumulate ? *c + value : value;
      if (how.bias) *c += m.bias[j];
    }
  }
  float *c = m.c;
  m.c = NULL;
  free_memory(&m);
  return c;
}

static int64_t n_elems(const zr_cpu_gemm_shape_t *s) {
  return extent(s->m, s->n, s->ldc, 1) + GUARD;
}

static void check_near(const product_t *p, how_t how) {
  float *c = multiply(&p->shape, how), *e = expected(&p->shape, how);
  for (int64_t i = 0; i < n_elems(&p->shape); i++) {
    static const double last_place[] = {0, 0x1p-8, 0x1p-11};
    double bound = 4e-6 * (sqrt((double)p->shape.k) + 2);
    /* accumulating rounds first a value that may be larger by what c was, the oracle to a neighbour
     */
    bound +=
        last_place[p->shape.c] * (1 + 2 * how.accumulate) * (fabs((double)e[i]) + how.accumulate);
    if (!(fabs((double)c[i] - (double)e[i]) <= bound))
      fail_msg("%s (types %d, %d; accumulate %d, bias %d): element %lld is %g, not %g", p->name,
               (int)p->shape.ab, (int)p->shape.c, how.accumulate, how.bias, (long long)i,
               (double)c[i], (double)e[i]);
  }
  free(c);
  free(e);
}

static void check_same(const product_t *p, how_t how, how_t other) {
  float *c = multiply(&p->shape, how), *o = multiply(&p->shape, other);
  if (memcmp(c, o, (size_t)n_elems(&p->shape) * sizeof(float)) != 0)
    fail_msg("%s: %d threads, shift %lld: other bits", p->name, other.n_threads,
             (long long)other.shift);
  free(c);
  free(o);
}

/* Of A and B, and of C. */
static const zr_cpu_type_t types[][2] = {{ZR_CPU_F32, ZR_CPU_F32},
                                         {ZR_CPU_BF16, ZR_CPU_BF16},
                                         {ZR_CPU_BF16, ZR_CPU_F32},
                                         {ZR_CPU_F16, ZR_CPU_F16}};
enum { N_TYPES = sizeof types / sizeof types[0] };

static void check_all(how_t how) {
  for (int i = 0; i < N_PRODUCTS; i++) {
    for (int variant = 0; variant < 3; variant++) {
      how.accumulate = variant == 1;
      how.bias = variant == 2;
      how_t threads = how, moved = how;
      threads.n_threads = 3;
      moved.shift = 3;
      for (int t = 0; t < N_TYPES; t++) {
        product_t p = products[i];
        p.shape.ab = types[t][0];
        p.shape.c = types[t][1];
        check_near(&p, how);
        check_same(&p, how, threads);
        check_same(&p, how, moved);
      }
    }
  }
}

#define ROWS(set) \
  { &zr_cpu_rows_##set, &zr_cpu_rows_bf16_##set, &zr_cpu_rows_f16_##set }
static const zr_cpu_rows_set_t baseline = ROWS(baseline), avx2 = ROWS(avx2), avx512 = ROWS(avx512);

static void row_kernels(void **state) {
  (void)state;
  check_all((how_t){&baseline, NULL, 1, 0, 0, 0});
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    check_all((how_t){&avx2, NULL, 1, 0, 0, 0});
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    check_all((how_t){&avx512, NULL, 1, 0, 0, 0});
}

static void library(void **state) {
  (void)state;
  zr_cpu_library_t *library = NULL;
  assert_int_equal(zr_cpu_library_open(NULL, ZR_CPU_AVX512, &library), ZR_OK);
  if (library == NULL) assert_int_equal(zr_cpu_library_open(NULL, ZR_CPU_AVX2, &library), ZR_OK);
  if (library == NULL) skip();
  check_all((how_t){&baseline, library, 1, 0, 0, 0});
  zr_cpu_library_close(library);
}

static void cuts_follow_the_shape(void **state) {
  (void)state;
  const int64_t sizes[] = {1, 7, 64, 100, 256, 768, 1000, 2304, 50304};
  for (int i = 0; i < 9; i++) {
    for (int j = 0; j < 9; j++) {
      zr_cpu_gemm_shape_t s = {.m = sizes[i], .n = sizes[j], .k = 64};
      zr_cpu_gemm_cut_t cut = zr_cpu_gemm_cut(&s);
      assert_in_range(cut.rows, 1, 512);
      assert_in_range(cut.cols, 1, 384);
      assert_true((cut.n_down - 1) * cut.rows < s.m && cut.n_down * cut.rows >= s.m);
      assert_true((cut.n_across - 1) * cut.cols < s.n && cut.n_across * cut.cols >= s.n);
      if (s.m >= 256 && s.n >= 768) assert_true(cut.n_down * cut.n_across >= 8);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(row_kernels),
      cmocka_unit_test(library),
      cmocka_unit_test(cuts_follow_the_shape),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
