#include "runtime/comm/comm.h"

zr_status_t zr_comm_mpi_open(zr_alloc_t *alloc, const zr_comm_ops_t **out_ops,
                             zr_comm_t **out_comm) {
  (void)alloc;
  (void)out_ops;
  (void)out_comm;
  return zr_fail(ZR_ERR_UNSUPPORTED,
                 "this zerorun was built without MPI: run one rank, or install libopenmpi-dev and "
                 "configure again with -DZR_WITH_MPI=ON");
}
