/* Element by element. */
#include <math.h>

#include "kernels/ref/ref.h"

static const double gelu_scale = 0.79788456080286535588; /* sqrt(2 / pi) */
static const double gelu_cubic = 0.044715;

/* act(x), and its slope. */
typedef struct {
  double y, slope;
} act_t;

static act_t gelu_tanh(double a) {
  double t = tanh(gelu_scale * (a + gelu_cubic * a * a * a));
  double inner = gelu_scale * (1 + 3 * gelu_cubic * a * a);
  return (act_t){0.5 * a * (1 + t), 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * inner};
}

static act_t gelu_erf(double a) {
  double below = 0.5 * erfc(-a * sqrt(0.5)); /* of the normal distribution */
  return (act_t){a * below, below + a * 0.5 * gelu_scale * exp(-0.5 * a * a)};
}

static act_t silu(double a) {
  double sigmoid = 1 / (1 + exp(-a));
  return (act_t){a * sigmoid, sigmoid * (1 + a * (1 - sigmoid))};
}

static act_t act_of(int act, double a) {
  switch (act) {
    case ZR_ACT_GELU_TANH:
      return gelu_tanh(a);
    case ZR_ACT_GELU_ERF:
      return gelu_erf(a);
    case ZR_ACT_SILU:
      return silu(a);
    default: /* relu; a NaN stays */
      return (act_t){a < 0 ? 0 : a, a > 0 ? 1 : 0};
  }
}

zr_status_t ref_gelu(const zr_kern_call_t *call) {
  ref_view_t x = ref_view(call, 0), y = ref_view(call, 1);
  int act = zr_kern_act(call->shape);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++)
    ref_set(y, i, act_of(act, ref_get(x, i)).y);
  return ZR_OK;
}

zr_status_t ref_gelu_grad(const zr_kern_call_t *call) {
  ref_view_t x = ref_view(call, 0), dy = ref_view(call, 1), dx = ref_view(call, 2);
  int act = zr_kern_act(call->shape);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++)
    ref_set(dx, i, ref_get(dy, i) * act_of(act, ref_get(x, i)).slope);
  return ZR_OK;
}

zr_status_t ref_swiglu(const zr_kern_call_t *call) {
  ref_view_t gate = ref_view(call, 0), up = ref_view(call, 1), y = ref_view(call, 2);
  int act = zr_kern_act(call->shape);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++)
    ref_set(y, i, act_of(act, ref_get(gate, i)).y * ref_get(up, i));
  return ZR_OK;
}

zr_status_t ref_swiglu_grad(const zr_kern_call_t *call) {
  ref_view_t gate = ref_view(call, 0), up = ref_view(call, 1), dy = ref_view(call, 2);
  ref_view_t dgate = ref_view(call, 3), dup = ref_view(call, 4);
  int kind = zr_kern_act(call->shape);
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) {
    act_t act = act_of(kind, ref_get(gate, i));
    double g = ref_get(dy, i);
    double u = ref_get(up, i); /* read before the writes: outputs may be inputs' buffers */
    ref_set(dgate, i, g * u * act.slope);
    ref_set(dup, i, g * act.y);
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
