#include <string.h>

#include "tests/cts/comm_cts.h"
#include "tests/support/cmocka_all.h"

static void an_abort_is_the_answer_of_all_that_follow(void **state) {
  (void)state;
  const zr_comm_ops_t *ops;
  zr_comm_t *comm;
  char flat[8] = "flat", shard[8] = "shard", text[64];
  int rank = -1;
  assert_int_equal(zr_comm_self_open(NULL, &ops, &comm), ZR_OK);
  ops->abort(comm, ZR_ERR_IO, "the disk is gone");
  ops->abort(comm, ZR_ERR_DEVICE, "second");
  assert_int_equal(ops->cause(comm, &rank, text, sizeof text), ZR_ERR_IO);
  assert_int_equal(rank, 0);
  assert_string_equal(text, "the disk is gone");
  assert_int_equal(ops->cause(comm, NULL, text, 4), ZR_ERR_IO);
  assert_string_equal(text, "the");
  assert_int_equal(ops->all_gather(comm, shard, flat, 8), ZR_ERR_IO);
  assert_string_equal(zr_detail(), "rank 0: the disk is gone");
  assert_int_equal(ops->barrier(comm), ZR_ERR_IO);
  assert_string_equal(flat, "flat");
  ops->close(comm);
  ops->close(NULL);
}

static void null_knows_its_facts_and_refuses_to_run(void **state) {
  (void)state;
  const zr_comm_ops_t *ops;
  zr_comm_t *comm;
  int64_t data = 1;
  assert_int_equal(zr_comm_null_open(NULL, 4, 4, &ops, &comm), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(zr_comm_null_open(NULL, -1, 4, &ops, &comm), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(zr_comm_null_open(NULL, 2, 4, &ops, &comm), ZR_OK);
  const zr_comm_info_t info = ops->info(comm);
  assert_int_equal(info.rank, 2);
  assert_int_equal(info.n_ranks, 4);
  assert_int_equal(ops->scratch_bytes(comm, 5 << 20), zr_comm_exchange_scratch_bytes(4, 5 << 20));
  assert_int_equal(ops->all_gather(comm, &data, &data, 8), ZR_ERR_UNSUPPORTED);
  assert_int_equal(ops->reduce_scatter(comm, &data, &data, 8, ZR_F32, 0, &data),
                   ZR_ERR_UNSUPPORTED);
  assert_int_equal(ops->all_reduce(comm, &data, 1, &data), ZR_ERR_UNSUPPORTED);
  assert_int_equal(ops->broadcast(comm, &data, 8, 0), ZR_ERR_UNSUPPORTED);
  assert_int_equal(ops->barrier(comm), ZR_ERR_UNSUPPORTED);
  assert_int_equal(ops->sent_bytes(comm), 0);
  ops->close(comm);
}

typedef zr_status_t (*open_fn_t)(zr_alloc_t *alloc, const zr_comm_ops_t **out_ops,
                                 zr_comm_t **out_comm);

static zr_status_t open_null(zr_alloc_t *alloc, const zr_comm_ops_t **out_ops,
                             zr_comm_t **out_comm) {
  return zr_comm_null_open(alloc, 0, 2, out_ops, out_comm);
}

static zr_status_t open_fault(zr_alloc_t *alloc, const zr_comm_ops_t **out_ops,
                              zr_comm_t **out_comm) {
  const zr_fault_t fault = {.kind = ZR_FAULT_NONE};
  const zr_comm_ops_t *inner_ops;
  zr_comm_t *inner;
  ZR_TRY(zr_comm_self_open(alloc, &inner_ops, &inner));
  const zr_status_t status = zr_comm_fault_open(alloc, &fault, inner_ops, inner, out_ops, out_comm);
  if (status != ZR_OK) inner_ops->close(inner);
  return status;
}

static void open_survives_any_failed_allocation(void **state) {
  (void)state;
  static const open_fn_t opens[] = {zr_comm_self_open, open_null, open_fault};
  for (size_t i = 0; i < sizeof opens / sizeof *opens; i++) {
    zr_alloc_t alloc;
    const zr_comm_ops_t *ops;
    zr_comm_t *comm = (zr_comm_t *)&alloc;
    zr_alloc_init(&alloc);
    for (alloc.fail_at = 1;; alloc.fail_at++) {
      alloc.n_calls = 0;
      const zr_status_t status = opens[i](&alloc, &ops, &comm);
      if (status == ZR_OK) break;
      assert_int_equal(status, ZR_ERR_OUT_OF_MEMORY);
      assert_ptr_equal(comm, &alloc);
      assert_int_equal(atomic_load(&alloc.live_count), 0);
    }
    assert_true(alloc.fail_at > 1);
    ops->close(comm);
    assert_int_equal(atomic_load(&alloc.live_count), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_abort_is_the_answer_of_all_that_follow),
      cmocka_unit_test(null_knows_its_facts_and_refuses_to_run),
      cmocka_unit_test(open_survives_any_failed_allocation),
  };
  zr_cts_comm_t opened;
  if (zr_comm_self_open(NULL, &opened.ops, &opened.comm) != ZR_OK) return 1;
  int n_failed = zr_cts_comm(&opened, "comm self, conformance");
  opened.ops->close(opened.comm);
  if (open_fault(NULL, &opened.ops, &opened.comm) != ZR_OK) return 1;
  n_failed += zr_cts_comm(&opened, "comm fault(self), conformance");
  opened.ops->close(opened.comm);
  n_failed += cmocka_run_group_tests_name("comm self and null", tests, NULL, NULL);
  return n_failed ? 1 : 0;
}
