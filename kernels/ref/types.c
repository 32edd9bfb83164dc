/* Which types the operands of each kind may have. */
#include <stdbool.h>

#include "kernels/ref/ref.h"

/* Operands of each kind, '?' after one that may be absent:
 *   r the compute type, the same for all of a call: fp32, bf16 or fp16
 *   g a sum of gradients: fp32 or bf16       a any of the three       f fp32
 *   l what the master has beside its parameter    m a state of an optimizer: fp32 or bf16
 *   n never there
 *   i i32    d f64    s scratch (may be where this backend uses none)    . another type
 * With a backend opened for ZR_F64 each of r, g, a, f, m is a double, and there is no l. */
static const char *const signature[ZR_N_OP_KINDS] = {
    [ZR_OP_NOP] = "",
    [ZR_OP_EMBEDDING] = "irr?ri?",
    [ZR_OP_LINEAR] = "rrr?rs",
    [ZR_OP_LAYERNORM] = "rrrrf",
    [ZR_OP_RMSNORM] = "rrrf",
    [ZR_OP_HEAD_NORM] = "rrrf",
    [ZR_OP_ROPE] = "fr",
    [ZR_OP_ROPE_TABLE] = "f",
    [ZR_OP_ATTENTION] = "rrfi?s",
    [ZR_OP_GELU] = "rr",
    [ZR_OP_SWIGLU] = "rrr",
    [ZR_OP_ADD] = "rrr",
    [ZR_OP_HEAD_LOSS] = "rri.drgs",
    [ZR_OP_HEAD_EVAL] = "rrids",
    [ZR_OP_EMBEDDING_GRAD] = "irgg?i?s",
    [ZR_OP_LINEAR_GRAD_X] = "rrrs",
    [ZR_OP_LINEAR_GRAD_W] = "rrgs",
    [ZR_OP_LINEAR_GRAD_B] = "rgs",
    [ZR_OP_LAYERNORM_GRAD] = "rrfrrggs",
    [ZR_OP_RMSNORM_GRAD] = "rrfrrgs",
    [ZR_OP_HEAD_NORM_GRAD] = "rrfrrgs",
    [ZR_OP_ATTENTION_GRAD] = "rrfrri?s",
    [ZR_OP_GELU_GRAD] = "rrr",
    [ZR_OP_SWIGLU_GRAD] = "rrrrr",
    [ZR_OP_COUNT] = "i.",
    [ZR_OP_LOSS_SUM] = "d.",
    [ZR_OP_CONTROL_BEGIN] = ".",
    [ZR_OP_CONTROL_COUNT] = ".",
    [ZR_OP_CONTROL_UPDATE] = ".",
    [ZR_OP_CONTROL_END] = ".",
    [ZR_OP_FILL] = "a",
    [ZR_OP_ACCUMULATE] = "aa",
    [ZR_OP_SHARD_ADD] = "aa",
    [ZR_OP_BLOCK_NORM] = "g.",
    [ZR_OP_ADAMW] = "rgmm..l?",
    [ZR_OP_SGD] = "rgm?n?..l?",
    [ZR_OP_LION] = "rgmn?..l?",
    [ZR_OP_ADAGRAD] = "rgmn?..l?",
};

/* `compute` is the type of the call's first 'r' operand. */
static bool type_fits(zr_dtype_t backend, char type, zr_dtype_t dtype, zr_dtype_t compute) {
  bool is_real = type == 'r' || type == 'g' || type == 'a' || type == 'f' || type == 'm';
  if (is_real && backend == ZR_F64) return dtype == ZR_F64;
  switch (type) {
    case 'r':
      return dtype == compute && (dtype == ZR_F32 || dtype == ZR_BF16 || dtype == ZR_F16);
    case 'g':
    case 'm':
      return dtype == ZR_F32 || dtype == ZR_BF16;
    case 'a':
      return dtype == ZR_F32 || dtype == ZR_BF16 || dtype == ZR_F16;
    case 'f':
      return dtype == ZR_F32;
    case 'l':
      return dtype == (compute == ZR_BF16 ? ZR_I16 : ZR_F32);
    case 'i':
      return dtype == ZR_I32;
    case 'd':
      return dtype == ZR_F64;
    default:
      return true;
  }
}

static zr_status_t check_presence(const zr_kern_shape_t *shape, int operand, char type,
                                  bool optional, zr_dtype_t compute) {
  bool present = shape->present >> operand & 1u;
  if (type == 'l') {
    bool wanted = compute == ZR_BF16 || compute == ZR_F16;
    if (present == wanted) return ZR_OK;
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "ref: parameters of %s %s the rest of a master",
                   zr_dtype_name(compute), wanted ? "need" : "have no use for");
  }
  if (type == 'n' && present)
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "ref: kind %d has no use for operand %d", shape->kind,
                   operand);
  bool unused = type == 's' && ref_scratch_elems(shape) == 0;
  if (present || optional || unused) return ZR_OK;
  return zr_fail(ZR_ERR_INVALID_ARGUMENT, "ref: operand %d of kind %d is absent", operand,
                 shape->kind);
}

zr_status_t ref_check_types(const zr_kern_t *kern, const zr_kern_shape_t *shape) {
  if (shape->kind < 0 || shape->kind >= ZR_N_OP_KINDS || signature[shape->kind] == NULL)
    return zr_fail(ZR_ERR_UNSUPPORTED, "ref: no kernel of kind %d", shape->kind);
  if (zr_kern_has_act(shape->kind) && (shape->attr[ZR_ACT] < 0 || shape->attr[ZR_ACT] >= ZR_N_ACTS))
    return zr_fail(ZR_ERR_UNSUPPORTED, "ref: there is no activation %lld",
                   (long long)shape->attr[ZR_ACT]);
  zr_dtype_t compute = ZR_N_DTYPES;
  int operand = 0;
  for (const char *c = signature[shape->kind]; *c != 0; c++, operand++) {
    bool optional = c[1] == '?';
    zr_dtype_t dtype = (zr_dtype_t)shape->dtype[operand];
    if (*c == 'r' && compute == ZR_N_DTYPES) compute = dtype;
    ZR_TRY(check_presence(shape, operand, *c, optional, compute));
    if ((shape->present >> operand & 1u) && !type_fits(kern->dtype, *c, dtype, compute))
      return zr_fail(ZR_ERR_UNSUPPORTED, "ref: operand %d of kind %d has the type %s", operand,
                     shape->kind, zr_dtype_name(dtype));
    c += optional;
  }
  return ZR_OK;
}
