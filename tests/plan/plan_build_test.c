/* The table and the builder. */
#include <string.h>

#include "tests/plan/plan_make.h"

static void test_table_is_complete(void **state) {
  (void)state;
  for (int32_t kind = 0; kind < ZR_N_OP_KINDS; kind++) {
    const zr_op_row_t *row = zr_op_row(kind);
    assert_non_null(row);
    assert_int_equal(zr_op_find(row->name), kind);
    assert_non_null(row->operand_bytes);
    if (row->collective) assert_int_equal(row->stream, ZR_STREAM_COMM);
    for (int i = 0; i < ZR_MAX_OPERANDS; i++)
      assert_int_equal(row->operand[i].name != NULL, i < row->n_operands);
    for (int i = 0; i < ZR_MAX_ATTRS; i++) assert_int_equal(row->attr[i] != NULL, i < row->n_attrs);
    assert_int_equal(row->real_name != NULL, row->has_real);
  }
  assert_null(zr_op_row(-1));
  assert_null(zr_op_row(ZR_N_OP_KINDS));
  assert_int_equal(zr_op_find("no_such_kind"), -1);
}

/* What a backward operation reads, the forward has; what it writes is a gradient of something the
 * forward reads; every operand that must be there has a source. */
static void test_gradient_rules_fit_their_rows(void **state) {
  (void)state;
  for (int32_t kind = 0; kind < ZR_N_OP_KINDS; kind++) {
    const zr_op_row_t *row = zr_op_row(kind);
    for (int s = 0; s < 4 && row->grad[s].kind != ZR_OP_NOP; s++) {
      const zr_op_row_t *grad = zr_op_row(row->grad[s].kind);
      assert_int_equal(grad->n_attrs, row->n_attrs);
      for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
        zr_grad_operand_t from = row->grad[s].operand[i];
        if (i >= grad->n_operands || grad->operand[i].access == ZR_SCRATCH) {
          assert_int_equal(from.source, ZR_GRAD_NONE);
          continue;
        }
        assert_int_not_equal(from.source, ZR_GRAD_NONE);
        assert_true(from.index < row->n_operands);
        if (grad->operand[i].access == ZR_WRITE) assert_int_equal(from.source, ZR_GRAD_OF);
      }
    }
  }
  assert_int_equal(zr_op_row(ZR_OP_ROPE)->in_place, 1);
  assert_int_equal(zr_op_row(ZR_OP_ROPE)->grad_flip_attr, ZR_ROPE_INVERSE);
  assert_int_equal(zr_op_row(ZR_OP_ADD)->grad_alias, 3);
  assert_int_equal(zr_op_row(ZR_OP_HEAD_LOSS)->eager_grad[5], 0);
  assert_int_equal(zr_op_row(ZR_OP_HEAD_LOSS)->eager_grad[6], 1);
}

static void test_sizes_and_flops(void **state) {
  (void)state;
  int64_t need[ZR_MAX_OPERANDS] = {0};
  zr_kern_shape_t linear = {
      .kind = ZR_OP_LINEAR, .attr = {3, 5, 7, 6, 10, 0}, .dtype = {ZR_F32, ZR_F32, ZR_F32, ZR_F32}};
  zr_op_row(ZR_OP_LINEAR)->operand_bytes(&linear, need);
  assert_int_equal(need[0], 4 * (2 * 6 + 5));
  assert_int_equal(need[1], 4 * 35);
  assert_int_equal(need[2], 4 * 7);
  assert_int_equal(need[3], 4 * (2 * 10 + 7));
  assert_int_equal(need[4], -1);
  assert_int_equal(zr_op_row(ZR_OP_LINEAR)->flops(&linear), 2 * 3 * 5 * 7);
  zr_kern_shape_t attention = {.attr = {2, 4, 6, 3, 8},
                               .dtype = {ZR_F32, ZR_F32, ZR_F32, ZR_F32, ZR_F32}};
  zr_op_row(ZR_OP_ATTENTION)->operand_bytes(&attention, need);
  assert_int_equal(need[0], 4 * 8 * 12 * 8);
  assert_int_equal(need[1], 4 * 8 * 6 * 8);
  assert_int_equal(need[2], 4 * 8 * 6);
  /* 10 of the 16 pairs of 4 positions; two products of 2 x head_dim each */
  assert_int_equal(zr_op_row(ZR_OP_ATTENTION)->flops(&attention), 2 * 6 * 10 * 2 * 2 * 8);
  attention.attr[ZR_ATTENTION_WINDOW] = 2; /* 1 + 2 + 2 + 2 pairs */
  assert_int_equal(zr_op_row(ZR_OP_ATTENTION)->flops(&attention), 2 * 6 * 7 * 2 * 2 * 8);
}

