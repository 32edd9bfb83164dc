/* The oracle backend: its table, scratch sizes, and the check of indices. */
#include "kernels/ref/ref.h"

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/dtype.h"

static const ref_run_fn_t run_of[ZR_N_OP_KINDS] = {
    [ZR_OP_EMBEDDING] = ref_embedding,
    [ZR_OP_LINEAR] = ref_linear,
    [ZR_OP_LAYERNORM] = ref_layernorm,
    [ZR_OP_RMSNORM] = ref_rmsnorm,
    [ZR_OP_HEAD_NORM] = ref_head_norm,
    [ZR_OP_ROPE] = ref_rope,
    [ZR_OP_ROPE_TABLE] = ref_rope_table,
    [ZR_OP_ATTENTION] = ref_attention,
    [ZR_OP_GELU] = ref_gelu,
    [ZR_OP_SWIGLU] = ref_swiglu,
    [ZR_OP_ADD] = ref_add,
    [ZR_OP_HEAD_LOSS] = ref_head_loss,
    [ZR_OP_HEAD_EVAL] = ref_head_eval,
    [ZR_OP_EMBEDDING_GRAD] = ref_embedding_grad,
    [ZR_OP_LINEAR_GRAD_X] = ref_linear_grad_x,
    [ZR_OP_LINEAR_GRAD_W] = ref_linear_grad_w,
    [ZR_OP_LINEAR_GRAD_B] = ref_linear_grad_b,
    [ZR_OP_LAYERNORM_GRAD] = ref_layernorm_grad,
    [ZR_OP_RMSNORM_GRAD] = ref_rmsnorm_grad,
    [ZR_OP_HEAD_NORM_GRAD] = ref_head_norm_grad,
    [ZR_OP_ATTENTION_GRAD] = ref_attention_grad,
    [ZR_OP_GELU_GRAD] = ref_gelu_grad,
    [ZR_OP_SWIGLU_GRAD] = ref_swiglu_grad,
    [ZR_OP_FILL] = ref_fill,
    [ZR_OP_ACCUMULATE] = ref_accumulate,
    [ZR_OP_SHARD_ADD] = ref_accumulate,
    [ZR_OP_BLOCK_NORM] = ref_block_norm,
    [ZR_OP_ADAMW] = ref_update,
    [ZR_OP_SGD] = ref_update,
    [ZR_OP_LION] = ref_update,
    [ZR_OP_ADAGRAD] = ref_update,
};

zr_status_t ref_check_indices(const int32_t *index, int64_t n, int64_t low, int64_t bound) {
  for (int64_t i = 0; i < n; i++)
    if (index[i] < low || index[i] >= bound)
      return zr_fail(ZR_ERR_DATA, "ref: index %d at row %lld is not below %lld", index[i],
                     (long long)i, (long long)bound);
  return ZR_OK;
}

zr_status_t ref_check_starts(const int32_t *starts, int64_t n, int64_t seq) {
  for (int64_t t = 0; starts != NULL && t < n; t++)
    if (starts[t] < 0 || starts[t] > t % seq)
      return zr_fail(ZR_ERR_DATA, "ref: the document of row %lld begins at %d, not before it",
                     (long long)t, starts[t]);
  return ZR_OK;
}

static int64_t max_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}

int64_t ref_scratch_elems(const zr_kern_shape_t *shape) {
  const int64_t *attr = shape->attr;
  switch (shape->kind) {
    case ZR_OP_EMBEDDING_GRAD: /* one row's sums */
      return attr[ZR_EMBEDDING_HIDDEN];
    case ZR_OP_ATTENTION: /* one query's scores */
      return attr[ZR_ATTENTION_SEQ];
    case ZR_OP_ATTENTION_GRAD: /* dk and dv of a KV head, ds of a query */
      return attr[ZR_ATTENTION_SEQ] * (2 * attr[ZR_ATTENTION_HEAD_DIM] + 1);
    case ZR_OP_HEAD_LOSS: /* lse of each row; a row of logits or a column of gradients */
    case ZR_OP_HEAD_EVAL:
      return attr[ZR_HEAD_ROWS] + max_of(attr[ZR_HEAD_ROWS], attr[ZR_HEAD_VOCAB_PADDED]);
    default:
      return 0;
  }
}

static int64_t ref_scratch_bytes(const zr_kern_t *kern, const zr_kern_shape_t *shape,
                                 int n_workers) {
  (void)kern;
  (void)n_workers;
  return ref_scratch_elems(shape) * (int64_t)sizeof(double);
}

static zr_status_t ref_prepare(zr_kern_t *kern, const zr_kern_shape_t *shape, int n_workers,
                               void **out_prepared) {
  (void)n_workers;
  ZR_TRY(ref_check_types(kern, shape));
  *out_prepared = NULL;
  return ZR_OK;
}

static zr_status_t ref_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  (void)kern;
  int32_t kind = call->shape->kind;
  bool known = kind >= 0 && kind < ZR_N_OP_KINDS;
  ref_run_fn_t run = !known ? NULL : run_of[kind] != NULL ? run_of[kind] : ref_run_step[kind];
  if (run == NULL) return zr_fail(ZR_ERR_UNSUPPORTED, "ref: no kernel of kind %d", kind);
  return run(call);
}

static void ref_close(zr_kern_t *kern) {
  if (kern != NULL) zr_alloc_free(kern->alloc, kern);
}

static const zr_kern_ops_t ref_ops = {
    .name = "ref",
    .scratch_bytes = ref_scratch_bytes,
    .prepare = ref_prepare,
    .run = ref_run,
    .close = ref_close,
};

zr_status_t zr_kern_ref_open(zr_alloc_t *alloc, zr_dtype_t dtype, const zr_kern_ops_t **out_ops,
                             zr_kern_t **out_kern) {
  if (dtype != ZR_F32 && dtype != ZR_F64)
    return zr_fail(ZR_ERR_UNSUPPORTED, "ref: kernels compute in fp32 or fp64, not in %s",
                   zr_dtype_name(dtype));
  zr_kern_t *kern = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *kern, &kern));
  kern->alloc = alloc;
  kern->dtype = dtype;
  *out_ops = &ref_ops;
  *out_kern = kern;
  return ZR_OK;
}
