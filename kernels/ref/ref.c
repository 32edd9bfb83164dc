/* The oracle backend: its table, and the checks that an oracle makes before it runs. */
#include "kernels/ref/ref.h"

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/dtype.h"

/* Operands of each kind: r real (float or double), i i32, d f64, s scratch, . another type;
 * '?' after an operand that may be absent. Scratch may be where this backend uses none. */
static const char *const signature[ZR_N_OP_KINDS] = {
    [ZR_OP_NOP] = "",
    [ZR_OP_EMBEDDING] = "irr?r",
    [ZR_OP_LINEAR] = "rrr?rs",
    [ZR_OP_LAYERNORM] = "rrrrr",
    [ZR_OP_RMSNORM] = "rrrr",
    [ZR_OP_ROPE] = "rr",
    [ZR_OP_ROPE_TABLE] = "r",
    [ZR_OP_ATTENTION] = "rrrs",
    [ZR_OP_GELU] = "rr",
    [ZR_OP_SWIGLU] = "rrr",
    [ZR_OP_ADD] = "rrr",
    [ZR_OP_HEAD_LOSS] = "rri.drrs",
    [ZR_OP_HEAD_EVAL] = "rrids",
    [ZR_OP_EMBEDDING_GRAD] = "irrr?s",
    [ZR_OP_LINEAR_GRAD_X] = "rrrs",
    [ZR_OP_LINEAR_GRAD_W] = "rrrs",
    [ZR_OP_LINEAR_GRAD_B] = "rrs",
    [ZR_OP_LAYERNORM_GRAD] = "rrrrrrrs",
    [ZR_OP_RMSNORM_GRAD] = "rrrrrrs",
    [ZR_OP_ATTENTION_GRAD] = "rrrrrs",
    [ZR_OP_GELU_GRAD] = "rrr",
    [ZR_OP_SWIGLU_GRAD] = "rrrrr",
    [ZR_OP_COUNT] = "i.",
    [ZR_OP_LOSS_SUM] = "d.",
    [ZR_OP_CONTROL_BEGIN] = ".",
    [ZR_OP_CONTROL_COUNT] = ".",
    [ZR_OP_CONTROL_UPDATE] = ".",
    [ZR_OP_CONTROL_END] = ".",
    [ZR_OP_FILL] = "r",
    [ZR_OP_ACCUMULATE] = "rr",
    [ZR_OP_SHARD_ADD] = "rr",
    [ZR_OP_BLOCK_NORM] = "r.",
    [ZR_OP_ADAMW] = "rrrr..",
};

zr_status_t ref_check_indices(const int32_t *index, int64_t n, int64_t low, int64_t bound) {
  for (int64_t i = 0; i < n; i++)
    if (index[i] < low || index[i] >= bound)
      return zr_fail(ZR_ERR_DATA, "ref: index %d at row %lld is not below %lld", index[i],
                     (long long)i, (long long)bound);
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

static zr_status_t check_operand(const zr_kern_t *kern, const zr_kern_shape_t *shape, int operand,
                                 char type, bool optional) {
  if (!(shape->present >> operand & 1u)) {
    bool unused = type == 's' && ref_scratch_elems(shape) == 0;
    if (optional || unused) return ZR_OK;
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "ref: operand %d of kind %d is absent", operand,
                   shape->kind);
  }
  int dtype = shape->dtype[operand];
  if ((type == 'r' && dtype != (int)kern->dtype) || (type == 'i' && dtype != ZR_I32) ||
      (type == 'd' && dtype != ZR_F64))
    return zr_fail(ZR_ERR_UNSUPPORTED, "ref: operand %d of kind %d has the type %s", operand,
                   shape->kind, zr_dtype_name((zr_dtype_t)dtype));
  return ZR_OK;
}

static zr_status_t ref_prepare(zr_kern_t *kern, const zr_kern_shape_t *shape, int n_workers,
                               void **out_prepared) {
  (void)n_workers;
  if (shape->kind < 0 || shape->kind >= ZR_N_OP_KINDS || signature[shape->kind] == NULL)
    return zr_fail(ZR_ERR_UNSUPPORTED, "ref: no kernel of kind %d", shape->kind);
  int operand = 0;
  for (const char *c = signature[shape->kind]; *c != 0; c++, operand++) {
    bool optional = c[1] == '?';
    ZR_TRY(check_operand(kern, shape, operand, *c, optional));
    c += optional;
  }
  *out_prepared = NULL;
  return ZR_OK;
}

static zr_status_t ref_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  int32_t kind = call->shape->kind;
  const ref_run_fn_t *real = kern->dtype == ZR_F64 ? ref_run_f64 : ref_run_f32;
  if (kind < 0 || kind >= ZR_N_OP_KINDS || (real[kind] == NULL && ref_run_step[kind] == NULL))
    return zr_fail(ZR_ERR_UNSUPPORTED, "ref: no kernel of kind %d", kind);
  return real[kind] != NULL ? real[kind](call) : ref_run_step[kind](call);
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
    return zr_fail(ZR_ERR_UNSUPPORTED, "ref: kernels are fp32 or fp64, not %s",
                   zr_dtype_name(dtype));
  zr_kern_t *kern = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *kern, &kern));
  kern->alloc = alloc;
  kern->dtype = dtype;
  *out_ops = &ref_ops;
  *out_kern = kern;
  return ZR_OK;
}
