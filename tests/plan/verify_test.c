/* The verifier on small plans built, placed and made to wait by hand: one test for each way in
 * which a plan can be wrong, named after the symptom. */
#include "runtime/plan/verify.h"

#include <string.h>

#include "tests/support/cmocka_all.h"

enum { BYTES = 256, ELEMS = BYTES / 4 };

static zr_plan_t *new_plan(int n_ranks) {
  zr_plan_t *plan;
  assert_int_equal(zr_plan_create(zr_alloc_default(), "step", n_ranks, &plan), ZR_OK);
  return plan;
}

/* At `slot` * BYTES in the device arena. */
static int32_t buffer(zr_plan_t *plan, const char *name, int64_t bytes, bool persistent, int slot) {
  int32_t index;
  assert_int_equal(zr_plan_add_buffer(plan, name, ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_F32, bytes,
                                      persistent, &index),
                   ZR_OK);
  plan->buffer[index].offset = (int64_t)slot * BYTES;
  return index;
}

static int32_t add(zr_plan_t *plan, int32_t kind, int64_t attr, int n,
                   const zr_operand_t *operand) {
  zr_op_desc_t desc = {.kind = kind, .unit = -1, .micro = -1, .n_operands = n};
  desc.attr[0] = attr;
  for (int i = 0; i < n; i++) desc.operand[i] = operand[i];
  int32_t op;
  if (zr_plan_add_op(plan, &desc, &op) != ZR_OK) fail_msg("%s", zr_detail());
  return op;
}

static int32_t fill(zr_plan_t *plan, int32_t dst) { /* on compute */
  zr_operand_t o = zr_operand_all(plan, dst, ZR_WRITE);
  return add(plan, ZR_OP_FILL, o.bytes / 4, 1, &o);
}

static int32_t gelu(zr_plan_t *plan, int32_t x, int32_t y) { /* on compute */
  zr_operand_t o[] = {zr_operand_all(plan, x, ZR_READ), zr_operand_all(plan, y, ZR_WRITE)};
  return add(plan, ZR_OP_GELU, o[0].bytes / 4, 2, o);
}

static int32_t into(zr_plan_t *plan, int32_t src, int32_t dst) { /* accumulate, on compute */
  zr_operand_t o[] = {zr_operand_all(plan, src, ZR_READ), zr_operand_all(plan, dst, ZR_ACCUMULATE)};
  return add(plan, ZR_OP_ACCUMULATE, o[0].bytes / 4, 2, o);
}

static int32_t gather(zr_plan_t *plan, int32_t shard, int32_t flat) { /* on comm */
  zr_operand_t o[] = {zr_operand_all(plan, shard, ZR_READ), zr_operand_all(plan, flat, ZR_WRITE)};
  return add(plan, ZR_OP_ALL_GATHER, o[0].bytes, 2, o);
}

static int32_t fetch(zr_plan_t *plan, int32_t tokens, int32_t targets) { /* on h2d */
  zr_operand_t o[] = {zr_operand_all(plan, tokens, ZR_WRITE),
                      zr_operand_all(plan, targets, ZR_WRITE)};
  zr_op_desc_t desc = {.kind = ZR_OP_FETCH, .unit = -1, .micro = -1, .n_operands = 2};
  desc.attr[ZR_FETCH_ROWS] = ELEMS;
  desc.operand[0] = o[0];
  desc.operand[1] = o[1];
  int32_t op;
  assert_int_equal(zr_plan_add_op(plan, &desc, &op), ZR_OK);
  return op;
}

static void finish(zr_plan_t *plan, int n_slots) {
  if (zr_plan_finish(plan) != ZR_OK) fail_msg("%s", zr_detail());
  plan->arena_bytes[ZR_TIER_DEVICE] = plan->peak_bytes[ZR_TIER_DEVICE] = (int64_t)n_slots * BYTES;
}

static void wait_for(zr_plan_t *plan, int32_t op, int32_t on, uint8_t back) {
  plan->op[op].wait[plan->op[op].n_waits++] = (zr_wait_t){.op = on, .back = back};
  plan->n_waits++;
}

static void accepted(const zr_plan_t *plan) {
  if (zr_verify(plan, NULL, NULL) != ZR_OK) fail_msg("%s", zr_detail());
}

/* Rejected, the two operations named, and a word of the reason given. */
static void rejected(const zr_plan_t *plan, int32_t op, int32_t other, const char *why) {
  zr_violation_t violation;
  assert_int_equal(zr_verify(plan, NULL, &violation), ZR_ERR_VERIFY);
  if (violation.op != op || violation.other_op != other || strstr(violation.text, why) == NULL) {
    fail_msg("expected %d, %d, %s; got %d, %d: %s", op, other, why, violation.op,
             violation.other_op, violation.text);
  }
}

