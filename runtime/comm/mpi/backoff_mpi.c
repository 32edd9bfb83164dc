#include <sched.h>

#include "runtime/base/clock.h"
#include "runtime/base/futex.h"
#include "runtime/comm/mpi/comm_mpi.h"

void zr_mpi_backoff_start(zr_mpi_backoff_t *backoff) {
  backoff->begin_ns = zr_clock_ns();
}

int64_t zr_mpi_backoff_sleep_ns(const zr_mpi_backoff_t *backoff) {
  const int64_t waited_ns = zr_clock_ns() - backoff->begin_ns;
  if (waited_ns < ZR_MPI_POLL_NS) return 0;
  /* A quarter of the wait so far: what a sleep can cost stays in proportion to the wait itself. */
  int64_t sleep_ns = waited_ns / 4;
  if (sleep_ns < ZR_MPI_SLEEP_MIN_NS) sleep_ns = ZR_MPI_SLEEP_MIN_NS;
  return sleep_ns > ZR_MPI_SLEEP_MAX_NS ? ZR_MPI_SLEEP_MAX_NS : sleep_ns;
}

void zr_mpi_backoff_pause(zr_mpi_backoff_t *backoff, zr_comm_t *comm, uint32_t seen) {
  const int64_t sleep_ns = zr_mpi_backoff_sleep_ns(backoff);
  if (sleep_ns == 0) {
    sched_yield(); /* with more ranks than cores the peer may need this one */
  } else {
    zr_futex_wait(&comm->wake, seen, sleep_ns);
  }
}
