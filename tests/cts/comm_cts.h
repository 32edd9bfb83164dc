/* What every collective backend must do. All ranks of a job call zr_cts_comm with their opened
 * communicator (MPI opens once per process), and run the same tests in the same order. */
#ifndef ZR_TESTS_CTS_COMM_CTS_H
#define ZR_TESTS_CTS_COMM_CTS_H

#include "runtime/comm/comm.h"

typedef struct {
  const zr_comm_ops_t *ops;
  zr_comm_t *comm;
} zr_cts_comm_t;

/* Returns the number of failed tests. */
int zr_cts_comm(const zr_cts_comm_t *opened, const char *name);

#endif
