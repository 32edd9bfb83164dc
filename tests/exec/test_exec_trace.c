/* The trace, the statistics, and virtual time. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mini_tiers.h"

/* --- measured times --- */

static json_t *load_trace(const mini_t *mini) {
  char path[] = "/tmp/zr_trace_XXXXXX";
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  assert_ok(zr_exec_trace_write(mini->exec, path));
  json_error_t error;
  json_t *root = json_load_file(path, 0, &error);
  if (!root) fail_msg("line %d: %s", error.line, error.text);
  unlink(path);
  return root;
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  assert_non_null(text);
  return text;
}

static void check_event(const mini_t *mini, const json_t *event, int *n_seen) {
  const json_t *args = json_object_get(event, "args");
  const int32_t index = (int32_t)json_integer_value(json_object_get(args, "op"));
  const int64_t iteration = json_integer_value(json_object_get(args, "iteration"));
  const zr_plan_t *plan = mini->program->plan[MINI_STEP];
  assert_in_range(index, 0, plan->n_ops - 1);
  assert_in_range(iteration, 2, 3);
  n_seen[(size_t)(iteration - 2) * plan->n_ops + (size_t)index]++;
  const zr_op_t *op = &plan->op[index];
  assert_int_equal(json_integer_value(json_object_get(event, "tid")), op->stream);
  char name[96];
  zr_plan_op_name(plan, index, name, sizeof name);
  assert_string_equal(text_of(event, "name"), name);
  assert_string_equal(text_of(args, "unit"), op->unit < 0 ? "" : plan->unit_name[op->unit]);
  assert_int_equal(json_integer_value(json_object_get(args, "micro")), op->micro);
  int64_t begin_ns, end_ns;
  assert_ok(zr_exec_trace_op(mini->exec, iteration, index, &begin_ns, &end_ns));
  assert_true(0 <= begin_ns && begin_ns <= end_ns);
  assert_true(json_number_value(json_object_get(event, "ts")) * 1000 - (double)begin_ns < 1.5);
}

static void test_trace_has_every_operation(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini.options.trace_plan = MINI_STEP;
  mini.options.trace_first = 2;
  mini.options.trace_count = 2;
  mini_start(&mini);
  for (int64_t i = 1; i <= 4; i++) {
    assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
    assert_ok(zr_exec_start(mini.exec, MINI_EVAL, i));
  }
  assert_ok(zr_exec_wait(mini.exec));
  json_t *root = load_trace(&mini);
  const json_t *events = json_object_get(root, "traceEvents");
  const size_t n_ops = mini.program->plan[MINI_STEP]->n_ops;
  int *n_seen = calloc(2 * n_ops, sizeof *n_seen);
  assert_non_null(n_seen);
  int n_names = 0;
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *event = json_array_get(events, i);
    if (!strcmp(text_of(event, "ph"), "X")) check_event(&mini, event, n_seen);
    if (!strcmp(text_of(event, "name"), "thread_name")) {
      const char *name = text_of(json_object_get(event, "args"), "name");
      assert_string_equal(name, zr_stream_name((zr_stream_id_t)n_names++));
    }
  }
  assert_int_equal(n_names, ZR_N_STREAMS);
  for (size_t i = 0; i < 2 * n_ops; i++) assert_int_equal(n_seen[i], 1);
  free(n_seen);
  json_decref(root);
  int64_t begin_ns, end_ns;
  assert_int_equal(zr_exec_trace_op(mini.exec, 1, 0, &begin_ns, &end_ns), ZR_ERR_NOT_FOUND);
  assert_int_equal(zr_exec_trace_op(mini.exec, 4, 0, &begin_ns, &end_ns), ZR_ERR_NOT_FOUND);
  assert_int_equal(zr_exec_trace_write(mini.exec, "/nowhere/trace.json"), ZR_ERR_IO);
  mini_close(&mini);
}

