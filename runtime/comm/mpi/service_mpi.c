/* The service thread: MPI's life from MPI_Init_thread to MPI_Finalize, and the loop in between. */
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "runtime/base/clock.h"
#include "runtime/base/futex.h"
#include "runtime/comm/mpi/share_mpi.h"

/* A program that embeds zerorun may have initialised MPI itself; then it also finalises it. */
static zr_status_t init_mpi(zr_comm_t *comm) {
  int initialized = 0, finalized = 0, provided = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "MPI can be opened only once by a process");
  }
  if (initialized) {
    ZR_TRY(zr_mpi_check(MPI_Query_thread(&provided), "MPI_Query_thread"));
    if (provided < MPI_THREAD_SERIALIZED) {
      return zr_fail(ZR_ERR_UNSUPPORTED, "MPI was initialised without MPI_THREAD_SERIALIZED");
    }
    return ZR_OK;
  }
  ZR_TRY(zr_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided),
                      "MPI_Init_thread"));
  comm->owns_mpi = true;
  return ZR_OK;
}

static zr_status_t find_ranks(zr_comm_t *comm) {
  MPI_Comm node = MPI_COMM_NULL;
  ZR_TRY(zr_mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                      "MPI_Comm_set_errhandler"));
  ZR_TRY(zr_mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &comm->info.rank), "MPI_Comm_rank"));
  ZR_TRY(zr_mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &comm->info.n_ranks), "MPI_Comm_size"));
  ZR_TRY(zr_mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, comm->info.rank,
                                          MPI_INFO_NULL, &node),
                      "MPI_Comm_split_type"));
  ZR_TRY(zr_mpi_check(MPI_Comm_rank(node, &comm->info.local_rank), "MPI_Comm_rank"));
  ZR_TRY(zr_mpi_check(MPI_Comm_size(node, &comm->info.n_local_ranks), "MPI_Comm_size"));
  return zr_mpi_check(MPI_Comm_free(&node), "MPI_Comm_free");
}

static zr_status_t get_memory(zr_comm_t *comm) {
  const size_t n_ranks = (size_t)comm->info.n_ranks;
  const size_t n_requests = ZR_MPI_WINDOW * 2 * n_ranks;
  comm->n_requests = (int)n_requests;
  ZR_TRY(zr_alloc_get(comm->alloc, n_requests, sizeof *comm->requests, &comm->requests));
  ZR_TRY(zr_alloc_get(comm->alloc, n_requests, sizeof *comm->statuses, &comm->statuses));
  ZR_TRY(zr_alloc_get(comm->alloc, n_requests, sizeof *comm->indices, &comm->indices));
  ZR_TRY(zr_alloc_get(comm->alloc, n_ranks, sizeof(void *), &comm->parts));
  ZR_TRY(zr_alloc_get(comm->alloc, n_ranks, sizeof *comm->abort_sends, &comm->abort_sends));
  ZR_TRY(zr_alloc_get(comm->alloc, ZR_MPI_CHUNK_BYTES, 1, &comm->drain));
  for (size_t i = 0; i < n_requests; i++) comm->requests[i] = MPI_REQUEST_NULL;
  for (size_t i = 0; i < n_ranks; i++) comm->abort_sends[i] = MPI_REQUEST_NULL;
  comm->abort_receive = MPI_REQUEST_NULL;
  comm->drain_receive = MPI_REQUEST_NULL;
  return zr_mpi_share_get(comm);
}

/* A rank without memory must not leave the others waiting for it: all agree before they go on. */
static zr_status_t agree(zr_status_t status) {
  int own = status, worst = status;
  ZR_TRY(zr_mpi_check(MPI_Allreduce(&own, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
                      "MPI_Allreduce"));
  if (status == ZR_OK && worst != ZR_OK) {
    return zr_fail(ZR_ERR_PEER, "another rank could not start: %s", zr_status_name(worst));
  }
  return status;
}

static zr_status_t connect_ranks(zr_comm_t *comm) {
  ZR_TRY(find_ranks(comm));
  ZR_TRY(agree(get_memory(comm)));
  ZR_TRY(zr_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm->data), "MPI_Comm_dup"));
  ZR_TRY(zr_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm->control), "MPI_Comm_dup"));
  ZR_TRY(zr_mpi_share_open(comm));
  return zr_mpi_abort_listen(comm);
}

static void serve(zr_comm_t *comm) {
  int64_t idle_since_ns = zr_clock_ns();
  for (;;) {
    const uint32_t seen = atomic_load(&comm->wake);
    if (atomic_load(&comm->request_state) == ZR_MPI_POSTED) {
      zr_mpi_request_t *request = &comm->request;
      request->status = zr_mpi_collective(comm, request);
      if (request->status != ZR_OK) {
        snprintf(request->detail, sizeof request->detail, "%s", zr_detail());
      }
      atomic_store(&comm->request_state, ZR_MPI_DONE);
      zr_futex_wake_all(&comm->request_state);
      idle_since_ns = zr_clock_ns();
      continue;
    }
    if (atomic_load(&comm->closing)) return;
    if (zr_clock_ns() - idle_since_ns < ZR_MPI_POLL_NS / 4) {
      sched_yield();
      continue;
    }
    const zr_status_t status = zr_mpi_abort_poll(comm);
    if (status != ZR_OK) {
      (void)zr_comm_cause_set(&comm->cause, comm->info.rank, status, zr_detail());
    }
    int64_t sleep_ns = ZR_MPI_IDLE_NS;
    if (zr_comm_cause_known(&comm->cause)) sleep_ns = ZR_MPI_SLEEP_MAX_NS; /* peers drain */
    if (comm->info.n_ranks == 1 || comm->lost) sleep_ns = -1;
    zr_futex_wait(&comm->wake, seen, sleep_ns);
  }
}

/* Ends this backend's use of MPI; finalises only when every peer will do the same. */
static void leave_mpi(zr_comm_t *comm) {
  if (!zr_mpi_goodbye(comm)) return;
  if (comm->abort_receive != MPI_REQUEST_NULL) {
    (void)MPI_Cancel(&comm->abort_receive);
    (void)MPI_Wait(&comm->abort_receive, MPI_STATUS_IGNORE);
  }
  (void)MPI_Comm_free(&comm->data);
  (void)MPI_Comm_free(&comm->control);
  if (comm->owns_mpi) (void)MPI_Finalize();
}

void *zr_mpi_service_main(void *context) {
  zr_comm_t *comm = context;
  (void)prctl(PR_SET_TIMERSLACK, 1000ul); /* 1 us instead of 50: this thread's sleeps are short */
  zr_status_t status = init_mpi(comm);
  if (status == ZR_OK) status = connect_ranks(comm);
  if (status != ZR_OK) snprintf(comm->open_detail, sizeof comm->open_detail, "%s", zr_detail());
  comm->open_status = status;
  if (status == ZR_OK) {
    atomic_store(&comm->life, ZR_MPI_OPENED);
    zr_futex_wake_all(&comm->life);
    serve(comm);
    leave_mpi(comm);
  } else if (comm->owns_mpi) {
    (void)MPI_Finalize();
  }
  atomic_store(&comm->life, ZR_MPI_FINISHED);
  zr_futex_wake_all(&comm->life);
  return NULL;
}
