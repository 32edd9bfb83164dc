/* Token and position embeddings. Included by real.inc.h. */

static zr_status_t FN(embedding)(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t rows = attr[ZR_EMBEDDING_ROWS], hidden = attr[ZR_EMBEDDING_HIDDEN];
  const int32_t *token = call->operand[0]; /* [rows] */
  const REAL *table = call->operand[1];    /* [vocab, hidden] */
  const REAL *pos = call->operand[2];      /* [>= seq, hidden] or NULL */
  REAL *y = call->operand[3];              /* [rows, hidden] */
  ZR_TRY(ref_check_indices(token, rows, 0, attr[ZR_EMBEDDING_VOCAB]));
  for (int64_t t = 0; t < rows; t++) {
    int64_t p = t % attr[ZR_EMBEDDING_SEQ];
    for (int64_t h = 0; h < hidden; h++) {
      double value = (double)table[token[t] * hidden + h];
      if (pos != NULL) value += (double)pos[p * hidden + h];
      y[t * hidden + h] = (REAL)value;
    }
  }
  return ZR_OK;
}

static zr_status_t FN(embedding_grad)(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t rows = attr[ZR_EMBEDDING_ROWS], hidden = attr[ZR_EMBEDDING_HIDDEN];
  const int32_t *token = call->operand[0]; /* [rows] */
  const REAL *dy = call->operand[1];       /* [rows, hidden] */
  REAL *dtable = call->operand[2];         /* [vocab, hidden] */
  REAL *dpos = call->operand[3];           /* [pos_rows, hidden] or NULL */
  double *sum = call->operand[4];          /* [hidden] */
  ZR_TRY(ref_check_indices(token, rows, 0, attr[ZR_EMBEDDING_VOCAB]));
  for (int64_t v = 0; v < attr[ZR_EMBEDDING_VOCAB]; v++) {
    for (int64_t h = 0; h < hidden; h++) sum[h] = 0;
    for (int64_t t = 0; t < rows; t++)
      if (token[t] == v)
        for (int64_t h = 0; h < hidden; h++) sum[h] += (double)dy[t * hidden + h];
    for (int64_t h = 0; h < hidden; h++)
      FN(put)(&dtable[v * hidden + h], sum[h], ref_accumulates(call, 2));
  }
  if (dpos == NULL) return ZR_OK;
  for (int64_t p = 0; p < attr[ZR_EMBEDDING_POS_ROWS]; p++)
    for (int64_t h = 0; h < hidden; h++) {
      double value = 0;
      if (p < attr[ZR_EMBEDDING_SEQ])
        for (int64_t t = p; t < rows; t += attr[ZR_EMBEDDING_SEQ])
          value += (double)dy[t * hidden + h];
      FN(put)(&dpos[p * hidden + h], value, ref_accumulates(call, 3));
    }
  return ZR_OK;
}
