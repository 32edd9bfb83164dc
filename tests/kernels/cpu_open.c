/* Opening and preparing the cpu backend: names, refusals, failing allocations, shared primitives.
 */
#include <string.h>

#include "tests/kernels/case_call.h"
#include "tests/kernels/check.h"

static const kern_case_t products[] = {
    {"linear", ZR_OP_LINEAR, 0, .attr = {530, 40, 400, 40, 400, 0}},
    {"head", ZR_OP_HEAD_LOSS, 0, .attr = {29, 32, 301, 320, 8}, .accumulate = 1u << 6},
};

static void unknown_sets_are_refused(void **state) {
  (void)state;
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  assert_int_equal(zr_kern_cpu_open(NULL, "sse9", &ops, &kern), ZR_ERR_UNSUPPORTED);
  assert_non_null(strstr(zr_detail(), "sse9"));
  assert_null(ops);
  assert_null(kern);
}

static void names_say_the_set(void **state) {
  (void)state;
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  assert_int_equal(zr_kern_cpu_open(NULL, "baseline", &ops, &kern), ZR_OK);
  assert_string_equal(ops->name, "cpu (baseline)");
  ops->close(kern);
  ops->close(NULL);
  assert_int_equal(zr_kern_cpu_open(NULL, "auto", &ops, &kern), ZR_OK);
  assert_memory_equal(ops->name, "cpu (", 5);
  ops->close(kern);
}

static void other_types_and_kinds_are_refused(void **state) {
  (void)state;
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  void *prepared = NULL;
  assert_int_equal(zr_kern_cpu_open(NULL, "auto", &ops, &kern), ZR_OK);
  zr_kern_shape_t shape = kern_case_shape(&products[0], ZR_F32);
  shape.dtype[1] = ZR_BF16;
  assert_int_equal(ops->prepare(kern, &shape, 1, &prepared), ZR_ERR_UNSUPPORTED);
  assert_non_null(strstr(zr_detail(), "linear"));
  assert_non_null(strstr(zr_detail(), "bf16"));
  shape = (zr_kern_shape_t){.kind = ZR_OP_ALL_GATHER};
  assert_int_equal(ops->prepare(kern, &shape, 1, &prepared), ZR_ERR_UNSUPPORTED);
  ops->close(kern);
}

static void equal_shapes_share(void **state) {
  (void)state;
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  void *a = NULL, *b = NULL, *c = NULL;
  assert_int_equal(zr_kern_cpu_open(NULL, "auto", &ops, &kern), ZR_OK);
  zr_kern_shape_t shape = kern_case_shape(&products[0], ZR_F32);
  assert_int_equal(ops->prepare(kern, &shape, 2, &a), ZR_OK);
  assert_int_equal(ops->prepare(kern, &shape, 2, &b), ZR_OK);
  shape.attr[ZR_LINEAR_ROWS]++;
  assert_int_equal(ops->prepare(kern, &shape, 2, &c), ZR_OK);
  assert_ptr_equal(a, b);
  assert_ptr_not_equal(a, c);
  ops->close(kern);
}

static void too_little_scratch_is_refused(void **state) {
  (void)state;
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  kern_call_t call;
  assert_int_equal(zr_kern_cpu_open(NULL, "auto", &ops, &kern), ZR_OK);
  kern_call_init(&call, &products[0], ZR_F32, KERN_POISON_NAN);
  kern_call_fill(&call, 1);
  assert_int_equal(kern_call_run(&call, ops, kern, NULL), ZR_OK);
  call.call.bytes[4] -= 64;
  assert_int_equal(ops->run(kern, &call.call), ZR_ERR_INVALID_ARGUMENT);
  assert_non_null(strstr(zr_detail(), "scratch"));
  kern_call_fini(&call);
  ops->close(kern);
}

static zr_status_t open_and_prepare(zr_alloc_t *alloc) {
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  ZR_TRY(zr_kern_cpu_open(alloc, "auto", &ops, &kern));
  zr_status_t status = ZR_OK;
  for (int i = 0; i < 2 && status == ZR_OK; i++) {
    void *prepared = NULL;
    zr_kern_shape_t shape = kern_case_shape(&products[i], ZR_F32);
    status = ops->prepare(kern, &shape, 2, &prepared);
    assert_int_equal(status == ZR_OK, prepared != NULL);
  }
  ops->close(kern);
  return status;
}

static void failed_allocations_leave_nothing(void **state) {
  (void)state;
  int64_t n = 0;
  for (zr_status_t status = ZR_ERR_OUT_OF_MEMORY; status != ZR_OK;) {
    zr_alloc_t alloc;
    zr_alloc_init(&alloc);
    alloc.fail_at = ++n;
    status = open_and_prepare(&alloc);
    assert_true(status == ZR_OK || status == ZR_ERR_OUT_OF_MEMORY);
    assert_int_equal(alloc.live_count, 0);
    assert_true(n < 1000);
  }
  assert_true(n > 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unknown_sets_are_refused),
      cmocka_unit_test(names_say_the_set),
      cmocka_unit_test(other_types_and_kinds_are_refused),
      cmocka_unit_test(equal_shapes_share),
      cmocka_unit_test(too_little_scratch_is_refused),
      cmocka_unit_test(failed_allocations_leave_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
