/* The oracle over the table of cases: each kernel writes each logical byte of its outputs and
 * nothing else, in both float types; float meets double; accumulating is adding. */
#include <math.h>

#include "tests/kernels/case_call.h"
#include "tests/kernels/check.h"

typedef struct {
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
} backend_t;

static backend_t open_ref(zr_dtype_t real) {
  backend_t ref = {0};
  assert_int_equal(zr_kern_ref_open(NULL, real, &ref.ops, &ref.kern), ZR_OK);
  return ref;
}

/* A finished call; fails the test where bytes outside the outputs changed. */
static void run_case(backend_t ref, const kern_case_t *one, zr_dtype_t real, uint8_t poison,
                     kern_call_t *call) {
  int operand = -1;
  kern_call_init(call, one, real, poison);
  kern_call_fill(call, 5);
  if (kern_call_run(call, ref.ops, ref.kern, NULL) != ZR_OK)
    fail_msg("%s: %s", one->name, zr_detail());
  int64_t damage = kern_call_damage(call, &operand);
  if (damage != 0)
    fail_msg("%s: %lld bytes outside operand %d changed", one->name, (long long)damage, operand);
}

static void check_two_poisons(zr_dtype_t real) {
  backend_t ref = open_ref(real);
  for (int i = 0; i < kern_n_cases; i++) {
    kern_call_t a, b;
    run_case(ref, &kern_cases[i], real, KERN_POISON_NAN, &a);
    run_case(ref, &kern_cases[i], real, KERN_POISON_FINITE, &b);
    for (int o = 0; o < ZR_MAX_OPERANDS; o++)
      if (kern_call_is_output(&a, o) && !kern_call_equal(&a, &b, o))
        fail_msg("%s: operand %d depends on what was there", kern_cases[i].name, o);
    kern_call_fini(&a);
    kern_call_fini(&b);
  }
  ref.ops->close(ref.kern);
}

static void outputs_and_nothing_else_f32(void **state) {
  (void)state;
  check_two_poisons(ZR_F32);
}

static void outputs_and_nothing_else_f64(void **state) {
  (void)state;
  check_two_poisons(ZR_F64);
}

/* The float build rounds once: half a unit in the last place of each element, and a little more
 * where a second rounding is part of the definition (statistics read back, accumulation, AdamW). */
static void float_meets_double(void **state) {
  (void)state;
  backend_t f32 = open_ref(ZR_F32), f64 = open_ref(ZR_F64);
  for (int i = 0; i < kern_n_cases; i++) {
    kern_call_t a, b;
    run_case(f32, &kern_cases[i], ZR_F32, KERN_POISON_NAN, &a);
    run_case(f64, &kern_cases[i], ZR_F64, KERN_POISON_NAN, &b);
    for (int o = 0; o < ZR_MAX_OPERANDS; o++) {
      if (!kern_call_is_output(&a, o) || a.desc[o].type == KERN_CONTROL) continue;
      double error = kern_call_error(&a, &b, o);
      double bound = fmax(kern_cases[i].bound, 3e-7);
      if (!(error <= bound)) fail_msg("%s: operand %d differs by %g", kern_cases[i].name, o, error);
    }
    kern_call_fini(&a);
    kern_call_fini(&b);
  }
  f32.ops->close(f32.kern);
  f64.ops->close(f64.kern);
}

/* out = fl(out + fl(value)): the value is what the same call writes without the bit. */
static void accumulating_is_adding(void **state) {
  (void)state;
  backend_t ref = open_ref(ZR_F32);
  int n_checked = 0;
  for (int i = 0; i < kern_n_cases; i++) {
    kern_case_t plain = kern_cases[i];
    plain.accumulate = 0;
    kern_call_t before, added, value;
    run_case(ref, &kern_cases[i], ZR_F32, KERN_POISON_NAN, &added);
    run_case(ref, &plain, ZR_F32, KERN_POISON_NAN, &value);
    kern_call_init(&before, &kern_cases[i], ZR_F32, KERN_POISON_NAN);
    kern_call_fill(&before, 5);
    for (int o = 0; o < ZR_MAX_OPERANDS; o++) {
      if (added.desc[o].role != KERN_ADD || !(kern_cases[i].accumulate >> o & 1u)) continue;
      for (int64_t n = 0; n < kern_call_n_elems(&added, o); n++) {
        float sum = (float)kern_call_get(&before, o, n) + (float)kern_call_get(&value, o, n);
        assert_true((float)kern_call_get(&added, o, n) == sum);
      }
      n_checked++;
    }
    kern_call_fini(&before);
    kern_call_fini(&added);
    kern_call_fini(&value);
  }
  assert_true(n_checked >= 10);
  ref.ops->close(ref.kern);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(outputs_and_nothing_else_f32),
      cmocka_unit_test(outputs_and_nothing_else_f64),
      cmocka_unit_test(float_meets_double),
      cmocka_unit_test(accumulating_is_adding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
