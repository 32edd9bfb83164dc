/* The oracle in bf16 and fp16: its results are those of fp32, rounded once. */
#include <math.h>

#include "runtime/base/half.h"
#include "tests/kernels/case_half.h"
#include "tests/kernels/check.h"

static kern_backend_t open_ref(zr_dtype_t real) {
  kern_backend_t ref = {.name = "ref"};
  assert_int_equal(zr_kern_ref_open(NULL, real, &ref.ops, &ref.kern), ZR_OK);
  return ref;
}

static void all_cases_hold(void **state) {
  (void)state;
  kern_backend_t ref = open_ref(ZR_F32);
  assert_int_equal(kern_half_check(&ref), 0);
  ref.ops->close(ref.kern);
}

static void begin(const kern_backend_t *ref, const kern_case_t *one, zr_dtype_t real,
                  kern_call_t *call) {
  kern_call_init(call, one, real, KERN_POISON_NAN);
  kern_call_fill(call, 5);
  if (kern_call_run(call, ref->ops, ref->kern, NULL) != ZR_OK)
    fail_msg("%s: %s", one->name, zr_detail());
}

/* Half a unit of the last place from the double result: nothing inside is rounded to 16 bits. */
static void halves_meet_double(void **state) {
  (void)state;
  kern_backend_t ref = open_ref(ZR_F32), f64 = open_ref(ZR_F64);
  for (int i = 0; i < kern_n_half_cases; i++) {
    const kern_case_t *one = &kern_half_cases[i];
    if (zr_kern_is_update(one->kind)) continue; /* its double parameter is the master */
    kern_call_t a, b;
    begin(&ref, one, ZR_F32, &a);
    begin(&f64, one, ZR_F64, &b);
    for (int o = 0; o < ZR_MAX_OPERANDS; o++) {
      if (!kern_call_is_output(&a, o) || a.desc[o].type == KERN_CONTROL) continue;
      int dtype = a.shape.dtype[o];
      double bound = dtype == ZR_BF16 ? 1.001 * 0x1p-8 : dtype == ZR_F16 ? 1.001 * 0x1p-11 : 3e-7;
      if (one->accumulate >> o & 1u) bound *= 2; /* the value is rounded, and its sum */
      double error = kern_call_error(&a, &b, o);
      if (!(error <= bound)) fail_msg("%s: operand %d differs by %g", one->name, o, error);
    }
    kern_call_fini(&a);
    kern_call_fini(&b);
  }
  ref.ops->close(ref.kern);
  f64.ops->close(f64.kern);
}

/* The fp32 kernel on the widened operands, its outputs rounded: the same bits. (Sums that are added
 * to are kern_half_check's: their value is rounded first.) An optimizer's
 * widened parameter is the master. */
static void check_widened(const kern_backend_t *ref, const kern_case_t *one) {
  kern_case_t wide_case = *one;
  wide_case.compute = 0, wide_case.sum = 0;
  kern_call_t half, wide;
  kern_call_init(&half, one, ZR_F32, KERN_POISON_NAN);
  kern_call_init(&wide, &wide_case, ZR_F32, KERN_POISON_NAN);
  kern_call_fill(&half, 5);
  kern_call_fill(&wide, 5);
  bool is_split = half.block[6] != NULL && half.desc[6].type == KERN_REST;
  for (int o = 0; o < ZR_MAX_OPERANDS; o++) {
    if (half.desc[o].type > KERN_F32 || wide.block[o] == NULL) continue;
    for (int64_t n = 0; n < kern_call_n_elems(&half, o); n++)
      kern_call_set(&wide, o, n, kern_call_get(&half, o, n));
  }
  for (int64_t n = 0; is_split && n < kern_call_n_elems(&half, 0); n++) {
    const uint16_t *high = half.call.operand[0];
    const int16_t *low = half.call.operand[6];
    kern_call_set(&wide, 0, n,
                  one->compute == ZR_BF16 ? (double)zr_master_join(high[n], low[n])
                                          : kern_call_get(&half, 6, n));
  }
  assert_int_equal(kern_call_run(&half, ref->ops, ref->kern, NULL), ZR_OK);
  assert_int_equal(kern_call_run(&wide, ref->ops, ref->kern, NULL), ZR_OK);
  for (int o = 0; o < ZR_MAX_OPERANDS; o++) {
    if (!kern_call_is_output(&wide, o) || (one->accumulate >> o & 1u)) continue;
    if (half.desc[o].type > KERN_F32) {
      if (!kern_call_equal(&half, &wide, o)) fail_msg("%s: operand %d", one->name, o);
      continue;
    }
    for (int64_t n = 0; n < kern_call_n_elems(&half, o); n++) {
      double got = kern_call_get(&half, o, n), exact = kern_call_get(&wide, o, n);
      double want = kern_round((zr_dtype_t)half.shape.dtype[o], exact);
      if (is_split && o == 0 && one->compute == ZR_BF16) {
        const uint16_t *high = half.call.operand[0];
        const int16_t *low = half.call.operand[6];
        got = (double)zr_master_join(high[n], low[n]), want = exact;
      }
      if (!(got == want || (isnan(got) && isnan(want))))
        fail_msg("%s: operand %d, element %lld: %.9g, not %.9g", one->name, o, (long long)n, got,
                 want);
    }
  }
  kern_call_fini(&half);
  kern_call_fini(&wide);
}

