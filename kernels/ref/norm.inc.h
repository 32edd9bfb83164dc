/* LayerNorm and RMSNorm. Included by real.inc.h. */

static zr_status_t FN(layernorm)(const zr_kern_call_t *call) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  const REAL *w = call->operand[1], *b = call->operand[2]; /* [cols] */
  REAL *stats = call->operand[4];                          /* [rows, 2] */
  for (int64_t t = 0; t < rows; t++) {
    const REAL *x = (const REAL *)call->operand[0] + t * cols;
    REAL *y = (REAL *)call->operand[3] + t * cols;
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < cols; c++) mean += (double)x[c];
    mean /= (double)cols;
    for (int64_t c = 0; c < cols; c++) variance += ((double)x[c] - mean) * ((double)x[c] - mean);
    double rstd = 1 / sqrt(variance / (double)cols + call->shape->real);
    for (int64_t c = 0; c < cols; c++)
      y[c] = (REAL)(((double)x[c] - mean) * rstd * (double)w[c] + (double)b[c]);
    stats[2 * t] = (REAL)mean;
    stats[2 * t + 1] = (REAL)rstd;
  }
  return ZR_OK;
}

static zr_status_t FN(rmsnorm)(const zr_kern_call_t *call) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  const REAL *w = call->operand[1]; /* [cols] */
  REAL *stats = call->operand[3];   /* [rows] */
  for (int64_t t = 0; t < rows; t++) {
    const REAL *x = (const REAL *)call->operand[0] + t * cols;
    REAL *y = (REAL *)call->operand[2] + t * cols;
    double square = 0;
    for (int64_t c = 0; c < cols; c++) square += (double)x[c] * (double)x[c];
    double rstd = 1 / sqrt(square / (double)cols + call->shape->real);
    for (int64_t c = 0; c < cols; c++) y[c] = (REAL)((double)x[c] * rstd * (double)w[c]);
    stats[t] = (REAL)rstd;
  }
  return ZR_OK;
}

/* With xhat = (x - mean) rstd and g = dy w:
 *   dx = rstd (g - mean(g) - xhat mean(g xhat)),  dw = sum dy xhat,  db = sum dy.
 * RMSNorm has mean = 0 and no mean(g) term. */
static void FN(norm_grad_x)(const zr_kern_call_t *call, const REAL *stats, const REAL *dy_all,
                            int dx_operand, int centred) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  const REAL *w = call->operand[1];
  for (int64_t t = 0; t < rows; t++) {
    const REAL *x = (const REAL *)call->operand[0] + t * cols, *dy = dy_all + t * cols;
    REAL *dx = (REAL *)call->operand[dx_operand] + t * cols;
    double mean = centred ? (double)stats[2 * t] : 0;
    double rstd = (double)stats[centred ? 2 * t + 1 : t];
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < cols; c++) {
      double g = (double)dy[c] * (double)w[c];
      mean_g += g;
      mean_gx += g * ((double)x[c] - mean) * rstd;
    }
    mean_g = centred ? mean_g / (double)cols : 0;
    mean_gx /= (double)cols;
    for (int64_t c = 0; c < cols; c++) {
      double xhat = ((double)x[c] - mean) * rstd;
      double value = rstd * ((double)dy[c] * (double)w[c] - mean_g - xhat * mean_gx);
      FN(put)(&dx[c], value, ref_accumulates(call, dx_operand));
    }
  }
}

static zr_status_t FN(layernorm_grad)(const zr_kern_call_t *call) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  const REAL *x = call->operand[0], *stats = call->operand[2], *dy = call->operand[3];
  REAL *dw = call->operand[5], *db = call->operand[6]; /* [cols] */
  FN(norm_grad_x)(call, stats, dy, 4, 1);
  for (int64_t c = 0; c < cols; c++) {
    double sum_w = 0, sum_b = 0;
    for (int64_t t = 0; t < rows; t++) {
      double g = (double)dy[t * cols + c];
      sum_w += g * ((double)x[t * cols + c] - (double)stats[2 * t]) * (double)stats[2 * t + 1];
      sum_b += g;
    }
    FN(put)(&dw[c], sum_w, ref_accumulates(call, 5));
    FN(put)(&db[c], sum_b, ref_accumulates(call, 6));
  }
  return ZR_OK;
}

static zr_status_t FN(rmsnorm_grad)(const zr_kern_call_t *call) {
  int64_t rows = call->shape->attr[ZR_NORM_ROWS], cols = call->shape->attr[ZR_NORM_COLS];
  const REAL *x = call->operand[0], *stats = call->operand[2], *dy = call->operand[3];
  REAL *dw = call->operand[5]; /* [cols] */
  FN(norm_grad_x)(call, stats, dy, 4, 0);
  for (int64_t c = 0; c < cols; c++) {
    double value = 0;
    for (int64_t t = 0; t < rows; t++)
      value += (double)dy[t * cols + c] * (double)x[t * cols + c] * (double)stats[t];
    FN(put)(&dw[c], value, ref_accumulates(call, 5));
  }
  return ZR_OK;
}
