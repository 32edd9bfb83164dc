#include "runtime/comm/mpi/comm_mpi.h"

zr_status_t zr_mpi_check(int code, const char *call) {
  if (code == MPI_SUCCESS) return ZR_OK;
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(code, text, &n);
  return zr_fail(ZR_ERR_NETWORK, "%s: %s", call, text);
}
