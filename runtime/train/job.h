/* What the ranks of a job settle among themselves besides training: failures that some of them see,
 * signals, and peers that vanish.
 *
 * zr_job_agree is called by the loop's thread on every rank at the same place, streams drained. A
 * watcher thread looks ten times a second whether the node's other ranks still exist. */
#ifndef ZR_TRAIN_JOB_H
#define ZR_TRAIN_JOB_H

#include "runtime/comm/comm.h"

typedef struct zr_job_t zr_job_t;

/* Installs handlers: SIGUSR1 asks to save; SIGTERM and SIGINT to save and stop. Collective. The job
 * is the first to speak to the other ranks; comm is not owned. */
zr_status_t zr_job_create(zr_alloc_t *alloc, const zr_comm_ops_t *comm_ops, zr_comm_t *comm,
                          zr_job_t **out_job) ZR_MUST_CHECK;
/* Stops watching; call before the comm is closed. NULL is fine. */
void zr_job_destroy(zr_job_t *job);

const zr_comm_ops_t *zr_job_comm_ops(const zr_job_t *job);
zr_comm_t *zr_job_comm(const zr_job_t *job);
zr_comm_info_t zr_job_info(const zr_job_t *job);

/* Every rank brings its status (and detail). All ZR_OK: ZR_OK. Else the failing rank of the lowest
 * number gets its own status back and speaks; the others get that status too, and are silent. */
zr_status_t zr_job_agree(zr_job_t *job, zr_status_t status) ZR_MUST_CHECK;
/* A failure that only this rank may have seen: the others learn of it when they next wait. Nothing
 * after zr_job_agree has settled one. */
void zr_job_abort(zr_job_t *job, zr_status_t status);

/* After a failure with `status`: who prints zr_detail(), and the exit code of the first cause. */
typedef struct {
  bool speaks; /* this rank does */
  int exit_code;
  int64_t speaker_pid; /* another rank of this node does: its process; else 0 */
} zr_job_verdict_t;
void zr_job_judge(zr_job_t *job, zr_status_t status, zr_job_verdict_t *out_verdict);
/* Waits, at most a second, until the speaking process is gone: a launcher that sees a silent rank
 * fail first ends the others, and what they said may be lost. Call when all is closed. */
void zr_job_linger(const zr_job_verdict_t *verdict);

/* Sums int64 over the ranks. */
zr_status_t zr_job_sum(zr_job_t *job, int64_t *data, int64_t count) ZR_MUST_CHECK;
/* Gathers `bytes` of each rank into out_all [n_ranks * bytes]. */
zr_status_t zr_job_gather(zr_job_t *job, const void *own, void *out_all,
                          int64_t bytes) ZR_MUST_CHECK;

/* What signals have asked since the last call, in the form of zr_control_t.flags: 1 save, 2^32
 * stop. Any thread. A request to stop stays. */
int64_t zr_job_take_requests(void);

#endif
