/* What the operands of each kind are, as kernels/kern.h says. */
#include <stddef.h>

#include "runtime/base/rng.h"
#include "tests/kernels/case_call.h"

static kern_operand_t matrix(kern_role_t role, int64_t n_rows, int64_t row_elems, int64_t ld) {
  return (kern_operand_t){role, KERN_REAL, n_rows, row_elems, ld};
}

static kern_operand_t of_type(kern_type_t type, kern_operand_t operand) {
  operand.type = type;
  return operand;
}

static kern_operand_t vector(kern_role_t role, kern_type_t type, int64_t n_elems) {
  return (kern_operand_t){role, type, 1, n_elems, n_elems};
}

static kern_operand_t scratch(void) {
  return vector(KERN_SCRATCH, KERN_REAL, 0);
}

static int embedding_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  const int64_t *a = s->attr;
  int64_t rows = a[ZR_EMBEDDING_ROWS], hidden = a[ZR_EMBEDDING_HIDDEN];
  int backward = s->kind == ZR_OP_EMBEDDING_GRAD;
  kern_operand_t y = matrix(backward ? KERN_READ : KERN_WRITE, rows, hidden, hidden);
  kern_role_t role = backward ? KERN_ADD : KERN_READ;
  kern_type_t type = backward ? KERN_SUM : KERN_REAL;
  o[0] = vector(KERN_READ, KERN_I32, rows);
  o[backward ? 2 : 1] = of_type(type, matrix(role, a[ZR_EMBEDDING_VOCAB], hidden, hidden));
  o[backward ? 3 : 2] = of_type(type, matrix(role, a[ZR_EMBEDDING_POS_ROWS], hidden, hidden));
  o[backward ? 1 : 3] = y;
  o[4] = vector(KERN_READ, KERN_STARTS, rows);
  if (backward) o[5] = scratch();
  return backward ? 6 : 5;
}

static int linear_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  const int64_t *a = s->attr;
  int64_t rows = a[ZR_LINEAR_ROWS], in = a[ZR_LINEAR_IN], out = a[ZR_LINEAR_OUT];
  kern_operand_t x = matrix(KERN_READ, rows, in, a[ZR_LINEAR_LDX]);
  kern_operand_t y = matrix(KERN_READ, rows, out, a[ZR_LINEAR_LDY]);
  kern_operand_t w =
      a[ZR_LINEAR_W_IO] ? matrix(KERN_READ, in, out, out) : matrix(KERN_READ, out, in, in);
  kern_operand_t b = vector(KERN_READ, KERN_REAL, out);
  int n = 0;
  switch (s->kind) {
    case ZR_OP_LINEAR:
      o[n++] = x, o[n++] = w, o[n++] = b, o[n++] = y;
      o[3].role = KERN_WRITE;
      break;
    case ZR_OP_LINEAR_GRAD_X:
      o[n++] = y, o[n++] = w, o[n++] = x;
      o[2].role = KERN_ADD;
      break;
    case ZR_OP_LINEAR_GRAD_W:
      o[n++] = x, o[n++] = y, o[n++] = of_type(KERN_SUM, w);
      o[2].role = KERN_ADD;
      break;
    default:
      o[n++] = y, o[n++] = of_type(KERN_SUM, b);
      o[1].role = KERN_ADD;
      break;
  }
  o[n++] = scratch();
  return n;
}

static int norm_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  int64_t rows = s->attr[ZR_NORM_ROWS], cols = s->attr[ZR_NORM_COLS];
  int layer = s->kind == ZR_OP_LAYERNORM || s->kind == ZR_OP_LAYERNORM_GRAD;
  int64_t n_stats = layer ? 2 : 1;
  int n = 0;
  o[n++] = matrix(KERN_READ, rows, cols, cols);
  o[n++] = vector(KERN_READ, KERN_REAL, cols);
  if (s->kind == ZR_OP_LAYERNORM || s->kind == ZR_OP_RMSNORM) {
    if (layer) o[n++] = vector(KERN_READ, KERN_REAL, cols);
    o[n++] = matrix(KERN_WRITE, rows, cols, cols);
    o[n++] = of_type(KERN_F32, matrix(KERN_WRITE, rows, n_stats, n_stats));
    return n;
  }
  o[n++] = of_type(KERN_F32, matrix(KERN_READ, rows, n_stats, n_stats));
  o[n++] = matrix(KERN_READ, rows, cols, cols);
  o[n++] = matrix(KERN_ADD, rows, cols, cols);
  o[n++] = vector(KERN_ADD, KERN_SUM, cols);
  if (layer) o[n++] = vector(KERN_ADD, KERN_SUM, cols);
  o[n++] = scratch();
  return n;
}