/* comm gathers w into a flat; compute adds it to the state x. */
typedef struct {
  zr_plan_t *plan;
  int32_t w, x, flat, gather, use;
} simple_t;

static simple_t simple(void) {
  simple_t s = {.plan = new_plan(1)};
  s.w = buffer(s.plan, "w", BYTES, true, 0);
  s.x = buffer(s.plan, "x", BYTES, true, 1);
  s.flat = buffer(s.plan, "flat", BYTES, false, 2);
  s.gather = gather(s.plan, s.w, s.flat);
  s.use = into(s.plan, s.flat, s.x);
  finish(s.plan, 3);
  wait_for(s.plan, s.use, s.gather, 0);
  wait_for(s.plan, s.gather, s.use, 1);
  return s;
}

static void test_simple_plan_passes(void **state) {
  (void)state;
  simple_t s = simple();
  accepted(s.plan);
  zr_plan_destroy(s.plan);
}

static void test_empty_plan_passes(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(2);
  assert_int_equal(zr_verify(plan, NULL, NULL), ZR_ERR_VERIFY); /* not finished */
  finish(plan, 0);
  accepted(plan);
  plan->n_waits = 1;
  rejected(plan, -1, -1, "counted as");
  zr_plan_destroy(plan);
}

static void test_missing_wait_is_named_in_full(void **state) {
  (void)state;
  simple_t s = simple();
  s.plan->op[s.use].n_waits = 0;
  s.plan->n_waits--;
  rejected(s.plan, s.use, s.gather, "are not ordered");
  assert_string_equal(zr_detail(),
                      "plan step: op 0 all_gather on comm and op 1 accumulate on compute: write "
                      "and read of flat are not ordered (device bytes 512 to 768)");
  zr_plan_destroy(s.plan);
}

static void test_next_step_overwrites_what_is_still_read(void **state) {
  (void)state;
  simple_t s = simple();
  s.plan->op[s.gather].n_waits = 0;
  s.plan->n_waits--;
  rejected(s.plan, s.gather, s.use, "of the execution before");
  zr_plan_destroy(s.plan);
}

static void test_waiting_for_the_previous_step_instead_of_this(void **state) {
  (void)state;
  simple_t s = simple();
  s.plan->op[s.use].wait[0].back = 1;
  rejected(s.plan, s.use, s.gather, "are not ordered");
  zr_plan_destroy(s.plan);
}

static void test_waiting_for_a_later_operation(void **state) {
  (void)state;
  simple_t s = simple();
  s.plan->op[s.gather].wait[0].back = 0;
  rejected(s.plan, s.gather, s.use, "does not come before");
  s.plan->op[s.gather].wait[0] = (zr_wait_t){.op = s.gather};
  rejected(s.plan, s.gather, s.gather, "does not come before");
  s.plan->op[s.gather].wait[0] = (zr_wait_t){.op = 2};
  rejected(s.plan, s.gather, -1, "nothing");
  zr_plan_destroy(s.plan);
}

static void test_wait_for_the_wrong_of_two_producers(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t w = buffer(plan, "w", BYTES, true, 0), x = buffer(plan, "x", BYTES, true, 1);
  int32_t a = buffer(plan, "a", BYTES, false, 2), b = buffer(plan, "b", BYTES, false, 3);
  int32_t gather_a = gather(plan, w, a), gather_b = gather(plan, w, b);
  int32_t use_b = into(plan, b, x), use_a = into(plan, a, x);
  finish(plan, 4);
  wait_for(plan, use_b, gather_b, 0); /* covers gather_a: the stream is ordered */
  wait_for(plan, gather_a, use_a, 1);
  accepted(plan);
  plan->op[use_b].wait[0].op = gather_a;
  rejected(plan, use_b, gather_b, "are not ordered");
  zr_plan_destroy(plan);
}

static void test_stale_version_is_read(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t x = buffer(plan, "x", BYTES, true, 0), t = buffer(plan, "t", BYTES, false, 1);
  int32_t first = fill(plan, t), second = gelu(plan, x, t), use = into(plan, t, x);
  finish(plan, 2);
  accepted(plan);
  plan->op[use].operand[0].version = 1; /* meant what `first` wrote */
  rejected(plan, use, second, "reads version 1");
  plan->op[use].operand[0].version = 2;
  plan->op[second].operand[1].version = 3;
  rejected(plan, second, first, "makes version 3");
  zr_plan_destroy(plan);
}

