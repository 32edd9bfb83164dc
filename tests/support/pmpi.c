/* Counts payload bytes where MPI itself is called (the profiling interface): an account of traffic
 * that shares nothing with the backend's own. Linked into a test, or preloaded into any program.
 *
 * At MPI_Finalize the sum goes to the file named by ZR_PMPI_OUT with ".RANK" appended: bytes, then
 * the number of calls that move payload in ways not counted (0, or the account is incomplete). */
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic int64_t sent_bytes, n_uncounted;

int64_t zr_pmpi_sent_bytes(void);
int64_t zr_pmpi_uncounted_calls(void);

int64_t zr_pmpi_sent_bytes(void) {
  return atomic_load(&sent_bytes);
}
int64_t zr_pmpi_uncounted_calls(void) {
  return atomic_load(&n_uncounted);
}

static void count(int n, MPI_Datatype type) {
  int item_bytes = 0;
  PMPI_Type_size(type, &item_bytes);
  atomic_fetch_add(&sent_bytes, (int64_t)n * item_bytes);
}

#define COUNTED(name)                                                                        \
  int MPI_##name(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, \
                 MPI_Request *request) {                                                     \
    count(n, type);                                                                          \
    return PMPI_##name(data, n, type, to, tag, comm, request);                               \
  }
COUNTED(Isend)
COUNTED(Issend)
COUNTED(Ibsend)
COUNTED(Irsend)

#define COUNTED_BLOCKING(name)                                                                 \
  int MPI_##name(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) { \
    count(n, type);                                                                            \
    return PMPI_##name(data, n, type, to, tag, comm);                                          \
  }
COUNTED_BLOCKING(Send)
COUNTED_BLOCKING(Ssend)
COUNTED_BLOCKING(Bsend)
COUNTED_BLOCKING(Rsend)

int MPI_Start(MPI_Request *request) {
  atomic_fetch_add(&n_uncounted, 1);
  return PMPI_Start(request);
}

int MPI_Win_create(void *base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm,
                   MPI_Win *win) {
  atomic_fetch_add(&n_uncounted, 1);
  return PMPI_Win_create(base, bytes, unit, info, comm, win);
}

int MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  atomic_fetch_add(&n_uncounted, 1);
  return PMPI_Bcast(data, n, type, root, comm);
}

int MPI_Allgather(const void *from, int n_from, MPI_Datatype type_from, void *to, int n_to,
                  MPI_Datatype type_to, MPI_Comm comm) {
  atomic_fetch_add(&n_uncounted, 1);
  return PMPI_Allgather(from, n_from, type_from, to, n_to, type_to, comm);
}

int MPI_Finalize(void) {
  const char *base = getenv("ZR_PMPI_OUT");
  if (base) {
    int rank = 0;
    char path[4096];
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s.%d", base, rank);
    FILE *file = fopen(path, "w");
    if (file) {
      fprintf(file, "%lld %lld\n", (long long)zr_pmpi_sent_bytes(),
              (long long)zr_pmpi_uncounted_calls());
      fclose(file);
    }
  }
  return PMPI_Finalize();
}
