/* Inside the oracle backend: its state and its run functions.
 *
 * Everything between a load and a store is computed in double, whatever the types of the operands
 * (view.h), so an fp32 output is rounded once and a 16-bit one once more. Runs on the calling
 * thread. */
#ifndef ZR_KERNELS_REF_REF_H
#define ZR_KERNELS_REF_REF_H

#include "kernels/kern.h"
#include "kernels/ref/view.h"
#include "runtime/base/alloc.h"

struct zr_kern_t {
  zr_alloc_t *alloc;
  zr_dtype_t dtype;
};

typedef zr_status_t (*ref_run_fn_t)(const zr_kern_call_t *call);

/* Kernels of the step without a float type (count, loss_sum, the control kinds), by kind; NULL for
 * the others. */
extern const ref_run_fn_t ref_run_step[ZR_N_OP_KINDS];

zr_status_t ref_embedding(const zr_kern_call_t *call);
zr_status_t ref_embedding_grad(const zr_kern_call_t *call);
zr_status_t ref_linear(const zr_kern_call_t *call);
zr_status_t ref_linear_grad_x(const zr_kern_call_t *call);
zr_status_t ref_linear_grad_w(const zr_kern_call_t *call);
zr_status_t ref_linear_grad_b(const zr_kern_call_t *call);
zr_status_t ref_layernorm(const zr_kern_call_t *call);
zr_status_t ref_layernorm_grad(const zr_kern_call_t *call);
zr_status_t ref_rmsnorm(const zr_kern_call_t *call);
zr_status_t ref_rmsnorm_grad(const zr_kern_call_t *call);
zr_status_t ref_head_norm(const zr_kern_call_t *call);
zr_status_t ref_head_norm_grad(const zr_kern_call_t *call);
zr_status_t ref_rope(const zr_kern_call_t *call);
zr_status_t ref_rope_table(const zr_kern_call_t *call);
zr_status_t ref_attention(const zr_kern_call_t *call);
zr_status_t ref_attention_grad(const zr_kern_call_t *call);
zr_status_t ref_gelu(const zr_kern_call_t *call);
zr_status_t ref_gelu_grad(const zr_kern_call_t *call);
zr_status_t ref_swiglu(const zr_kern_call_t *call);
zr_status_t ref_swiglu_grad(const zr_kern_call_t *call);
zr_status_t ref_add(const zr_kern_call_t *call);
zr_status_t ref_head_loss(const zr_kern_call_t *call);
zr_status_t ref_head_eval(const zr_kern_call_t *call);
zr_status_t ref_fill(const zr_kern_call_t *call);
zr_status_t ref_accumulate(const zr_kern_call_t *call);
zr_status_t ref_block_norm(const zr_kern_call_t *call);
zr_status_t ref_update(const zr_kern_call_t *call); /* every optimizer */

/* Doubles of scratch a shape needs: the same for all types. */
int64_t ref_scratch_elems(const zr_kern_shape_t *shape);

/* ZR_OK if operand types, and what is present, are what the kind asks for. */
zr_status_t ref_check_types(const zr_kern_t *kern, const zr_kern_shape_t *shape);

/* ZR_ERR_DATA unless every index is in [low, bound): an oracle refuses what would read elsewhere.
 */
zr_status_t ref_check_indices(const int32_t *index, int64_t n, int64_t low, int64_t bound);
/* Where documents begin: NULL, or each of n rows in 0 .. its place in its sample of `seq`. */
zr_status_t ref_check_starts(const int32_t *starts, int64_t n, int64_t seq);

#endif
