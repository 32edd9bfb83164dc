#include <sched.h>

#include "runtime/base/clock.h"
#include "runtime/base/futex.h"
#include "runtime/comm/mpi/comm_mpi.h"

void zr_mpi_backoff_start(zr_mpi_backoff_t *backoff) {
  backoff->begin_ns = zr_clock_ns();
  backoff->sleep_ns = 0;
}

void zr_mpi_backoff_pause(zr_mpi_backoff_t *backoff, zr_comm_t *comm, uint32_t seen) {
  if (backoff->sleep_ns == 0) {
    if (zr_clock_ns() - backoff->begin_ns < ZR_MPI_POLL_NS) {
      sched_yield(); /* with more ranks than cores the peer may need this one */
      return;
    }
    backoff->sleep_ns = ZR_MPI_SLEEP_MIN_NS;
  }
  zr_futex_wait(&comm->wake, seen, backoff->sleep_ns);
  backoff->sleep_ns *= 2;
  if (backoff->sleep_ns > ZR_MPI_SLEEP_MAX_NS) backoff->sleep_ns = ZR_MPI_SLEEP_MAX_NS;
}
