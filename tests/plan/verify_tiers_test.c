/* The verifier on plans over three tiers: copies between the wrong ones, transfers that a disk can
 * not make, the host's operations on the device's memory, typed parts. */
#include <string.h>

#include "runtime/plan/program.h"
#include "runtime/plan/verify.h"
#include "tests/support/cmocka_all.h"

enum { STATE = 8192, PART = 4096 };

typedef struct {
  zr_program_t *program;
  zr_plan_t *plan;
  int32_t state, slot, flat, other;
  int32_t read, fill, up, down, write;
} tiers_t;

static int32_t buffer(zr_plan_t *plan, const char *name, zr_tier_t tier, zr_dtype_t dtype,
                      int64_t bytes, bool persistent) {
  int32_t index = -1;
  if (zr_plan_add_buffer(plan, name, tier, ZR_CATEGORY_DATA, dtype, bytes, persistent, &index) !=
      ZR_OK) {
    fail_msg("%s", zr_detail());
  }
  return index;
}

static zr_op_desc_t desc_of(int32_t kind, bool on_host, int64_t attr, zr_operand_t a,
                            zr_operand_t b) {
  return (zr_op_desc_t){.kind = kind,
                        .on = on_host ? ZR_ON(ZR_STREAM_HOST) : 0,
                        .unit = -1,
                        .micro = -1,
                        .attr = {attr},
                        .n_operands = b.buffer < 0 ? 1 : 2,
                        .operand = {a, b}};
}

static int32_t add(zr_plan_t *plan, int32_t kind, bool on_host, int64_t attr, zr_operand_t a,
                   zr_operand_t b) {
  const zr_op_desc_t desc = desc_of(kind, on_host, attr, a, b);
  int32_t op = -1;
  if (zr_plan_add_op(plan, &desc, &op) != ZR_OK) fail_msg("%s", zr_detail());
  return op;
}

static zr_operand_t part(int32_t index, int64_t offset, zr_access_t access, zr_dtype_t dtype) {
  zr_operand_t operand = zr_operand_part(index, offset, PART, access);
  operand.dtype = (uint8_t)dtype;
  return operand;
}

/* disk state -> host slot, its second half filled on the host; first half -> device flat -> second
 * half; slot -> disk state. `other` is on the host. */
static tiers_t tiers(void) {
  tiers_t t = {0};
  assert_int_equal(zr_program_create(zr_alloc_default(), &t.program), ZR_OK);
  assert_int_equal(zr_plan_create(zr_alloc_default(), "step", 1, &t.plan), ZR_OK);
  t.state = buffer(t.plan, "state", ZR_TIER_DISK, ZR_U8, STATE, true);
  t.other = buffer(t.plan, "other", ZR_TIER_HOST, ZR_F32, PART, true);
  t.slot = buffer(t.plan, "slot", ZR_TIER_HOST, ZR_U8, STATE, false);
  t.flat = buffer(t.plan, "flat", ZR_TIER_DEVICE, ZR_F32, PART, false);
  t.read = add(t.plan, ZR_OP_DISK_READ, false, STATE, zr_operand_all(t.plan, t.state, ZR_READ),
               zr_operand_all(t.plan, t.slot, ZR_WRITE));
  t.fill = add(t.plan, ZR_OP_FILL, true, PART / 4, zr_operand_all(t.plan, t.other, ZR_WRITE),
               zr_operand_none());
  t.up = add(t.plan, ZR_OP_H2D, false, PART, part(t.slot, 0, ZR_READ, ZR_F32),
             zr_operand_all(t.plan, t.flat, ZR_WRITE));
  t.down = add(t.plan, ZR_OP_D2H, false, PART, zr_operand_all(t.plan, t.flat, ZR_READ),
               part(t.slot, PART, ZR_WRITE, ZR_F32));
  t.write = add(t.plan, ZR_OP_DISK_WRITE, false, STATE, zr_operand_all(t.plan, t.slot, ZR_READ),
                zr_operand_all(t.plan, t.state, ZR_WRITE));
  assert_int_equal(zr_program_add(t.program, t.plan), ZR_OK);
  zr_place_options_t place;
  zr_place_defaults(&place);
  if (zr_program_compile(t.program, &place) != ZR_OK) fail_msg("%s", zr_detail());
  /* Room for what the tests move. */
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    t.plan->arena_bytes[tier] = t.plan->peak_bytes[tier] = 1 << 20;
  }
  return t;
}

static void accepted(const tiers_t *t) {
  if (zr_verify(t->plan, NULL, NULL) != ZR_OK) fail_msg("%s", zr_detail());
}

/* Refused because of `op`, with a word of the reason. */
static void rejected(const tiers_t *t, int32_t op, const char *why) {
  zr_violation_t violation;
  assert_int_equal(zr_verify(t->plan, NULL, &violation), ZR_ERR_VERIFY);
  if (violation.op != op || strstr(violation.text, why) == NULL) {
    fail_msg("expected %d, %s; got %d: %s", op, why, violation.op, violation.text);
  }
}

