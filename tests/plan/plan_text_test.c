/* The text form: golden files, reading back, errors with their place. Run with --write in front of
 * the folder to make the golden files anew. */
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/text.h"
#include "tests/plan/plan_make.h"

static const char *golden_folder;
static bool write_golden;

static char *text_of(const zr_plan_t *plan) {
  static char *text; /* static: gcc takes the stream's pointer to it for a dangling one */
  static size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  assert_non_null(file);
  assert_ok(zr_text_write(plan, file));
  fclose(file);
  return text;
}

static zr_status_t read_text(zr_alloc_t *alloc, const char *text, zr_plan_t **out_plan) {
  FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
  assert_non_null(file);
  zr_status_t status = zr_text_read(alloc, file, "some.plan", out_plan);
  fclose(file);
  return status;
}

static void check_round_trip(const zr_plan_t *plan) {
  zr_plan_t *back = NULL;
  char *text = text_of(plan);
  zr_status_t status = read_text(NULL, text, &back);
  if (status != ZR_OK) fail_msg("%s", zr_detail());
  char *again = text_of(back);
  assert_string_equal(text, again);
  assert_true(zr_plan_hash(plan) == zr_plan_hash(back));
  assert_int_equal(plan->n_waits, back->n_waits);
  assert_int_equal(plan->n_placement_waits, back->n_placement_waits);
  free(text);
  free(again);
  zr_plan_destroy(back);
}

static void check_golden(const zr_plan_t *plan, const char *name) {
  char path[512];
  static char golden[1 << 16];
  char *text = text_of(plan);
  snprintf(path, sizeof path, "%s/%s", golden_folder, name);
  FILE *file = fopen(path, write_golden ? "w" : "r");
  if (file == NULL) fail_msg("%s is not there", path);
  if (write_golden) {
    fputs(text, file);
  } else {
    golden[fread(golden, 1, sizeof golden - 1, file)] = 0;
    assert_string_equal(text, golden);
  }
  fclose(file);
  check_round_trip(plan);
  free(text);
}

static zr_program_t *compiled(zr_plan_t *plan) {
  zr_program_t *program = NULL;
  zr_place_options_t options;
  assert_ok(zr_program_create(plan->alloc, &program));
  assert_ok(zr_program_add(program, plan));
  zr_place_defaults(&options);
  zr_status_t status = zr_program_compile(program, &options);
  if (status != ZR_OK) fail_msg("%s", zr_detail());
  return program;
}

static void test_golden_gathers(void **state) {
  (void)state;
  zr_program_t *program = compiled(make_gathers(NULL, 2, 3, 1024));
  check_golden(program->plan[0], "gathers.plan");
  zr_program_destroy(program);
}

static void test_golden_step(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  assert_ok(make_step(NULL, 1, 1, &plan));
  zr_program_t *program = compiled(plan);
  check_golden(plan, "step.plan");
  zr_program_destroy(program);
}

/* Units, micro-batches, an attribute row, a real number, host memory; not finished yet. */
static void test_golden_unfinished(void **state) {
  (void)state;
  zr_plan_t *plan = NULL;
  int16_t unit;
  int32_t table, x;
  assert_ok(zr_plan_create(NULL, "draft", 4, &plan));
  assert_ok(zr_plan_add_unit(plan, "embed", &unit));
  assert_ok(zr_plan_add_unit(plan, "layers.0", &unit));
  assert_ok(zr_plan_add_buffer(plan, "table", ZR_TIER_DEVICE, ZR_CATEGORY_DATA, ZR_F32, 8 * 4 * 4,
                               true, &table));
  assert_ok(zr_plan_add_buffer(plan, "x", ZR_TIER_HOST, ZR_CATEGORY_ACTIVATION, ZR_F32, 4 * 16 * 8,
                               false, &x));
  zr_op_desc_t desc = {.kind = ZR_OP_ROPE_TABLE,
                       .unit = -1,
                       .micro = -1,
                       .phase = 1,
                       .attr = {0, 8, 0, 4, 0, 0},
                       .real = 10000.1,
                       .n_operands = 1};
  desc.operand[0] = zr_operand_all(plan, table, ZR_WRITE);
  assert_ok(zr_plan_add_op(plan, &desc, NULL));
  desc = (zr_op_desc_t){.kind = ZR_OP_ROPE,
                        .unit = unit,
                        .micro = 2,
                        .phase = 7,
                        .attr = {8, 8, 4, 4, 16, 1},
                        .n_operands = 2};
  desc.operand[0] = zr_operand_all(plan, table, ZR_READ);
  desc.operand[1] = zr_operand_all(plan, x, ZR_ACCUMULATE);
  assert_ok(zr_plan_add_op(plan, &desc, NULL));
  plan->op[1].stream = ZR_STREAM_HOST;
  check_golden(plan, "draft.plan");
  zr_plan_destroy(plan);
}

