/* The oracle's kernels in double, for gradient checks: every fp32 operand is a double. */
#include <math.h>
#include <stddef.h>

#include "kernels/control.h"
#include "kernels/ref/ref.h"
#include "runtime/base/digest.h"

#define REAL double
#define FN(name) name##_f64

static double block_norm_f64(const double *g) {
  double sum = 0;
  for (int i = 0; i < ZR_BLOCK_ELEMS; i++) sum += g[i] * g[i];
  return sum;
}

/* kernels/control.h's formula without its roundings to float. */
static void adamw_element_f64(const zr_control_t *ctl, int decays, double *p, double g, double *m,
                              double *v) {
  g *= (double)ctl->clip_coef;
  if (decays && ctl->l2) g += ctl->weight_decay * *p;
  if (decays && !ctl->l2) *p *= (double)ctl->decay_mul;
  *m += (double)ctl->one_minus_beta1 * (g - *m);
  *v = (double)ctl->beta2_f32 * *v + (double)ctl->one_minus_beta2 * g * g;
  double d = sqrt(*v) * (double)ctl->inv_sqrt_bias2 + (double)ctl->eps_f32;
  *p -= (double)ctl->step_size * (*m / d);
}

#include "kernels/ref/real.inc.h"
