/* The head: linear and cross-entropy. An oracle needs no chunks: it keeps one row of logits, or one
 * column of gradients, at a time, in double. */
#include <math.h>

#include "kernels/control.h"
#include "kernels/ref/ref.h"

typedef struct {
  int64_t rows, hidden, vocab, vocab_padded;
  ref_view_t x, w;       /* [rows, hidden], [vocab_padded, hidden] */
  const int32_t *target; /* [rows] */
  double *loss;          /* [rows] */
  double *lse;           /* [rows], scratch */
  double *slope;         /* [max(rows, vocab_padded)], scratch */
} xent_t;

static xent_t xent_of(const zr_kern_call_t *call, int loss, int scratch) {
  const int64_t *attr = call->shape->attr;
  xent_t h = {.rows = attr[ZR_HEAD_ROWS],
              .hidden = attr[ZR_HEAD_HIDDEN],
              .vocab = attr[ZR_HEAD_VOCAB],
              .vocab_padded = attr[ZR_HEAD_VOCAB_PADDED],
              .x = ref_view(call, 0),
              .w = ref_view(call, 1),
              .target = call->operand[2],
              .loss = call->operand[loss],
              .lse = call->operand[scratch]};
  h.slope = h.lse + h.rows;
  return h;
}

static double logit(const xent_t *h, int64_t t, int64_t v) {
  return ref_dot(ref_from(h->x, t * h->hidden), ref_from(h->w, v * h->hidden), h->hidden);
}

/* loss[t], lse[t], and the row's logits in slope[0 .. vocab). */
static void xent_row(const xent_t *h, int64_t t) {
  double top = -INFINITY, sum = 0;
  h->loss[t] = 0;
  h->lse[t] = 0;
  if (h->target[t] < 0) return;
  for (int64_t v = 0; v < h->vocab; v++) {
    h->slope[v] = logit(h, t, v);
    top = fmax(top, h->slope[v]);
  }
  for (int64_t v = 0; v < h->vocab; v++) sum += exp(h->slope[v] - top);
  h->lse[t] = top + log(sum);
  h->loss[t] = h->lse[t] - h->slope[h->target[t]];
}

/* d loss[t] / d logit v */
static double xent_slope(const xent_t *h, int64_t t, int64_t v, double value) {
  if (h->target[t] < 0 || v >= h->vocab) return 0;
  return exp(value - h->lse[t]) - (v == h->target[t] ? 1 : 0);
}

zr_status_t ref_head_eval(const zr_kern_call_t *call) {
  xent_t h = xent_of(call, 3, 4);
  ZR_TRY(ref_check_indices(h.target, h.rows, INT32_MIN, h.vocab));
  for (int64_t t = 0; t < h.rows; t++) xent_row(&h, t);
  return ZR_OK;
}

static void head_grad_w(const zr_kern_call_t *call, const xent_t *h, double scale) {
  ref_view_t dw = ref_view(call, 6);
  for (int64_t v = 0; v < h->vocab_padded; v++) {
    for (int64_t t = 0; t < h->rows; t++)
      h->slope[t] = v < h->vocab ? scale * xent_slope(h, t, v, logit(h, t, v)) : 0;
    for (int64_t i = 0; i < h->hidden; i++) {
      double value = 0;
      if (v < h->vocab) /* padded columns are masked: +0 whatever x holds */
        for (int64_t t = 0; t < h->rows; t++)
          if (h->target[t] >= 0) value += h->slope[t] * ref_get(h->x, t * h->hidden + i);
      ref_put(dw, v * h->hidden + i, value, ref_accumulates(call, 6));
    }
  }
}

zr_status_t ref_head_loss(const zr_kern_call_t *call) {
  xent_t h = xent_of(call, 4, 7);
  double scale = (double)((const zr_control_t *)call->operand[3])->inv_tokens;
  ref_view_t dx = ref_view(call, 5);
  ZR_TRY(ref_check_indices(h.target, h.rows, INT32_MIN, h.vocab));
  for (int64_t t = 0; t < h.rows; t++) {
    xent_row(&h, t);
    for (int64_t v = 0; v < h.vocab; v++) h.slope[v] = scale * xent_slope(&h, t, v, h.slope[v]);
    for (int64_t i = 0; i < h.hidden; i++) {
      double value = 0;
      if (h.target[t] >= 0)
        for (int64_t v = 0; v < h.vocab; v++) value += h.slope[v] * ref_get(h.w, v * h.hidden + i);
      ref_set(dx, t * h.hidden + i, value);
    }
  }
  head_grad_w(call, &h, scale);
  return ZR_OK;
}
