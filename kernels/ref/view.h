/* An operand as the oracle sees it: elements of any real type, loaded to double and rounded to the
 * type where they are stored. Rounding goes through fp32, as kernels/kern.h defines the 16-bit
 * types: compute as in fp32, round once more where it is stored. Pure; any thread. */
#ifndef ZR_KERNELS_REF_VIEW_H
#define ZR_KERNELS_REF_VIEW_H

#include <stddef.h>

#include "kernels/kern.h"
#include "runtime/base/half.h"

typedef struct {
  void *data; /* NULL: the operand is absent */
  zr_dtype_t dtype;
} ref_view_t;

static inline ref_view_t ref_view(const zr_kern_call_t *call, int operand) {
  return (ref_view_t){call->operand[operand], (zr_dtype_t)call->shape->dtype[operand]};
}

/* The view from element i on. */
static inline ref_view_t ref_from(ref_view_t view, int64_t i) {
  return (ref_view_t){(char *)view.data + i * zr_dtype_bytes(view.dtype), view.dtype};
}

static inline double ref_get(ref_view_t view, int64_t i) {
  switch (view.dtype) {
    case ZR_F64:
      return ((const double *)view.data)[i];
    case ZR_BF16:
      return (double)zr_bf16_to_f32(((const uint16_t *)view.data)[i]);
    case ZR_F16:
      return (double)zr_f16_to_f32(((const uint16_t *)view.data)[i]);
    default:
      return (double)((const float *)view.data)[i];
  }
}

static inline void ref_set(ref_view_t view, int64_t i, double value) {
  switch (view.dtype) {
    case ZR_F64:
      ((double *)view.data)[i] = value;
      break;
    case ZR_BF16:
      ((uint16_t *)view.data)[i] = zr_bf16_from_f32((float)value);
      break;
    case ZR_F16:
      ((uint16_t *)view.data)[i] = zr_f16_from_f32((float)value);
      break;
    default:
      ((float *)view.data)[i] = (float)value;
      break;
  }
}

/* a + b in fp32; in double for double operands. */
static inline double ref_sum(zr_dtype_t dtype, double a, double b) {
  return dtype == ZR_F64 ? a + b : (double)((float)a + (float)b);
}

/* out = value, or out + value: the value is complete and rounded to out's type before it is added.
 */
static inline void ref_put(ref_view_t out, int64_t i, double value, int accumulate) {
  double before = accumulate ? ref_get(out, i) : 0;
  ref_set(out, i, value);
  if (accumulate) ref_set(out, i, ref_sum(out.dtype, before, ref_get(out, i)));
}

/* sum over n of a[i by_a] b[i by_b], in order. The cases of one type are what is fast enough. */
static inline double ref_dot_by(ref_view_t a, int64_t by_a, ref_view_t b, int64_t by_b, int64_t n) {
  double sum = 0;
  if (a.dtype == ZR_F32 && b.dtype == ZR_F32) {
    const float *x = a.data, *y = b.data;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i * by_a] * (double)y[i * by_b];
  } else if (a.dtype == ZR_F64 && b.dtype == ZR_F64) {
    const double *x = a.data, *y = b.data;
    for (int64_t i = 0; i < n; i++) sum += x[i * by_a] * y[i * by_b];
  } else {
    for (int64_t i = 0; i < n; i++) sum += ref_get(a, i * by_a) * ref_get(b, i * by_b);
  }
  return sum;
}

static inline double ref_dot(ref_view_t a, ref_view_t b, int64_t n) {
  return ref_dot_by(a, 1, b, 1, n);
}

static inline int ref_accumulates(const zr_kern_call_t *call, int operand) {
  return (int)(call->shape->accumulate >> operand & 1u);
}

#endif