static int head_norm_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  const int64_t *a = s->attr;
  int64_t rows = a[ZR_HEAD_NORM_ROWS], heads = a[ZR_HEAD_NORM_HEADS];
  int64_t dim = a[ZR_HEAD_NORM_HEAD_DIM], cols = heads * dim;
  int backward = s->kind == ZR_OP_HEAD_NORM_GRAD;
  o[0] = matrix(KERN_READ, rows, cols, cols);
  o[1] = vector(KERN_READ, KERN_REAL, dim);
  o[backward ? 3 : 2] = matrix(backward ? KERN_READ : KERN_WRITE, rows, cols, a[ZR_HEAD_NORM_LDY]);
  o[backward ? 2 : 3] =
      of_type(KERN_F32, matrix(backward ? KERN_READ : KERN_WRITE, rows, heads, heads));
  if (!backward) return 4;
  o[4] = matrix(KERN_ADD, rows, cols, cols);
  o[5] = vector(KERN_ADD, KERN_SUM, dim);
  o[6] = scratch();
  return 7;
}

static int rope_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  const int64_t *a = s->attr;
  kern_role_t role = s->kind == ZR_OP_ROPE ? KERN_READ : KERN_WRITE;
  int64_t dim = a[ZR_ROPE_HEAD_DIM];
  o[0] = of_type(KERN_F32, matrix(role, a[ZR_ROPE_SEQ], dim, dim));
  if (s->kind == ZR_OP_ROPE_TABLE) return 1;
  o[1] =
      matrix(KERN_MODIFY, a[ZR_ROPE_ROWS], a[ZR_ROPE_HEADS] * a[ZR_ROPE_HEAD_DIM], a[ZR_ROPE_LDX]);
  return 2;
}

static int attention_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  const int64_t *a = s->attr;
  int64_t rows = a[ZR_ATTENTION_BATCH] * a[ZR_ATTENTION_SEQ], heads = a[ZR_ATTENTION_HEADS];
  int64_t out = heads * a[ZR_ATTENTION_HEAD_DIM];
  int64_t in = out + 2 * a[ZR_ATTENTION_KV_HEADS] * a[ZR_ATTENTION_HEAD_DIM];
  int backward = s->kind == ZR_OP_ATTENTION_GRAD;
  kern_role_t role = backward ? KERN_READ : KERN_WRITE;
  o[0] = matrix(KERN_READ, rows, in, in);
  o[1] = matrix(role, rows, out, out);
  o[2] = of_type(KERN_F32, matrix(role, rows, heads, heads));
  if (backward) o[3] = matrix(KERN_READ, rows, out, out), o[4] = matrix(KERN_WRITE, rows, in, in);
  o[backward ? 5 : 3] = vector(KERN_READ, KERN_STARTS, rows);
  o[backward ? 6 : 4] = scratch();
  return backward ? 7 : 5;
}

static int head_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  const int64_t *a = s->attr;
  int64_t rows = a[ZR_HEAD_ROWS], hidden = a[ZR_HEAD_HIDDEN];
  int n = 0;
  o[n++] = matrix(KERN_READ, rows, hidden, hidden);
  o[n++] = matrix(KERN_READ, a[ZR_HEAD_VOCAB_PADDED], hidden, hidden);
  o[n++] = vector(KERN_READ, KERN_I32, rows);
  if (s->kind == ZR_OP_HEAD_LOSS) o[n++] = vector(KERN_READ, KERN_CONTROL, 1);
  o[n++] = vector(KERN_WRITE, KERN_F64, rows);
  if (s->kind == ZR_OP_HEAD_LOSS) {
    o[n++] = matrix(KERN_WRITE, rows, hidden, hidden);
    o[n++] = of_type(KERN_SUM, matrix(KERN_ADD, a[ZR_HEAD_VOCAB_PADDED], hidden, hidden));
  }
  o[n++] = scratch();
  return n;
}

/* Kinds whose operands are `roles` over attr[ZR_ELEMS] reals. */
static int pointwise_operands(const zr_kern_shape_t *s, const char *roles, kern_operand_t *o) {
  int n = 0;
  for (; roles[n] != 0; n++)
    o[n] = vector(roles[n] == 'r'   ? KERN_READ
                  : roles[n] == 'w' ? KERN_WRITE
                                    : KERN_MODIFY,
                  KERN_REAL, s->attr[ZR_ELEMS]);
  return n;
}

