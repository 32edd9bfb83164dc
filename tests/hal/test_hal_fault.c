#include <string.h>

#include "runtime/base/clock.h"
#include "tests/cts/hal_cts.h"
#include "tests/support/cmocka_all.h"

static zr_status_t open_with(zr_alloc_t *alloc, zr_fault_t fault, const zr_hal_ops_t **out_ops,
                             zr_hal_t **out_hal) {
  const zr_hal_ops_t *inner_ops;
  zr_hal_t *inner;
  ZR_TRY(zr_hal_cpu_open(alloc, &inner_ops, &inner));
  const zr_status_t status = zr_hal_fault_open(alloc, &fault, inner_ops, inner, out_ops, out_hal);
  if (status != ZR_OK) inner_ops->close(inner);
  return status;
}

static zr_status_t open_quiet(zr_alloc_t *alloc, const zr_hal_ops_t **out_ops, zr_hal_t **out_hal) {
  return open_with(alloc, (zr_fault_t){.kind = ZR_FAULT_NONE}, out_ops, out_hal);
}

/* At most 1 ns: every work is wrapped, and the suite stays fast. */
static zr_status_t open_random(zr_alloc_t *alloc, const zr_hal_ops_t **out_ops,
                               zr_hal_t **out_hal) {
  return open_with(alloc, (zr_fault_t){.random_seed = 42, .delay_ns = 1}, out_ops, out_hal);
}

static void errors_come_on_the_asked_call(void **state) {
  (void)state;
  for (int64_t at = 1; at <= 4; at++) {
    const zr_hal_ops_t *ops;
    zr_hal_t *hal;
    void *memory = NULL;
    char data[8] = "abcdefg";
    assert_int_equal(open_with(NULL, (zr_fault_t){.kind = ZR_FAULT_ERROR, .at = at}, &ops, &hal),
                     ZR_OK);
    assert_string_equal(ops->name, "fault(cpu)");
    zr_status_t status = ops->mem_create(hal, ZR_TIER_HOST, 8, &memory);
    assert_int_equal(status, at == 1 ? ZR_ERR_DEVICE : ZR_OK);
    if (at == 1) {
      assert_null(memory);
      assert_int_equal(ops->mem_create(hal, ZR_TIER_HOST, 8, &memory), ZR_OK);
    }
    if (at > 1) {
      status = ops->upload(hal, ZR_TIER_HOST, memory, data, 8);
      assert_int_equal(status, at == 2 ? ZR_ERR_DEVICE : ZR_OK);
      status = ops->download(hal, ZR_TIER_HOST, data, memory, 8);
      assert_int_equal(status, at == 3 ? ZR_ERR_DEVICE : ZR_OK);
      const zr_work_t work = {.signal = 1};
      status = ops->submit(hal, ZR_STREAM_READ, &work);
      assert_int_equal(status, at == 4 ? ZR_ERR_DEVICE : ZR_OK);
      assert_int_equal(ops->wait(hal, ZR_STREAM_READ, 1, at == 4 ? 1000000 : -1),
                       at == 4 ? ZR_PENDING : ZR_OK); /* after an error it never comes */
    }
    ops->mem_destroy(hal, ZR_TIER_HOST, memory, 8);
    ops->close(hal);
  }
}

static int n_bits_different(const unsigned char *a, const unsigned char *b, int n) {
  int n_bits = 0;
  for (int i = 0; i < n; i++) n_bits += __builtin_popcount((unsigned)(a[i] ^ b[i]));
  return n_bits;
}

static void corruption_is_one_bit_of_one_copy(void **state) {
  (void)state;
  for (int64_t at = 2; at <= 4; at++) {
    const zr_hal_ops_t *ops;
    zr_hal_t *hal;
    void *memory = NULL;
    unsigned char there[33], back[33];
    memset(there, 0x5a, sizeof there);
    assert_int_equal(open_with(NULL, (zr_fault_t){.kind = ZR_FAULT_CORRUPT, .at = at}, &ops, &hal),
                     ZR_OK);
    assert_int_equal(ops->mem_create(hal, ZR_TIER_DEVICE, 33, &memory), ZR_OK);
    assert_int_equal(ops->upload(hal, ZR_TIER_DEVICE, memory, there, 33), ZR_OK);
    assert_int_equal(ops->download(hal, ZR_TIER_DEVICE, back, memory, 33), ZR_OK);
    assert_int_equal(n_bits_different(there, back, 33), at == 4 ? 0 : 1);
    ops->mem_destroy(hal, ZR_TIER_DEVICE, memory, 33);
    ops->close(hal);
  }
}

static zr_status_t note_time(void *context, int64_t iteration) {
  (void)iteration;
  *(int64_t *)context = zr_clock_ns();
  return ZR_OK;
}

static void a_delayed_work_comes_later_and_submit_at_once(void **state) {
  (void)state;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  int64_t ran_ns[2] = {0};
  const zr_fault_t fault = {.kind = ZR_FAULT_DELAY, .at = 2, .delay_ns = 30000000};
  assert_int_equal(open_with(NULL, fault, &ops, &hal), ZR_OK);
  const int64_t begin_ns = zr_clock_ns();
  for (uint64_t i = 0; i < 2; i++) {
    const zr_work_t work = {.fn = note_time, .context = &ran_ns[i], .signal = i + 1};
    assert_int_equal(ops->submit(hal, ZR_STREAM_WRITE, &work), ZR_OK);
  }
  assert_int_equal(ops->wait(hal, ZR_STREAM_WRITE, 2, -1), ZR_OK);
  assert_true(ran_ns[1] - begin_ns >= 30000000);
  ops->close(hal);
}

static void a_hung_work_ends_when_its_stream_is_failed(void **state) {
  (void)state;
  const zr_hal_ops_t *ops;
  zr_hal_t *hal;
  int64_t ran_ns = 0;
  const zr_fault_t fault = {.kind = ZR_FAULT_HANG, .at = 1};
  assert_int_equal(open_with(NULL, fault, &ops, &hal), ZR_OK);
  const zr_work_t work = {.fn = note_time, .context = &ran_ns, .signal = 1};
  assert_int_equal(ops->submit(hal, ZR_STREAM_COMM, &work), ZR_OK);
  assert_int_equal(ops->wait(hal, ZR_STREAM_COMM, 1, 5000000), ZR_PENDING);
  ops->fail(hal, ZR_STREAM_COMM, ZR_ERR_TIMEOUT, "too late");
  assert_int_equal(ops->wait(hal, ZR_STREAM_COMM, 1, -1), ZR_ERR_TIMEOUT);
  assert_string_equal(zr_detail(), "too late");
  ops->close(hal);
  assert_int_equal(ran_ns, 0);
}

int main(void) {
  const zr_cts_hal_t quiet = {
      .open = open_quiet, .has_threads = true, .has_memory = true, .submit_is_free = true};
  zr_cts_hal_t random = quiet;
  random.open = open_random;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_come_on_the_asked_call),
      cmocka_unit_test(corruption_is_one_bit_of_one_copy),
      cmocka_unit_test(a_delayed_work_comes_later_and_submit_at_once),
      cmocka_unit_test(a_hung_work_ends_when_its_stream_is_failed),
  };
  int n_failed = zr_cts_hal(&quiet, "hal fault(cpu), quiet, conformance");
  n_failed += zr_cts_hal(&random, "hal fault(cpu), random delays, conformance");
  n_failed += cmocka_run_group_tests_name("hal fault", tests, NULL, NULL);
  return n_failed ? 1 : 0;
}
