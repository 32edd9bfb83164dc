/* The whole machine on one golden model: compiled step, executor, cpu streams, a comm backend. What
 * a training loop does, without the loop. Failures fail the cmocka test. */
#ifndef ZR_TESTS_ORACLE_MACHINE_H
#define ZR_TESTS_ORACLE_MACHINE_H

#include "runtime/exec/exec.h"
#include "runtime/zero/zero.h"
#include "tests/oracle/golden.h"

typedef struct {
  int stage, order; /* zr_order_t */
  int64_t micro_batch, group, prefetch;
  int n_threads;
  zr_dtype_t dtype, grad_dtype; /* 0: fp32 */
  bool serial, ref;             /* ref: the float oracle's kernels */
  const char *isa;              /* of the cpu kernels; NULL: auto */
} machine_setting_t;

typedef struct {
  const golden_t *golden;
  machine_setting_t setting;
  const zr_comm_ops_t *comm_ops; /* borrowed */
  zr_comm_t *comm;
  zr_comm_info_t info;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  zr_pool_t *pool;
  zr_zero_t *zero;
  zr_exec_t *exec;
  int plan_step;
} machine_t;

/* Parameters uploaded, moments cleared. Every step takes the golden file's samples, however they
 * are spread over the ranks. */
void machine_open(machine_t *machine, const golden_t *golden, const machine_setting_t *setting,
                  const zr_comm_ops_t *comm_ops, zr_comm_t *comm);
zr_step_record_t machine_step(machine_t *machine, int64_t step); /* from 1 */
/* fp32 only: this rank's part of unit `unit`'s parameters: flat elements [*out_begin, *out_end),
 * malloc'd. */
float *machine_params(machine_t *machine, size_t unit, int64_t *out_begin, int64_t *out_end);
void machine_close(machine_t *machine);

#endif