static void refused(zr_plan_t *plan, const zr_op_desc_t *desc, const char *why) {
  size_t before = plan->n_ops;
  int32_t op = 77;
  assert_int_equal(zr_plan_add_op(plan, desc, &op), ZR_ERR_INTERNAL);
  if (strstr(zr_detail(), why) == NULL) fail_msg("\"%s\" is not in \"%s\"", why, zr_detail());
  assert_int_equal(plan->n_ops, before);
  assert_int_equal(op, 77);
}

static void test_builder_refuses(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  int16_t unit;
  assert_int_equal(zr_plan_create(NULL, "step", 0, &plan), ZR_ERR_INTERNAL);
  assert_int_equal(zr_plan_create(NULL, "two words", 1, &plan), ZR_ERR_INTERNAL);
  assert_null(plan);
  assert_ok(zr_plan_create(NULL, "step", 2, &plan));
  assert_ok(zr_plan_add_unit(plan, "layers.3", &unit));
  assert_int_equal(zr_plan_add_unit(plan, "layers.3", &unit), ZR_ERR_INTERNAL);
  int32_t a = make_buffer(plan, "a", 16, false), b = make_buffer(plan, "b", 32, false), other = -1;
  assert_int_equal(
      zr_plan_add_buffer(plan, "c", ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_F32, 0, false, &other),
      ZR_ERR_INTERNAL);
  assert_int_equal(
      zr_plan_add_buffer(plan, "c", ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_F32, 4, true, &other),
      ZR_ERR_INTERNAL);
  zr_op_desc_t desc = {
      .kind = ZR_OP_ACCUMULATE, .unit = unit, .micro = 2, .attr = {16}, .n_operands = 2};
  desc.operand[0] = zr_operand_all(plan, a, ZR_READ);
  desc.operand[1] = zr_operand_all(plan, b, ZR_ACCUMULATE);
  refused(plan, &desc,
          "layers.3/accumulate#2), operand dst (b): it has 128 bytes, the shape needs 64");
  desc.operand[1] = zr_operand_part(b, 0, 64, ZR_WRITE);
  refused(plan, &desc, "does not allow this access");
  desc.operand[1] = zr_operand_part(b, 68, 64, ZR_ACCUMULATE);
  refused(plan, &desc, "not inside its buffer");
  desc.operand[1] = zr_operand_shard(a, 64, ZR_ACCUMULATE);
  refused(plan, &desc, "not inside its buffer");
  desc.operand[1] = zr_operand_part(9, 0, 64, ZR_ACCUMULATE);
  refused(plan, &desc, "no such buffer");
  desc.n_operands = 1;
  refused(plan, &desc, "operand dst (none): it is missing");
  desc.kind = ZR_N_OP_KINDS;
  refused(plan, &desc, "unknown kind");
  desc = (zr_op_desc_t){
      .kind = ZR_OP_ALL_GATHER, .unit = -1, .micro = -1, .attr = {64}, .n_operands = 2};
  desc.operand[0] = zr_operand_part(a, 0, 64, ZR_READ);
  desc.operand[1] = zr_operand_part(b, 0, 64, ZR_WRITE);
  refused(plan, &desc, "operand flat (b): it has 64 bytes, the shape needs 128");
  zr_plan_destroy(plan);
}

static void test_finish_refuses(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  int32_t a = make_buffer(plan, "a", 16, false), b = make_buffer(plan, "b", 16, false);
  make_fill(plan, ZR_STREAM_COMPUTE, 0, b);
  make_accumulate(plan, ZR_STREAM_COMPUTE, 0, a, b);
  assert_int_equal(zr_plan_finish(plan), ZR_ERR_INTERNAL);
  assert_non_null(strstr(zr_detail(), "operation 1 (accumulate) reads a before it is written"));
  zr_plan_destroy(plan);

  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  make_buffer(plan, "unused", 16, false);
  assert_int_equal(zr_plan_finish(plan), ZR_ERR_INTERNAL);
  assert_non_null(strstr(zr_detail(), "no operation uses buffer unused"));
  zr_plan_destroy(plan);

  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  make_buffer(plan, "twice", 16, true);
  make_buffer(plan, "twice", 16, true);
  assert_int_equal(zr_plan_finish(plan), ZR_ERR_INTERNAL);
  assert_non_null(strstr(zr_detail(), "two buffers are named twice"));
  zr_plan_destroy(plan);
}

