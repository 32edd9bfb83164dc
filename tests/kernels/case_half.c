/* Checks of the 16-bit cases. */
#include "tests/kernels/case_half.h"

#include <math.h>

#include "tests/kernels/check.h"

enum { SEED = 5 };

static zr_status_t run(const kern_backend_t *b, zr_pool_t *pool, const kern_case_t *one,
                       zr_dtype_t real, uint8_t poison, kern_call_t *call) {
  int operand = -1;
  kern_call_init(call, one, real, poison);
  kern_call_fill(call, SEED);
  zr_status_t status = kern_call_run(call, b->ops, b->kern, pool);
  if (status == ZR_ERR_UNSUPPORTED) return status;
  if (status != ZR_OK) fail_msg("%s %s: %s", b->name, one->name, zr_detail());
  int64_t damage = kern_call_damage(call, &operand);
  if (damage != 0)
    fail_msg("%s %s: %lld bytes outside operand %d changed", b->name, one->name, (long long)damage,
             operand);
  return ZR_OK;
}

static void must_run(const kern_backend_t *b, zr_pool_t *pool, const kern_case_t *one,
                     uint8_t poison, kern_call_t *call) {
  if (run(b, pool, one, ZR_F32, poison, call) != ZR_OK)
    fail_msg("%s %s: %s", b->name, one->name, zr_detail());
}

static void must_equal(const kern_backend_t *b, const kern_call_t *x, const kern_call_t *y,
                       const char *name, const char *why) {
  for (int o = 0; o < ZR_MAX_OPERANDS; o++)
    if (kern_call_is_output(x, o) && !kern_call_equal(x, y, o))
      fail_msg("%s %s: operand %d %s", b->name, name, o, why);
}

static void check_oracle(const kern_backend_t *b, const kern_case_t *one, const kern_call_t *call) {
  bool same_bits = one->bound <= 0 && one->bound_half <= 0;
  kern_backend_t ref = {.name = "ref"};
  kern_call_t want;
  assert_int_equal(zr_kern_ref_open(NULL, same_bits ? ZR_F32 : ZR_F64, &ref.ops, &ref.kern), ZR_OK);
  assert_int_equal(run(&ref, NULL, one, same_bits ? ZR_F32 : ZR_F64, KERN_POISON_NAN, &want),
                   ZR_OK);
  if (same_bits) must_equal(b, call, &want, one->name, "has other bits than the oracle");
  for (int o = 0; o < ZR_MAX_OPERANDS && !same_bits; o++) {
    if (!kern_call_is_output(call, o)) continue;
    bool is_half = call->elem_bytes[o] == 2, is_added = (one->accumulate >> o & 1u) != 0;
    double error = kern_call_error(call, &want, o), bound = is_half ? one->bound_half : one->bound;
    if (is_half && is_added) bound *= 2; /* the value is rounded, and its sum */
    if (!(error <= bound))
      fail_msg("%s %s: operand %d differs by %g, more than %g", b->name, one->name, o, error,
               bound);
  }
  kern_call_fini(&want);
  ref.ops->close(ref.kern);
}

static void check_bits(const kern_backend_t *b, const kern_case_t *one, const kern_call_t *call) {
  kern_call_t other;
  kern_case_t moved = *one;
  for (int o = 0; o < ZR_MAX_OPERANDS; o++)
    if (call->elem_bytes[o] == 2 || call->elem_bytes[o] == 4) moved.offset ^= 1u << o;
  must_run(b, NULL, one, KERN_POISON_FINITE, &other);
  must_equal(b, call, &other, one->name, "depends on what was there");
  kern_call_fini(&other);
  must_run(b, NULL, &moved, KERN_POISON_NAN, &other);
  must_equal(b, call, &other, one->name, "depends on an address");
  kern_call_fini(&other);
  for (int p = 0; p < b->n_pools; p++) {
    must_run(b, b->pool[p], one, KERN_POISON_NAN, &other);
    must_equal(b, call, &other, one->name, "depends on the number of threads");
    kern_call_fini(&other);
  }
}

/* The value is rounded to the operand's type, then added in fp32 and rounded: the same bits as
 * writing it and adding it later. */
static void check_adding(const kern_backend_t *b, const kern_case_t *one, const kern_call_t *call) {
  kern_case_t plain = *one;
  kern_call_t before, value;
  plain.accumulate = 0;
  must_run(b, NULL, &plain, KERN_POISON_NAN, &value);
  kern_call_init(&before, one, ZR_F32, KERN_POISON_NAN);
  kern_call_fill(&before, SEED);
  for (int o = 0; o < ZR_MAX_OPERANDS; o++) {
    bool added = call->desc[o].role == KERN_ADD && (one->accumulate >> o & 1u);
    if (!added) continue;
    for (int64_t n = 0; n < kern_call_n_elems(call, o); n++) {
      float sum = (float)kern_call_get(&before, o, n) + (float)kern_call_get(&value, o, n);
      double want = kern_round((zr_dtype_t)call->shape.dtype[o], (double)sum);
      if (kern_call_get(call, o, n) != want)
        fail_msg("%s %s: operand %d is not the sum at %lld", b->name, one->name, o, (long long)n);
    }
  }
  kern_call_fini(&before);
  kern_call_fini(&value);
}

int kern_half_check(const kern_backend_t *backend) {
  int n_skipped = 0;
  for (int i = 0; i < kern_n_half_cases; i++) {
    const kern_case_t *one = &kern_half_cases[i];
    kern_call_t call;
    if (run(backend, NULL, one, ZR_F32, KERN_POISON_NAN, &call) == ZR_OK) {
      check_oracle(backend, one, &call);
      check_bits(backend, one, &call);
      if (one->accumulate != 0) check_adding(backend, one, &call);
    } else {
      print_message("%s: skipped: %s\n", one->name, zr_detail());
      n_skipped++;
    }
    kern_call_fini(&call);
  }
  return n_skipped;
}
