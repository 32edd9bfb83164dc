/* Block norm and AdamW. In the float build these are the definitions that every backend shares
 * (block_norm.h, adamw.h) and must equal bit for bit; the double build follows the same formulas.
 * Included by real.inc.h. */

static zr_status_t FN(block_norm_run)(const zr_kern_call_t *call) {
  const REAL *g = call->operand[0];
  zr_control_t *ctl = call->operand[1];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i += ZR_BLOCK_ELEMS)
    zr_exact_add(&ctl->norm, FN(block_norm)(g + i));
  return ZR_OK;
}

/* What an updated element adds to the control block, counted by the one rank that owns it. */
static void FN(adamw_account)(zr_control_t *ctl, const zr_kern_tensor_t *tensor, int64_t flat,
                              REAL p, REAL m, REAL v) {
  uint64_t index = (uint64_t)(flat - tensor->begin);
  if (!isfinite((double)p)) ctl->n_bad_params++;
  if (ctl->digest >= 1)
    ctl->digest_sum[0] += zr_digest_element(tensor->digest_key[0], index, (float)p);
  if (ctl->digest >= 2) {
    ctl->digest_sum[1] += zr_digest_element(tensor->digest_key[1], index, (float)m);
    ctl->digest_sum[1] += zr_digest_element(tensor->digest_key[2], index, (float)v);
  }
}

static zr_status_t FN(adamw)(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  REAL *p = call->operand[0], *m = call->operand[2], *v = call->operand[3];
  const REAL *g = call->operand[1];
  const zr_kern_layout_t *layout = call->operand[4];
  zr_control_t *ctl = call->operand[5];
  if (ctl->skip) return ZR_OK;
  int64_t first = attr[ZR_ADAMW_FIRST] + ctl->rank * attr[ZR_ADAMW_FIRST_PER_RANK];
  int64_t own = ctl->rank * attr[ZR_ADAMW_SHARD], own_end = own + attr[ZR_ADAMW_SHARD];
  int64_t at = 0;
  for (int64_t i = 0; i < attr[ZR_ADAMW_ELEMS]; i++) {
    int64_t flat = first + i;
    while (at < layout->n_tensors && layout->tensor[at].end <= flat) at++;
    const zr_kern_tensor_t *tensor = &layout->tensor[at];
    int logical = at < layout->n_tensors && tensor->begin <= flat;
    FN(adamw_element)(ctl, logical && tensor->decays, &p[i], g[i], &m[i], &v[i]);
    if (logical && flat >= own && flat < own_end)
      FN(adamw_account)(ctl, tensor, flat, p[i], m[i], v[i]);
  }
  return ZR_OK;
}
