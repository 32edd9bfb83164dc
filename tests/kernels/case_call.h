/* Runs one kernel call for a test: describes the operands of a shape, allocates each between guard
 * zones, fills inputs with seeded random numbers, runs a backend, and compares.
 *
 * A call's life: init, fill, (set), run, (damage, error, equal), fini. Memory outside logical bytes
 * (guards, gaps of a row stride) and outputs hold the poison pattern until something writes them.
 * Failures of the helper itself fail the cmocka test. One thread. */
#ifndef ZR_TESTS_KERNELS_CASE_CALL_H
#define ZR_TESTS_KERNELS_CASE_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/control.h"
#include "tests/kernels/cases.h"

/* Two patterns: what is bit-equal after both was written. 0xff is a NaN in every float type. */
enum { KERN_POISON_NAN = 0xff, KERN_POISON_FINITE = 0x5a };

typedef enum {
  KERN_ABSENT = 0,
  KERN_READ,
  KERN_WRITE,
  KERN_ADD,
  KERN_MODIFY,
  KERN_SCRATCH
} kern_role_t;
/* Reals: KERN_REAL of the case's compute type, KERN_SUM of its sum type,
 * KERN_STATE of its states', KERN_F32 always fp32,
 * KERN_REST what a master has beside a 16-bit parameter; a double each where the call is ZR_F64's
 * (which has no KERN_REST). KERN_STARTS: i32, where documents begin, in cases that have some. */
typedef enum {
  KERN_REAL = 0,
  KERN_SUM,
  KERN_STATE,
  KERN_F32,
  KERN_REST,
  KERN_I32,
  KERN_STARTS,
  KERN_F64,
  KERN_CONTROL,
  KERN_LAYOUT
} kern_type_t;

/* n_rows rows of row_elems elements, `ld` elements apart. KERN_WRITE: overwritten; KERN_ADD:
 * overwritten, or added to if the shape's accumulate bit is set; KERN_MODIFY: always an input too.
 */
typedef struct {
  kern_role_t role;
  kern_type_t type;
  int64_t n_rows, row_elems, ld;
} kern_operand_t;

typedef struct {
  zr_kern_shape_t shape;
  uint32_t offset, control;
  uint8_t poison;
  uint8_t compute, sum, states;    /* the case's types */
  uint8_t stored[ZR_MAX_OPERANDS]; /* zr_dtype_t that inputs are rounded to, also in doubles */
  kern_operand_t desc[ZR_MAX_OPERANDS];
  int64_t elem_bytes[ZR_MAX_OPERANDS];
  uint8_t *block[ZR_MAX_OPERANDS];    /* guard, operand, guard */
  uint8_t *snapshot[ZR_MAX_OPERANDS]; /* of block, before the run */
  int64_t block_bytes[ZR_MAX_OPERANDS];
  zr_kern_call_t call;
} kern_call_t;

/* Operands of a shape (attributes and present bits); returns how many the kind has. */
int kern_operands(const zr_kern_shape_t *shape, kern_operand_t out_operand[ZR_MAX_OPERANDS]);
/* The layout of a case's ADAMW shape; out_layout NULL: only its number of tensors. */
int64_t kern_layout_build(const zr_kern_shape_t *shape, zr_kern_layout_t *out_layout);
void kern_control_fill(zr_control_t *ctl, uint32_t control);

/* The full shape of a case: with the case's types (`real` ZR_F32), or all doubles (ZR_F64). */
zr_kern_shape_t kern_case_shape(const kern_case_t *one, zr_dtype_t real);

void kern_call_init(kern_call_t *call, const kern_case_t *one, zr_dtype_t real, uint8_t poison);
/* Inputs from `seed`: the same numbers in both, of the case's types. Statistics that a backward
 * kernel reads are computed from its inputs by the oracle. */
void kern_call_fill(kern_call_t *call, uint64_t seed);
/* Asks for scratch, prepares, runs. */
zr_status_t kern_call_run(kern_call_t *call, const zr_kern_ops_t *ops, zr_kern_t *kern,
                          zr_pool_t *pool);
void kern_call_fini(kern_call_t *call);

bool kern_call_is_output(const kern_call_t *call, int operand);
int64_t kern_call_n_elems(const kern_call_t *call, int operand); /* logical elements */
/* Logical element i of a real, rest, i32 or f64 operand. */
double kern_call_get(const kern_call_t *call, int operand, int64_t i);
void kern_call_set(kern_call_t *call, int operand, int64_t i, double value);
/* `value` through fp32 to a type of at most 4 bytes, and back. */
double kern_round(zr_dtype_t dtype, double value);

/* Bytes changed that are not logical bytes of an output (guards, gaps, inputs); *out_operand: the
 * first such operand, -1 if none. */
int64_t kern_call_damage(const kern_call_t *call, int *out_operand);
bool kern_call_equal(const kern_call_t *a, const kern_call_t *b, int operand); /* logical bytes */
/* Largest |a - b| over the largest |b| (1 if that is 0); infinite where one is not finite alone.
 * The calls may have different float types. Control blocks: 0 if equal, else infinite. */
double kern_call_error(const kern_call_t *a, const kern_call_t *b, int operand);

#endif
