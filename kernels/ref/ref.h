/* Inside the oracle backend: its state and the run functions of the two builds of the templates.
 *
 * real.inc.h is included once per type (real_f32.c, real_f64.c). Everything between a load and a
 * store is computed in double, so the float build is rounded once per output. Runs on the calling
 * thread. */
#ifndef ZR_KERNELS_REF_REF_H
#define ZR_KERNELS_REF_REF_H

#include "kernels/kern.h"
#include "runtime/base/alloc.h"

struct zr_kern_t {
  zr_alloc_t *alloc;
  zr_dtype_t dtype;
};

typedef zr_status_t (*ref_run_fn_t)(const zr_kern_call_t *call);

/* Kernels that depend on the float type, by kind; NULL for the others. */
extern const ref_run_fn_t ref_run_f32[ZR_N_OP_KINDS];
extern const ref_run_fn_t ref_run_f64[ZR_N_OP_KINDS];

/* Kernels of the step that do not (count, loss_sum, the control kinds); NULL for the others. */
extern const ref_run_fn_t ref_run_step[ZR_N_OP_KINDS];

/* Doubles of scratch a shape needs: the same in both builds. */
int64_t ref_scratch_elems(const zr_kern_shape_t *shape);

/* ZR_ERR_DATA unless every index is in [low, bound): an oracle refuses what would read elsewhere.
 */
zr_status_t ref_check_indices(const int32_t *index, int64_t n, int64_t low, int64_t bound);

static inline int ref_accumulates(const zr_kern_call_t *call, int operand) {
  return (int)(call->shape->accumulate >> operand & 1u);
}

#endif