int64_t kern_layout_build(const zr_kern_shape_t *shape, zr_kern_layout_t *out_layout) {
  static const int64_t length[] = {130, 1, 64, 1000, 63, 300, 2048};
  const int64_t *a = shape->attr;
  int64_t flat =
      a[ZR_ADAMW_FIRST] + (KERN_CASE_N_RANKS - 1) * a[ZR_ADAMW_FIRST_PER_RANK] + a[ZR_ADAMW_ELEMS];
  int64_t n = 0;
  /* The last tensors end before the flat does: its end is padding. */
  for (int64_t begin = 0; begin + length[n % 7] < flat; n++) {
    int64_t end = begin + length[n % 7];
    if (out_layout != NULL) {
      zr_kern_tensor_t *tensor = &out_layout->tensor[n];
      *tensor = (zr_kern_tensor_t){.begin = begin, .end = end, .decays = n % 2};
      for (int k = 0; k < 3; k++) tensor->digest_key[k] = zr_mix64((uint64_t)(3 * n + k + 1));
    }
    begin = (end + ZR_FLAT_ALIGN_ELEMS - 1) / ZR_FLAT_ALIGN_ELEMS * ZR_FLAT_ALIGN_ELEMS;
  }
  if (out_layout != NULL) out_layout->n_tensors = n;
  return n;
}

static int step_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  kern_operand_t control = vector(KERN_MODIFY, KERN_CONTROL, 1);
  int64_t n_elems = s->attr[0];
  switch (s->kind) {
    case ZR_OP_COUNT:
      o[0] = vector(KERN_READ, KERN_I32, n_elems), o[1] = control;
      return 2;
    case ZR_OP_LOSS_SUM:
      o[0] = vector(KERN_READ, KERN_F64, n_elems), o[1] = control;
      return 2;
    case ZR_OP_BLOCK_NORM:
      o[0] = vector(KERN_READ, KERN_SUM, n_elems), o[1] = control;
      return 2;
    case ZR_OP_ADAMW:
    case ZR_OP_SGD:
    case ZR_OP_LION:
    case ZR_OP_ADAGRAD:
      pointwise_operands(s, "mrmmrrm", o);
      o[1].type = KERN_SUM, o[2].type = o[3].type = KERN_STATE, o[6].type = KERN_REST;
      o[4] = vector(KERN_READ, KERN_LAYOUT, 1), o[5] = control;
      return 7;
    default:
      o[0] = control;
      return 1;
  }
}

static int kind_operands(const zr_kern_shape_t *s, kern_operand_t *o) {
  switch (s->kind) {
    case ZR_OP_EMBEDDING:
    case ZR_OP_EMBEDDING_GRAD:
      return embedding_operands(s, o);
    case ZR_OP_LINEAR:
    case ZR_OP_LINEAR_GRAD_X:
    case ZR_OP_LINEAR_GRAD_W:
    case ZR_OP_LINEAR_GRAD_B:
      return linear_operands(s, o);
    case ZR_OP_LAYERNORM:
    case ZR_OP_RMSNORM:
    case ZR_OP_LAYERNORM_GRAD:
    case ZR_OP_RMSNORM_GRAD:
      return norm_operands(s, o);
    case ZR_OP_HEAD_NORM:
    case ZR_OP_HEAD_NORM_GRAD:
      return head_norm_operands(s, o);
    case ZR_OP_ROPE:
    case ZR_OP_ROPE_TABLE:
      return rope_operands(s, o);
    case ZR_OP_ATTENTION:
    case ZR_OP_ATTENTION_GRAD:
      return attention_operands(s, o);
    case ZR_OP_HEAD_LOSS:
    case ZR_OP_HEAD_EVAL:
      return head_operands(s, o);
    case ZR_OP_GELU:
      return pointwise_operands(s, "rw", o);
    case ZR_OP_SWIGLU:
    case ZR_OP_ADD:
    case ZR_OP_GELU_GRAD:
      return pointwise_operands(s, "rrw", o);
    case ZR_OP_SWIGLU_GRAD:
      return pointwise_operands(s, "rrrww", o);
    case ZR_OP_FILL:
      return pointwise_operands(s, "w", o);
    case ZR_OP_ACCUMULATE:
    case ZR_OP_SHARD_ADD: /* any two types: the case's */
      pointwise_operands(s, "rm", o);
      o[1].type = KERN_SUM;
      return 2;
    default:
      return step_operands(s, o);
  }
}

int kern_operands(const zr_kern_shape_t *shape, kern_operand_t out_operand[ZR_MAX_OPERANDS]) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) out_operand[i] = (kern_operand_t){0};
  int n = kind_operands(shape, out_operand);
  for (int i = 0; i < n; i++)
    if (!(shape->present >> i & 1u)) out_operand[i].role = KERN_ABSENT;
  return n;
}
