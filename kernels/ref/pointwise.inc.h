/* Element by element. Included by real.inc.h. */

static const double FN(gelu_scale) = 0.79788456080286535588; /* sqrt(2 / pi) */
static const double FN(gelu_cubic) = 0.044715;

static zr_status_t FN(gelu)(const zr_kern_call_t *call) {
  const REAL *x = call->operand[0];
  REAL *y = call->operand[1];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) {
    double a = (double)x[i];
    y[i] = (REAL)(0.5 * a * (1 + tanh(FN(gelu_scale) * (a + FN(gelu_cubic) * a * a * a))));
  }
  return ZR_OK;
}

static zr_status_t FN(gelu_grad)(const zr_kern_call_t *call) {
  const REAL *x = call->operand[0], *dy = call->operand[1];
  REAL *dx = call->operand[2];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) {
    double a = (double)x[i];
    double t = tanh(FN(gelu_scale) * (a + FN(gelu_cubic) * a * a * a));
    double slope = FN(gelu_scale) * (1 + 3 * FN(gelu_cubic) * a * a);
    dx[i] = (REAL)((double)dy[i] * (0.5 * (1 + t) + 0.5 * a * (1 - t * t) * slope));
  }
  return ZR_OK;
}

static zr_status_t FN(swiglu)(const zr_kern_call_t *call) {
  const REAL *gate = call->operand[0], *up = call->operand[1];
  REAL *y = call->operand[2];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++)
    y[i] = (REAL)((double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i]);
  return ZR_OK;
}

static zr_status_t FN(swiglu_grad)(const zr_kern_call_t *call) {
  const REAL *gate = call->operand[0], *up = call->operand[1], *dy = call->operand[2];
  REAL *dgate = call->operand[3], *dup = call->operand[4];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) {
    double a = (double)gate[i], sigmoid = 1 / (1 + exp(-a)), g = (double)dy[i];
    double slope = sigmoid * (1 + a * (1 - sigmoid));
    double u = (double)up[i]; /* read before the writes: outputs may be inputs' buffers */
    dgate[i] = (REAL)(g * u * slope);
    dup[i] = (REAL)(g * a * sigmoid);
  }
  return ZR_OK;
}

static zr_status_t FN(add)(const zr_kern_call_t *call) {
  const REAL *a = call->operand[0], *b = call->operand[1];
  REAL *y = call->operand[2];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) y[i] = a[i] + b[i];
  return ZR_OK;
}

static zr_status_t FN(fill)(const zr_kern_call_t *call) {
  REAL *dst = call->operand[0];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) dst[i] = (REAL)(float)call->shape->real;
  return ZR_OK;
}

static zr_status_t FN(accumulate)(const zr_kern_call_t *call) {
  const REAL *src = call->operand[0];
  REAL *dst = call->operand[1];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i++) dst[i] = dst[i] + src[i];
  return ZR_OK;
}