/* A traced execution obeys the waits: nothing begins before what it waits for has ended. */
static void test_trace_obeys_waits(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini.options.trace_plan = MINI_STEP;
  mini.options.trace_first = 1;
  mini.options.trace_count = 5;
  mini.options.delay_seed = 9;
  mini.options.delay_max_ns = 200000;
  mini_start(&mini);
  for (int64_t i = 1; i <= 5; i++) assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
  assert_ok(zr_exec_wait(mini.exec));
  const zr_plan_t *plan = mini.program->plan[MINI_STEP];
  int n_checked = 0;
  for (int64_t i = 1; i <= 5; i++) {
    for (int32_t at = 0; at < (int32_t)plan->n_ops; at++) {
      int64_t begin_ns, end_ns, before_ns, awaited_ns;
      assert_ok(zr_exec_trace_op(mini.exec, i, at, &begin_ns, &end_ns));
      for (int w = 0; w < plan->op[at].n_waits; w++) {
        const zr_wait_t *wait = &plan->op[at].wait[w];
        if (i - wait->back < 1) continue;
        assert_ok(zr_exec_trace_op(mini.exec, i - wait->back, wait->op, &before_ns, &awaited_ns));
        assert_true(awaited_ns <= begin_ns);
        n_checked++;
      }
    }
  }
  assert_true(n_checked > 20);
  mini_close(&mini);
}

/* The shortest time of each operation only falls; a step in serial mode between others changes
 * nothing but time, and counts too. */
static void test_least_times(void **state) {
  (void)state;
  mini_t mini;
  mini_open(&mini, &mini_shape);
  mini_start(&mini);
  const size_t n_ops = mini.program->plan[MINI_STEP]->n_ops;
  int64_t *before = calloc(n_ops, sizeof *before), *now = calloc(n_ops, sizeof *now);
  assert_non_null(before);
  assert_non_null(now);
  zr_exec_op_times(mini.exec, MINI_STEP, now);
  for (size_t i = 0; i < n_ops; i++) assert_int_equal(now[i], 0);
  for (int64_t i = 1; i <= 4; i++) {
    memcpy(before, now, n_ops * sizeof *now);
    assert_ok(zr_exec_set_serial(mini.exec, i == 2));
    assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
    assert_ok(zr_exec_wait(mini.exec));
    zr_exec_op_times(mini.exec, MINI_STEP, now);
    for (size_t op = 0; op < n_ops; op++) {
      assert_true(now[op] > 0 && (i == 1 || now[op] <= before[op]));
    }
  }
  int64_t a_bytes, b_bytes;
  void *contents = mini_contents(&mini, &a_bytes);
  mini_close(&mini);
  mini_open(&mini, &mini_shape);
  mini_start(&mini);
  for (int64_t i = 1; i <= 4; i++) assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
  assert_ok(zr_exec_wait(mini.exec));
  void *streams = mini_contents(&mini, &b_bytes);
  assert_int_equal(a_bytes, b_bytes);
  assert_memory_equal(contents, streams, (size_t)a_bytes);
  free(contents);
  free(streams);
  free(before);
  free(now);
  mini_close(&mini);
}

/* A copy's bytes are what it moves, once; each is in the row of its stream. */
static void test_copies_say_their_bytes(void **state) {
  (void)state;
  mini_t mini;
  tiers_open(&mini, NULL);
  mini.options.trace_plan = MINI_STEP;
  mini.options.trace_first = 1;
  mini.options.trace_count = 1;
  tiers_start(&mini, NULL);
  assert_ok(zr_exec_start(mini.exec, MINI_STEP, 1));
  assert_ok(zr_exec_wait(mini.exec));
  json_t *root = load_trace(&mini);
  const json_t *events = json_object_get(root, "traceEvents");
  int64_t of_stream[ZR_N_STREAMS] = {0};
  for (size_t i = 0; i < json_array_size(events); i++) {
    const json_t *event = json_array_get(events, i), *args = json_object_get(event, "args");
    const int64_t stream = json_integer_value(json_object_get(event, "tid"));
    if (strcmp(text_of(event, "ph"), "X") != 0) continue;
    assert_in_range(stream, 0, ZR_N_STREAMS - 1);
    of_stream[stream] += json_integer_value(json_object_get(args, "bytes"));
  }
  assert_int_equal(of_stream[ZR_STREAM_H2D], tiers_step_bytes[ZR_LINK_H2D]);
  assert_int_equal(of_stream[ZR_STREAM_D2H], tiers_step_bytes[ZR_LINK_D2H]);
  assert_int_equal(of_stream[ZR_STREAM_READ], tiers_step_bytes[ZR_LINK_DISK_READ]);
  assert_int_equal(of_stream[ZR_STREAM_WRITE], tiers_step_bytes[ZR_LINK_DISK_WRITE]);
  assert_true(of_stream[ZR_STREAM_HOST] > 0 && of_stream[ZR_STREAM_COMPUTE] > 0);
  json_decref(root);
  mini_close(&mini);
}