static void test_copies_between_three_tiers(void **state) {
  (void)state;
  tiers_t t = tiers();
  accepted(&t);
  zr_program_destroy(t.program);
}

static void test_copy_between_the_wrong_tiers(void **state) {
  (void)state;
  static const char *const why = "a tier its stream can not address";
  tiers_t t = tiers();
  t.plan->buffer[t.flat].tier = ZR_TIER_HOST;
  t.plan->buffer[t.flat].offset = 65536;
  rejected(&t, t.up, why);
  t.plan->buffer[t.flat].tier = ZR_TIER_DEVICE;
  t.plan->buffer[t.state].tier = ZR_TIER_DEVICE;
  rejected(&t, t.read, why);
  t.plan->buffer[t.state].tier = ZR_TIER_DISK;
  accepted(&t);
  t.plan->op[t.down].operand[0].buffer = t.other; /* host to host */
  rejected(&t, t.down, why);
  t.plan->op[t.down].operand[0].buffer = t.flat;
  t.plan->buffer[t.other].tier = ZR_TIER_DISK; /* nobody but copies can reach a disk */
  t.plan->buffer[t.other].offset = 65536;
  rejected(&t, t.fill, why);
  zr_program_destroy(t.program);
}

static void test_transfer_that_a_disk_can_not_make(void **state) {
  (void)state;
  static const char *const why = "not where a disk can move it";
  tiers_t t = tiers();
  const int32_t moved[] = {t.state, t.slot};
  for (int i = 0; i < 2; i++) {
    const int64_t was = t.plan->buffer[moved[i]].offset;
    t.plan->buffer[moved[i]].offset = 65536 + 64;
    rejected(&t, t.read, why);
    t.plan->buffer[moved[i]].offset = 65536;
    accepted(&t);
    t.plan->buffer[moved[i]].offset = was;
  }
  zr_op_t *op = &t.plan->op[t.write];
  op->shape.attr[ZR_COPY_BYTES] = op->operand[0].bytes = op->operand[1].bytes = STATE - 512;
  rejected(&t, t.write, why);
  zr_program_destroy(t.program);
}

static void test_host_operation_on_the_devices_memory(void **state) {
  (void)state;
  tiers_t t = tiers();
  t.plan->buffer[t.other].tier = ZR_TIER_DEVICE;
  t.plan->buffer[t.other].offset = 65536;
  rejected(&t, t.fill, "other is on device, its stream can not address it");
  zr_program_destroy(t.program);
}

static void test_typed_part_of_a_typed_buffer(void **state) {
  (void)state;
  tiers_t t = tiers();
  t.plan->op[t.up].operand[1].dtype = ZR_F32;
  rejected(&t, t.up, "its type");
  t.plan->op[t.up].operand[1].dtype = ZR_U8;
  t.plan->op[t.up].operand[0].dtype = ZR_BF16;
  rejected(&t, t.up, "the shape disagrees on the type");
  t.plan->op[t.up].operand[0].dtype = ZR_N_DTYPES;
  rejected(&t, t.up, "its type");
  t.plan->op[t.up].operand[0].dtype = ZR_F32;
  accepted(&t);
  t.plan->op[t.up].operand[0].offset = 2; /* of a typed part, not a whole element */
  rejected(&t, t.up, "alignment");
  zr_program_destroy(t.program);
}

static void test_builder_refuses_them_too(void **state) {
  (void)state;
  zr_plan_t *plan;
  assert_int_equal(zr_plan_create(zr_alloc_default(), "step", 1, &plan), ZR_OK);
  const int32_t x = buffer(plan, "x", ZR_TIER_HOST, ZR_F32, PART, true);
  const int32_t y = buffer(plan, "y", ZR_TIER_HOST, ZR_F32, PART, true);
  zr_op_desc_t desc =
      desc_of(ZR_OP_FILL, true, PART / 4, part(x, 0, ZR_WRITE, ZR_F32), zr_operand_none());
  assert_int_equal(zr_plan_add_op(plan, &desc, NULL), ZR_ERR_INTERNAL);
  assert_non_null(strstr(zr_detail(), "(x): only a part of a buffer of bytes has a type"));
  desc = desc_of(ZR_OP_GELU, true, PART / 4, zr_operand_all(plan, x, ZR_READ),
                 zr_operand_all(plan, y, ZR_WRITE));
  assert_int_equal(zr_plan_add_op(plan, &desc, NULL), ZR_ERR_INTERNAL);
  assert_non_null(strstr(zr_detail(), "(gelu) does not run on stream 6"));
  zr_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_copies_between_three_tiers),
      cmocka_unit_test(test_copy_between_the_wrong_tiers),
      cmocka_unit_test(test_transfer_that_a_disk_can_not_make),
      cmocka_unit_test(test_host_operation_on_the_devices_memory),
      cmocka_unit_test(test_typed_part_of_a_typed_buffer),
      cmocka_unit_test(test_builder_refuses_them_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
