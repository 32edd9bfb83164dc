/* Rotary positions and causal attention with grouped KV heads. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/rope_frequency.h"

zr_status_t ref_rope_table(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t half = attr[ZR_ROPE_HEAD_DIM] / 2;
  ref_view_t table = ref_view(call, 0); /* [seq, half, 2] */
  for (int64_t p = 0; p < attr[ZR_ROPE_SEQ]; p++)
    for (int64_t i = 0; i < half; i++) {
      double angle = (double)p * zr_rope_frequency(call->shape, i);
      ref_set(table, (p * half + i) * 2, cos(angle));
      ref_set(table, (p * half + i) * 2 + 1, sin(angle));
    }
  return ZR_OK;
}

zr_status_t ref_rope(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t half = attr[ZR_ROPE_HEAD_DIM] / 2;
  double sign = attr[ZR_ROPE_INVERSE] ? -1 : 1;
  for (int64_t t = 0; t < attr[ZR_ROPE_ROWS]; t++) {
    ref_view_t turn = ref_from(ref_view(call, 0), t % attr[ZR_ROPE_SEQ] * half * 2);
    for (int64_t h = 0; h < attr[ZR_ROPE_HEADS]; h++) {
      ref_view_t x =
          ref_from(ref_view(call, 1), t * attr[ZR_ROPE_LDX] + h * attr[ZR_ROPE_HEAD_DIM]);
      for (int64_t i = 0; i < half; i++) {
        double c = ref_get(turn, 2 * i), s = sign * ref_get(turn, 2 * i + 1);
        double a = ref_get(x, i), b = ref_get(x, i + half);
        ref_set(x, i, a * c - b * s);
        ref_set(x, i + half, b * c + a * s);
      }
    }
  }
  return ZR_OK;
}

/* Where one head of one sequence lies in qkv (and in dqkv: the same offsets). */
typedef struct {
  int64_t seq, heads, kv_heads, dim, window;
  int64_t ld;            /* of a row of qkv */
  int64_t q, k, v;       /* offsets of row 0 of this sequence's head */
  int64_t y;             /* offset of row 0 in y, whose rows are heads x dim long */
  int64_t lse;           /* offset of row 0 in lse, whose rows are `heads` long */
  const int32_t *starts; /* of the sequence's rows, or NULL */
} head_t;

static head_t head_at(const zr_kern_call_t *call, const int32_t *starts, int64_t batch,
                      int64_t head) {
  const int64_t *attr = call->shape->attr;
  head_t at = {.seq = attr[ZR_ATTENTION_SEQ],
               .heads = attr[ZR_ATTENTION_HEADS],
               .kv_heads = attr[ZR_ATTENTION_KV_HEADS],
               .dim = attr[ZR_ATTENTION_HEAD_DIM],
               .window = attr[ZR_ATTENTION_WINDOW]};
  int64_t row = batch * at.seq, kv = head / (at.heads / at.kv_heads);
  at.ld = (at.heads + 2 * at.kv_heads) * at.dim;
  at.q = row * at.ld + head * at.dim;
  at.k = row * at.ld + (at.heads + kv) * at.dim;
  at.v = row * at.ld + (at.heads + at.kv_heads + kv) * at.dim;
  at.y = (row * at.heads + head) * at.dim;
  at.lse = row * at.heads + head;
  at.starts = starts == NULL ? NULL : starts + row;
  return at;
}

/* The first key that row t sees; the last is its own. */
static int64_t first_key(const head_t *at, int64_t t) {
  int64_t first = at->starts != NULL ? at->starts[t] : 0;
  return at->window > 0 && t - at->window + 1 > first ? t - at->window + 1 : first;
}

static zr_status_t check_starts(const zr_kern_call_t *call, const int32_t *starts) {
  const int64_t *attr = call->shape->attr;
  return ref_check_starts(starts, attr[ZR_ATTENTION_BATCH] * attr[ZR_ATTENTION_SEQ],
                          attr[ZR_ATTENTION_SEQ]);
}

