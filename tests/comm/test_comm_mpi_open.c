/* Fails the n-th allocation of zr_comm_mpi_open. MPI opens once per process, so the loop starts
 * this program again for each n:  test_comm_mpi_open [one_rank] N
 * one_rank (under mpirun): only the last rank is short of memory; the others must not wait. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/comm/comm.h"

extern char **environ;

enum { OPENED = 10, REFUSED = 11, PEER_REFUSED = 12 };

static int open_with(int64_t fail_at) {
  zr_alloc_t alloc;
  const zr_comm_ops_t *ops = NULL;
  zr_comm_t *comm = NULL;
  zr_alloc_init(&alloc);
  alloc.fail_at = fail_at;
  const zr_status_t status = zr_comm_mpi_open(&alloc, &ops, &comm);
  if (status == ZR_OK) ops->close(comm);
  if (status != ZR_OK && (comm || !zr_detail()[0])) return 1;
  if (atomic_load(&alloc.live_count) != 0) return 1;
  if (status == ZR_OK) {
    alloc.fail_at = 0;
    const zr_status_t again = zr_comm_mpi_open(&alloc, &ops, &comm);
    return again == ZR_ERR_UNSUPPORTED ? OPENED : 1;
  }
  if (status == ZR_ERR_PEER) return PEER_REFUSED;
  return status == ZR_ERR_OUT_OF_MEMORY ? REFUSED : 1;
}

static int run_again(const char *program, int n) {
  char number[16], *argv[3] = {(char *)(uintptr_t)program, number, NULL};
  pid_t pid;
  int status = 0;
  snprintf(number, sizeof number, "%d", n);
  if (posix_spawn(&pid, program, NULL, NULL, argv, environ) || waitpid(pid, &status, 0) != pid) {
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv) {
  if (argc == 3) { /* all ranks but the last one see the peer's failure, none hangs */
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *n_ranks = getenv("OMPI_COMM_WORLD_SIZE");
    if (!rank || !n_ranks) return 77;
    const int last = strtol(rank, NULL, 10) == strtol(n_ranks, NULL, 10) - 1;
    const int result = open_with(last ? strtol(argv[2], NULL, 10) : 0);
    return result == (last ? REFUSED : PEER_REFUSED) ? 0 : 1;
  }
  if (argc == 2) return open_with(strtol(argv[1], NULL, 10));
  for (int n = 1; n < 50; n++) {
    const int result = run_again(argv[0], n);
    if (result == OPENED) {
      printf("opened after %d failed allocations\n", n - 1);
      return n > 2 ? 0 : 1;
    }
    if (result != REFUSED) {
      printf("allocation %d: unexpected result %d\n", n, result);
      return 1;
    }
  }
  return 1;
}