/* Layer i uses buffer i % 2. */
static void test_ping_pong_index_is_wrong(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t w = buffer(plan, "w", BYTES, true, 0), x = buffer(plan, "x", BYTES, true, 1);
  int32_t ring[2] = {buffer(plan, "even", BYTES, false, 2), buffer(plan, "odd", BYTES, false, 3)};
  int32_t load[4], use[4];
  load[0] = gather(plan, w, ring[0]);
  for (int i = 0; i < 4; i++) {
    if (i < 3) load[i + 1] = gather(plan, w, ring[(i + 1) % 2]);
    use[i] = into(plan, ring[i % 2], x);
  }
  finish(plan, 4);
  for (int i = 0; i < 4; i++) {
    wait_for(plan, use[i], load[i], 0);
    wait_for(plan, load[i], use[i < 2 ? i + 2 : i - 2], i < 2);
  }
  accepted(plan);
  plan->op[use[1]].operand[0].buffer = ring[0]; /* an older value of the same version */
  plan->op[use[1]].operand[0].version = 1;
  rejected(plan, use[1], load[2], "reads version 1");
  plan->op[use[1]].operand[0].version = 2; /* the list would be right, but use[1] waits for odd */
  rejected(plan, use[1], load[2], "are not ordered");
  zr_plan_destroy(plan);
}

static void test_space_is_reused_while_in_flight(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t x = buffer(plan, "x", BYTES, true, 0), y = buffer(plan, "y", BYTES, true, 1);
  int32_t a = buffer(plan, "a", BYTES, false, 2), b = buffer(plan, "b", BYTES, false, 3);
  int32_t make_a = fill(plan, a), send_a = gather(plan, a, y);
  int32_t make_b = fill(plan, b), use_b = into(plan, b, x);
  finish(plan, 4);
  wait_for(plan, send_a, make_a, 0);
  wait_for(plan, make_a, send_a, 1);
  accepted(plan);
  plan->buffer[b].offset = plan->buffer[a].offset; /* a is dead in the list, but still being sent */
  rejected(plan, make_b, send_a, "read of a and write of b");
  wait_for(plan, make_b, send_a, 0);
  accepted(plan);
  (void)use_b;
  zr_plan_destroy(plan);
}

static void test_space_is_reused_before_the_last_read(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t x = buffer(plan, "x", BYTES, true, 0);
  int32_t a = buffer(plan, "a", BYTES, false, 1), b = buffer(plan, "b", BYTES, false, 2);
  fill(plan, a);
  int32_t make_b = fill(plan, b);
  into(plan, b, x);
  int32_t use_a = into(plan, a, x);
  finish(plan, 3);
  accepted(plan);
  plan->buffer[b].offset = plan->buffer[a].offset;
  rejected(plan, use_a, make_b, "used since for b");
  zr_plan_destroy(plan);
}

static void test_part_that_nobody_wrote_is_read(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t x = buffer(plan, "x", BYTES, true, 0), t = buffer(plan, "t", BYTES, false, 1);
  zr_operand_t part = zr_operand_part(t, 0, BYTES / 2, ZR_WRITE);
  add(plan, ZR_OP_FILL, ELEMS / 2, 1, &part);
  int32_t use = into(plan, t, x), late = fill(plan, t);
  finish(plan, 2);
  rejected(plan, use, late, "from byte 128, which nobody wrote");
  zr_plan_destroy(plan);
}

static void test_scratch_destroys_what_was_there(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t x = buffer(plan, "x", BYTES, true, 0), t = buffer(plan, "t", BYTES, false, 1);
  int32_t s = buffer(plan, "s", BYTES, false, 2);
  int32_t make = fill(plan, t);
  zr_operand_t o[] = {zr_operand_all(plan, x, ZR_ACCUMULATE), zr_operand_all(plan, s, ZR_SCRATCH)};
  int32_t reduce = add(plan, ZR_OP_ALL_REDUCE, BYTES, 2, o);
  int32_t use = into(plan, t, x);
  finish(plan, 3);
  wait_for(plan, use, reduce, 0);
  wait_for(plan, reduce, use, 1);
  accepted(plan);
  plan->buffer[s].offset = plan->buffer[t].offset;
  rejected(plan, use, reduce, "scratch");
  plan->buffer[s].persistent = true;
  plan->buffer[s].offset = 2 * BYTES;
  rejected(plan, reduce, -1, "as scratch");
  (void)make;
  zr_plan_destroy(plan);
}

