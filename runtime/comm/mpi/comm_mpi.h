/* The MPI backend's inside. Only its _mpi.c files include this.
 *
 *   caller ── request, wake ──> service thread: MPI_Init, every MPI call, MPI_Finalize
 *          <── done ──────────
 *
 * One request at a time. What the service thread alone touches is marked so; the rest is atomic or
 * is handed over with `request_state`. Two duplicated communicators: `data` carries the pieces of
 * collectives, `control` carries abort messages and the goodbye of close. */
#ifndef ZR_COMM_MPI_COMM_MPI_H
#define ZR_COMM_MPI_COMM_MPI_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/comm/cause.h"
#include "runtime/comm/comm.h"

enum {
  ZR_MPI_WINDOW = 4,               /* chunks in flight */
  ZR_MPI_CHUNK_BYTES = 256 * 1024, /* to and from each peer: far below MPI's limit of 2^31 - 1 */
  ZR_MPI_POLL_NS = 100000,         /* spinning before a wait sleeps */
  ZR_MPI_SLEEP_MIN_NS = 50000,
  ZR_MPI_SLEEP_MAX_NS = 1000000,
  ZR_MPI_IDLE_NS = 20000000 /* between looks for an abort message while no collective runs */
};

typedef enum {
  ZR_MPI_ALL_GATHER = 1, /* also the message tag */
  ZR_MPI_REDUCE_SCATTER,
  ZR_MPI_ALL_REDUCE,
  ZR_MPI_BROADCAST,
  ZR_MPI_BARRIER,
  ZR_MPI_ABORT_TAG,
  ZR_MPI_GOODBYE_TAG
} zr_mpi_kind_t;

typedef struct {
  zr_mpi_kind_t kind;
  const void *source;
  void *destination;
  int64_t bytes;    /* of a shard, or of the whole vector */
  zr_dtype_t dtype; /* of a sum */
  int accumulate, root;
  void *scratch;
  zr_status_t status; /* the answer */
  char detail[ZR_DETAIL_BYTES];
} zr_mpi_request_t;

typedef struct {
  int32_t rank, status;
  char text[ZR_DETAIL_BYTES];
} zr_mpi_abort_t;

enum { ZR_MPI_IDLE, ZR_MPI_POSTED, ZR_MPI_DONE };         /* request_state */
enum { ZR_MPI_STARTING, ZR_MPI_OPENED, ZR_MPI_FINISHED }; /* life */

typedef struct zr_mpi_share_t zr_mpi_share_t;

struct zr_comm_t {
  zr_alloc_t *alloc;
  pthread_t thread;
  _Atomic uint32_t wake; /* changes when the service thread has something to look at */
  _Atomic uint32_t request_state;
  _Atomic uint32_t life;
  _Atomic uint32_t closing;
  zr_mpi_request_t request;
  zr_status_t open_status; /* written before life leaves ZR_MPI_STARTING */
  char open_detail[ZR_DETAIL_BYTES];
  zr_comm_info_t info;
  zr_comm_cause_t cause;
  _Atomic int64_t sent_bytes;
  zr_mpi_share_t *share; /* of ranks that read each other's memory; NULL: all goes through MPI */
  void *parts; /* n_ranks pointers to the parts of a sum, of its element type; who sums uses it */

  /* The service thread's own. */
  MPI_Comm data, control;
  bool owns_mpi;         /* this backend initialised MPI, so it finalises it */
  bool lost;             /* requests were given up: no MPI call is safe any more */
  int n_requests;        /* window x (sends to n_ranks, receives from n_ranks) */
  MPI_Request *requests; /* [slot][send: 0, receive: 1][peer] */
  MPI_Status *statuses;  /* n_requests */
  int *indices;          /* n_requests */
  int n_left[ZR_MPI_WINDOW];
  bool abort_sent;
  zr_mpi_abort_t abort_in, abort_out;
  MPI_Request abort_receive;
  MPI_Request *abort_sends; /* n_ranks */
  char *drain;              /* ZR_MPI_CHUNK_BYTES: where messages nobody waits for end */
  MPI_Request drain_receive;
};

/* error_mpi.c: the one place that turns MPI's codes into ours. */
zr_status_t zr_mpi_check(int code, const char *call) ZR_MUST_CHECK;

/* backoff_mpi.c: poll for 100 us, then sleep for longer and longer, up to 1 ms. */
typedef struct {
  int64_t begin_ns;
} zr_mpi_backoff_t;
void zr_mpi_backoff_start(zr_mpi_backoff_t *backoff);
int64_t zr_mpi_backoff_sleep_ns(const zr_mpi_backoff_t *backoff); /* 0: still polling */
/* `seen`: comm->wake as it was before the caller last looked; a change ends the sleep. */
void zr_mpi_backoff_pause(zr_mpi_backoff_t *backoff, zr_comm_t *comm, uint32_t seen);

/* abort_mpi.c. poll: sends this rank's abort message once it has one, takes a peer's, and once the
 * cause is known takes in what peers still send, so that their sends complete. */
zr_status_t zr_mpi_abort_listen(zr_comm_t *comm) ZR_MUST_CHECK;
zr_status_t zr_mpi_abort_poll(zr_comm_t *comm) ZR_MUST_CHECK;
/* true once every peer has said goodbye; false when the cause is known and 2 s were not enough. */
bool zr_mpi_goodbye(zr_comm_t *comm);

/* collective_mpi.c, exchange_mpi.c: run on the service thread. */
zr_status_t zr_mpi_collective(zr_comm_t *comm, const zr_mpi_request_t *request) ZR_MUST_CHECK;

/* share_mpi.c, share_wait_mpi.c: the same on the caller's thread, if comm->share. hear takes over a
 * cause that the ranks of this node know, tell tells them of this rank's. Any thread. */
zr_status_t zr_mpi_share_collective(zr_comm_t *comm, const zr_mpi_request_t *request) ZR_MUST_CHECK;
void zr_mpi_share_cause_hear(zr_comm_t *comm);
void zr_mpi_share_cause_tell(zr_comm_t *comm);

/* comm_mpi.c: lets the service thread look again. */
void zr_mpi_service_wake(zr_comm_t *comm);

/* service_mpi.c */
void *zr_mpi_service_main(void *comm);

#endif