static void test_versions_streams_and_flags(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 2, &plan));
  int32_t p = make_buffer(plan, "p", 16, true), x = make_buffer(plan, "x", 16, false);
  make_accumulate(plan, ZR_STREAM_COMM, 0, p, p);
  make_fill(plan, ZR_STREAM_COMPUTE, 0, x);
  make_accumulate(plan, ZR_STREAM_COMPUTE, 0, p, x);
  make_accumulate(plan, ZR_STREAM_COMM, 0, x, p);
  /* A reduce_scatter that adds: the one operand kind here that may do either. */
  zr_op_desc_t desc = {
      .kind = ZR_OP_REDUCE_SCATTER, .unit = -1, .micro = 3, .attr = {32}, .n_operands = 2};
  desc.operand[0] = zr_operand_all(plan, x, ZR_READ);
  desc.operand[1] = zr_operand_shard(p, 32, ZR_ACCUMULATE);
  int32_t op;
  assert_ok(zr_plan_add_op(plan, &desc, &op));
  assert_ok(zr_plan_finish(plan));
  assert_int_equal(plan->op[0].operand[0].version, 0);
  assert_int_equal(plan->op[0].operand[1].version, 1);
  assert_int_equal(plan->op[1].operand[0].version, 1);
  assert_int_equal(plan->op[2].operand[0].version, 1);
  assert_int_equal(plan->op[2].operand[1].version, 2);
  assert_int_equal(plan->op[3].operand[1].version, 2);
  assert_int_equal(plan->op[op].operand[1].version, 3);
  assert_int_equal(plan->op[op].shape.accumulate, 2);
  assert_int_equal(plan->op[op].shape.present, 3);
  assert_int_equal(plan->op[op].shape.dtype[0], ZR_F32);
  assert_int_equal(plan->op[3].stream_index, 1);
  assert_int_equal(plan->stream_ops[ZR_STREAM_COMM], 3);
  assert_int_equal(plan->op[0].shape.accumulate, 0);
  plan->buffer[p].offset = 128;
  assert_int_equal(zr_plan_operand_begin(plan, &plan->op[op].operand[1], 1), 128 + 32);
  char name[32];
  zr_plan_op_name(plan, op, name, sizeof name);
  assert_string_equal(name, "reduce_scatter#3");
  zr_plan_op_name(plan, op, name, 7);
  assert_string_equal(name, "reduce");
  zr_plan_op_name(plan, 99, name, sizeof name);
  assert_string_equal(name, "?");
  zr_plan_destroy(plan);
}

static void test_move_op(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(zr_plan_create(NULL, "step", 1, &plan));
  int32_t a = make_buffer(plan, "a", 16, true);
  for (int i = 0; i < 5; i++) make_fill(plan, ZR_STREAM_COMPUTE, i, a);
  zr_plan_move_op(plan, 3, 1);
  const int32_t expected[] = {0, 3, 1, 2, 4};
  for (int i = 0; i < 5; i++) assert_int_equal(plan->op[i].phase, expected[i]);
  zr_plan_destroy(plan);
}

static void test_hash_sees_every_change(void **state) {
  (void)state;
  zr_plan_t *plan = make_random(5, 20, 6), *same = make_random(5, 20, 6);
  uint64_t hash = zr_plan_hash(plan), comm = zr_plan_collective_hash(plan);
  assert_true(hash == zr_plan_hash(same));
  same->op[3].phase++;
  assert_true(hash != zr_plan_hash(same));
  same->op[3].phase--;
  same->op[1].operand[0].offset++;
  assert_true(hash != zr_plan_hash(same));
  same->op[1].operand[0].offset--;
  same->buffer[1].offset = 64;
  assert_true(hash != zr_plan_hash(same));
  assert_true(comm == zr_plan_collective_hash(same));
  zr_plan_destroy(plan);
  zr_plan_destroy(same);
  plan = make_gathers(NULL, 2, 3, 16);
  same = make_gathers(NULL, 2, 3, 32);
  assert_true(zr_plan_collective_hash(plan) != zr_plan_collective_hash(same));
  zr_plan_destroy(plan);
  zr_plan_destroy(same);
}

static void test_builder_with_failing_memory(void **state) {
  (void)state;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  int64_t n = 0;
  for (; status != ZR_OK; n++) {
    zr_alloc_t alloc;
    zr_plan_t *plan = NULL;
    zr_alloc_init(&alloc);
    alloc.fail_at = n + 1;
    status = make_step(&alloc, 2, 1, &plan);
    if (status == ZR_OK) status = zr_plan_finish(plan);
    zr_plan_destroy(plan);
    assert_true(status == ZR_OK || status == ZR_ERR_OUT_OF_MEMORY);
    assert_int_equal(alloc.live_count, 0);
  }
  assert_true(n > 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table_is_complete),
      cmocka_unit_test(test_gradient_rules_fit_their_rows),
      cmocka_unit_test(test_sizes_and_flops),
      cmocka_unit_test(test_builder_refuses),
      cmocka_unit_test(test_finish_refuses),
      cmocka_unit_test(test_versions_streams_and_flags),
      cmocka_unit_test(test_move_op),
      cmocka_unit_test(test_hash_sees_every_change),
      cmocka_unit_test(test_builder_with_failing_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