static void test_gather_in_place(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(4);
  int32_t x = buffer(plan, "x", 4 * BYTES, true, 0), t = buffer(plan, "t", 4 * BYTES, false, 4);
  zr_operand_t o[] = {zr_operand_shard(t, BYTES, ZR_WRITE)};
  int32_t make = add(plan, ZR_OP_FILL, ELEMS, 1, o);
  zr_operand_t g[] = {zr_operand_shard(t, BYTES, ZR_READ), zr_operand_all(plan, t, ZR_WRITE)};
  int32_t share = add(plan, ZR_OP_ALL_GATHER, BYTES, 2, g);
  int32_t use = into(plan, t, x);
  finish(plan, 8);
  wait_for(plan, share, make, 0);
  wait_for(plan, use, share, 0);
  accepted(plan);
  plan->op[share].operand[0].rank_stride = 0; /* rank 0's shard on every rank */
  rejected(plan, share, share, "overlap");
  plan->op[share].operand[0].rank_stride = BYTES;
  plan->op[make].operand[0].rank_stride = 0; /* ranks 1.. have written another shard */
  rejected(plan, share, use == 2 ? -1 : -2, "(rank 1)");
  zr_plan_destroy(plan);
}

static void test_outputs_of_one_operation_overlap(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t a = buffer(plan, "a", BYTES, true, 0), b = buffer(plan, "b", BYTES, true, 1);
  int32_t op = fetch(plan, a, b);
  finish(plan, 2);
  accepted(plan);
  plan->buffer[a].persistent = plan->buffer[b].persistent = false;
  accepted(plan);
  plan->buffer[b].offset = 0;
  rejected(plan, op, op, "overlap");
  zr_plan_destroy(plan);
}

static void test_persistent_buffer_is_overlapped(void **state) {
  (void)state;
  simple_t s = simple();
  s.plan->buffer[s.flat].offset = BYTES / 2; /* over w and x */
  rejected(s.plan, s.gather, s.gather, "share bytes");
  zr_plan_destroy(s.plan);
}

static void test_places_and_budgets(void **state) {
  (void)state;
  simple_t s = simple();
  zr_buffer_t *flat = &s.plan->buffer[s.flat];
  flat->offset += 4;
  rejected(s.plan, s.gather, s.use, "alignment");
  flat->offset = -1;
  rejected(s.plan, s.gather, s.use, "not placed");
  flat->offset = 2 * BYTES + 64;
  rejected(s.plan, s.gather, s.use, "past the plan's peak");
  flat->offset = 2 * BYTES;
  int64_t budget[ZR_N_TIERS] = {3 * BYTES, 0, 0};
  assert_int_equal(zr_verify(s.plan, budget, NULL), ZR_OK);
  budget[ZR_TIER_DEVICE]--;
  assert_int_equal(zr_verify(s.plan, budget, NULL), ZR_ERR_VERIFY);
  s.plan->arena_bytes[ZR_TIER_DEVICE]--;
  rejected(s.plan, -1, -1, "peak");
  zr_plan_destroy(s.plan);
}

static void test_operand_is_not_its_row(void **state) {
  (void)state;
  simple_t s = simple();
  zr_operand_t *o = &s.plan->op[s.use].operand[0], was = *o;
  o->bytes -= 64;
  rejected(s.plan, s.use, -1, "size");
  *o = was;
  o->offset = 64;
  rejected(s.plan, s.use, -1, "outside its buffer");
  *o = was;
  o->access = ZR_WRITE;
  rejected(s.plan, s.use, -1, "access");
  *o = was;
  o->buffer = 3;
  rejected(s.plan, s.use, -1, "unknown buffer");
  o->buffer = -1;
  rejected(s.plan, s.use, -1, "presence");
  *o = was;
  s.plan->buffer[s.flat].tier = ZR_TIER_HOST;
  s.plan->arena_bytes[ZR_TIER_HOST] = s.plan->peak_bytes[ZR_TIER_HOST] = 3 * BYTES;
  rejected(s.plan, s.use, -1, "tier");
  s.plan->buffer[s.flat].tier = ZR_TIER_DEVICE;
  s.plan->op[s.use].shape.dtype[0] = ZR_I32;
  rejected(s.plan, s.use, -1, "type");
  zr_plan_destroy(s.plan);
}

