/* Every optimizer on the oracle and on each instruction set of kernels/cpu: one call over a flat
 * and odd pieces of it give the same bits, digests and counts; digests are those of what is stored.
 */
#include <math.h>

#include "runtime/base/digest.h"
#include "tests/kernels/case_call.h"
#include "tests/kernels/check.h"

enum { ELEMS = 8192, SHARD = 2048, SEED = 21 };

static const struct {
  int32_t kind;
  uint32_t absent;
} optimizers[] = {{ZR_OP_ADAMW, 0},
                  {ZR_OP_SGD, 1u << 3},
                  {ZR_OP_SGD, 1u << 2 | 1u << 3},
                  {ZR_OP_LION, 1u << 3},
                  {ZR_OP_ADAGRAD, 1u << 3}};
enum { N_OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

typedef struct {
  const char *name;
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
} backend_t;

static void begin(const kern_case_t *one, kern_call_t *call) {
  kern_call_init(call, one, ZR_F32, KERN_POISON_NAN);
  kern_call_fill(call, SEED);
}

static void must_equal(const backend_t *b, const kern_case_t *one, const kern_call_t *x,
                       const kern_call_t *y, const char *why) {
  for (int o = 0; o < ZR_MAX_OPERANDS; o++)
    if (x->block[o] != NULL && !kern_call_equal(x, y, o))
      fail_msg("%s, kind %d, types %d %d: operand %d %s", b->name, one->kind, one->compute,
               one->states, o, why);
}

static void run_pieces(const backend_t *b, kern_call_t *whole) {
  static const int64_t cut[] = {0, 1, 64, 131, 2048, 3333, 3334, 5000, 8000, ELEMS};
  for (int c = 0; c + 1 < (int)(sizeof cut / sizeof cut[0]); c++) {
    zr_kern_shape_t shape = whole->shape;
    zr_kern_call_t call = whole->call;
    shape.attr[ZR_ADAMW_FIRST] = cut[c];
    shape.attr[ZR_ADAMW_ELEMS] = cut[c + 1] - cut[c];
    call.shape = &shape;
    for (int o = 0; o <= ZR_UPDATE_LOW; o++) {
      if (o == ZR_UPDATE_LAYOUT || o == ZR_UPDATE_CTL || call.operand[o] == NULL) continue;
      call.operand[o] = (char *)call.operand[o] + cut[c] * whole->elem_bytes[o];
    }
    assert_int_equal(b->ops->run(b->kern, &call), ZR_OK);
  }
}

static uint64_t states_digest(const kern_call_t *call) {
  const zr_kern_layout_t *layout = call->call.operand[ZR_UPDATE_LAYOUT];
  uint64_t sum = 0;
  for (int64_t n = 0; n < layout->n_tensors; n++) {
    const zr_kern_tensor_t *tensor = &layout->tensor[n];
    for (int64_t flat = tensor->begin; flat < tensor->end && flat < ELEMS; flat++) {
      if (flat / SHARD != KERN_CASE_RANK) continue;
      for (int k = 0; k < ZR_MAX_STATES; k++) {
        if (call->block[ZR_UPDATE_STATE + k] == NULL) continue;
        float value = (float)kern_call_get(call, ZR_UPDATE_STATE + k, flat);
        sum +=
            zr_digest_element(tensor->digest_key[1 + k], (uint64_t)(flat - tensor->begin), value);
      }
    }
  }
  return sum;
}

/* A call of its own for each step and seed: other random bits, but for fp32 states. */
static void check_random(const backend_t *b, const kern_case_t *one, const kern_call_t *whole) {
  for (int n = 0; n < 2; n++) {
    kern_call_t other;
    begin(one, &other);
    zr_control_t *ctl = other.call.operand[ZR_UPDATE_CTL];
    if (n == 0) ctl->step++;
    if (n == 1) ctl->seed++;
    assert_int_equal(kern_call_run(&other, b->ops, b->kern, NULL), ZR_OK);
    bool has_state = other.block[ZR_UPDATE_STATE] != NULL;
    bool same = !has_state || kern_call_equal(&other, whole, ZR_UPDATE_STATE);
    assert_int_equal(same, !has_state || one->states == 0);
    assert_true(kern_call_equal(&other, whole, ZR_UPDATE_PARAM));
    kern_call_fini(&other);
  }
}

static void check(const backend_t *b, const backend_t *ref, const kern_case_t *one) {
  kern_call_t whole, pieces, oracle;
  begin(one, &whole);
  begin(one, &pieces);
  begin(one, &oracle);
  assert_int_equal(kern_call_run(&whole, b->ops, b->kern, NULL), ZR_OK);
  assert_int_equal(kern_call_run(&oracle, ref->ops, ref->kern, NULL), ZR_OK);
  run_pieces(b, &pieces);
  must_equal(b, one, &pieces, &whole, "depends on the cut");
  must_equal(b, one, &oracle, &whole, "is not the oracle's");
  const zr_control_t *ctl = whole.call.operand[ZR_UPDATE_CTL];
  assert_true(ctl->digest_sum[0] != 0 && ctl->digest_sum[1] == states_digest(&whole));
  check_random(b, one, &whole);
  kern_call_fini(&whole);
  kern_call_fini(&pieces);
  kern_call_fini(&oracle);
}

static void check_backend(const backend_t *b, const backend_t *ref) {
  static const uint8_t computes[] = {0, ZR_BF16, ZR_F16}, halves[] = {0, ZR_BF16};
  for (int i = 0; i < N_OPTIMIZERS; i++)
    for (int c = 0; c < 3; c++)
      for (int s = 0; s < 4; s++) {
        kern_case_t one = {.kind = optimizers[i].kind,
                           .attr = {ELEMS, 0, 0, SHARD},
                           .absent = optimizers[i].absent,
                           .compute = computes[c],
                           .states = halves[s % 2],
                           .sum = halves[s / 2],
                           .control = s / 2 ? KERN_CTL_L2 | KERN_CTL_NESTEROV : 0};
        check(b, ref, &one);
      }
}

static void cuts_change_no_bit(void **state) {
  (void)state;
  static const char *const isa[] = {"avx512", "avx2", "baseline"};
  backend_t ref = {.name = "ref"};
  assert_int_equal(zr_kern_ref_open(NULL, ZR_F32, &ref.ops, &ref.kern), ZR_OK);
  check_backend(&ref, &ref);
  for (int i = 0; i < 3; i++) {
    backend_t cpu = {.name = isa[i]};
    if (zr_kern_cpu_open(NULL, isa[i], &cpu.ops, &cpu.kern) != ZR_OK) continue;
    check_backend(&cpu, &ref);
    cpu.ops->close(cpu.kern);
  }
  ref.ops->close(ref.kern);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cuts_change_no_bit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