/* Compute waits for a delayed collective again and again: that time is comm's. */
static void test_exposed_time_is_attributed(void **state) {
  (void)state;
  mini_t mini;
  const zr_fault_t slow = {.kind = ZR_FAULT_DELAY, .delay_ns = 20000000, .random_seed = 11};
  mini_open(&mini, &mini_shape);
  assert_ok(
      zr_comm_fault_open(&mini.alloc, &slow, mini.comm_ops, mini.comm, &mini.comm_ops, &mini.comm));
  mini.options.comm_ops = mini.comm_ops;
  mini.options.comm = mini.comm;
  mini_start(&mini);
  for (int64_t i = 1; i <= 3; i++) assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
  assert_ok(zr_exec_wait(mini.exec));
  zr_exec_stats_t stats;
  zr_exec_stats(mini.exec, &stats);
  assert_int_equal(stats.sent_bytes, 0);
  assert_true(stats.stream_busy_ns[ZR_STREAM_COMM] > stats.stream_busy_ns[ZR_STREAM_COMPUTE]);
  assert_true(stats.exposed_ns[ZR_STREAM_COMM] > stats.exposed_ns[ZR_STREAM_H2D]);
  assert_true(stats.exposed_ns[ZR_STREAM_COMM] > stats.stream_busy_ns[ZR_STREAM_COMM] / 4);
  assert_true(stats.exposed_ns[ZR_STREAM_COMM] <= 3 * stats.stream_busy_ns[ZR_STREAM_COMM]);
  mini_close(&mini);
}

/* --- virtual time --- */

enum { GATHER_NS = 70, COMPUTE_NS = 100, N_UNITS = 8, N_STEPS = 5 };

typedef struct {
  zr_alloc_t alloc;
  zr_program_t *program;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  int64_t duration_ns[2 * N_UNITS];
  zr_exec_options_t options;
  zr_exec_t *exec;
} pipeline_t;

static void add_stage(zr_plan_t *plan, int32_t kind, int64_t attr, int phase, zr_operand_t a,
                      zr_operand_t b, zr_operand_t c) {
  const zr_op_desc_t desc = {.kind = kind,
                             .unit = -1,
                             .micro = -1,
                             .phase = phase,
                             .attr = {attr},
                             .n_operands = c.buffer < 0 ? 2 : 3,
                             .operand = {a, b, c}};
  assert_ok(zr_plan_add_op(plan, &desc, NULL));
}

/*  comm:    g0 g1 g2 ...
 *  compute:    c0 c1 c2 ...   each gather is one unit ahead in the list */
