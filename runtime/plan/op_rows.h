/* Private to the table: the two halves of the rows, and the shorthand that both use. */
#ifndef ZR_PLAN_OP_ROWS_H
#define ZR_PLAN_OP_ROWS_H

#include "kernels/control.h"
#include "runtime/plan/op.h"

/* Indexed by kind; rows of the other half are empty (name NULL). */
extern const zr_op_row_t zr_op_rows_model[ZR_N_OP_KINDS];
extern const zr_op_row_t zr_op_rows_step[ZR_N_OP_KINDS];

/* Operands as kern.h writes them: R, W, A ("accumulated": written or added to), C (changed: read
 * and written), S (scratch). */
#define OP_R(n) \
  { .name = n, .access = ZR_READ }
#define OP_R_OPTIONAL(n) \
  { .name = n, .access = ZR_READ, .optional = true }
#define OP_W(n) \
  { .name = n, .access = ZR_WRITE }
#define OP_W_OPTIONAL(n) \
  { .name = n, .access = ZR_WRITE, .optional = true }
#define OP_A(n) \
  { .name = n, .access = ZR_WRITE, .may_accumulate = true }
#define OP_A_OPTIONAL(n) \
  { .name = n, .access = ZR_WRITE, .may_accumulate = true, .optional = true }
#define OP_C(n) \
  { .name = n, .access = ZR_ACCUMULATE }
#define OP_C_OPTIONAL(n) \
  { .name = n, .access = ZR_ACCUMULATE, .optional = true }
/* A shape that needs no scratch has none, so it is always optional. */
#define OP_S \
  { .name = "scratch", .access = ZR_SCRATCH, .optional = true }

#define NO_EAGER_GRAD \
  { -1, -1, -1, -1, -1, -1, -1, -1 }
#define NO_GRAD .in_place = -1, .grad_flip_attr = -1, .eager_grad = NO_EAGER_GRAD
#define VALUE(i) \
  { ZR_GRAD_VALUE, i }
#define GRAD(i) \
  { ZR_GRAD_OF, i }

/* Bytes of `elems` elements of operand i. */
static inline int64_t zr_op_elems_bytes(const zr_kern_shape_t *shape, int i, int64_t elems) {
  return elems * zr_dtype_bytes((zr_dtype_t)shape->dtype[i]);
}

/* Bytes from the first to the last element of [rows, cols] with row stride ld. */
static inline int64_t zr_op_rows_bytes(const zr_kern_shape_t *shape, int i, int64_t rows,
                                       int64_t cols, int64_t ld) {
  return rows == 0 ? 0 : zr_op_elems_bytes(shape, i, (rows - 1) * ld + cols);
}

#endif
