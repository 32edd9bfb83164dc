/* The table of operation kinds: one row per kind. Compiler, verifier, text form, cost model,
 * simulator and executor all read that row; what a kind computes is said in kernels/kern.h. Adding
 * a kind is one row here, one kernel per backend, one test case. Constant data; any thread. */
#ifndef ZR_PLAN_OP_H
#define ZR_PLAN_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "runtime/hal/hal.h"

typedef enum {
  ZR_READ = 1,
  ZR_WRITE = 2,                       /* overwrites every byte of the range */
  ZR_ACCUMULATE = ZR_READ | ZR_WRITE, /* reads, then writes: accumulation and in-place changes */
  ZR_SCRATCH = 4                      /* undefined before and after */
} zr_access_t;

/* One operand of a kind. `access` lists what the row allows: an operand marked ZR_WRITE with
 * `may_accumulate` is either overwritten or added to, as the operation says. */
typedef struct {
  const char *name;
  uint8_t access;
  bool may_accumulate;
  bool optional;
} zr_op_operand_row_t;

/* A gradient rule is data: the backward operations of a kind, each operand named by its source. */
typedef enum {
  ZR_GRAD_NONE = 0,
  ZR_GRAD_VALUE, /* the forward operand `index` (input or output) */
  ZR_GRAD_OF     /* the gradient of the forward operand `index` */
} zr_grad_source_t;

typedef struct {
  uint8_t source; /* zr_grad_source_t */
  uint8_t index;
} zr_grad_operand_t;

/* One backward operation; attributes are the forward operation's own, `real` too. A gradient that
 * is an output is overwritten by its first contribution and added to by later ones. A step whose
 * every output gradient is unwanted (an absent bias, token ids) is left out. */
typedef struct {
  int32_t kind; /* zr_op_kind_t; ZR_OP_NOP ends the list */
  zr_grad_operand_t operand[ZR_MAX_OPERANDS];
} zr_grad_step_t;

typedef struct {
  const char *name; /* "linear_grad_x": the text form's */
  uint8_t stream;   /* zr_stream_id_t it runs on unless the plan says otherwise */
  uint8_t n_operands;
  uint8_t n_attrs;
  uint8_t also;    /* bit s: may run on stream s instead */
  bool collective; /* all ranks issue the same ones in the same order */
  bool has_real;
  zr_op_operand_row_t operand[ZR_MAX_OPERANDS];
  const char *attr[ZR_MAX_ATTRS];
  const char *real_name;
  /* Floating-point operations of one execution (a multiply-add is 2); NULL: none worth counting. */
  int64_t (*flops)(const zr_kern_shape_t *shape);
  /* Bytes each operand must have for the shape, -1 where the kind does not say; fills
   * need[n_operands]. The builder refuses an operand of another size. */
  void (*operand_bytes)(const zr_kern_shape_t *shape, int64_t need[ZR_MAX_OPERANDS]);
  /* Gradient: at most 4 steps, ended by ZR_OP_NOP; grad_alias: bit i set if the gradient of input i
   * IS the gradient of the (first) output, the same buffer (residual add, both inputs); in_place:
   * operand of a model kind that is changed in place (its gradient is changed in place too), or -1;
   * grad_flip_attr: attribute that the backward operation has as 1 - attribute, or -1;
   * eager_grad[i]: the operand whose gradient output i is, computed by the forward operation itself
   * (head_loss), or -1. */
  zr_grad_step_t grad[4];
  uint8_t grad_alias;
  int8_t in_place;
  int8_t grad_flip_attr;
  int8_t eager_grad[ZR_MAX_OPERANDS];
} zr_op_row_t;

const zr_op_row_t *zr_op_row(int32_t kind); /* NULL for an unknown kind */
/* -1 when there is none of that name. */
int32_t zr_op_find(const char *name);

#endif
