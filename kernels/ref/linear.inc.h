/* Linear layers, both weight layouts. Included by real.inc.h. */

/* Strides of w: element (o, i) of the [out, in] matrix is w[o * by_out + i * by_in]. */
typedef struct {
  int64_t rows, n_in, n_out, ldx, ldy, by_out, by_in;
} FN(linear_t);

static FN(linear_t) FN(linear_of)(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int io = attr[ZR_LINEAR_W_IO] != 0;
  return (FN(linear_t)){.rows = attr[ZR_LINEAR_ROWS],
                        .n_in = attr[ZR_LINEAR_IN],
                        .n_out = attr[ZR_LINEAR_OUT],
                        .ldx = attr[ZR_LINEAR_LDX],
                        .ldy = attr[ZR_LINEAR_LDY],
                        .by_out = io ? 1 : attr[ZR_LINEAR_IN],
                        .by_in = io ? attr[ZR_LINEAR_OUT] : 1};
}

static zr_status_t FN(linear)(const zr_kern_call_t *call) {
  FN(linear_t) l = FN(linear_of)(call);
  const REAL *x = call->operand[0]; /* [rows, in] ldx */
  const REAL *w = call->operand[1];
  const REAL *b = call->operand[2]; /* [out] or NULL */
  REAL *y = call->operand[3];       /* [rows, out] ldy */
  for (int64_t t = 0; t < l.rows; t++)
    for (int64_t o = 0; o < l.n_out; o++) {
      double value = 0;
      for (int64_t i = 0; i < l.n_in; i++)
        value += (double)x[t * l.ldx + i] * (double)w[o * l.by_out + i * l.by_in];
      if (b != NULL) value += (double)b[o];
      y[t * l.ldy + o] = (REAL)value;
    }
  return ZR_OK;
}

static zr_status_t FN(linear_grad_x)(const zr_kern_call_t *call) {
  FN(linear_t) l = FN(linear_of)(call);
  const REAL *dy = call->operand[0]; /* [rows, out] ldy */
  const REAL *w = call->operand[1];
  REAL *dx = call->operand[2]; /* [rows, in] ldx */
  for (int64_t t = 0; t < l.rows; t++)
    for (int64_t i = 0; i < l.n_in; i++) {
      double value = 0;
      for (int64_t o = 0; o < l.n_out; o++)
        value += (double)dy[t * l.ldy + o] * (double)w[o * l.by_out + i * l.by_in];
      FN(put)(&dx[t * l.ldx + i], value, ref_accumulates(call, 2));
    }
  return ZR_OK;
}

static zr_status_t FN(linear_grad_w)(const zr_kern_call_t *call) {
  FN(linear_t) l = FN(linear_of)(call);
  const REAL *x = call->operand[0];  /* [rows, in] ldx */
  const REAL *dy = call->operand[1]; /* [rows, out] ldy */
  REAL *dw = call->operand[2];
  for (int64_t o = 0; o < l.n_out; o++)
    for (int64_t i = 0; i < l.n_in; i++) {
      double value = 0;
      for (int64_t t = 0; t < l.rows; t++)
        value += (double)dy[t * l.ldy + o] * (double)x[t * l.ldx + i];
      FN(put)(&dw[o * l.by_out + i * l.by_in], value, ref_accumulates(call, 2));
    }
  return ZR_OK;
}

static zr_status_t FN(linear_grad_b)(const zr_kern_call_t *call) {
  FN(linear_t) l = FN(linear_of)(call);
  const REAL *dy = call->operand[0]; /* [rows, out] ldy */
  REAL *db = call->operand[1];       /* [out] */
  for (int64_t o = 0; o < l.n_out; o++) {
    double value = 0;
    for (int64_t t = 0; t < l.rows; t++) value += (double)dy[t * l.ldy + o];
    FN(put)(&db[o], value, ref_accumulates(call, 1));
  }
  return ZR_OK;
}
