/* Runs a tape's operations one by one with one kernel backend, each value in a buffer of its own:
 * the meaning of a model without flats, plans or streams. In float, or in double with the double
 * oracle. Failures of the helper fail the cmocka test. One thread. */
#ifndef ZR_TESTS_SUPPORT_TAPE_RUN_H
#define ZR_TESTS_SUPPORT_TAPE_RUN_H

#include "kernels/control.h"
#include "runtime/model/model.h"

typedef struct {
  const zr_tape_t *tape;
  zr_dtype_t real; /* ZR_F32 or ZR_F64: the type of every fp32 value */
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  zr_pool_t *pool;
  void **value; /* [tape->n_values], filled with NaNs by tape_run_init and before every run */
  zr_control_t *control;
  void *scratch;
  int64_t scratch_bytes;
} tape_run_t;

/* Borrows everything. The rotary table, where the tape has one, is made here. */
void tape_run_init(tape_run_t *run, const zr_tape_t *tape, const zr_model_config_t *config,
                   const zr_model_run_t *shape, zr_dtype_t real, const zr_kern_ops_t *ops,
                   zr_kern_t *kern, zr_pool_t *pool);
void tape_run_fini(tape_run_t *run);

/* A tensor's logical elements; padding becomes zero. */
void tape_run_set_param(tape_run_t *run, size_t tensor, const double *values);
double tape_run_get(const tape_run_t *run, int32_t value, int64_t i); /* element i of a value */
void tape_run_set(tape_run_t *run, int32_t value, int64_t i, double number);

/* Clears the control block and counts `n_batches` micro-batches' targets: what comes before the
 * first of them. */
void tape_run_begin(tape_run_t *run, const int32_t *targets, int64_t n_batches);
/* Where documents of the next micro-batch begin [rows]; needed once if the tape has that value. */
void tape_run_set_starts(tape_run_t *run, const int32_t *starts);
/* One micro-batch, tokens and targets [rows]: forward, and backward if the tape has one. */
void tape_run_batch(tape_run_t *run, const int32_t *tokens, const int32_t *targets);
double tape_run_loss(const tape_run_t *run); /* since tape_run_begin: sum / counted tokens */
/* Adds the last micro-batch's gradient to `sum` [logical elements]: its use in its own unit, then
 * tied uses. */
void tape_run_add_gradient(const tape_run_t *run, size_t tensor, double *sum);

/* One kernel call outside of the tape, on operands of the run's own types; absent ones NULL,
 * scratch is added. `accumulate` as in zr_kern_shape_t. */
typedef struct {
  int32_t kind;
  uint32_t accumulate;
  const int64_t *attr; /* as many as the kind has */
  double real;
  int n_operands; /* without scratch */
  struct {
    void *data;
    int64_t bytes;
    zr_dtype_t dtype;
  } operand[ZR_MAX_OPERANDS];
} tape_run_call_t;
void tape_run_call(tape_run_t *run, const tape_run_call_t *call);

#endif
