/* Also without MPI, so that a build without it can say why it does not run under mpirun. */
#include <stdlib.h>

#include "runtime/comm/comm.h"

static int number(const char *variable) {
  const char *text = getenv(variable);
  return text ? (int)strtol(text, NULL, 10) : 0;
}

int zr_comm_mpi_launched(void) {
  /* Open MPI; PMI-1 and PMI-2 (MPICH, Intel MPI, Slurm); MVAPICH. */
  if (number("OMPI_COMM_WORLD_SIZE") > 1 || number("PMI_SIZE") > 1 ||
      number("MV2_COMM_WORLD_SIZE") > 1) {
    return 1;
  }
  /* srun with PMIx names the rank, not the size; a plain batch script has no PMIX_RANK. */
  return getenv("PMIX_RANK") != NULL && number("SLURM_NTASKS") > 1;
}
