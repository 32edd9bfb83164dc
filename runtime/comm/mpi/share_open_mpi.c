/* Finding out whether the ranks may read each other's memory, and the page they share. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/rng.h"
#include "runtime/comm/mpi/share_mpi.h"

zr_status_t zr_mpi_share_get(zr_comm_t *comm) {
  const char *asked = getenv("ZR_COMM_SHARED");
  if (asked && strcmp(asked, "0") != 0 && strcmp(asked, "1") != 0) {
    return zr_fail(ZR_ERR_CONFIG,
                   "ZR_COMM_SHARED=%s: 1 (the default) lets ranks of a node read each other's "
                   "memory, 0 sends all through MPI",
                   asked);
  }
  const size_t n_ranks = (size_t)comm->info.n_ranks;
  if (n_ranks == 1 || comm->info.n_local_ranks != comm->info.n_ranks) return ZR_OK;
  ZR_TRY(zr_alloc_get(comm->alloc, 1, sizeof *comm->share, &comm->share));
  ZR_TRY(zr_alloc_get(comm->alloc, n_ranks, sizeof *comm->share->cards, &comm->share->cards));
  ZR_TRY(zr_alloc_get(comm->alloc, n_ranks, sizeof(int), &comm->share->processes));
  for (size_t i = 0; i < n_ranks; i++) comm->share->processes[i] = -1;
  comm->share->page_bytes = sizeof(zr_mpi_page_t) + n_ranks * sizeof(zr_mpi_seat_t);
  return ZR_OK;
}

void zr_mpi_share_close(zr_comm_t *comm) {
  zr_mpi_share_t *share = comm->share;
  if (!share) return;
  for (int i = 0; share->processes && i < comm->info.n_ranks; i++) {
    if (share->processes[i] >= 0) close(share->processes[i]);
  }
  if (share->page) munmap(share->page, share->page_bytes);
  zr_alloc_free(comm->alloc, share->processes);
  zr_alloc_free(comm->alloc, share->cards);
  zr_alloc_free(comm->alloc, share);
  comm->share = NULL;
}

static zr_status_t map_page(zr_mpi_share_t *share, int file) {
  void *page = mmap(NULL, share->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "mmap of a memfd: %s", strerror(errno));
  }
  share->page = page;
  return ZR_OK;
}

/* Rank 0. *out_file: the page's descriptor, by which the others find it. */
static zr_status_t make_page(zr_mpi_share_t *share, int *out_file) {
  const int file = memfd_create("zerorun-comm", MFD_CLOEXEC);
  if (file < 0) return zr_fail(ZR_ERR_UNSUPPORTED, "memfd_create: %s", strerror(errno));
  if (ftruncate(file, (off_t)share->page_bytes)) {
    close(file);
    return zr_fail(ZR_ERR_UNSUPPORTED, "ftruncate of a memfd: %s", strerror(errno));
  }
  *out_file = file;
  return map_page(share, file);
}

static zr_status_t find_page(zr_mpi_share_t *share) {
  const zr_mpi_card_t *maker = &share->cards[0];
  char path[64];
  if (maker->page_file == 0) return zr_fail(ZR_ERR_UNSUPPORTED, "rank 0 has no page to share");
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)maker->pid, (int)maker->page_file - 1);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return zr_fail(ZR_ERR_UNSUPPORTED, "open of %s: %s", path, strerror(errno));
  struct stat facts;
  const bool fits = fstat(file, &facts) == 0 && facts.st_size == (off_t)share->page_bytes;
  const zr_status_t status =
      fits ? map_page(share, file) : zr_fail(ZR_ERR_UNSUPPORTED, "%s is another file", path);
  close(file);
  return status;
}

/* A process id may mean another process in another container, so what is read must be right. */
static zr_status_t try_peers(zr_comm_t *comm) {
  zr_mpi_share_t *share = comm->share;
  for (int peer = 0; peer < comm->info.n_ranks; peer++) {
    const zr_mpi_card_t *card = &share->cards[peer];
    int64_t token = 0;
    if (peer == comm->info.rank) continue;
    const struct iovec to = {&token, sizeof token},
                       from = {(void *)(uintptr_t)card->token_address, sizeof token};
    const ssize_t n = process_vm_readv((pid_t)card->pid, &to, 1, &from, 1, 0);
    if (n != (ssize_t)sizeof token || token != card->token) {
      return zr_fail(ZR_ERR_UNSUPPORTED, "process_vm_readv of process %d: %s", (int)card->pid,
                     n < 0 ? strerror(errno) : "not what is there");
    }
    share->processes[peer] = (int)syscall(SYS_pidfd_open, (pid_t)card->pid, 0);
  }
  return ZR_OK;
}

/* Cards are zero but for the own one, so their sum is everybody's. */
static zr_status_t exchange_cards(zr_comm_t *comm, int page_file) {
  zr_mpi_share_t *share = comm->share;
  enum { CARD_WORDS = sizeof(zr_mpi_card_t) / sizeof(int64_t) };
  share->token = (int64_t)zr_mix64((uint64_t)zr_clock_ns() ^ ((uint64_t)getpid() << 32));
  share->cards[comm->info.rank] = (zr_mpi_card_t){.pid = getpid(),
                                                  .page_file = page_file + 1,
                                                  .token_address = (intptr_t)&share->token,
                                                  .token = share->token};
  return zr_mpi_check(MPI_Allreduce(MPI_IN_PLACE, share->cards, CARD_WORDS * comm->info.n_ranks,
                                    MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD),
                      "MPI_Allreduce");
}

/* *out_first: the first rank that may not, which says why; n_ranks: all may. */
static zr_status_t agree(zr_comm_t *comm, zr_status_t status, int *out_first) {
  int first = status == ZR_OK ? comm->info.n_ranks : comm->info.rank;
  ZR_TRY(zr_mpi_check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
                      "MPI_Allreduce"));
  *out_first = first;
  return ZR_OK;
}

static bool is_switched_off(void) {
  const char *asked = getenv("ZR_COMM_SHARED");
  return asked && strcmp(asked, "0") == 0;
}

static zr_status_t open_page(zr_comm_t *comm, int *out_file, int *out_first) {
  zr_status_t status = ZR_OK;
  if (is_switched_off()) {
    status = zr_fail(ZR_ERR_UNSUPPORTED, "ZR_COMM_SHARED=0");
  } else {
    /* Where Yama asks for it: the launcher's other processes, which the peers are, may read. */
    (void)prctl(PR_SET_PTRACER, (unsigned long)getppid(), 0ul, 0ul, 0ul);
    if (comm->info.rank == 0) status = make_page(comm->share, out_file);
  }
  ZR_TRY(exchange_cards(comm, *out_file));
  if (status == ZR_OK && comm->info.rank != 0) status = find_page(comm->share);
  if (status == ZR_OK) status = try_peers(comm);
  return agree(comm, status, out_first);
}

zr_status_t zr_mpi_share_open(zr_comm_t *comm) {
  if (!comm->share) return ZR_OK;
  int file = -1, first = 0;
  const zr_status_t status = open_page(comm, &file, &first);
  if (file >= 0) close(file);
  if (status == ZR_OK && first == comm->info.n_ranks) return ZR_OK;
  if (first == comm->info.rank && !is_switched_off()) {
    zr_warn(
        "ranks of this node cannot read each other's memory (%s), so collectives go through "
        "MPI, slower; allow ptrace between processes of a user (containers: --cap-add "
        "SYS_PTRACE), or set ZR_COMM_SHARED=0 to hide this",
        zr_detail());
  }
  zr_mpi_share_close(comm);
  return status;
}
