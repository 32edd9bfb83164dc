/* Element by element. */
#include <math.h>

#include "kernels/ref/ref.h"

static const double gelu_scale = 0.79788456080286535588; /* sqrt(2 / pi) */
static const double gelu_cubic = 0.044715;

zr_status_t ref_gelu(const zr_kern_call_t *call) {
  ref_view_t x = ref_view(call, 0), y = ref_view(call, 1);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) {
    double a = ref_get(x, i);
    ref_set(y, i, 0.5 * a * (1 + tanh(gelu_scale * (a + gelu_cubic * a * a * a))));
  }
  return ZR_OK;
}

zr_status_t ref_gelu_grad(const zr_kern_call_t *call) {
  ref_view_t x = ref_view(call, 0), dy = ref_view(call, 1), dx = ref_view(call, 2);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) {
    double a = ref_get(x, i);
    double t = tanh(gelu_scale * (a + gelu_cubic * a * a * a));
    double slope = gelu_scale * (1 + 3 * gelu_cubic * a * a);
    ref_set(dx, i, ref_get(dy, i) * (0.5 * (1 + t) + 0.5 * a * (1 - t * t) * slope));
  }
  return ZR_OK;
}

zr_status_t ref_swiglu(const zr_kern_call_t *call) {
  ref_view_t gate = ref_view(call, 0), up = ref_view(call, 1), y = ref_view(call, 2);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++)
    ref_set(y, i, ref_get(gate, i) / (1 + exp(-ref_get(gate, i))) * ref_get(up, i));
  return ZR_OK;
}

zr_status_t ref_swiglu_grad(const zr_kern_call_t *call) {
  ref_view_t gate = ref_view(call, 0), up = ref_view(call, 1), dy = ref_view(call, 2);
  ref_view_t dgate = ref_view(call, 3), dup = ref_view(call, 4);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) {
    double a = ref_get(gate, i), sigmoid = 1 / (1 + exp(-a)), g = ref_get(dy, i);
    double slope = sigmoid * (1 + a * (1 - sigmoid));
    double u = ref_get(up, i); /* read before the writes: outputs may be inputs' buffers */
    ref_set(dgate, i, g * u * slope);
    ref_set(dup, i, g * a * sigmoid);
  }
  return ZR_OK;
}

zr_status_t ref_add(const zr_kern_call_t *call) {
  ref_view_t a = ref_view(call, 0), b = ref_view(call, 1), y = ref_view(call, 2);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++)
    ref_set(y, i, ref_sum(y.dtype, ref_get(a, i), ref_get(b, i)));
  return ZR_OK;
}

zr_status_t ref_fill(const zr_kern_call_t *call) {
  ref_view_t dst = ref_view(call, 0);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++)
    ref_set(dst, i, (double)(float)call->shape->real);
  return ZR_OK;
}

zr_status_t ref_accumulate(const zr_kern_call_t *call) {
  ref_view_t src = ref_view(call, 0), dst = ref_view(call, 1);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) ref_put(dst, i, ref_get(src, i), 1);
  return ZR_OK;
}