static void halves_are_fp32_rounded_once(void **state) {
  (void)state;
  kern_backend_t ref = open_ref(ZR_F32);
  for (int i = 0; i < kern_n_half_cases; i++) check_widened(&ref, &kern_half_cases[i]);
  ref.ops->close(ref.kern);
}

/* Finite masters whose parameter is not: counted, and kept exactly. */
static void a_parameter_that_overflows_is_bad(void **state) {
  (void)state;
  kern_backend_t ref = open_ref(ZR_F32);
  for (int compute = ZR_BF16; compute <= ZR_F16; compute++) {
    kern_case_t one = {.kind = ZR_OP_ADAMW, .attr = {2048, 0, 2048, 2048}};
    one.compute = (uint8_t)compute;
    kern_call_t call;
    kern_call_init(&call, &one, ZR_F32, KERN_POISON_NAN);
    kern_call_fill(&call, 5);
    zr_control_t *ctl = call.call.operand[5];
    ctl->decay_mul = 1;
    kern_call_set(&call, 1, 7, 0);
    kern_call_set(&call, 2, 7, 0);
    if (compute == ZR_BF16) {
      zr_master_split(0x1.fffffep127f, &((uint16_t *)call.call.operand[0])[7],
                      &((int16_t *)call.call.operand[6])[7]);
    } else {
      kern_call_set(&call, 6, 7, 70000);
    }
    assert_int_equal(kern_call_run(&call, ref.ops, ref.kern, NULL), ZR_OK);
    assert_int_equal(ctl->n_bad_params, 1);
    assert_true(isinf(kern_call_get(&call, 0, 7)));
    if (compute == ZR_BF16)
      assert_true(kern_call_get(&call, 6, 7) == -1);
    else
      assert_true(kern_call_get(&call, 6, 7) == 70000);
    kern_call_fini(&call);
  }
  ref.ops->close(ref.kern);
}

static void types_that_do_not_go_together_are_refused(void **state) {
  (void)state;
  static const struct {
    kern_case_t one;
    int operand;
    zr_dtype_t dtype;
  } wrong[] = {
      {{.kind = ZR_OP_ADD, .attr = {4}, .compute = ZR_BF16}, 2, ZR_F32},
      {{.kind = ZR_OP_ADD, .attr = {4}, .compute = ZR_BF16}, 1, ZR_F16},
      {{.kind = ZR_OP_LINEAR_GRAD_B, .attr = {1, 1, 1, 1, 1}, .compute = ZR_F16}, 1, ZR_F16},
      {{.kind = ZR_OP_RMSNORM, .attr = {1, 1}, .compute = ZR_BF16}, 3, ZR_BF16},
      {{.kind = ZR_OP_ADAMW, .attr = {64, 0, 0, 64}, .compute = ZR_BF16}, 6, ZR_F32},
      {{.kind = ZR_OP_ADAMW, .attr = {64, 0, 0, 64}, .compute = ZR_F16}, 6, ZR_I16},
      {{.kind = ZR_OP_ADAMW, .attr = {64, 0, 0, 64}, .compute = ZR_BF16}, 2, ZR_F16},
      {{.kind = ZR_OP_SGD, .attr = {64, 0, 0, 64}, .absent = 1u << 3}, 2, ZR_F16},
  };
  kern_backend_t ref = open_ref(ZR_F32), f64 = open_ref(ZR_F64);
  void *prepared = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    zr_kern_shape_t shape = kern_case_shape(&wrong[i].one, ZR_F32);
    assert_int_equal(ref.ops->prepare(ref.kern, &shape, 1, &prepared), ZR_OK);
    assert_int_equal(f64.ops->prepare(f64.kern, &shape, 1, &prepared), ZR_ERR_UNSUPPORTED);
    shape.dtype[wrong[i].operand] = (uint8_t)wrong[i].dtype;
    assert_int_equal(ref.ops->prepare(ref.kern, &shape, 1, &prepared), ZR_ERR_UNSUPPORTED);
  }
  for (int compute = 0; compute <= ZR_BF16; compute += ZR_BF16) { /* a rest too few, one too many */
    kern_case_t one = {.kind = ZR_OP_ADAMW, .attr = {64, 0, 0, 64}, .compute = (uint8_t)compute};
    zr_kern_shape_t shape = kern_case_shape(&one, ZR_F32);
    shape.present ^= 1u << 6;
    shape.dtype[6] = ZR_I16;
    assert_int_equal(ref.ops->prepare(ref.kern, &shape, 1, &prepared), ZR_ERR_INVALID_ARGUMENT);
  }
  ref.ops->close(ref.kern);
  f64.ops->close(f64.kern);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_cases_hold),
      cmocka_unit_test(halves_meet_double),
      cmocka_unit_test(halves_are_fp32_rounded_once),
      cmocka_unit_test(a_parameter_that_overflows_is_bad),
      cmocka_unit_test(types_that_do_not_go_together_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
