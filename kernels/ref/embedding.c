/* Token and position embeddings. */
#include "kernels/ref/ref.h"

/* Of row t in its document. */
static int64_t position(const zr_kern_call_t *call, const int32_t *starts, int64_t t) {
  return t % call->shape->attr[ZR_EMBEDDING_SEQ] - (starts != NULL ? starts[t] : 0);
}

zr_status_t ref_embedding(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t rows = attr[ZR_EMBEDDING_ROWS], hidden = attr[ZR_EMBEDDING_HIDDEN];
  const int32_t *token = call->operand[0]; /* [rows] */
  ref_view_t table = ref_view(call, 1);    /* [vocab, hidden] */
  ref_view_t pos = ref_view(call, 2);      /* [>= seq, hidden] or absent */
  ref_view_t y = ref_view(call, 3);        /* [rows, hidden] */
  const int32_t *starts = call->operand[4];
  ZR_TRY(ref_check_indices(token, rows, 0, attr[ZR_EMBEDDING_VOCAB]));
  ZR_TRY(ref_check_starts(starts, rows, attr[ZR_EMBEDDING_SEQ]));
  for (int64_t t = 0; t < rows; t++) {
    int64_t p = position(call, starts, t);
    for (int64_t h = 0; h < hidden; h++) {
      double value = ref_get(table, token[t] * hidden + h);
      if (pos.data != NULL) value += ref_get(pos, p * hidden + h);
      ref_set(y, t * hidden + h, value);
    }
  }
  return ZR_OK;
}

zr_status_t ref_embedding_grad(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int64_t rows = attr[ZR_EMBEDDING_ROWS], hidden = attr[ZR_EMBEDDING_HIDDEN];
  const int32_t *token = call->operand[0]; /* [rows] */
  ref_view_t dy = ref_view(call, 1);       /* [rows, hidden] */
  ref_view_t dtable = ref_view(call, 2);   /* [vocab, hidden] */
  ref_view_t dpos = ref_view(call, 3);     /* [pos_rows, hidden] or absent */
  const int32_t *starts = call->operand[4];
  double *sum = call->operand[5]; /* [hidden] */
  ZR_TRY(ref_check_indices(token, rows, 0, attr[ZR_EMBEDDING_VOCAB]));
  ZR_TRY(ref_check_starts(starts, rows, attr[ZR_EMBEDDING_SEQ]));
  for (int64_t v = 0; v < attr[ZR_EMBEDDING_VOCAB]; v++) {
    for (int64_t h = 0; h < hidden; h++) sum[h] = 0;
    for (int64_t t = 0; t < rows; t++)
      if (token[t] == v)
        for (int64_t h = 0; h < hidden; h++) sum[h] += ref_get(dy, t * hidden + h);
    for (int64_t h = 0; h < hidden; h++)
      ref_put(dtable, v * hidden + h, sum[h], ref_accumulates(call, 2));
  }
  if (dpos.data == NULL) return ZR_OK;
  for (int64_t p = 0; p < attr[ZR_EMBEDDING_POS_ROWS]; p++)
    for (int64_t h = 0; h < hidden; h++) {
      double value = 0;
      for (int64_t t = 0; t < rows; t++)
        if (position(call, starts, t) == p) value += ref_get(dy, t * hidden + h);
      ref_put(dpos, p * hidden + h, value, ref_accumulates(call, 3));
    }
  return ZR_OK;
}