static void build_pipeline(pipeline_t *p) {
  zr_plan_t *plan;
  int32_t shard[N_UNITS], flat[N_UNITS], y[N_UNITS];
  char name[16];
  assert_ok(zr_program_create(&p->alloc, &p->program));
  assert_ok(zr_plan_create(&p->alloc, "step", 1, &plan));
  for (int u = 0; u < 3 * N_UNITS; u++) {
    int32_t *const set[3] = {shard, flat, y};
    snprintf(name, sizeof name, "%c%d", "sfy"[u / N_UNITS], u % N_UNITS);
    assert_ok(zr_plan_add_buffer(plan, name, ZR_TIER_DEVICE, ZR_CATEGORY_PARAM, ZR_F32, 4096,
                                 u < N_UNITS, &set[u / N_UNITS][u % N_UNITS]));
  }
  for (int u = 0; u <= N_UNITS; u++) {
    if (u < N_UNITS) {
      add_stage(plan, ZR_OP_ALL_GATHER, 4096, u, zr_operand_all(plan, shard[u], ZR_READ),
                zr_operand_all(plan, flat[u], ZR_WRITE), zr_operand_none());
    }
    if (u == 0) continue;
    add_stage(plan, ZR_OP_ADD, 1024, u, zr_operand_all(plan, flat[u - 1], ZR_READ),
              zr_operand_all(plan, flat[u - 1], ZR_READ), zr_operand_all(plan, y[u - 1], ZR_WRITE));
  }
  assert_ok(zr_program_add(p->program, plan));
  zr_place_options_t place;
  zr_place_defaults(&place);
  assert_ok(zr_program_compile(p->program, &place));
  for (size_t i = 0; i < plan->n_ops; i++) {
    p->duration_ns[i] = plan->op[i].stream == ZR_STREAM_COMM ? GATHER_NS : COMPUTE_NS;
  }
}

static int64_t run_pipeline(bool serial, bool run_work) {
  pipeline_t p = {0};
  zr_alloc_init(&p.alloc);
  build_pipeline(&p);
  assert_ok(zr_hal_null_open(&p.alloc, run_work, &p.hal_ops, &p.hal));
  assert_ok(zr_comm_null_open(&p.alloc, 0, 1, &p.comm_ops, &p.comm));
  zr_exec_defaults(&p.options);
  p.options.program = p.program;
  p.options.hal_ops = p.hal_ops;
  p.options.hal = p.hal;
  p.options.comm_ops = p.comm_ops;
  p.options.comm = p.comm;
  p.options.serial = serial;
  p.options.duration_ns[0] = p.duration_ns;
  p.options.virtual_times = zr_hal_null_times;
  p.options.trace_plan = 0;
  p.options.trace_count = N_STEPS;
  p.options.trace_first = 1;
  assert_ok(zr_exec_create(&p.alloc, &p.options, &p.exec));
  for (int64_t i = 1; i <= N_STEPS; i++) assert_ok(zr_exec_start(p.exec, 0, i));
  assert_ok(zr_exec_wait(p.exec));
  int64_t begin_ns, end_ns, last_ns = 0;
  for (int32_t i = 0; i < 2 * N_UNITS; i++) {
    assert_ok(zr_exec_trace_op(p.exec, N_STEPS, i, &begin_ns, &end_ns));
    assert_int_equal(end_ns - begin_ns, p.duration_ns[i]);
    if (end_ns > last_ns) last_ns = end_ns;
  }
  const int64_t total_ns = p.hal_ops->time_ns(p.hal);
  assert_int_equal(last_ns, total_ns);
  zr_exec_destroy(p.exec);
  p.hal_ops->close(p.hal);
  p.comm_ops->close(p.comm);
  zr_program_destroy(p.program);
  assert_int_equal(p.alloc.live_count, 0);
  return total_ns;
}

static void test_virtual_time(void **state) {
  (void)state;
  for (int run_work = 0; run_work < 2; run_work++) {
    /* all gathers but the very first hide, also over the step boundary */
    assert_int_equal(run_pipeline(false, run_work), GATHER_NS + N_STEPS * N_UNITS * COMPUTE_NS);
    assert_int_equal(run_pipeline(true, run_work), N_STEPS * N_UNITS * (GATHER_NS + COMPUTE_NS));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_trace_has_every_operation),
      cmocka_unit_test(test_trace_obeys_waits),
      cmocka_unit_test(test_least_times),
      cmocka_unit_test(test_copies_say_their_bytes),
      cmocka_unit_test(test_exposed_time_is_attributed),
      cmocka_unit_test(test_virtual_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
