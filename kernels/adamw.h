/* AdamW for one element: the formula at the end of control.h, shared by kernels/ref and by the
 * scalar tails of kernels/cpu. Vector versions do the same operations in the same order, so a cut
 * of a shard or a tail changes no bit. Pure but for p, m and v; any thread. */
#ifndef ZR_KERNELS_ADAMW_H
#define ZR_KERNELS_ADAMW_H

#include <math.h>

#include "kernels/control.h"
#include "runtime/base/half.h"

static inline void zr_adamw_element(const zr_control_t *ctl, int decays, float grad, float *p,
                                    float *m, float *v) {
  float g = grad * ctl->clip_coef;
  /* With l2 the control block's decay_mul is 1. */
  if (decays && ctl->l2) g = fmaf((float)ctl->weight_decay, *p, g);
  if (decays) *p = *p * ctl->decay_mul;
  *m = fmaf(ctl->one_minus_beta1, g - *m, *m);
  *v = fmaf(ctl->one_minus_beta2, g * g, ctl->beta2_f32 * *v);
  float d = sqrtf(*v) * ctl->inv_sqrt_bias2 + ctl->eps_f32;
  *p = fmaf(-ctl->step_size, *m / d, *p);
}

/* The same for a bf16 parameter and the rest of its fp32 master (half.h); returns the new master,
 * which is what digests see. */
static inline float zr_adamw_split(const zr_control_t *ctl, int decays, float grad, uint16_t *high,
                                   int16_t *low, float *m, float *v) {
  float master = zr_master_join(*high, *low);
  zr_adamw_element(ctl, decays, grad, &master, m, v);
  zr_master_split(master, high, low);
  return master;
}

#endif
