/* All kernels of one float type. The including file defines REAL (float or double), FN(name) (a
 * suffix), and the type's block_norm and adamw_element. */

/* out = value, or fl(out + fl(value)): the value is complete and rounded before it is added. */
static void FN(put)(REAL *out, double value, int accumulate) {
  REAL rounded = (REAL)value;
  *out = accumulate ? *out + rounded : rounded;
}

static double FN(dot)(const REAL *a, const REAL *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
  return sum;
}

#include "kernels/ref/attention.inc.h"
#include "kernels/ref/embedding.inc.h"
#include "kernels/ref/head.inc.h"
#include "kernels/ref/linear.inc.h"
#include "kernels/ref/norm.inc.h"
#include "kernels/ref/pointwise.inc.h"
#include "kernels/ref/update.inc.h"

const ref_run_fn_t FN(ref_run)[ZR_N_OP_KINDS] = {
    [ZR_OP_EMBEDDING] = FN(embedding),
    [ZR_OP_LINEAR] = FN(linear),
    [ZR_OP_LAYERNORM] = FN(layernorm),
    [ZR_OP_RMSNORM] = FN(rmsnorm),
    [ZR_OP_ROPE] = FN(rope),
    [ZR_OP_ROPE_TABLE] = FN(rope_table),
    [ZR_OP_ATTENTION] = FN(attention),
    [ZR_OP_GELU] = FN(gelu),
    [ZR_OP_SWIGLU] = FN(swiglu),
    [ZR_OP_ADD] = FN(add),
    [ZR_OP_HEAD_LOSS] = FN(head_loss),
    [ZR_OP_HEAD_EVAL] = FN(head_eval),
    [ZR_OP_EMBEDDING_GRAD] = FN(embedding_grad),
    [ZR_OP_LINEAR_GRAD_X] = FN(linear_grad_x),
    [ZR_OP_LINEAR_GRAD_W] = FN(linear_grad_w),
    [ZR_OP_LINEAR_GRAD_B] = FN(linear_grad_b),
    [ZR_OP_LAYERNORM_GRAD] = FN(layernorm_grad),
    [ZR_OP_RMSNORM_GRAD] = FN(rmsnorm_grad),
    [ZR_OP_ATTENTION_GRAD] = FN(attention_grad),
    [ZR_OP_GELU_GRAD] = FN(gelu_grad),
    [ZR_OP_SWIGLU_GRAD] = FN(swiglu_grad),
    [ZR_OP_FILL] = FN(fill),
    [ZR_OP_ACCUMULATE] = FN(accumulate),
    [ZR_OP_SHARD_ADD] = FN(accumulate),
    [ZR_OP_BLOCK_NORM] = FN(block_norm_run),
    [ZR_OP_ADAMW] = FN(adamw),
};
