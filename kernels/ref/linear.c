/* Linear layers, both weight layouts. */
#include "kernels/ref/ref.h"

/* Strides of w: element (o, i) of the [out, in] matrix is w[o * by_out + i * by_in]. */
typedef struct {
  int64_t rows, n_in, n_out, ldx, ldy, by_out, by_in;
} linear_t;

static linear_t linear_of(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int io = attr[ZR_LINEAR_W_IO] != 0;
  return (linear_t){.rows = attr[ZR_LINEAR_ROWS],
                    .n_in = attr[ZR_LINEAR_IN],
                    .n_out = attr[ZR_LINEAR_OUT],
                    .ldx = attr[ZR_LINEAR_LDX],
                    .ldy = attr[ZR_LINEAR_LDY],
                    .by_out = io ? 1 : attr[ZR_LINEAR_IN],
                    .by_in = io ? attr[ZR_LINEAR_OUT] : 1};
}

zr_status_t ref_linear(const zr_kern_call_t *call) {
  linear_t l = linear_of(call);
  ref_view_t x = ref_view(call, 0), w = ref_view(call, 1); /* [rows, in] ldx */
  ref_view_t b = ref_view(call, 2), y = ref_view(call, 3); /* [out] or absent; [rows, out] ldy */
  for (int64_t t = 0; t < l.rows; t++)
    for (int64_t o = 0; o < l.n_out; o++) {
      ref_view_t row = ref_from(x, t * l.ldx);
      double value = ref_dot_by(row, 1, ref_from(w, o * l.by_out), l.by_in, l.n_in);
      if (b.data != NULL) value += ref_get(b, o);
      ref_set(y, t * l.ldy + o, value);
    }
  return ZR_OK;
}

zr_status_t ref_linear_grad_x(const zr_kern_call_t *call) {
  linear_t l = linear_of(call);
  ref_view_t dy = ref_view(call, 0), w = ref_view(call, 1); /* [rows, out] ldy */
  ref_view_t dx = ref_view(call, 2);                        /* [rows, in] ldx */
  for (int64_t t = 0; t < l.rows; t++)
    for (int64_t i = 0; i < l.n_in; i++) {
      ref_view_t row = ref_from(dy, t * l.ldy);
      double value = ref_dot_by(row, 1, ref_from(w, i * l.by_in), l.by_out, l.n_out);
      ref_put(dx, t * l.ldx + i, value, ref_accumulates(call, 2));
    }
  return ZR_OK;
}

zr_status_t ref_linear_grad_w(const zr_kern_call_t *call) {
  linear_t l = linear_of(call);
  ref_view_t x = ref_view(call, 0), dy = ref_view(call, 1); /* [rows, in] ldx; [rows, out] ldy */
  ref_view_t dw = ref_view(call, 2);
  for (int64_t o = 0; o < l.n_out; o++)
    for (int64_t i = 0; i < l.n_in; i++) {
      double value = ref_dot_by(ref_from(dy, o), l.ldy, ref_from(x, i), l.ldx, l.rows);
      ref_put(dw, o * l.by_out + i * l.by_in, value, ref_accumulates(call, 2));
    }
  return ZR_OK;
}

zr_status_t ref_linear_grad_b(const zr_kern_call_t *call) {
  linear_t l = linear_of(call);
  ref_view_t dy = ref_view(call, 0), db = ref_view(call, 1); /* [rows, out] ldy; [out] */
  for (int64_t o = 0; o < l.n_out; o++) {
    double value = 0;
    for (int64_t t = 0; t < l.rows; t++) value += ref_get(dy, t * l.ldy + o);
    ref_put(db, o, value, ref_accumulates(call, 1));
  }
  return ZR_OK;
}