static int32_t add_tiered(zr_plan_t *plan, int32_t kind, bool on_host, int64_t attr, zr_operand_t a,
                          zr_operand_t b) {
  const zr_op_desc_t desc = {.kind = kind,
                             .on = on_host ? ZR_ON(ZR_STREAM_HOST) : 0,
                             .unit = -1,
                             .micro = -1,
                             .attr = {attr},
                             .real = kind == ZR_OP_FILL ? 0.5 : 0,
                             .n_operands = b.buffer < 0 ? 1 : 2,
                             .operand = {a, b}};
  int32_t op = -1;
  assert_ok(zr_plan_add_op(plan, &desc, &op));
  return op;
}

static zr_operand_t floats_of_rank(int32_t buffer, zr_access_t access) {
  zr_operand_t part = zr_operand_part(buffer, 4096, 2048, access);
  part.dtype = ZR_F32;
  part.rank_stride = 2048;
  return part;
}

/* A state on disk through the host: typed parts of its bytes, with and without a rank's distance,
 * one of them filled on the host stream. */
static zr_plan_t *make_tiers(void) {
  zr_plan_t *plan = NULL;
  int32_t state, slot, flat;
  assert_ok(zr_plan_create(NULL, "tiers", 2, &plan));
  assert_ok(zr_plan_add_buffer(plan, "state", ZR_TIER_DISK, ZR_CATEGORY_OPTIMIZER, ZR_U8, 8192,
                               true, &state));
  assert_ok(zr_plan_add_buffer(plan, "slot", ZR_TIER_HOST, ZR_CATEGORY_OPTIMIZER, ZR_U8, 8192,
                               false, &slot));
  assert_ok(zr_plan_add_buffer(plan, "flat", ZR_TIER_DEVICE, ZR_CATEGORY_PARAM, ZR_F32, 2048, false,
                               &flat));
  add_tiered(plan, ZR_OP_DISK_READ, false, 8192, zr_operand_all(plan, state, ZR_READ),
             zr_operand_all(plan, slot, ZR_WRITE));
  add_tiered(plan, ZR_OP_FILL, true, 512, floats_of_rank(slot, ZR_WRITE), zr_operand_none());
  zr_operand_t head = zr_operand_part(slot, 0, 2048, ZR_READ);
  head.dtype = ZR_F32;
  add_tiered(plan, ZR_OP_H2D, false, 2048, head, zr_operand_all(plan, flat, ZR_WRITE));
  add_tiered(plan, ZR_OP_D2H, false, 2048, zr_operand_all(plan, flat, ZR_READ),
             floats_of_rank(slot, ZR_WRITE));
  add_tiered(plan, ZR_OP_DISK_WRITE, false, 8192, zr_operand_all(plan, slot, ZR_READ),
             zr_operand_all(plan, state, ZR_WRITE));
  return plan;
}

static void test_golden_tiers(void **state) {
  (void)state;
  zr_program_t *program = compiled(make_tiers());
  check_golden(program->plan[0], "tiers.plan");
  zr_program_destroy(program);
}

static void test_random_round_trips(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    zr_plan_t *plan = make_random(seed, 40, 24);
    check_round_trip(plan);
    zr_plan_destroy(plan);
  }
}

typedef struct {
  const char *from, *to, *where, *why;
} error_case_t;

/* Each case's text, changed, is refused with its words. */
static void check_errors(zr_plan_t *made, const error_case_t *cases, size_t n_cases) {
  zr_program_t *program = compiled(made);
  char *text = text_of(program->plan[0]);
  for (size_t i = 0; i < n_cases; i++) {
    static char changed[8192];
    const char *at = strstr(text, cases[i].from);
    zr_plan_t *plan = NULL;
    if (at == NULL) fail_msg("\"%s\" is not in the text", cases[i].from);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, cases[i].to,
             at + strlen(cases[i].from));
    assert_int_equal(read_text(NULL, changed, &plan), ZR_ERR_DATA);
    assert_null(plan);
    if (strstr(zr_detail(), cases[i].where) == NULL || strstr(zr_detail(), cases[i].why) == NULL)
      fail_msg("\"%s\" and \"%s\" are not in \"%s\"", cases[i].where, cases[i].why, zr_detail());
  }
  free(text);
  zr_program_destroy(program);
}

