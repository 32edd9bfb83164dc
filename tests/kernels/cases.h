/* The one table of kernel cases, shared by the tests of every kernel backend: shapes with odd
 * sizes, tails, row strides, absent operands, accumulation, zero length; and the bound within which
 * a backend must meet the oracle. Run them with case_call.h, those in 16 bits with case_half.h. */
#ifndef ZR_TESTS_KERNELS_CASES_H
#define ZR_TESTS_KERNELS_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kern.h"

/* Settings of the control block for a case (fields that a kernel reads). */
enum {
  KERN_CTL_L2 = 1,
  KERN_CTL_SKIP = 2,
  KERN_CTL_NO_DIGEST = 4,
  KERN_CTL_PARAM_DIGEST = 8,
  KERN_CTL_BAD_PARAMS = 16, /* every 97th parameter is infinite or NaN */
  KERN_CTL_NESTEROV = 32
};

/* Control blocks of cases are rank 2's of 4. */
enum { KERN_CASE_RANK = 2, KERN_CASE_N_RANKS = 4 };

typedef struct {
  const char *name;
  int32_t kind;
  /* Largest difference from the oracle, over the largest magnitude of the output; 0: same bits. */
  double bound;
  int64_t attr[ZR_MAX_ATTRS];
  double real;
  uint32_t accumulate; /* bit i: operand i, as in zr_kern_shape_t */
  uint32_t absent;     /* bit i: optional operand i is not there */
  uint32_t offset;     /* bit i: operand i starts one element past its 64-byte boundary */
  uint32_t control;    /* KERN_CTL_... */
  bool documents;      /* samples hold several: `starts` is there */
  /* Types of a 16-bit case: parameters, activations and their gradients; sums of parameter
   * gradients. 0: fp32. */
  uint8_t compute, sum;
  uint8_t states;    /* of an optimizer: ZR_BF16, or 0: fp32 */
  double bound_half; /* as bound, of outputs of a 16-bit type; `bound` is then that of the others */
} kern_case_t;

extern const kern_case_t kern_cases[]; /* fp32 */
extern const int kern_n_cases;
extern const kern_case_t kern_half_cases[]; /* bf16, fp16 */
extern const int kern_n_half_cases;

#endif
