/* Block norm and optimizers: for float operands the definitions that every backend shares
 * (block_norm.h, adamw.h, optimizer.h) and must equal bit for bit; for double operands the same
 * formulas without roundings to float. */
#include <math.h>

#include "kernels/block_norm.h"
#include "kernels/control.h"
#include "kernels/optimizer.h"
#include "kernels/ref/ref.h"
#include "runtime/base/digest.h"

enum {
  P = ZR_UPDATE_PARAM,
  G = ZR_UPDATE_GRAD,
  S = ZR_UPDATE_STATE,
  LAYOUT = ZR_UPDATE_LAYOUT,
  CTL = ZR_UPDATE_CTL,
  LOW = ZR_UPDATE_LOW
};

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

/* One element: the master and its states; `param` as kernels will read it. */
typedef struct {
  double param, master, state[ZR_MAX_STATES];
} element_t;

static int has_state(const zr_kern_call_t *call, int k) {
  return call->operand[S + k] != NULL;
}

static void adamw_f64(const zr_control_t *ctl, double g, double *p, double state[]) {
  state[0] += (double)ctl->one_minus_beta1 * (g - state[0]);
  state[1] = (double)ctl->beta2_f32 * state[1] + (double)ctl->one_minus_beta2 * g * g;
  double d = sqrt(state[1]) * (double)ctl->inv_sqrt_bias2 + (double)ctl->eps_f32;
  *p -= (double)ctl->step_size * (state[0] / d);
}

static void sgd_f64(const zr_control_t *ctl, int has_buffer, double g, double *p, double state[]) {
  if (has_buffer) {
    state[0] = (double)ctl->momentum_f32 * state[0] + (double)ctl->gain * g;
    g = ctl->nesterov ? g + (double)ctl->momentum_f32 * state[0] : state[0];
  }
  *p -= (double)ctl->step_size * g;
}

static void lion_f64(const zr_control_t *ctl, double g, double *p, double state[]) {
  double c = state[0] + (double)ctl->one_minus_beta1 * (g - state[0]);
  state[0] += (double)ctl->one_minus_beta2 * (g - state[0]);
  *p -= (double)ctl->step_size * (c > 0 ? 1 : c < 0 ? -1 : 0);
}

static void adagrad_f64(const zr_control_t *ctl, double g, double *p, double state[]) {
  state[0] += g * g;
  *p -= (double)ctl->step_size * (g / (sqrt(state[0]) + (double)ctl->eps_f32));
}

static element_t update_f64(const zr_kern_call_t *call, int64_t i, int decays) {
  const zr_control_t *ctl = call->operand[CTL];
  double p = ref_get(ref_view(call, P), i), g = ref_get(ref_view(call, G), i);
  element_t e = {0};
  for (int k = 0; k < ZR_MAX_STATES; k++)
    if (has_state(call, k)) e.state[k] = ref_get(ref_view(call, S + k), i);
  g *= (double)ctl->clip_coef;
  if (decays && ctl->l2) g += ctl->weight_decay * p;
  if (decays && !ctl->l2) p *= (double)ctl->decay_mul;
  switch (call->shape->kind) {
    case ZR_OP_SGD:
      sgd_f64(ctl, has_state(call, 0), g, &p, e.state);
      break;
    case ZR_OP_LION:
      lion_f64(ctl, g, &p, e.state);
      break;
    case ZR_OP_ADAGRAD:
      adagrad_f64(ctl, g, &p, e.state);
      break;
    default:
      adamw_f64(ctl, g, &p, e.state);
      break;
  }
  e.param = e.master = p;
  ref_set(ref_view(call, P), i, p);
  return e;
}

