/* The other optimizers for one element, as adamw.h has AdamW: shared by kernels/ref, and repeated
 * operation by operation by the vectors of kernels/cpu. And the rounding of states that are kept in
 * bf16. Pure but for p and the states; any thread.
 *
 *   all      g = grad * clip_coef
 *   SGD      g = g + wd p;  b = momentum b + gain g;  u = nesterov ? g + momentum b : b
 *            p = p - lr u                             torch.optim.SGD; without momentum u = g
 *   Lion     p = p (1 - lr wd);  c = b + (1 - beta1) (g - b);  b = b + (1 - beta2) (g - b)
 *            p = p - lr sign(c)                       Chen et al. 2023; sign(0) = 0
 *   Adagrad  g = g + wd p;  s = s + g g;  p = p - step_size g / (sqrt(s) + eps)
 *                                                     torch.optim.Adagrad */
#ifndef ZR_KERNELS_OPTIMIZER_H
#define ZR_KERNELS_OPTIMIZER_H

#include "kernels/adamw.h"
#include "kernels/kern.h"
#include "runtime/base/rng.h"

/* The gradient with the decay that is added to it; the parameter with the other one. */
static inline float zr_decayed_gradient(const zr_control_t *ctl, int decays, float grad, float *p) {
  float g = grad * ctl->clip_coef;
  if (decays && ctl->l2) g = fmaf((float)ctl->weight_decay, *p, g);
  if (decays) *p = *p * ctl->decay_mul;
  return g;
}

/* buffer NULL: no momentum. */
static inline void zr_sgd_element(const zr_control_t *ctl, int decays, float grad, float *p,
                                  float *buffer) {
  float g = zr_decayed_gradient(ctl, decays, grad, p);
  if (buffer != NULL) {
    *buffer = fmaf(ctl->momentum_f32, *buffer, ctl->gain * g);
    g = ctl->nesterov ? fmaf(ctl->momentum_f32, *buffer, g) : *buffer;
  }
  *p = fmaf(-ctl->step_size, g, *p);
}

static inline void zr_lion_element(const zr_control_t *ctl, int decays, float grad, float *p,
                                   float *m) {
  float g = zr_decayed_gradient(ctl, decays, grad, p);
  float c = fmaf(ctl->one_minus_beta1, g - *m, *m);
  *m = fmaf(ctl->one_minus_beta2, g - *m, *m);
  float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f;
  *p = fmaf(-ctl->step_size, sign, *p);
}

static inline void zr_adagrad_element(const zr_control_t *ctl, int decays, float grad, float *p,
                                      float *sum) {
  float g = zr_decayed_gradient(ctl, decays, grad, p);
  *sum = fmaf(g, g, *sum);
  float d = sqrtf(*sum) + ctl->eps_f32;
  *p = fmaf(-ctl->step_size, g / d, *p);
}

/* The optimizer of operation `kind`; state[k] NULL where it has none. */
static inline void zr_optimizer_element(int32_t kind, const zr_control_t *ctl, int decays,
                                        float grad, float *p, float *const state[ZR_MAX_STATES]) {
  switch (kind) {
    case ZR_OP_SGD:
      zr_sgd_element(ctl, decays, grad, p, state[0]);
      break;
    case ZR_OP_LION:
      zr_lion_element(ctl, decays, grad, p, state[0]);
      break;
    case ZR_OP_ADAGRAD:
      zr_adagrad_element(ctl, decays, grad, p, state[0]);
      break;
    default:
      zr_adamw_element(ctl, decays, grad, p, state[0], state[1]);
      break;
  }
}

/* --- states in bf16 ---------------------------------------------------------------------------
 * A state is computed from its bf16 value in fp32, used unrounded, and stored rounded up or down
 * with probabilities that make the mean right. The random bits are a function of (seed, tensor,
 * element, update): of no shard, thread or cut. */

/* tensor_key: the digest key of the tensor's first state; step: the number of the update. */
static inline uint64_t zr_state_round_key(uint64_t seed, uint64_t tensor_key, int64_t step) {
  return zr_mix64(zr_mix64(seed ^ tensor_key) + (uint64_t)step);
}

/* The 32 random bits of an element: the lower half is the first state's, the upper the second's. A
 * word serves two elements. */
static inline uint32_t zr_state_round_bits(uint64_t key, uint64_t index) {
  uint64_t word = zr_mix64(key + (index >> 1) * 0x9e3779b97f4a7c15ull);
  return (uint32_t)(index & 1 ? word >> 32 : word);
}

/* random: 16 bits. Infinities and NaNs stay what they are. */
static inline uint16_t zr_bf16_round_random(float value, uint32_t random) {
  uint32_t bits = zr_f32_bits(value);
  if ((bits & 0x7f800000u) == 0x7f800000u)
    return (uint16_t)(bits >> 16 | ((bits & 0x7fffffu) != 0 ? 0x40u : 0));
  return (uint16_t)((bits + random) >> 16);
}

#endif