static void test_errors_name_the_place(void **state) {
  (void)state;
  static const error_case_t cases[] = {
      {"zerorun plan 1", "zerorun plan 2", ":1:1:", "expected zerorun plan 1"},
      {"ranks 2", "ranks x", ":2:17:", "expected a number, found \"x\""},
      {"device param fp32", "devise param fp32", ":6:16:", "expected a tier"},
      {"all_gather comm", "all_gather com", ":11:17:", "expected a stream"},
      {"shard_bytes 64", "shard_bytes 65", ":11:1:", "operand shard (shard.0)"},
      {"phase 0 elems", "phase 0 elems 1 elems", ":15:41:", "the end of the line"},
      {"R flat.0 v1", "R flat.9 v1", ":16:9:", "expected a buffer"},
      {"R flat.0 v1", "R flat.0 v3", "operation 1", "is 1 in the list, 3 in the text"},
      {"wait 0", "wait 99", "operation 1", "waits for operation 99"},
  };
  check_errors(make_gathers(NULL, 2, 2, 16), cases, sizeof cases / sizeof *cases);
}

static void test_errors_of_copies(void **state) {
  (void)state;
  static const error_case_t cases[] = {
      {"as fp32 rank", "as fp33 rank", ":14:", "expected a type, found \"fp33\""},
      {"as fp32 rank", "is fp32 rank", ":14:", "expected as, rank or the end of the line"},
      {"+2048\n  dst W slot", "+2048 as fp32\n  dst W slot", "operand src (flat)",
       "only a part of a buffer of bytes has a type"},
      {"disk_read read phase 0 bytes 8192", "disk_read read phase 0 bytes 4096",
       "operand src (state)", "it has 8192 bytes, the shape needs 4096"},
  };
  check_errors(make_tiers(), cases, sizeof cases / sizeof *cases);
}

/* Cut anywhere: an error or a plan, never a crash, nothing left. */
static void test_truncated_text(void **state) {
  (void)state;
  zr_program_t *program = compiled(make_gathers(NULL, 2, 2, 16));
  char *text = text_of(program->plan[0]);
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  for (size_t bytes = strlen(text) - 1; bytes > 0; bytes--) {
    zr_plan_t *plan = NULL;
    text[bytes] = 0;
    zr_status_t status = read_text(&alloc, text, &plan);
    assert_true(status == ZR_ERR_DATA || status == ZR_OK);
    zr_plan_destroy(plan);
    assert_int_equal(alloc.live_count, 0);
  }
  free(text);
  zr_program_destroy(program);
}

static void test_reading_with_failing_memory(void **state) {
  (void)state;
  zr_program_t *program = compiled(make_gathers(NULL, 2, 2, 16));
  char *text = text_of(program->plan[0]);
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  int64_t n = 0;
  for (; status != ZR_OK; n++) {
    zr_alloc_t alloc;
    zr_plan_t *plan = NULL;
    zr_alloc_init(&alloc);
    alloc.fail_at = n + 1;
    status = read_text(&alloc, text, &plan);
    assert_true(status == ZR_OK || status == ZR_ERR_OUT_OF_MEMORY);
    zr_plan_destroy(plan);
    assert_int_equal(alloc.live_count, 0);
  }
  assert_true(n > 5);
  free(text);
  zr_program_destroy(program);
}

int main(int argc, char **argv) {
  write_golden = argc > 2 && strcmp(argv[1], "--write") == 0;
  golden_folder = argc > 1 ? argv[argc - 1] : "tests/plan/golden";
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_gathers),
      cmocka_unit_test(test_golden_step),
      cmocka_unit_test(test_golden_unfinished),
      cmocka_unit_test(test_golden_tiers),
      cmocka_unit_test(test_random_round_trips),
      cmocka_unit_test(test_errors_name_the_place),
      cmocka_unit_test(test_errors_of_copies),
      cmocka_unit_test(test_truncated_text),
      cmocka_unit_test(test_reading_with_failing_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
