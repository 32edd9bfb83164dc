/* One process opens MPI once, so each case is a mode of this program:
 *   test_comm_mpi conformance | delays | abort | abort_from_a_thread | idle | fault_error |
 *                 fault_hang | fault_corrupt | peer_stopped | peer_killed | one_refuses |
 *                 abort_between_reads | different_sizes
 * Ranks read each other's memory (share_mpi.h) unless ZR_COMM_SHARED=0: then MPI carries all. */
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/cts/comm_cts.h"
#include "tests/support/cmocka_all.h"

int64_t zr_pmpi_sent_bytes(void);
int64_t zr_pmpi_uncounted_calls(void);
int64_t zr_vm_read_bytes(void);

static const int64_t ms_ns = 1000000;

static zr_alloc_t counted;
static const zr_comm_ops_t *ops;
static zr_comm_t *comm;
static zr_comm_info_t info;
enum { MAX_RANKS = 8, BIG_BYTES = 4 << 20 };
static char flat[MAX_RANKS * BIG_BYTES], shard[BIG_BYTES];

static int64_t cpu_time_ns(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000 +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

static bool is_shared; /* ranks read each other's memory */

/* What MPI was handed says which way the bytes went. A rank that may read its launcher's memory
 * (the address is wrong, not the permission) may read its peers' too. */
static void accounts_agree(void **state) {
  (void)state;
  const char *asked = getenv("ZR_COMM_SHARED");
  char byte;
  const struct iovec to = {&byte, 1}, from = {NULL, 1};
  const bool may = process_vm_readv(getppid(), &to, 1, &from, 1, 0) < 0 && errno == EFAULT;
  is_shared = info.n_ranks > 1 && zr_pmpi_sent_bytes() == 0;
  if (info.n_ranks > 1 && may && !asked) assert_true(is_shared);
  if (asked && strcmp(asked, "0") == 0) assert_false(is_shared);
  if (!is_shared) assert_int_equal(zr_pmpi_sent_bytes(), ops->sent_bytes(comm));
  assert_int_equal(zr_pmpi_uncounted_calls(), 0);
  if (info.n_ranks > 1) assert_true(ops->sent_bytes(comm) > 0);
}

/* Of what is too large for the page, each rank reads as much as it sends. */
static void what_is_sent_is_read(void **state) {
  (void)state;
  if (!is_shared) return;
  int64_t sent = ops->sent_bytes(comm), read = zr_vm_read_bytes();
  assert_int_equal(ops->all_gather(comm, shard, flat, BIG_BYTES), ZR_OK);
  assert_int_equal(zr_vm_read_bytes() - read, (info.n_ranks - 1) * BIG_BYTES);
  assert_int_equal(ops->sent_bytes(comm) - sent, (info.n_ranks - 1) * BIG_BYTES);
  void *scratch = malloc((size_t)ops->scratch_bytes(comm, BIG_BYTES));
  assert_non_null(scratch);
  assert_int_equal(ops->reduce_scatter(comm, flat, shard, BIG_BYTES, ZR_F32, 0, scratch), ZR_OK);
  assert_int_equal(zr_vm_read_bytes() - read, 2 * (info.n_ranks - 1) * BIG_BYTES);
  assert_int_equal(ops->sent_bytes(comm) - sent, 2 * (info.n_ranks - 1) * BIG_BYTES);
  assert_int_equal(zr_pmpi_sent_bytes(), 0);
  free(scratch);
}

static void collectives_allocate_nothing(void **state) {
  (void)state;
  const int64_t calls = counted.n_calls;
  assert_int_equal(ops->all_gather(comm, shard, flat, BIG_BYTES), ZR_OK);
  assert_int_equal(ops->barrier(comm), ZR_OK);
  assert_int_equal(counted.n_calls, calls);
}

static void launcher_is_noticed(void **state) {
  (void)state;
  if (info.n_ranks > 1) assert_int_equal(zr_comm_mpi_launched(), 1);
  if (info.n_ranks == 1) assert_int_equal(zr_comm_mpi_launched(), 0);
}

static void assert_peer_failed(zr_status_t status, int rank, zr_status_t cause_status,
                               const char *text) {
  char expected[128], detail[128];
  int cause_rank = -1;
  assert_int_equal(status, info.rank == rank ? cause_status : ZR_ERR_PEER);
  snprintf(expected, sizeof expected, "rank %d: %s", rank, text);
  assert_string_equal(zr_detail(), expected);
  assert_int_equal(ops->cause(comm, &cause_rank, detail, sizeof detail), cause_status);
  assert_int_equal(cause_rank, rank);
  assert_string_equal(detail, text);
}

/* The last rank aborts while the others wait for its shard. */
static void an_abort_ends_waiting_collectives(void **state) {
  (void)state;
  const int last = info.n_ranks - 1;
  assert_int_equal(ops->all_gather(comm, shard, flat, BIG_BYTES), ZR_OK);
  int64_t limit_ns = zr_clock_ns() + 1000 * ms_ns;
  if (info.rank == last) {
    zr_clock_sleep_ns(200 * ms_ns);
    ops->abort(comm, ZR_ERR_IO, "/nvme0: gone");
    ops->abort(comm, ZR_ERR_DEVICE, "a second one");
  } else {
    limit_ns += 200 * ms_ns;
  }
  assert_peer_failed(ops->all_gather(comm, shard, flat, BIG_BYTES), last, ZR_ERR_IO,
                     "/nvme0: gone");
  assert_true(zr_clock_ns() < limit_ns);
  ops->abort(comm, ZR_ERR_DEVICE, "not the first cause");
  assert_peer_failed(ops->barrier(comm), last, ZR_ERR_IO, "/nvme0: gone");
}

static void *abort_soon(void *context) {
  (void)context;
  zr_clock_sleep_ns(200 * ms_ns);
  ops->abort(comm, ZR_ERR_TIMEOUT, "all_gather is late");
  return NULL;
}

/* Rank 0 never joins; the last rank waits too, and its watchdog aborts. */
static void a_watchdog_aborts_a_waiting_collective(void **state) {
  (void)state;
  const int last = info.n_ranks - 1;
  pthread_t thread;
  if (info.rank == last) assert_int_equal(pthread_create(&thread, NULL, abort_soon, NULL), 0);
  const int64_t begin_ns = zr_clock_ns();
  while (info.rank == 0 && ops->cause(comm, NULL, NULL, 0) == ZR_OK) zr_clock_sleep_ns(ms_ns);
  assert_peer_failed(ops->all_gather(comm, shard, flat, BIG_BYTES), last, ZR_ERR_TIMEOUT,
                     "all_gather is late");
  assert_true(zr_clock_ns() - begin_ns < 1500 * ms_ns);
  if (info.rank == last) pthread_join(thread, NULL);
}

/* Both kinds of waiting: inside a collective, and for the next one. */
static void waiting_ranks_use_little_cpu(void **state) {
  (void)state;
  assert_int_equal(ops->barrier(comm), ZR_OK);
  const int64_t cpu_ns = cpu_time_ns(), begin_ns = zr_clock_ns();
  if (info.rank == 0) zr_clock_sleep_ns(2000 * ms_ns);
  assert_int_equal(ops->barrier(comm), ZR_OK);
  const int64_t used_ns = cpu_time_ns() - cpu_ns;
  assert_true(zr_clock_ns() - begin_ns > 1900 * ms_ns);
  if (used_ns > 100 * ms_ns) print_message("%lld ms\n", (long long)(used_ns / ms_ns));
  assert_true(used_ns < 100 * ms_ns); /* 5 % of a core */
}

static void the_last_rank_fails_and_says_so(void **state) {
  (void)state;
  const int last = info.n_ranks - 1;
  /* The fault is on the second call; its news may come before a rank has left the first. */
  zr_status_t status = ops->barrier(comm);
  if (info.rank == last) assert_int_equal(status, ZR_OK);
  if (status == ZR_OK) status = ops->all_gather(comm, shard, flat, BIG_BYTES);
  if (info.rank == last) {
    assert_int_equal(status, ZR_ERR_NETWORK);
    ops->abort(comm, status, "all_gather failed");
    assert_peer_failed(ops->barrier(comm), last, ZR_ERR_NETWORK, "all_gather failed");
  } else {
    assert_peer_failed(status, last, ZR_ERR_NETWORK, "all_gather failed");
  }
}

static void the_last_rank_hangs_and_rank_0_notices(void **state) {
  (void)state;
  pthread_t thread;
  assert_int_equal(ops->barrier(comm), ZR_OK);
  if (info.rank == 0) assert_int_equal(pthread_create(&thread, NULL, abort_soon, NULL), 0);
  assert_peer_failed(ops->all_gather(comm, shard, flat, BIG_BYTES), 0, ZR_ERR_TIMEOUT,
                     "all_gather is late");
  if (info.rank == 0) pthread_join(thread, NULL);
}

static void the_last_rank_sees_one_wrong_bit(void **state) {
  (void)state;
  const int last = info.n_ranks - 1;
  assert_int_equal(ops->barrier(comm), ZR_OK);
  memset(shard, 0x33, sizeof shard);
  assert_int_equal(ops->all_gather(comm, shard, flat, BIG_BYTES), ZR_OK);
  int n_bits = 0;
  for (int i = 0; i < info.n_ranks * BIG_BYTES; i++) {
    n_bits += __builtin_popcount((unsigned)(unsigned char)flat[i] ^ 0x33u);
  }
  assert_int_equal(n_bits, info.rank == last ? 1 : 0);
}

/* The last rank stops as a whole, so that nothing can be taken back from it. */
static void a_stopped_peer_is_left_behind(void **state) {
  (void)state;
  pthread_t thread;
  assert_int_equal(ops->barrier(comm), ZR_OK);
  if (info.rank == info.n_ranks - 1) raise(SIGSTOP);
  if (info.rank == 0) assert_int_equal(pthread_create(&thread, NULL, abort_soon, NULL), 0);
  const int64_t begin_ns = zr_clock_ns();
  assert_peer_failed(ops->all_gather(comm, shard, flat, BIG_BYTES), 0, ZR_ERR_TIMEOUT,
                     "all_gather is late");
  if (info.rank == 0) pthread_join(thread, NULL);
  assert_true(zr_clock_ns() - begin_ns < 1200 * ms_ns);
  assert_peer_failed(ops->barrier(comm), 0, ZR_ERR_TIMEOUT, "all_gather is late");
  ops->close(comm);
  assert_true(zr_clock_ns() - begin_ns < 6000 * ms_ns);
  int mpi_is_finalized = 0;
  MPI_Finalized(&mpi_is_finalized);
  assert_false(mpi_is_finalized);
  if (info.rank == 0) {
    printf("the stopped peer was left behind\n");
    fflush(stdout);
  }
}

/* MPI alone neither notices a dead peer nor how much the others mean to send. */
static void skip_unless_shared(void) {
  assert_int_equal(ops->all_gather(comm, shard, flat, BIG_BYTES), ZR_OK);
  if (zr_pmpi_sent_bytes() == 0) return;
  printf("skipped: ranks may not read each other's memory here\n");
  fflush(stdout);
  skip();
}

/* The launcher is told to let the others live. */
static void a_killed_peer_is_noticed(void **state) {
  (void)state;
  const int last = info.n_ranks - 1;
  skip_unless_shared();
  if (info.rank == last) {
    zr_clock_sleep_ns(100 * ms_ns);
    raise(SIGKILL);
  }
  const int64_t begin_ns = zr_clock_ns();
  assert_int_equal(ops->all_gather(comm, shard, flat, BIG_BYTES), ZR_ERR_PEER);
  assert_true(zr_clock_ns() - begin_ns < 4000 * ms_ns);
  char expected[64];
  snprintf(expected, sizeof expected, ": rank %d (process ", last);
  assert_non_null(strstr(zr_detail(), expected));
  assert_non_null(strstr(zr_detail(), "vanished"));
  assert_int_equal(ops->barrier(comm), ZR_ERR_PEER);
  ops->close(comm);
  assert_true(zr_clock_ns() - begin_ns < 10000 * ms_ns);
  if (info.rank == 0) {
    printf("the killed peer was noticed\n");
    fflush(stdout);
  }
}

/* A rank overwrites its memory as soon as it has it back: what others gathered without an error was
 * read before that. */
static void an_abort_between_many_reads(void **state) {
  (void)state;
  pthread_t thread;
  zr_status_t status = ZR_OK;
  int64_t n_wrong = 0, n_done = 0;
  if (info.rank == info.n_ranks - 1) {
    assert_int_equal(pthread_create(&thread, NULL, abort_soon, NULL), 0);
  }
  for (; status == ZR_OK; n_done += status == ZR_OK) {
    const int pattern = (int)(n_done % 100);
    memset(shard, pattern, sizeof shard);
    status = ops->all_gather(comm, shard, flat, BIG_BYTES);
    memset(shard, 0xff, sizeof shard);
    for (int64_t i = 0; i < info.n_ranks * BIG_BYTES && status == ZR_OK; i++) {
      n_wrong += flat[i] != (char)pattern;
    }
  }
  assert_int_equal(n_wrong, 0);
  assert_peer_failed(status, info.n_ranks - 1, ZR_ERR_TIMEOUT, "all_gather is late");
  if (info.rank == info.n_ranks - 1) pthread_join(thread, NULL);
}

/* A bug of the caller, but no hang and no wrong data. A rank that is slow to leave the collective
 * before may learn of it there. */
static void different_sizes_are_refused(void **state) {
  (void)state;
  if (ops->all_gather(comm, shard, flat, BIG_BYTES) == ZR_OK && zr_pmpi_sent_bytes() > 0) {
    printf("skipped: ranks may not read each other's memory here\n");
    fflush(stdout);
    skip();
  }
  const int64_t bytes = info.rank == 0 ? BIG_BYTES : BIG_BYTES / 2, begin_ns = zr_clock_ns();
  assert_true(ops->all_gather(comm, shard, flat, bytes) < 0);
  assert_true(ops->barrier(comm) < 0);
  assert_true(zr_clock_ns() - begin_ns < 1500 * ms_ns);
  assert_non_null(strstr(zr_detail(), " bytes (root "));
}

/* One rank that may not or will not decides for all. */
static void one_refusal_is_everybodys(void **state) {
  (void)state;
  assert_int_equal(ops->all_gather(comm, shard, flat, BIG_BYTES), ZR_OK);
  assert_int_equal(zr_pmpi_sent_bytes(), (info.n_ranks - 1) * BIG_BYTES);
  assert_int_equal(ops->sent_bytes(comm), (info.n_ranks - 1) * BIG_BYTES);
}

static int run_mode(const char *mode) {
  const struct CMUnitTest conformance[] = {
      cmocka_unit_test(accounts_agree), cmocka_unit_test(what_is_sent_is_read),
      cmocka_unit_test(collectives_allocate_nothing), cmocka_unit_test(launcher_is_noticed)};
  const struct {
    const char *mode;
    struct CMUnitTest test;
  } modes[] = {
      {"abort", cmocka_unit_test(an_abort_ends_waiting_collectives)},
      {"abort_from_a_thread", cmocka_unit_test(a_watchdog_aborts_a_waiting_collective)},
      {"idle", cmocka_unit_test(waiting_ranks_use_little_cpu)},
      {"peer_stopped", cmocka_unit_test(a_stopped_peer_is_left_behind)},
      {"peer_killed", cmocka_unit_test(a_killed_peer_is_noticed)},
      {"abort_between_reads", cmocka_unit_test(an_abort_between_many_reads)},
      {"different_sizes", cmocka_unit_test(different_sizes_are_refused)},
      {"one_refuses", cmocka_unit_test(one_refusal_is_everybodys)},
      {"fault_error", cmocka_unit_test(the_last_rank_fails_and_says_so)},
      {"fault_hang", cmocka_unit_test(the_last_rank_hangs_and_rank_0_notices)},
      {"fault_corrupt", cmocka_unit_test(the_last_rank_sees_one_wrong_bit)},
  };
  const zr_cts_comm_t opened = {ops, comm};
  int n_failed = 0;
  if (strcmp(mode, "conformance") == 0 || strcmp(mode, "delays") == 0) {
    n_failed = zr_cts_comm(&opened, "comm mpi, conformance");
    return n_failed + cmocka_run_group_tests_name("comm mpi", conformance, NULL, NULL);
  }
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    if (strcmp(mode, modes[i].mode)) continue;
    const struct CMUnitTest one[] = {modes[i].test};
    return cmocka_run_group_tests_name(mode, one, NULL, NULL);
  }
  return 1;
}

