#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>

#include "runtime/base/clock.h"
#include "tests/cts/hal_cts.h"
#include "tests/support/cmocka_all.h"

typedef struct {
  _Atomic int go;
} gate_t;

static zr_status_t wait_for_gate(void *context, int64_t iteration) {
  gate_t *gate = context;
  (void)iteration;
  while (!atomic_load(&gate->go)) zr_clock_sleep_ns(100000);
  return ZR_OK;
}

static void disk_arenas_are_not_there_yet(void **state) {
  (void)state;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  void *memory = NULL;
  assert_int_equal(zr_hal_cpu_open(NULL, &ops, &hal), ZR_OK);
  assert_int_equal(ops->mem_create(hal, ZR_TIER_DISK, 4096, &memory), ZR_ERR_UNSUPPORTED);
  assert_null(memory);
  ops->close(hal);
  ops->close(NULL);
}

/* A stream failed while its work hangs: waiters return at once, a submitter is not stuck on the
 * full ring, and close waits for the work itself. */
static void a_hung_work_does_not_hold_its_stream(void **state) {
  (void)state;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  gate_t gate = {0};
  assert_int_equal(zr_hal_cpu_open(NULL, &ops, &hal), ZR_OK);
  const zr_work_t hung = {.fn = wait_for_gate, .context = &gate, .signal = 1};
  assert_int_equal(ops->submit(hal, ZR_STREAM_COMM, &hung), ZR_OK);
  assert_int_equal(ops->wait(hal, ZR_STREAM_COMM, 1, 1000000), ZR_PENDING);
  ops->fail(hal, ZR_STREAM_COMM, ZR_ERR_TIMEOUT, "all_gather is late");
  for (uint64_t i = 2; i < 20000; i++) {
    const zr_work_t work = {.signal = i};
    assert_int_equal(ops->submit(hal, ZR_STREAM_COMM, &work), ZR_OK);
  }
  assert_int_equal(ops->wait(hal, ZR_STREAM_COMM, 1, -1), ZR_ERR_TIMEOUT);
  assert_string_equal(zr_detail(), "all_gather is late");
  atomic_store(&gate.go, 1);
  ops->close(hal);
}

static void *fail_after_a_while(void *context) {
  void **both = context;
  const zr_hal_ops_t *ops = both[0];
  zr_clock_sleep_ns(20000000);
  ops->fail(both[1], ZR_STREAM_COMM, ZR_ERR_PEER, "gone");
  return NULL;
}

static void a_submitter_on_a_full_ring_is_freed_by_fail(void **state) {
  (void)state;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  gate_t gate = {0};
  pthread_t thread;
  assert_int_equal(zr_hal_cpu_open(NULL, &ops, &hal), ZR_OK);
  void *both[2] = {(void *)(uintptr_t)ops, hal};
  assert_int_equal(pthread_create(&thread, NULL, fail_after_a_while, both), 0);
  const zr_work_t hung = {.fn = wait_for_gate, .context = &gate, .signal = 1};
  assert_int_equal(ops->submit(hal, ZR_STREAM_COMM, &hung), ZR_OK);
  for (uint64_t i = 2; i < 20000; i++) {
    const zr_work_t work = {.signal = i};
    assert_int_equal(ops->submit(hal, ZR_STREAM_COMM, &work), ZR_OK);
  }
  assert_int_equal(ops->wait(hal, ZR_STREAM_COMM, 1, -1), ZR_ERR_PEER);
  pthread_join(thread, NULL);
  atomic_store(&gate.go, 1);
  ops->close(hal);
}

static int count_threads(void) {
  DIR *folder = opendir("/proc/self/task");
  assert_non_null(folder);
  int n = 0;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) n += entry->d_name[0] != '.';
  closedir(folder);
  return n;
}

static void a_stream_has_a_thread_once_it_is_used(void **state) {
  (void)state;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  assert_int_equal(zr_hal_cpu_open(NULL, &ops, &hal), ZR_OK);
  zr_clock_sleep_ns(50000000); /* threads that were joined may still be leaving */
  const int before = count_threads();
  for (int s = ZR_N_STREAMS - 1; s >= 0; s--) {
    for (uint64_t i = 1; i <= 2; i++) {
      const zr_work_t work = {.signal = i};
      assert_int_equal(ops->submit(hal, (zr_stream_id_t)s, &work), ZR_OK);
      assert_int_equal(ops->wait(hal, (zr_stream_id_t)s, i, -1), ZR_OK);
      assert_int_equal(count_threads(), before + ZR_N_STREAMS - s);
    }
  }
  ops->close(hal);
}

static int64_t cpu_time_ns(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000 +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

/* Every stream but one waits, and so does the caller: all sleep in the kernel. */
static void waiting_streams_use_no_core(void **state) {
  (void)state;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  assert_int_equal(zr_hal_cpu_open(NULL, &ops, &hal), ZR_OK);
  for (int s = 1; s < ZR_N_STREAMS; s++) {
    const zr_work_t work = {.signal = 1, .wait = {[ZR_STREAM_COMPUTE] = 1}};
    assert_int_equal(ops->submit(hal, (zr_stream_id_t)s, &work), ZR_OK);
  }
  assert_int_equal(ops->wait(hal, ZR_STREAM_HOST, 1, 10000000), ZR_PENDING);
  const int64_t before_ns = cpu_time_ns();
  assert_int_equal(ops->wait(hal, ZR_STREAM_HOST, 1, 500000000), ZR_PENDING);
  assert_true(cpu_time_ns() - before_ns < 25000000); /* 5 % of one core, in half a second */
  const zr_work_t work = {.signal = 1};
  assert_int_equal(ops->submit(hal, ZR_STREAM_COMPUTE, &work), ZR_OK);
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    assert_int_equal(ops->wait(hal, (zr_stream_id_t)s, 1, -1), ZR_OK);
  }
  ops->close(hal);
}

int main(void) {
  const zr_cts_hal_t backend = {
      .open = zr_hal_cpu_open, .has_threads = true, .has_memory = true, .submit_is_free = true};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(disk_arenas_are_not_there_yet),
      cmocka_unit_test(a_hung_work_does_not_hold_its_stream),
      cmocka_unit_test(a_submitter_on_a_full_ring_is_freed_by_fail),
      cmocka_unit_test(a_stream_has_a_thread_once_it_is_used),
      cmocka_unit_test(waiting_streams_use_no_core),
  };
  int n_failed = zr_cts_hal(&backend, "hal cpu, conformance");
  n_failed += cmocka_run_group_tests_name("hal cpu", tests, NULL, NULL);
  return n_failed ? 1 : 0;
}