static void test_operation_leaves_its_stream(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(1);
  int32_t x = buffer(plan, "x", BYTES, true, 0), y = buffer(plan, "y", BYTES, true, 1);
  int32_t first = fill(plan, x), second = gelu(plan, x, y);
  finish(plan, 2);
  plan->op[second].stream = ZR_STREAM_HOST;
  rejected(plan, second, -1, "position in its stream");
  plan->op[second].stream_index = 0;
  plan->stream_ops[ZR_STREAM_COMPUTE]--;
  plan->stream_ops[ZR_STREAM_HOST]++;
  rejected(plan, second, first, "are not ordered");
  wait_for(plan, second, first, 0);
  wait_for(plan, first, second, 1);
  rejected(plan, second, -1, "run on compute"); /* harmless, but not the row's */
  wait_for(plan, second, first, 1);
  rejected(plan, second, first, "waits twice for one stream");
  zr_plan_destroy(plan);
}

static void test_collectives_on_two_streams(void **state) {
  (void)state;
  zr_plan_t *plan = new_plan(2);
  int32_t first = add(plan, ZR_OP_BARRIER, 0, 0, NULL),
          second = add(plan, ZR_OP_BARRIER, 0, 0, NULL);
  finish(plan, 1);
  accepted(plan);
  plan->op[second].stream = ZR_STREAM_HOST;
  plan->op[second].stream_index = 0;
  plan->stream_ops[ZR_STREAM_COMM]--;
  plan->stream_ops[ZR_STREAM_HOST]++;
  rejected(plan, second, first, "collectives");
  zr_plan_destroy(plan);
}

/* Wrong on the last rank only: its part is not written. */
static void test_last_of_many_ranks_reads_unwritten_bytes(void **state) {
  (void)state;
  enum { N_RANKS = 1024 };
  zr_plan_t *plan = new_plan(N_RANKS);
  int32_t x = buffer(plan, "x", 64, true, N_RANKS), t = buffer(plan, "t", N_RANKS * 64, false, 0);
  zr_operand_t part = zr_operand_part(t, 0, N_RANKS * 64, ZR_WRITE);
  int32_t make = add(plan, ZR_OP_FILL, N_RANKS * 16, 1, &part);
  zr_operand_t o[] = {zr_operand_shard(t, 64, ZR_READ), zr_operand_all(plan, x, ZR_ACCUMULATE)};
  int32_t use = add(plan, ZR_OP_ACCUMULATE, 16, 2, o);
  finish(plan, N_RANKS + 1);
  accepted(plan);
  plan->op[make].operand[0].bytes -= 64;
  plan->op[make].shape.attr[0] -= 16;
  rejected(plan, use, -1, "(rank 1023)");
  zr_plan_destroy(plan);
}

static void test_every_allocation_may_fail(void **state) {
  (void)state;
  simple_t s = simple();
  zr_alloc_t alloc, *was = s.plan->alloc;
  zr_alloc_init(&alloc);
  s.plan->alloc = &alloc;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  for (int64_t n = 1; status != ZR_OK; n++) {
    alloc.fail_at = alloc.n_calls + n;
    status = zr_verify(s.plan, NULL, NULL);
    assert_int_equal(alloc.live_count, 0);
    assert_true(status == ZR_OK || status == ZR_ERR_OUT_OF_MEMORY);
    assert_true(n < 100 && (n > 5 || status != ZR_OK));
  }
  s.plan->alloc = was;
  zr_plan_destroy(s.plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_simple_plan_passes),
      cmocka_unit_test(test_empty_plan_passes),
      cmocka_unit_test(test_missing_wait_is_named_in_full),
      cmocka_unit_test(test_next_step_overwrites_what_is_still_read),
      cmocka_unit_test(test_waiting_for_the_previous_step_instead_of_this),
      cmocka_unit_test(test_waiting_for_a_later_operation),
      cmocka_unit_test(test_wait_for_the_wrong_of_two_producers),
      cmocka_unit_test(test_stale_version_is_read),
      cmocka_unit_test(test_ping_pong_index_is_wrong),
      cmocka_unit_test(test_space_is_reused_while_in_flight),
      cmocka_unit_test(test_space_is_reused_before_the_last_read),
      cmocka_unit_test(test_part_that_nobody_wrote_is_read),
      cmocka_unit_test(test_scratch_destroys_what_was_there),
      cmocka_unit_test(test_gather_in_place),
      cmocka_unit_test(test_outputs_of_one_operation_overlap),
      cmocka_unit_test(test_persistent_buffer_is_overlapped),
      cmocka_unit_test(test_places_and_budgets),
      cmocka_unit_test(test_operand_is_not_its_row),
      cmocka_unit_test(test_operation_leaves_its_stream),
      cmocka_unit_test(test_collectives_on_two_streams),
      cmocka_unit_test(test_last_of_many_ranks_reads_unwritten_bytes),
      cmocka_unit_test(test_every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
