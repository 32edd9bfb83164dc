/* LayerNorm, RMSNorm and their gradients over a few rows. A row is read from memory once and then
 * again from cache. */
#ifndef ZR_KERNELS_CPU_ROWS_NORM_INC_H
#define ZR_KERNELS_CPU_ROWS_NORM_INC_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/vec.h"

static inline int64_t lanes_at(int64_t c, int64_t cols) {
  return cols - c < ZR_VEC ? cols - c : ZR_VEC;
}

static inline vf load_at(const elem *p, int64_t c, int64_t n) {
  return n == ZR_VEC ? e_load(p + c) : e_load_n(p + c, n);
}

static inline void store_at(elem *p, int64_t c, int64_t n, vf x) {
  if (n == ZR_VEC) {
    e_store(p + c, x);
  } else {
    e_store_n(p + c, x, n);
  }
}

/* Sums over rows are fp32. */
static inline vf sum_at(const float *sum, int64_t c, int64_t n) {
  return n == ZR_VEC ? v_load(sum + c) : v_load_n(sum + c, n);
}

static inline void put_sum_at(float *sum, int64_t c, int64_t n, vf x) {
  if (n == ZR_VEC) {
    v_store(sum + c, x);
  } else {
    v_store_n(sum + c, x, n);
  }
}

/* Sum of (x - shift)^power over a row, power 1 or 2, in two lanes' worth of partial sums. */
static inline float row_moment(const elem *x, int64_t cols, float shift, int squared) {
  vf even = v_set(0), odd = v_set(0);
  const vf by = v_set(shift);
  int64_t c = 0;
  for (; c + 2 * ZR_VEC <= cols; c += 2 * ZR_VEC) {
    vf a = e_load(x + c) - by, b = e_load(x + c + ZR_VEC) - by;
    even = squared ? v_fma(a, a, even) : even + a;
    odd = squared ? v_fma(b, b, odd) : odd + b;
  }
  for (; c < cols; c += ZR_VEC) {
    int64_t n = lanes_at(c, cols);
    vf a = v_first(load_at(x, c, n) - by, n);
    even = squared ? v_fma(a, a, even) : even + a;
  }
  return v_sum(even + odd);
}

static inline void norm_layernorm(const zr_cpu_norm_rows_t *r) {
  const float inverse = 1.0f / (float)r->cols;
  for (int64_t t = 0; t < r->n_rows; t++) {
    const elem *x = (const elem *)r->x + t * r->cols;
    elem *y = (elem *)r->y + t * r->cols;
    float mean = row_moment(x, r->cols, 0, 0) * inverse;
    float variance = row_moment(x, r->cols, mean, 1) * inverse;
    float rstd = 1.0f / sqrtf(variance + r->eps);
    const vf m = v_set(mean), s = v_set(rstd);
    for (int64_t c = 0; c < r->cols; c += ZR_VEC) {
      int64_t n = lanes_at(c, r->cols);
      vf xhat = (load_at(x, c, n) - m) * s;
      store_at(y, c, n, v_fma(xhat, load_at(r->w, c, n), load_at(r->b, c, n)));
    }
    r->stats[2 * t] = mean;
    r->stats[2 * t + 1] = rstd;
  }
}

static inline void norm_rmsnorm(const zr_cpu_norm_rows_t *r) {
  for (int64_t t = 0; t < r->n_rows; t++) {
    const elem *x = (const elem *)r->x + t * r->cols;
    elem *y = (elem *)r->y + t * r->cols;
    float rstd = 1.0f / sqrtf(row_moment(x, r->cols, 0, 1) / (float)r->cols + r->eps);
    const vf s = v_set(rstd);
    for (int64_t c = 0; c < r->cols; c += ZR_VEC) {
      int64_t n = lanes_at(c, r->cols);
      store_at(y, c, n, load_at(x, c, n) * s * load_at(r->w, c, n));
    }
    r->stats[t] = rstd;
  }
}

/* dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy w; without `mean` (rmsnorm) the middle term
 * and the shift of x are absent. dw += dy xhat, db += dy. */
static inline void norm_grad_row(const zr_cpu_norm_rows_t *r, int64_t t, float mean, float rstd,
                                 int centred) {
  const elem *x = (const elem *)r->x + t * r->cols, *dy = (const elem *)r->dy + t * r->cols;
  elem *dx = (elem *)r->dx + t * r->cols;
  const vf m = v_set(mean), s = v_set(rstd);
  vf sum_g = v_set(0), sum_gx = v_set(0);
  for (int64_t c = 0; c < r->cols; c += ZR_VEC) {
    int64_t n = lanes_at(c, r->cols);
    vf d = load_at(dy, c, n), xhat = (load_at(x, c, n) - m) * s;
    vf g = d * load_at(r->w, c, n); /* +0 beyond the tail, as dy and w are */
    if (centred) {
      sum_g += g;
      put_sum_at(r->db_part, c, n, sum_at(r->db_part, c, n) + d);
    }
    sum_gx = v_fma(g, xhat, sum_gx);
    put_sum_at(r->dw_part, c, n, v_fma(d, xhat, sum_at(r->dw_part, c, n)));
  }
  const vf mean_g = v_set(centred ? v_sum(sum_g) / (float)r->cols : 0);
  const vf mean_gx = v_set(v_sum(sum_gx) / (float)r->cols);
  for (int64_t c = 0; c < r->cols; c += ZR_VEC) {
    int64_t n = lanes_at(c, r->cols);
    vf xhat = (load_at(x, c, n) - m) * s;
    vf g = load_at(dy, c, n) * load_at(r->w, c, n) - mean_g;
    vf value = v_fma(-xhat, mean_gx, g) * s;
    store_at(dx, c, n, r->dx_add ? load_at(dx, c, n) + e_rounded(value) : value);
  }
}

static inline void norm_layernorm_grad(const zr_cpu_norm_rows_t *r) {
  memset(r->dw_part, 0, (size_t)r->cols * sizeof(float));
  memset(r->db_part, 0, (size_t)r->cols * sizeof(float));
  for (int64_t t = 0; t < r->n_rows; t++)
    norm_grad_row(r, t, r->stats_in[2 * t], r->stats_in[2 * t + 1], 1);
}

static inline void norm_rmsnorm_grad(const zr_cpu_norm_rows_t *r) {
  memset(r->dw_part, 0, (size_t)r->cols * sizeof(float));
  for (int64_t t = 0; t < r->n_rows; t++) norm_grad_row(r, t, 0, r->stats_in[t], 0);
}

#endif
