/* Block norm and AdamW: for float operands the definitions that every backend shares (block_norm.h,
 * adamw.h) and must equal bit for bit; for double operands the same formulas without roundings to
 * float. */
#include <math.h>

#include "kernels/adamw.h"
#include "kernels/block_norm.h"
#include "kernels/control.h"
#include "kernels/ref/ref.h"
#include "runtime/base/digest.h"

enum { P, G, M, V, LAYOUT, CTL, LOW }; /* AdamW's operands */

static double block_norm(ref_view_t g) {
  double sum = 0;
  float block[ZR_BLOCK_ELEMS];
  for (int i = 0; i < ZR_BLOCK_ELEMS; i++) {
    double value = ref_get(g, i);
    sum += value * value;
    block[i] = (float)value;
  }
  return g.dtype == ZR_F64 ? sum : zr_block_norm(block);
}

zr_status_t ref_block_norm(const zr_kern_call_t *call) {
  zr_control_t *ctl = call->operand[1];
  for (int64_t i = 0; i < call->shape->attr[ZR_ELEMS]; i += ZR_BLOCK_ELEMS)
    zr_exact_add(&ctl->norm, block_norm(ref_from(ref_view(call, 0), i)));
  return ZR_OK;
}

/* One element: the master and its moments after the update; `param` as kernels will read it. */
typedef struct {
  double param, master, m, v;
} element_t;

static element_t update_f64(const zr_kern_call_t *call, int64_t i, int decays) {
  const zr_control_t *ctl = call->operand[CTL];
  double p = ref_get(ref_view(call, P), i), g = ref_get(ref_view(call, G), i);
  double m = ref_get(ref_view(call, M), i), v = ref_get(ref_view(call, V), i);
  g *= (double)ctl->clip_coef;
  if (decays && ctl->l2) g += ctl->weight_decay * p;
  if (decays && !ctl->l2) p *= (double)ctl->decay_mul;
  m += (double)ctl->one_minus_beta1 * (g - m);
  v = (double)ctl->beta2_f32 * v + (double)ctl->one_minus_beta2 * g * g;
  double d = sqrt(v) * (double)ctl->inv_sqrt_bias2 + (double)ctl->eps_f32;
  p -= (double)ctl->step_size * (m / d);
  ref_set(ref_view(call, P), i, p);
  return (element_t){p, p, m, v};
}

static element_t update_f32(const zr_kern_call_t *call, int64_t i, int decays) {
  const zr_control_t *ctl = call->operand[CTL];
  ref_view_t param = ref_view(call, P), low = ref_view(call, LOW);
  float g = (float)ref_get(ref_view(call, G), i);
  float m = (float)ref_get(ref_view(call, M), i), v = (float)ref_get(ref_view(call, V), i);
  float master = 0;
  if (param.dtype == ZR_BF16) {
    master = zr_adamw_split(ctl, decays, g, &((uint16_t *)param.data)[i], &((int16_t *)low.data)[i],
                            &m, &v);
  } else {
    ref_view_t home = param.dtype == ZR_F16 ? low : param; /* fp16 keeps a whole master */
    master = (float)ref_get(home, i);
    zr_adamw_element(ctl, decays, g, &master, &m, &v);
    ref_set(home, i, (double)master);
    ref_set(param, i, (double)master);
  }
  return (element_t){ref_get(param, i), (double)master, (double)m, (double)v};
}

/* What an updated element adds to the control block, counted by the one rank that owns it. */
static void account(zr_control_t *ctl, const zr_kern_tensor_t *tensor, int64_t flat,
                    const element_t *e) {
  uint64_t index = (uint64_t)(flat - tensor->begin);
  if (!isfinite(e->param)) ctl->n_bad_params++;
  if (ctl->digest >= 1)
    ctl->digest_sum[0] += zr_digest_element(tensor->digest_key[0], index, (float)e->master);
  if (ctl->digest >= 2) {
    ctl->digest_sum[1] += zr_digest_element(tensor->digest_key[1], index, (float)e->m);
    ctl->digest_sum[1] += zr_digest_element(tensor->digest_key[2], index, (float)e->v);
  }
}

zr_status_t ref_adamw(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  const zr_kern_layout_t *layout = call->operand[LAYOUT];
  zr_control_t *ctl = call->operand[CTL];
  if (ctl->skip) return ZR_OK;
  int64_t first = attr[ZR_ADAMW_FIRST] + ctl->rank * attr[ZR_ADAMW_FIRST_PER_RANK];
  int64_t own = ctl->rank * attr[ZR_ADAMW_SHARD], own_end = own + attr[ZR_ADAMW_SHARD];
  int64_t at = 0;
  for (int64_t i = 0; i < attr[ZR_ADAMW_ELEMS]; i++) {
    int64_t flat = first + i;
    while (at < layout->n_tensors && layout->tensor[at].end <= flat) at++;
    const zr_kern_tensor_t *tensor = &layout->tensor[at];
    int logical = at < layout->n_tensors && tensor->begin <= flat;
    int decays = logical && tensor->decays;
    int in_double = call->shape->dtype[P] == ZR_F64;
    element_t e = in_double ? update_f64(call, i, decays) : update_f32(call, i, decays);
    ref_set(ref_view(call, M), i, e.m);
    ref_set(ref_view(call, V), i, e.v);
    if (logical && flat >= own && flat < own_end) account(ctl, tensor, flat, &e);
  }
  return ZR_OK;
}
