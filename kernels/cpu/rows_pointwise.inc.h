/* Pointwise row kernels: add, accumulate, fill, gelu, swiglu, rope, sums of columns. Each element's
 * bits depend on that element alone: a tail goes through the same vector operations. */
#ifndef ZR_KERNELS_CPU_ROWS_POINTWISE_INC_H
#define ZR_KERNELS_CPU_ROWS_POINTWISE_INC_H

#include "kernels/cpu/vec.h"

/* Runs `body` with `LOAD(p)` and `STORE(p, x)` of elements bound to whole vectors, then
 * once for the tail. */
#define FOR_EACH_VECTOR(n, body)             \
  do {                                       \
    int64_t i = 0;                           \
    for (; i + ZR_VEC <= (n); i += ZR_VEC) { \
      const int64_t lanes = ZR_VEC;          \
      (void)lanes;                           \
      body(e_load, e_store)                  \
    }                                        \
    if (i < (n)) {                           \
      const int64_t lanes = (n)-i;           \
      body(load_tail, store_tail)            \
    }                                        \
  } while (0)
#define load_tail(p) e_load_n(p, lanes)
#define store_tail(p, x) e_store_n(p, x, lanes)
/* fp32 beside the elements. */
#define FLOATS(p) (lanes == ZR_VEC ? v_load(p) : v_load_n(p, lanes))
#define PUT_FLOATS(p, x) (lanes == ZR_VEC ? v_store(p, x) : v_store_n(p, x, lanes))

static inline void row_widen(int64_t n, const void *src, float *dst) {
  const elem *x = src;
#define BODY(LOAD, STORE) PUT_FLOATS(dst + i, LOAD(x + i));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

static inline void row_round(int64_t n, const float *src, void *dst) {
  elem *y = dst;
#define BODY(LOAD, STORE) STORE(y + i, FLOATS(src + i));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

/* What is added is rounded first: a sum of leaves has the same bits whoever adds them. */
static inline void row_round_add(int64_t n, const float *src, void *dst) {
  elem *y = dst;
#define BODY(LOAD, STORE) STORE(y + i, LOAD(y + i) + e_rounded(FLOATS(src + i)));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

static inline void row_widen_add(int64_t n, const void *src, float *dst) {
  const elem *x = src;
#define BODY(LOAD, STORE) PUT_FLOATS(dst + i, FLOATS(dst + i) + LOAD(x + i));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

static inline void row_add(int64_t n, const void *a_, const void *b_, void *y_) {
  const elem *a = a_, *b = b_;
  elem *y = y_;
#define BODY(LOAD, STORE) STORE(y + i, LOAD(a + i) + LOAD(b + i));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

static inline void row_accumulate(int64_t n, const void *src_, void *dst_) {
  const elem *src = src_;
  elem *dst = dst_;
#define BODY(LOAD, STORE) STORE(dst + i, LOAD(dst + i) + LOAD(src + i));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

static inline void row_fill(int64_t n, float value, void *dst_) {
  elem *dst = dst_;
  const vf x = v_set(value);
#define BODY(LOAD, STORE) STORE(dst + i, x);
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

/* gelu(x) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): 0.5 (1 + tanh u) is the sigmoid.
 */
static inline vf gelu_argument(vf x) {
  vf inner = v_fma(x * x, v_set(0.044715f), v_set(1.0f));
  return x * inner * v_set(1.5957691216057308f);
}

static inline void row_gelu(int64_t n, const void *x_, void *y_) {
  const elem *x = x_;
  elem *y = y_;
#define BODY(LOAD, STORE) \
  vf v = LOAD(x + i);     \
  STORE(y + i, v * v_sigmoid(gelu_argument(v)));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

/* s + x s (1 - s) 2 u'; s (1 - s) is 0 long before x^2 could overflow into NaN. */
static inline vf gelu_slope(vf x) {
  v_sigmoids_t y = v_sigmoids(gelu_argument(x));
  vf bounded = v_min(v_set(1e6f), v_max(v_set(-1e6f), x));
  vf du2 = v_fma(bounded * bounded, v_set(0.21406444881780076f), v_set(1.5957691216057308f));
  return v_fma(bounded * y.s * y.rest, du2, y.s);
}

static inline void row_gelu_grad(int64_t n, const void *x_, const void *dy_, void *dx_) {
  const elem *x = x_, *dy = dy_;
  elem *dx = dx_;
#define BODY(LOAD, STORE) STORE(dx + i, LOAD(dy + i) * gelu_slope(LOAD(x + i)));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

static inline void row_swiglu(int64_t n, const void *gate_, const void *up_, void *y_) {
  const elem *gate = gate_, *up = up_;
  elem *y = y_;
#define BODY(LOAD, STORE) \
  vf g = LOAD(gate + i);  \
  STORE(y + i, g * v_sigmoid(g) * LOAD(up + i));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

/* silu'(g) = s (1 + g (1 - s)) */
static inline void row_swiglu_grad(int64_t n, const void *gate_, const void *up_, const void *dy_,
                                   void *dgate_, void *dup_) {
  const elem *gate = gate_, *up = up_, *dy = dy_;
  elem *dgate = dgate_, *dup = dup_;
#define BODY(LOAD, STORE)                                          \
  vf g = LOAD(gate + i), u = LOAD(up + i), d = LOAD(dy + i);       \
  v_sigmoids_t s = v_sigmoids(g);                                  \
  STORE(dgate + i, d * u * (s.s * v_fma(g, s.rest, v_set(1.0f)))); \
  STORE(dup + i, d * (g * s.s));
  FOR_EACH_VECTOR(n, BODY);
#undef BODY
}

static inline void row_column_sum(int64_t n_rows, int64_t cols, const void *x_, int64_t ldx,
                                  float *sum) {
  const elem *x = x_;
  for (int64_t c = 0; c < cols; c += ZR_VEC) {
    int64_t n = cols - c < ZR_VEC ? cols - c : ZR_VEC;
    vf total = v_set(0);
    for (int64_t r = 0; r < n_rows; r++) {
      const elem *p = x + r * ldx + c;
      total += n == ZR_VEC ? e_load(p) : e_load_n(p, n);
    }
    v_store_n(sum + c, total, n);
  }
}

static inline void row_rope(int64_t heads, int64_t half, const float *cosine, const float *sine,
                            void *row) {
  for (int64_t h = 0; h < heads; h++) {
    elem *a = (elem *)row + h * 2 * half, *b = a + half;
#define BODY(LOAD, STORE)                          \
  vf c = FLOATS(cosine + i), s = FLOATS(sine + i); \
  vf lo = LOAD(a + i), hi = LOAD(b + i);           \
  STORE(a + i, lo * c - hi * s);                   \
  STORE(b + i, hi * c + lo * s);
    FOR_EACH_VECTOR(half, BODY);
#undef BODY
  }
}

#endif
