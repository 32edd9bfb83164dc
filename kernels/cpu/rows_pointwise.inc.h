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

/* An activation, and its slope: act_NAME alone is what the forward stores. */
typedef struct {
  vf y, slope;
} v_act_t;

/* gelu(x) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): 0.5 (1 + tanh u) is the sigmoid.
 */
static inline vf gelu_argument(vf x) {
  vf inner = v_fma(x * x, v_set(0.044715f), v_set(1.0f));
  return x * inner * v_set(1.5957691216057308f);
}

static inline vf act_gelu_tanh(vf x) {
  return x * v_sigmoid(gelu_argument(x));
}

/* s + x s (1 - s) 2 u'; s (1 - s) is 0 long before x^2 could overflow into NaN. */
static inline v_act_t both_gelu_tanh(vf x) {
  v_sigmoids_t y = v_sigmoids(gelu_argument(x));
  vf bounded = v_min(v_set(1e6f), v_max(v_set(-1e6f), x));
  vf du2 = v_fma(bounded * bounded, v_set(0.21406444881780076f), v_set(1.5957691216057308f));
  return (v_act_t){x * y.s, v_fma(bounded * y.s * y.rest, du2, y.s)};
}

/* The normal distribution: what is below x, and the density at x. Below 0 it is e^(-x^2 / 2) t
 * P(t), t = 1 / (1 + 0.3 |x|), P fitted to a relative error of 4e-9; e^(-x^2 / 2) with what
 * rounding x^2 leaves. In all a relative error below 5e-7, of small tails too where products are
 * fused. */
typedef struct {
  vf below, density;
} v_normal_t;

static inline v_normal_t v_normal(vf x) {
  vf a = v_min(v_set(20.0f), (vf)((vi)x & INT32_MAX)); /* a NaN stays */
  vf square = a * a, rest = v_fma(a, a, -square);
  vf e = v_exp(square * -0.5f);
  e = v_fma(e, rest * -0.5f, e);
  vf t = 1.0f / v_fma(a, v_set(0.3f), v_set(1.0f));
  vf p = v_fma(t, v_set(-0.0206234641f), v_set(0.112435587f));
  p = v_fma(p, t, v_set(-0.228213549f));
  p = v_fma(p, t, v_set(0.191784456f));
  p = v_fma(p, t, v_set(-0.0794234276f));
  p = v_fma(p, t, v_set(0.0961567983f));
  p = v_fma(p, t, v_set(0.0783896595f));
  p = v_fma(p, t, v_set(0.110235423f));
  p = v_fma(p, t, v_set(0.119571812f));
  p = v_fma(p, t, v_set(0.119686693f));
  vf tail = e * t * p;
  return (v_normal_t){v_select((vi)x >> 31, tail, 1.0f - tail), e * 0.3989422804014327f};
}

static inline vf act_gelu_erf(vf x) {
  return x * v_normal(x).below;
}

static inline v_act_t both_gelu_erf(vf x) {
  v_normal_t normal = v_normal(x);
  vf bounded = v_min(v_set(1e6f), v_max(v_set(-1e6f), x));
  return (v_act_t){x * normal.below, v_fma(bounded, normal.density, normal.below)};
}

static inline vf act_silu(vf x) {
  return x * v_sigmoid(x);
}

/* silu'(x) = s (1 + x (1 - s)) */
static inline v_act_t both_silu(vf x) {
  v_sigmoids_t s = v_sigmoids(x);
  return (v_act_t){x * s.s, s.s * v_fma(x, s.rest, v_set(1.0f))};
}

static inline vf act_relu(vf x) {
  return v_max(v_set(0), x); /* a NaN stays */
}

static inline v_act_t both_relu(vf x) {
  return (v_act_t){act_relu(x), v_select(x > 0.0f, v_set(1.0f), v_set(0))};
}

#define GELU_BODY(LOAD, STORE) STORE(y + i, ACT(LOAD(x + i)));
#define GELU_GRAD_BODY(LOAD, STORE) STORE(dx + i, LOAD(dy + i) * BOTH(LOAD(x + i)).slope);
#define SWIGLU_BODY(LOAD, STORE) STORE(y + i, ACT(LOAD(gate + i)) * LOAD(up + i));
#define SWIGLU_GRAD_BODY(LOAD, STORE)                        \
  vf g = LOAD(gate + i), u = LOAD(up + i), d = LOAD(dy + i); \
  v_act_t act = BOTH(g);                                     \
  STORE(dgate + i, d * u * act.slope);                       \
  STORE(dup + i, d * act.y);

/* The rows of gelu and swiglu with one activation. */
#define ACT_ROWS(name)                                                                             \
  static inline void row_gelu_##name(int64_t n, const void *x_, void *y_) {                        \
    const elem *x = x_;                                                                            \
    elem *y = y_;                                                                                  \
    FOR_EACH_VECTOR(n, GELU_BODY);                                                                 \
  }                                                                                                \
  static inline void row_gelu_grad_##name(int64_t n, const void *x_, const void *dy_, void *dx_) { \
    const elem *x = x_, *dy = dy_;                                                                 \
    elem *dx = dx_;                                                                                \
    FOR_EACH_VECTOR(n, GELU_GRAD_BODY);                                                            \
  }                                                                                                \
  static inline void row_swiglu_##name(int64_t n, const void *gate_, const void *up_, void *y_) {  \
    const elem *gate = gate_, *up = up_;                                                           \
    elem *y = y_;                                                                                  \
    FOR_EACH_VECTOR(n, SWIGLU_BODY);                                                               \
  }                                                                                                \
  static inline void row_swiglu_grad_##name(int64_t n, const void *gate_, const void *up_,         \
                                            const void *dy_, void *dgate_, void *dup_) {           \
    const elem *gate = gate_, *up = up_, *dy = dy_;                                                \
    elem *dgate = dgate_, *dup = dup_;                                                             \
    FOR_EACH_VECTOR(n, SWIGLU_GRAD_BODY);                                                          \
  }

#define ACT act_gelu_tanh
#define BOTH both_gelu_tanh
ACT_ROWS(gelu_tanh)
#undef ACT
#undef BOTH
#define ACT act_gelu_erf
#define BOTH both_gelu_erf
ACT_ROWS(gelu_erf)
#undef ACT
#undef BOTH
#define ACT act_silu
#define BOTH both_silu
ACT_ROWS(silu)
#undef ACT
#undef BOTH
#define ACT act_relu
#define BOTH both_relu
ACT_ROWS(relu)
#undef ACT
#undef BOTH

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
