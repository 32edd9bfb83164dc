/* Offers, waiting for them, and reading what they point to. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/comm/mpi/share_mpi.h"

enum { SLEEPS_BETWEEN_LOOKS = 32 }; /* for a peer that has ended */
static const int64_t patience_ns = 1500000000;

static zr_mpi_seat_t *seat_of(const zr_comm_t *comm, int rank) {
  return &comm->share->page->seats[rank];
}

static void ring(zr_comm_t *comm, int rank) {
  zr_mpi_seat_t *seat = seat_of(comm, rank);
  if (!atomic_load(&seat->asleep)) return;
  atomic_fetch_add(&seat->bell, 1);
  (void)syscall(SYS_futex, (uint32_t *)&seat->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void ring_all(zr_comm_t *comm) {
  for (int i = 1; i < comm->info.n_ranks; i++) {
    ring(comm, (comm->info.rank + i) % comm->info.n_ranks);
  }
}

void zr_mpi_share_cause_hear(zr_comm_t *comm) {
  if (!comm->share || zr_comm_cause_known(&comm->cause)) return;
  const zr_comm_cause_t *cause = &comm->share->page->cause;
  if (!zr_comm_cause_known(cause)) return;
  (void)zr_comm_cause_set(&comm->cause, cause->rank, cause->status, cause->text);
}

void zr_mpi_share_cause_tell(zr_comm_t *comm) {
  if (!comm->share) return;
  const zr_comm_cause_t *cause = &comm->cause;
  if (!zr_comm_cause_set(&comm->share->page->cause, cause->rank, cause->status, cause->text)) {
    return;
  }
  ring(comm, comm->info.rank); /* its own collective may sleep: abort comes from any thread */
  ring_all(comm);
}

zr_status_t zr_mpi_share_check(zr_comm_t *comm) {
  zr_mpi_share_cause_hear(comm);
  return zr_comm_cause_check(&comm->cause, comm->info.rank);
}

/* It may have said why, and a program that watches its ranks may say more: they have a moment. */
static zr_status_t peer_has_ended(zr_comm_t *comm, int peer) {
  const int64_t limit_ns = zr_clock_ns() + patience_ns;
  while (zr_clock_ns() < limit_ns) {
    ZR_TRY(zr_mpi_share_check(comm));
    zr_clock_sleep_ns(ZR_MPI_SLEEP_MAX_NS);
  }
  char text[ZR_DETAIL_BYTES];
  snprintf(text, sizeof text, "rank %d (process %d) vanished: it was killed or crashed", peer,
           (int)comm->share->cards[peer].pid);
  (void)zr_comm_cause_set(&comm->cause, comm->info.rank, ZR_ERR_PEER, text);
  return zr_mpi_share_check(comm);
}

static zr_status_t look_after(zr_comm_t *comm, int peer) {
  struct pollfd process = {.fd = comm->share->processes[peer], .events = POLLIN};
  if (process.fd < 0 || poll(&process, 1, 0) <= 0) return ZR_OK;
  return peer_has_ended(comm, peer);
}

/* A ring that comes before `asleep` is seen is lost: the sleeps are short. */
static void sleep_for(zr_mpi_seat_t *own, _Atomic uint64_t *counter, uint64_t wanted,
                      int64_t sleep_ns) {
  const struct timespec timeout = {.tv_nsec = sleep_ns};
  const uint32_t heard = atomic_load(&own->bell);
  atomic_store(&own->asleep, 1);
  if (atomic_load(counter) < wanted) {
    (void)syscall(SYS_futex, (uint32_t *)&own->bell, FUTEX_WAIT, heard, &timeout, NULL, 0);
  }
  atomic_store(&own->asleep, 0);
}

static zr_status_t await(zr_comm_t *comm, int peer, _Atomic uint64_t *counter, uint64_t wanted) {
  if (atomic_load(counter) >= wanted) return ZR_OK;
  zr_mpi_backoff_t backoff;
  zr_mpi_backoff_start(&backoff);
  for (int64_t n_sleeps = 0; atomic_load(counter) < wanted;) {
    ZR_TRY(zr_mpi_share_check(comm));
    const int64_t sleep_ns = zr_mpi_backoff_sleep_ns(&backoff);
    if (sleep_ns == 0) {
      sched_yield(); /* with more ranks than cores the peer may need this one */
      continue;
    }
    sleep_for(seat_of(comm, comm->info.rank), counter, wanted, sleep_ns);
    if (++n_sleeps % SLEEPS_BETWEEN_LOOKS == 0) ZR_TRY(look_after(comm, peer));
  }
  return ZR_OK;
}

zr_status_t zr_mpi_share_offer(zr_comm_t *comm, const zr_mpi_offer_t *head, const void *data) {
  zr_mpi_share_t *share = comm->share;
  for (int peer = 0; peer < comm->info.n_ranks; peer++) {
    ZR_TRY(await(comm, peer, &seat_of(comm, peer)->offered, share->sequence));
  }
  share->sequence++;
  zr_mpi_seat_t *own = seat_of(comm, comm->info.rank);
  zr_mpi_offer_t *offer = &own->offers[share->sequence % 2];
  offer->kind = head->kind;
  offer->bytes = head->bytes;
  offer->root = head->root;
  offer->address = head->bytes > ZR_MPI_INLINE_BYTES ? (uintptr_t)data : 0;
  if (data && head->bytes <= ZR_MPI_INLINE_BYTES) {
    memcpy(offer->payload, data, (size_t)head->bytes);
  }
  atomic_store(&own->offered, share->sequence);
  ring_all(comm);
  return ZR_OK;
}

zr_status_t zr_mpi_share_accept(zr_comm_t *comm, int peer, const zr_mpi_offer_t *head,
                                const zr_mpi_offer_t **out_offer) {
  zr_mpi_seat_t *seat = seat_of(comm, peer);
  const uint64_t sequence = comm->share->sequence;
  ZR_TRY(await(comm, peer, &seat->offered, sequence));
  const zr_mpi_offer_t *offer = &seat->offers[sequence % 2];
  if (offer->kind != head->kind || offer->bytes != head->bytes || offer->root != head->root) {
    return zr_fail(ZR_ERR_INTERNAL,
                   "rank %d calls collective %d of %lld bytes (root %d) where rank %d calls "
                   "collective %d of %lld bytes (root %d)",
                   peer, (int)offer->kind, (long long)offer->bytes, (int)offer->root,
                   comm->info.rank, (int)head->kind, (long long)head->bytes, (int)head->root);
  }
  *out_offer = offer;
  return ZR_OK;
}

/* errno of a failed process_vm_readv. */
static zr_status_t read_failed(zr_comm_t *comm, int peer, int error) {
  if (error == ESRCH) return peer_has_ended(comm, peer);
  return zr_fail(ZR_ERR_NETWORK, "process_vm_readv of rank %d: %s; ZR_COMM_SHARED=0 avoids it",
                 peer, strerror(error));
}

zr_status_t zr_mpi_share_read(zr_comm_t *comm, int peer, const zr_mpi_offer_t *offer,
                              int64_t offset, void *to, int64_t bytes) {
  if (offer->address == 0) {
    memcpy(to, offer->payload + offset, (size_t)bytes);
    return ZR_OK;
  }
  const pid_t process = (pid_t)comm->share->cards[peer].pid;
  for (int64_t done = 0; done < bytes;) {
    const int64_t rest = bytes - done;
    const size_t n = (size_t)(rest < ZR_MPI_SHARE_READ_BYTES ? rest : ZR_MPI_SHARE_READ_BYTES);
    const struct iovec here = {(char *)to + done, n};
    const struct iovec there = {(void *)(uintptr_t)(offer->address + (uint64_t)(offset + done)), n};
    const ssize_t got = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got > 0) done += got;
    if (got == 0) return read_failed(comm, peer, EFAULT);
    if (got < 0 && errno != EINTR) return read_failed(comm, peer, errno);
    ZR_TRY(zr_mpi_share_check(comm));
  }
  return ZR_OK;
}

void zr_mpi_share_done(zr_comm_t *comm) {
  atomic_store(&seat_of(comm, comm->info.rank)->taken, comm->share->sequence);
  ring_all(comm);
}

zr_status_t zr_mpi_share_await_done(zr_comm_t *comm, int peer) {
  return await(comm, peer, &seat_of(comm, peer)->taken, comm->share->sequence);
}
