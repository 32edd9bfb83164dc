/* Cross-entropy of one row of logits, and its gradient in place. */
#ifndef ZR_KERNELS_CPU_ROWS_HEAD_INC_H
#define ZR_KERNELS_CPU_ROWS_HEAD_INC_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/vec.h"

static inline float head_max(const float *x, int64_t n) {
  vf top = v_set(-INFINITY);
  int64_t i = 0;
  for (; i + ZR_VEC <= n; i += ZR_VEC) top = v_max(v_load(x + i), top);
  float best = v_max_lane(top);
  for (; i < n; i++) best = x[i] > best ? x[i] : best;
  return best;
}

/* Replaces x by exp(x - top) and returns the sum, in double lanes. */
static inline double head_exp_sum(float *x, int64_t n, float top) {
  vd sum = {0};
  const vf shift = v_set(top);
  int64_t i = 0;
  for (; i + ZR_VEC <= n; i += ZR_VEC) {
    vf e = v_exp(v_load(x + i) - shift);
    v_store(x + i, e);
    sum = v_add_double(sum, e);
  }
  if (i < n) {
    vf e = v_first(v_exp(v_load_n(x + i, n - i) - shift), n - i);
    v_store_n(x + i, e, n - i);
    sum = v_add_double(sum, e);
  }
  return vd_sum(sum);
}

/* d loss / d logit of the row, from what head_exp_sum left in it. An element is written behind
 * where the next one is read. */
static inline void head_gradient(const zr_cpu_head_row_t *row, float scale) {
  float *x = row->logits;
  elem *d = (elem *)(void *)x;
  float target = x[row->target];
  int64_t i = 0;
  for (; i + ZR_VEC <= row->vocab; i += ZR_VEC) e_store(d + i, v_load(x + i) * scale);
  if (i < row->vocab) {
    int64_t n = row->vocab - i;
    e_store_n(d + i, v_load_n(x + i, n) * scale, n);
  }
  e_store_n(d + row->target, v_set(target * scale - row->inv_tokens), 1);
  memset(d + row->vocab, 0, (size_t)(row->vocab_padded - row->vocab) * sizeof *d);
}

static inline double head_row(const zr_cpu_head_row_t *row) {
  float *x = row->logits;
  if (row->target < 0) {
    if (row->grad) memset(x, 0, (size_t)row->vocab_padded * sizeof(elem));
    return 0;
  }
  float top = head_max(x, row->vocab);
  double wanted = x[row->target];
  double sum = head_exp_sum(x, row->vocab, top);
  if (row->grad) head_gradient(row, (float)((double)row->inv_tokens / sum));
  return (double)top + log(sum) - wanted;
}

#endif