static zr_status_t open_for(const char *mode) {
  const zr_comm_ops_t *inner_ops;
  zr_comm_t *inner;
  zr_fault_t fault = {.kind = ZR_FAULT_NONE, .at = 2};
  ZR_TRY(zr_comm_mpi_open(&counted, &inner_ops, &inner));
  info = inner_ops->info(inner);
  const bool last = info.rank == info.n_ranks - 1;
  if (last && strcmp(mode, "fault_error") == 0) fault.kind = ZR_FAULT_ERROR;
  if (last && strcmp(mode, "fault_hang") == 0) fault.kind = ZR_FAULT_HANG;
  if (last && strcmp(mode, "fault_corrupt") == 0) fault.kind = ZR_FAULT_CORRUPT;
  if (strcmp(mode, "delays") == 0) fault.random_seed = 7;
  fault.delay_ns = 3 * ms_ns;
  return zr_comm_fault_open(&counted, &fault, inner_ops, inner, &ops, &comm);
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "conformance";
  int mpi_is_finalized = 0;
  zr_alloc_init(&counted);
  if (strcmp(mode, "one_refuses") == 0) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    setenv("ZR_COMM_SHARED", rank && strcmp(rank, "1") == 0 ? "0" : "1", 1);
  }
  if (open_for(mode) != ZR_OK) {
    fprintf(stderr, "%s\n", zr_detail());
    return 1;
  }
  if (info.n_ranks > MAX_RANKS) return 77;
  int n_failed = run_mode(mode);
  if (strncmp(mode, "peer_", 5) == 0) return n_failed; /* closed already */
  if (n_failed) ops->abort(comm, ZR_ERR_INTERNAL, "a test failed");
  ops->close(comm);
  MPI_Finalized(&mpi_is_finalized); /* all ranks live, so even after an abort */
  if (!mpi_is_finalized || atomic_load(&counted.live_count) != 0) {
    fprintf(stderr, "rank %d: MPI was not left cleanly\n", info.rank);
    n_failed++;
  }
  return n_failed ? 1 : 0;
}
