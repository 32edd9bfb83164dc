#include "tests/cts/hal_cts.h"
#include "tests/support/cmocka_all.h"

static zr_status_t open_running(zr_alloc_t *alloc, const zr_hal_ops_t **out_ops,
                                zr_hal_t **out_hal) {
  return zr_hal_null_open(alloc, true, out_ops, out_hal);
}

static zr_status_t count(void *context, int64_t iteration) {
  (void)iteration;
  ++*(int *)context;
  return ZR_OK;
}

/*  compute  [ 1: 0-10 ]          [ 2: 25-30 ]
 *  comm     [ 1: 0-5 ][ 2: 10-25 ]                 2 waits for compute 1; compute 2 for comm 2
 *  read     [ 7: 30-30 ]                           waits for compute 2, takes no time */
static void virtual_time_follows_waits(void **state) {
  (void)state;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  int n_run = 0;
  assert_int_equal(zr_hal_null_open(NULL, false, &ops, &hal), ZR_OK);
  const zr_work_t first = {.fn = count, .context = &n_run, .signal = 1, .duration_ns = 10};
  const zr_work_t comm1 = {.signal = 1, .duration_ns = 5};
  const zr_work_t comm2 = {.signal = 2, .duration_ns = 15, .wait = {[ZR_STREAM_COMPUTE] = 1}};
  const zr_work_t second = {.signal = 2, .duration_ns = 5, .wait = {[ZR_STREAM_COMM] = 2}};
  const zr_work_t read = {.signal = 7, .wait = {[ZR_STREAM_COMPUTE] = 2}};
  assert_int_equal(ops->time_ns(hal), 0);
  assert_int_equal(ops->submit(hal, ZR_STREAM_COMPUTE, &first), ZR_OK);
  assert_int_equal(ops->submit(hal, ZR_STREAM_COMM, &comm1), ZR_OK);
  assert_int_equal(ops->submit(hal, ZR_STREAM_COMM, &comm2), ZR_OK);
  assert_int_equal(ops->submit(hal, ZR_STREAM_COMPUTE, &second), ZR_OK);
  assert_int_equal(ops->submit(hal, ZR_STREAM_READ, &read), ZR_OK);
  assert_int_equal(ops->time_ns(hal), 30);
  assert_int_equal(n_run, 0);
  static const struct {
    zr_stream_id_t stream;
    uint64_t value;
    int64_t begin_ns, end_ns;
  } expected[] = {{ZR_STREAM_COMPUTE, 1, 0, 10},
                  {ZR_STREAM_COMM, 1, 0, 5},
                  {ZR_STREAM_COMM, 2, 10, 25},
                  {ZR_STREAM_COMPUTE, 2, 25, 30},
                  {ZR_STREAM_READ, 7, 30, 30}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    int64_t begin_ns = -1, end_ns = -1;
    assert_int_equal(
        zr_hal_null_times(hal, expected[i].stream, expected[i].value, &begin_ns, &end_ns), ZR_OK);
    assert_int_equal(begin_ns, expected[i].begin_ns);
    assert_int_equal(end_ns, expected[i].end_ns);
  }
  int64_t begin_ns = -1, end_ns = -1;
  assert_int_equal(zr_hal_null_times(hal, ZR_STREAM_READ, 6, &begin_ns, &end_ns), ZR_ERR_NOT_FOUND);
  assert_int_equal(begin_ns, -1);
  assert_int_equal(ops->wait(hal, ZR_STREAM_READ, 8, -1), ZR_ERR_TIMEOUT);
  ops->close(hal);
  ops->close(NULL);
}

/* Two streams hand over to each other: the time is exactly the sum. */
static void two_million_works_in_virtual_time(void **state) {
  (void)state;
  enum { N = 1000000 };
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  assert_int_equal(zr_hal_null_open(NULL, false, &ops, &hal), ZR_OK);
  for (uint64_t i = 1; i <= N; i++) {
    const zr_work_t gather = {.signal = i, .duration_ns = 2, .wait = {[ZR_STREAM_COMPUTE] = i - 1}};
    const zr_work_t compute = {.signal = i, .duration_ns = 3, .wait = {[ZR_STREAM_COMM] = i}};
    assert_int_equal(ops->submit(hal, ZR_STREAM_COMM, &gather), ZR_OK);
    assert_int_equal(ops->submit(hal, ZR_STREAM_COMPUTE, &compute), ZR_OK);
  }
  assert_int_equal(ops->time_ns(hal), 5 * N);
  int64_t begin_ns = 0, end_ns = 0;
  assert_int_equal(zr_hal_null_times(hal, ZR_STREAM_COMM, N / 2, &begin_ns, &end_ns), ZR_OK);
  assert_int_equal(begin_ns, 5 * (N / 2 - 1));
  assert_int_equal(end_ns, 5 * (N / 2 - 1) + 2);
  ops->close(hal);
}

static void history_survives_a_failed_allocation(void **state) {
  (void)state;
  zr_alloc_t alloc;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  zr_alloc_init(&alloc);
  assert_int_equal(zr_hal_null_open(&alloc, false, &ops, &hal), ZR_OK);
  alloc.fail_at = alloc.n_calls + 1;
  const zr_work_t work = {.signal = 1, .duration_ns = 4};
  assert_int_equal(ops->submit(hal, ZR_STREAM_HOST, &work), ZR_ERR_OUT_OF_MEMORY);
  assert_int_equal(ops->timeline(hal, ZR_STREAM_HOST), 0);
  assert_int_equal(ops->time_ns(hal), 0);
  alloc.fail_at = 0;
  assert_int_equal(ops->submit(hal, ZR_STREAM_HOST, &work), ZR_OK);
  assert_int_equal(ops->time_ns(hal), 4);
  ops->close(hal);
  assert_int_equal(atomic_load(&alloc.live_count), 0);
}

int main(void) {
  const zr_cts_hal_t backend = {.open = open_running};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(virtual_time_follows_waits),
      cmocka_unit_test(two_million_works_in_virtual_time),
      cmocka_unit_test(history_survives_a_failed_allocation),
  };
  int n_failed = zr_cts_hal(&backend, "hal null, conformance");
  n_failed += cmocka_run_group_tests_name("hal null", tests, NULL, NULL);
  return n_failed ? 1 : 0;
}