static element_t update_f32(const zr_kern_call_t *call, int64_t i, int decays) {
  const zr_control_t *ctl = call->operand[CTL];
  ref_view_t param = ref_view(call, P), low = ref_view(call, LOW);
  float g = (float)ref_get(ref_view(call, G), i), state[ZR_MAX_STATES], *at[ZR_MAX_STATES];
  for (int k = 0; k < ZR_MAX_STATES; k++) {
    at[k] = has_state(call, k) ? &state[k] : NULL;
    state[k] = has_state(call, k) ? (float)ref_get(ref_view(call, S + k), i) : 0;
  }
  ref_view_t home = param.dtype == ZR_F16 ? low : param; /* fp16 keeps a whole master */
  float master = 0;
  if (param.dtype == ZR_BF16) {
    uint16_t *high = &((uint16_t *)param.data)[i];
    int16_t *rest = &((int16_t *)low.data)[i];
    master = zr_master_join(*high, *rest);
    zr_optimizer_element(call->shape->kind, ctl, decays, g, &master, at);
    zr_master_split(master, high, rest);
  } else {
    master = (float)ref_get(home, i);
    zr_optimizer_element(call->shape->kind, ctl, decays, g, &master, at);
    ref_set(home, i, (double)master);
    ref_set(param, i, (double)master);
  }
  return (element_t){ref_get(param, i), (double)master, {(double)state[0], (double)state[1]}};
}

/* Padding is zero and needs no random bits. The states become what was stored. */
static void store_states(const zr_kern_call_t *call, const zr_kern_tensor_t *tensor, int64_t index,
                         int64_t i, element_t *e) {
  const zr_control_t *ctl = call->operand[CTL];
  uint64_t key = 0;
  uint32_t bits = 0;
  if (tensor != NULL) {
    key = zr_state_round_key(ctl->seed, tensor->digest_key[1], ctl->step);
    bits = zr_state_round_bits(key, (uint64_t)index);
  }
  for (int k = 0; k < ZR_MAX_STATES; k++) {
    ref_view_t view = ref_view(call, S + k);
    if (!has_state(call, k)) continue;
    if (view.dtype == ZR_BF16) {
      uint32_t random = k == 0 ? bits & 0xffffu : bits >> 16;
      ((uint16_t *)view.data)[i] = zr_bf16_round_random((float)e->state[k], random);
    } else {
      ref_set(view, i, e->state[k]);
    }
    e->state[k] = ref_get(view, i);
  }
}

/* What an updated element adds to the control block, counted by the one rank that owns it. */
static void account(const zr_kern_call_t *call, const zr_kern_tensor_t *tensor, int64_t index,
                    const element_t *e) {
  zr_control_t *ctl = call->operand[CTL];
  if (!isfinite(e->param)) ctl->n_bad_params++;
  if (ctl->digest >= 1)
    ctl->digest_sum[0] +=
        zr_digest_element(tensor->digest_key[0], (uint64_t)index, (float)e->master);
  for (int k = 0; ctl->digest >= 2 && k < ZR_MAX_STATES; k++)
    if (has_state(call, k))
      ctl->digest_sum[1] +=
          zr_digest_element(tensor->digest_key[1 + k], (uint64_t)index, (float)e->state[k]);
}

zr_status_t ref_update(const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  const zr_kern_layout_t *layout = call->operand[LAYOUT];
  const zr_control_t *ctl = call->operand[CTL];
  if (ctl->skip) return ZR_OK;
  int64_t first = attr[ZR_ADAMW_FIRST] + ctl->rank * attr[ZR_ADAMW_FIRST_PER_RANK];
  int64_t own = ctl->rank * attr[ZR_ADAMW_SHARD], own_end = own + attr[ZR_ADAMW_SHARD];
  int64_t at = 0;
  for (int64_t i = 0; i < attr[ZR_ADAMW_ELEMS]; i++) {
    int64_t flat = first + i;
    while (at < layout->n_tensors && layout->tensor[at].end <= flat) at++;
    int logical = at < layout->n_tensors && layout->tensor[at].begin <= flat;
    const zr_kern_tensor_t *tensor = logical ? &layout->tensor[at] : NULL;
    int64_t index = logical ? flat - tensor->begin : 0;
    int decays = logical && tensor->decays;
    int in_double = call->shape->dtype[P] == ZR_F64;
    element_t e = in_double ? update_f64(call, i, decays) : update_f32(call, i, decays);
    store_states(call, tensor, index, i, &e);
    if (logical && flat >= own && flat < own_end) account(call, tensor, index, &e);
  }
  return ZR_OK;
}
