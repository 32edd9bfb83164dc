/* The oracle's kernels in float: loads, double arithmetic, one rounding per output. */
#include <math.h>
#include <stddef.h>

#include "kernels/adamw.h"
#include "kernels/block_norm.h"
#include "kernels/control.h"
#include "kernels/ref/ref.h"
#include "runtime/base/digest.h"

#define REAL float
#define FN(name) name##_f32

#define block_norm_f32 zr_block_norm

static void adamw_element_f32(const zr_control_t *ctl, int decays, float *p, float g, float *m,
                              float *v) {
  zr_adamw_element(ctl, decays, g, p, m, v);
}

#include "kernels/ref/real.inc.h"
