/* The tape: the operations of one micro-batch's forward, recorded by a model function; the backward
 * is derived from it by each kind's gradient rule (runtime/plan/op.h). Floor 4; knows no backend;
 * one thread.
 *
 * A unit is what is gathered and released together: the embedding, each block, the head. Tensors
 * belong to the unit they were declared in; a tied tensor is declared once and may be used in
 * another unit. */
#ifndef ZR_MODEL_TAPE_H
#define ZR_MODEL_TAPE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/plan/op.h"
#include "runtime/plan/plan.h"

typedef enum { ZR_INIT_NORMAL, ZR_INIT_NORMAL_SCALED, ZR_INIT_ONE, ZR_INIT_ZERO } zr_init_t;

/* A parameter tensor: rows x cols as Hugging Face has it (a vector: 1 x cols, n_dims 1). */
typedef struct {
  char name[96]; /* "model.layers.0.self_attn.q_proj.weight" */
  int32_t unit;
  int32_t n_dims;      /* 1 or 2 */
  int64_t rows, cols;  /* logical */
  int64_t padded_rows; /* rows in the flat: the vocabulary is padded */
  int32_t init;        /* zr_init_t */
  bool is_vocab;
} zr_tape_tensor_t;

typedef enum {
  ZR_VALUE_ACTIVATION,
  ZR_VALUE_PARAM,     /* `tensor` says which */
  ZR_VALUE_DATA,      /* tokens, targets, losses */
  ZR_VALUE_TABLE,     /* persistent: the rotary table */
  ZR_VALUE_CONTROL,   /* the control block */
  ZR_VALUE_GRAD,      /* gradient of the activation `of` */
  ZR_VALUE_PARAM_GRAD /* gradient of tensor `tensor`, of its use in unit `use_unit` */
} zr_value_kind_t;

typedef struct {
  char name[32];
  int32_t kind; /* zr_value_kind_t */
  int32_t unit; /* where it was made */
  int64_t elems;
  int32_t dtype;
  int32_t tensor; /* param, param grad; -1 */
  int32_t of;     /* grad: the value; -1 */
  int32_t use_unit;
  int32_t grad; /* activation: its gradient's value, -1 while it has none */
  bool written; /* gradients: a first contribution has been recorded */
} zr_value_t;

/* Elements [offset, offset + elems) of a value; value -1: absent. */
typedef struct {
  int32_t value;
  uint8_t access; /* zr_access_t; backward outputs: ZR_WRITE for a first contribution, ZR_ACCUMULATE
                     for later ones */
  int64_t offset, elems;
} zr_tape_operand_t;

typedef struct {
  int32_t kind;
  int32_t unit;
  int64_t attr[ZR_MAX_ATTRS];
  double real;
  int32_t n_operands; /* without scratch: the compiler adds it */
  zr_tape_operand_t operand[ZR_MAX_OPERANDS];
} zr_tape_op_t;

typedef struct {
  zr_alloc_t *alloc;
  int32_t dtype; /* of parameters and activations */
  zr_tape_tensor_t *tensor;
  size_t n_tensors, tensor_capacity;
  zr_value_t *value;
  size_t n_values, value_capacity;
  zr_tape_op_t *op; /* forward: 0 .. n_forward - 1; then backward */
  size_t n_ops, op_capacity, n_forward;
  char (*unit_name)[ZR_PLAN_NAME_BYTES];
  size_t n_units, unit_capacity;
  int32_t tokens, targets, losses, control; /* values */
  int32_t starts, rope_table;               /* -1 where there is none */
  zr_status_t status; /* sticky: recording goes on after a failure and zr_tape_backward or _finish
                         reports it */
} zr_tape_t;

zr_status_t zr_tape_create(zr_alloc_t *alloc, int64_t rows, zr_dtype_t dtype,
                           zr_tape_t **out_tape) ZR_MUST_CHECK;
void zr_tape_destroy(zr_tape_t *tape);

/* Where each row's document begins: a value that micro-batches bring beside their tokens. */
void zr_tape_add_starts(zr_tape_t *tape);

void zr_tape_unit(zr_tape_t *tape, const char *name); /* begins the next unit */
/* Declares a tensor of the current unit; returns its value. */
int32_t zr_tape_param(zr_tape_t *tape, const char *name, int64_t rows, int64_t cols, int n_dims,
                      zr_init_t init, bool is_vocab);
int32_t zr_tape_value(zr_tape_t *tape, const char *name, int64_t elems);
/* Records an operation; returns its index. */
int32_t zr_tape_record(zr_tape_t *tape, int32_t kind, const int64_t *attr, double real,
                       int n_operands, const zr_tape_operand_t *operand);

/* The gradient value of an activation (made on first use), and of a parameter's use in the current
 * unit. */
int32_t zr_tape_grad(zr_tape_t *tape, int32_t value);
int32_t zr_tape_param_grad(zr_tape_t *tape, int32_t param);

/* A whole value as an operand, and elements [offset, offset + elems) of it. */
zr_tape_operand_t zr_tape_all(const zr_tape_t *tape, int32_t value, zr_access_t access);
zr_tape_operand_t zr_tape_part(int32_t value, int64_t offset, int64_t elems, zr_access_t access);
zr_tape_operand_t zr_tape_none(void);

/* Derives the backward of everything recorded. Gradients start from the head's eager ones. */
zr_status_t zr_tape_backward(zr_tape_t *tape) ZR_MUST_CHECK;
void zr_tape_print(const zr_tape_t *tape, FILE *file);

#endif