zr_status_t ref_attention(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  ref_view_t qkv = ref_view(call, 0), y = ref_view(call, 1), lse = ref_view(call, 2);
  const int32_t *starts = call->operand[3];
  double *score = call->operand[4]; /* [seq] */
  ZR_TRY(check_starts(call, starts));
  for (int64_t n = 0; n < attr[ZR_ATTENTION_BATCH] * attr[ZR_ATTENTION_HEADS]; n++) {
    head_t at = head_at(call, starts, n / attr[ZR_ATTENTION_HEADS], n % attr[ZR_ATTENTION_HEADS]);
    for (int64_t t = 0; t < at.seq; t++) {
      double top = -INFINITY, sum = 0;
      int64_t first = first_key(&at, t);
      for (int64_t j = first; j <= t; j++) {
        ref_view_t q = ref_from(qkv, at.q + t * at.ld), k = ref_from(qkv, at.k + j * at.ld);
        score[j] = call->shape->real * ref_dot(q, k, at.dim);
        top = fmax(top, score[j]);
      }
      for (int64_t j = first; j <= t; j++) sum += score[j] = exp(score[j] - top);
      for (int64_t d = 0; d < at.dim; d++) {
        double value = 0;
        for (int64_t j = first; j <= t; j++) value += score[j] * ref_get(qkv, at.v + j * at.ld + d);
        ref_set(y, at.y + t * at.heads * at.dim + d, value / sum);
      }
      ref_set(lse, at.lse + t * at.heads, top + log(sum));
    }
  }
  return ZR_OK;
}

/* One head's backward: p = exp(scale q.k - lse), ds = p (dy.v - dy.y) scale;
 * dq = sum_j ds k;  dk += ds q;  dv += p dy, the last two into doubles shared by the group. */
static void attention_grad_head(const zr_kern_call_t *call, head_t at, double *dk, double *dv,
                                double *ds) {
  ref_view_t qkv = ref_view(call, 0), y = ref_view(call, 1), lse = ref_view(call, 2);
  ref_view_t dy = ref_view(call, 3), dqkv = ref_view(call, 4);
  for (int64_t t = 0; t < at.seq; t++) {
    ref_view_t q = ref_from(qkv, at.q + t * at.ld);
    ref_view_t dy_t = ref_from(dy, at.y + t * at.heads * at.dim);
    double delta = ref_dot(dy_t, ref_from(y, at.y + t * at.heads * at.dim), at.dim);
    int64_t first = first_key(&at, t);
    for (int64_t j = first; j <= t; j++) {
      ref_view_t k = ref_from(qkv, at.k + j * at.ld), v = ref_from(qkv, at.v + j * at.ld);
      double score = call->shape->real * ref_dot(q, k, at.dim);
      double p = exp(score - ref_get(lse, at.lse + t * at.heads));
      ds[j] = p * (ref_dot(dy_t, v, at.dim) - delta) * call->shape->real;
      for (int64_t d = 0; d < at.dim; d++) {
        dk[j * at.dim + d] += ds[j] * ref_get(q, d);
        dv[j * at.dim + d] += p * ref_get(dy_t, d);
      }
    }
    for (int64_t d = 0; d < at.dim; d++) {
      double value = 0;
      for (int64_t j = first; j <= t; j++) value += ds[j] * ref_get(qkv, at.k + j * at.ld + d);
      ref_set(dqkv, at.q + t * at.ld + d, value);
    }
  }
}

zr_status_t ref_attention_grad(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t n_kv = attr[ZR_ATTENTION_KV_HEADS], group = attr[ZR_ATTENTION_HEADS] / n_kv;
  int64_t seq = attr[ZR_ATTENTION_SEQ], elems = seq * attr[ZR_ATTENTION_HEAD_DIM];
  const int32_t *starts = call->operand[5];
  double *dk = call->operand[6], *dv = dk + elems, *ds = dv + elems;
  ZR_TRY(check_starts(call, starts));
  ref_view_t dqkv = ref_view(call, 4);
  for (int64_t n = 0; n < attr[ZR_ATTENTION_BATCH] * n_kv; n++) {
    head_t at = {0};
    for (int64_t i = 0; i < 2 * elems; i++) dk[i] = 0;
    for (int64_t g = 0; g < group; g++) {
      at = head_at(call, starts, n / n_kv, n % n_kv * group + g);
      attention_grad_head(call, at, dk, dv, ds);
    }
    for (int64_t t = 0; t < seq; t++)
      for (int64_t d = 0; d < at.dim; d++) {
        ref_set(dqkv, at.k + t * at.ld + d, dk[t * at.dim + d]);
        ref_set(dqkv, at.v + t * at.ld + d, dv[t * at.dim + d]);
      }
  }
  return ZR_OK;
}
