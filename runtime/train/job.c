#include "runtime/train/job.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/rng.h"

enum { WATCH_MS = 100, PATIENCE_MS = 1000 };

typedef struct {
  int64_t pid;
  uint64_t host;
} peer_t;

struct zr_job_t {
  zr_alloc_t *alloc;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  zr_comm_info_t info;
  peer_t *peer;     /* [n_ranks] */
  int64_t *scratch; /* for sums and agreement */
  int64_t scratch_bytes;
  bool agreed;          /* a failure was settled by zr_job_agree ... */
  int speaker;          /* ... and this rank speaks */
  _Atomic int leaving;  /* a failure is known: peers may go */
  _Atomic int vanished; /* this rank's watcher has spoken */
  pthread_t watcher;
  bool has_watcher;
};

/* --- signals --------------------------------------------------------------------------------- */

static _Atomic int save_requested, stop_requested;

/* A second SIGINT ends the process at once. */
static void on_signal(int number) {
  if (number == SIGINT && atomic_load(&stop_requested)) (void)signal(SIGINT, SIG_DFL);
  atomic_store(number == SIGUSR1 ? &save_requested : &stop_requested, 1);
}

int64_t zr_job_take_requests(void) {
  int64_t requests = atomic_exchange(&save_requested, 0);
  return requests + (atomic_load(&stop_requested) ? (int64_t)1 << 32 : 0);
}

static void install_handlers(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  (void)sigemptyset(&action.sa_mask);
  (void)sigaction(SIGUSR1, &action, NULL);
  (void)sigaction(SIGTERM, &action, NULL);
  (void)sigaction(SIGINT, &action, NULL);
}

/* --- peers ----------------------------------------------------------------------------------- */

static bool is_local(const zr_job_t *job, int rank) {
  return job->peer[rank].host == job->peer[job->info.rank].host;
}

static bool is_alive(const zr_job_t *job, int rank) {
  return kill((pid_t)job->peer[rank].pid, 0) == 0 || errno != ESRCH;
}

/* The first rank of this node that is gone, -1: none; *out_lowest: the lowest that lives. */
static int find_dead(const zr_job_t *job, int *out_lowest) {
  int dead = -1, lowest = -1;
  for (int rank = 0; rank < job->info.n_ranks; ++rank) {
    if (!is_local(job, rank)) continue;
    bool alive = rank == job->info.rank || is_alive(job, rank);
    if (!alive && dead < 0) dead = rank;
    if (alive && lowest < 0) lowest = rank;
  }
  *out_lowest = lowest;
  return dead;
}

static void report_dead(zr_job_t *job, int dead, bool speak) {
  char text[160];
  (void)snprintf(text, sizeof text,
                 "rank %d (process %lld) vanished: it was killed or crashed; run the same command "
                 "again to continue from the last checkpoint",
                 dead, (long long)job->peer[dead].pid);
  atomic_store(&job->vanished, 1);
  if (speak) zr_error("%s", text);
  job->comm_ops->abort(job->comm, ZR_ERR_PEER, text);
}

static bool failure_is_known(zr_job_t *job) {
  return atomic_load(&job->leaving) != 0 || job->comm_ops->cause(job->comm, NULL, NULL, 0) != ZR_OK;
}

/* The lowest living rank of the node speaks; the others wait for it to tell them. */
static void *watch(void *context) {
  zr_job_t *job = context;
  int64_t seen_ms = 0;
  while (!failure_is_known(job)) {
    zr_clock_sleep_ns((int64_t)WATCH_MS * 1000000);
    int lowest, dead = find_dead(job, &lowest);
    if (dead < 0 || failure_is_known(job)) continue;
    /* A peer that failed says so before it goes; a process that was stopped itself needs a moment
     * to read that: it must see the peer gone twice. */
    seen_ms += WATCH_MS;
    if ((lowest == job->info.rank && seen_ms > WATCH_MS) || seen_ms > PATIENCE_MS) {
      report_dead(job, dead, lowest == job->info.rank);
      break;
    }
  }
  return NULL;
}

/* --- life ------------------------------------------------------------------------------------ */

static zr_status_t exchange_peers(zr_job_t *job) {
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  peer_t own = {.pid = getpid(), .host = zr_rng_key(0, host)};
  return zr_job_gather(job, &own, job->peer, sizeof own);
}

/* Signals are for the loop's thread, not for this one. */
static zr_status_t start_watcher(zr_job_t *job) {
  if (job->info.n_ranks == 1) return ZR_OK;
  sigset_t all, before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&job->watcher, NULL, watch, job);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "can not start a thread: %s", strerror(failed));
  job->has_watcher = true;
  return ZR_OK;
}

static zr_status_t start(zr_job_t *job) {
  size_t n_ranks = (size_t)job->info.n_ranks;
  ZR_TRY(zr_alloc_get(job->alloc, n_ranks, sizeof *job->peer, &job->peer));
  job->scratch_bytes = (int64_t)(n_ranks + 2) * 8;
  ZR_TRY(zr_alloc_get(job->alloc, n_ranks + 2, 8, &job->scratch));
  install_handlers();
  ZR_TRY(exchange_peers(job));
  return start_watcher(job);
}

zr_status_t zr_job_create(zr_alloc_t *alloc, const zr_comm_ops_t *comm_ops, zr_comm_t *comm,
                          zr_job_t **out_job) {
  zr_job_t *job = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *job, &job));
  job->alloc = alloc;
  job->comm_ops = comm_ops;
  job->comm = comm;
  job->info = comm_ops->info(comm);
  zr_status_t status = start(job);
  if (status != ZR_OK) {
    zr_job_destroy(job);
    return status;
  }
  *out_job = job;
  return ZR_OK;
}

void zr_job_destroy(zr_job_t *job) {
  if (job == NULL) return;
  atomic_store(&job->leaving, 1);
  if (job->has_watcher) (void)pthread_join(job->watcher, NULL);
  zr_alloc_free(job->alloc, job->peer);
  zr_alloc_free(job->alloc, job->scratch);
  zr_alloc_free(job->alloc, job);
}

const zr_comm_ops_t *zr_job_comm_ops(const zr_job_t *job) {
  return job->comm_ops;
}

zr_comm_t *zr_job_comm(const zr_job_t *job) {
  return job->comm;
}

zr_comm_info_t zr_job_info(const zr_job_t *job) {
  return job->info;
}

/* --- agreement ------------------------------------------------------------------------------- */

zr_status_t zr_job_gather(zr_job_t *job, const void *own, void *out_all, int64_t bytes) {
  char *all = out_all;
  memcpy(all + job->info.rank * bytes, own, (size_t)bytes);
  if (job->info.n_ranks == 1) return ZR_OK;
  return job->comm_ops->all_gather(job->comm, all + job->info.rank * bytes, all, bytes);
}

zr_status_t zr_job_sum(zr_job_t *job, int64_t *data, int64_t count) {
  if (job->info.n_ranks == 1) return ZR_OK;
  void *scratch = NULL;
  int64_t bytes = job->comm_ops->scratch_bytes(job->comm, count * 8);
  ZR_TRY(zr_alloc_get(job->alloc, (size_t)bytes, 1, &scratch));
  zr_status_t status = job->comm_ops->all_reduce(job->comm, data, count, scratch);
  zr_alloc_free(job->alloc, scratch);
  return status;
}

zr_status_t zr_job_agree(zr_job_t *job, zr_status_t status) {
  char detail[ZR_DETAIL_BYTES];
  (void)snprintf(detail, sizeof detail, "%s", zr_detail());
  int64_t own = status;
  zr_status_t gathered = zr_job_gather(job, &own, job->scratch, sizeof own);
  zr_detail_set(detail);
  if (gathered != ZR_OK) {
    /* Another rank failed elsewhere; a failure of this one's own is a consequence or a twin. */
    return status != ZR_OK ? status : gathered;
  }
  for (int rank = 0; rank < job->info.n_ranks; ++rank) {
    if (job->scratch[rank] == ZR_OK) continue;
    atomic_store(&job->leaving, 1);
    job->agreed = true;
    job->speaker = rank;
    return (zr_status_t)job->scratch[rank];
  }
  return ZR_OK;
}

void zr_job_abort(zr_job_t *job, zr_status_t status) {
  if (!job->agreed) job->comm_ops->abort(job->comm, status, zr_detail());
}

/* --- the last word --------------------------------------------------------------------------- */

void zr_job_judge(zr_job_t *job, zr_status_t status, zr_job_verdict_t *out_verdict) {
  int rank = job->info.rank, speaker = job->speaker;
  *out_verdict = (zr_job_verdict_t){.speaks = true, .exit_code = zr_status_exit_code(status)};
  if (!job->agreed) {
    zr_status_t cause = job->comm_ops->cause(job->comm, &speaker, NULL, 0);
    if (cause == ZR_OK) return; /* nobody else knows */
    out_verdict->exit_code = zr_status_exit_code(cause);
  }
  out_verdict->speaks = speaker == rank && atomic_load(&job->vanished) == 0;
  if (speaker != rank && is_local(job, speaker)) out_verdict->speaker_pid = job->peer[speaker].pid;
}

void zr_job_linger(const zr_job_verdict_t *verdict) {
  enum { NAPS = 100, NAP_MS = 10 };
  if (verdict->speaker_pid == 0) return;
  for (int i = 0; i < NAPS && kill((pid_t)verdict->speaker_pid, 0) == 0; ++i) {
    zr_clock_sleep_ns((int64_t)NAP_MS * 1000000);
  }
}
