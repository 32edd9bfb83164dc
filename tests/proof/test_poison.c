/* Memory: nothing undefined is read and nothing outside planned buffers is touched. One step runs
 * over arenas that were filled with 0x55 and with 0xAA; under mpirun too. */
#include <stdlib.h>

#include "tests/proof/machine.h"

enum { N_STEPS = 2 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static machine_world_t world;

typedef struct {
  zr_step_record_t record[N_STEPS];
  unsigned char *arena; /* copy at the end */
  int64_t bytes;
} outcome_t;

static void run_poisoned(machine_t *m, const machine_options_t *options, int poison,
                         outcome_t *out_outcome) {
  machine_options_t poisoned = *options;
  poisoned.poison = poison;
  machine_open(m, &poisoned, &world);
  machine_run(m, N_STEPS, out_outcome->record);
  const void *arena = zr_exec_arena(m->exec, ZR_TIER_DEVICE, &out_outcome->bytes);
  out_outcome->arena = malloc((size_t)out_outcome->bytes);
  assert_non_null(out_outcome->arena);
  memcpy(out_outcome->arena, arena, (size_t)out_outcome->bytes);
}

/* Marks bytes of the arena: 1 in a buffer of some plan, 2 written by some operation. */
static void mark(unsigned char *marks, int64_t begin, int64_t bytes, unsigned char bit) {
  for (int64_t i = begin; i < begin + bytes; i++) marks[i] |= bit;
}

static void mark_plan(const machine_t *m, const zr_plan_t *plan, unsigned char *marks) {
  for (size_t b = 0; b < plan->n_buffers; b++)
    mark(marks, plan->buffer[b].offset, plan->buffer[b].bytes, 1);
  for (size_t i = 0; i < plan->n_ops; i++) {
    for (int k = 0; k < ZR_MAX_OPERANDS; k++) {
      const zr_operand_t *o = &plan->op[i].operand[k];
      if (o->buffer < 0 || !(o->access & ZR_WRITE)) continue;
      mark(marks, plan->buffer[o->buffer].offset + o->offset + m->rank * o->rank_stride, o->bytes,
           2);
    }
  }
}

/* A byte that is still the pattern over both was not written. Scratch need not be. */
static void check_bytes(const machine_t *m, const outcome_t *a, const outcome_t *b) {
  unsigned char *marks = calloc(1, (size_t)a->bytes);
  assert_non_null(marks);
  for (int p = 0; p < m->zero->program->n_plans; p++)
    mark_plan(m, m->zero->program->plan[p], marks);
  int64_t n_outside = 0, n_unwritten = 0, highest = -1; /* planned */
  for (int64_t i = 0; i < a->bytes; i++) {
    const bool untouched = a->arena[i] == 0x55 && b->arena[i] == 0xAA;
    if (marks[i] != 0) highest = i;
    if (!(marks[i] & 1) && !untouched) n_outside++;
    if ((marks[i] & 2) && untouched) n_unwritten++;
  }
  free(marks);
  assert_int_equal(n_outside, 0);
  assert_int_equal(n_unwritten, 0);
  assert_true(a->bytes - highest <= ZR_PLAN_ALIGN_BYTES);
  assert_int_equal(a->bytes, m->step->arena_bytes[ZR_TIER_DEVICE]);
}

/* What lives on must not depend on what was there before. */
static void check_persistent(const machine_t *m, const outcome_t *a, const outcome_t *b) {
  for (int32_t i = 0; i < m->zero->program->n_persistent; i++) {
    const zr_buffer_t *buffer = &m->step->buffer[i];
    if (memcmp(a->arena + buffer->offset, b->arena + buffer->offset, (size_t)buffer->bytes) == 0)
      continue;
    print_error("%s depends on what was in memory\n", buffer->name);
    _fail(__FILE__, __LINE__);
  }
}

static void check(const machine_options_t *options) {
  machine_t m;
  outcome_t a, b;
  run_poisoned(&m, options, 0x55, &a);
  machine_close(&m);
  run_poisoned(&m, options, 0xAA, &b);
  assert_int_equal(a.bytes, b.bytes);
  assert_true(machine_records_equal(a.record, b.record, N_STEPS));
  assert_int_equal(a.record[N_STEPS - 1].n_bad_params, 0);
  check_bytes(&m, &a, &b);
  check_persistent(&m, &a, &b);
  machine_close(&m);
  free(a.arena);
  free(b.arena);
}

static void test_two_poisons(void **state) {
  (void)state;
  machine_options_t options;
  machine_defaults(&options);
  options.n_leaves = 2 * world.n_ranks;
  int n_runs = 0;
  for (int arch = 0; arch < 2; arch++)
    for (int plain = 0; plain < 2; plain++)
      for (options.stage = 0; options.stage < 4; options.stage++)
        for (options.order = 0; options.order < 2; options.order++)
          for (options.group = 0; options.group < 2; options.group++) {
            if (world.n_ranks == 1 && (options.stage > 0 || options.group > 0)) continue;
            if (SANITIZED && plain != (int)options.group) continue; /* half of them */
            options.arch = (zr_arch_t)arch;
            options.plain = plain == 1;
            options.n_threads = 1 + plain;
            options.recompute = (options.stage + 2 * options.order + (int)options.group) % 3;
            check(&options);
            n_runs++;
          }
  if (world.rank == 0) print_message("%d settings, two patterns each\n", n_runs);
}

/* Nothing is allocated between zr_exec_start and zr_exec_wait; compiling fails cleanly at the n-th
 * allocation, for each n. */
static void test_steps_allocate_nothing(void **state) {
  (void)state;
  machine_options_t options;
  machine_defaults(&options);
  options.n_leaves = 2 * world.n_ranks;
  options.stage = 3;
  options.n_threads = 2;
  machine_t m;
  machine_open(&m, &options, &world);
  zr_step_record_t record[N_STEPS];
  machine_run(&m, 1, record);
  const int64_t calls = m.alloc.n_calls, world_calls = world.alloc.n_calls;
  const int64_t default_calls = zr_alloc_default()->n_calls;
  machine_run(&m, N_STEPS, record);
  assert_int_equal(m.alloc.n_calls, calls);
  assert_int_equal(world.alloc.n_calls, world_calls);
  assert_int_equal(zr_alloc_default()->n_calls, default_calls);
  machine_close(&m);
}

static void fail_each_allocation(const zr_zero_options_t *options) {
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  zr_zero_t *zero = NULL;
  assert_ok(zr_zero_compile(&alloc, options, &zero));
  const int64_t n_calls = alloc.n_calls;
  zr_zero_destroy(zero);
  assert_int_equal(alloc.live_count, 0);
  zero = NULL;
  for (int64_t n = 1; n <= n_calls; n++) {
    alloc.fail_at = alloc.n_calls + n;
    assert_int_equal(zr_zero_compile(&alloc, options, &zero), ZR_ERR_OUT_OF_MEMORY);
    assert_null(zero);
    assert_int_equal(alloc.live_count, 0);
  }
  alloc.fail_at = 0;
}

static void test_compile_fails_at_each_allocation(void **state) {
  (void)state;
  if (world.rank != 0) return;
  machine_options_t options;
  machine_defaults(&options);
  options.n_layers = 1;
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  zr_alloc_t alloc;
  zr_alloc_init(&alloc);
  assert_ok(zr_kern_ref_open(&alloc, ZR_F32, &ops, &kern));
  for (int stage = 0; stage < 4; stage += 3) {
    zr_zero_options_t zero;
    options.stage = stage;
    machine_zero_options(&options, 2, ops, kern, &zero);
    zero.eval = true;
    fail_each_allocation(&zero);
  }
  ops->close(kern);
  assert_int_equal(alloc.live_count, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_poisons),
                                     cmocka_unit_test(test_steps_allocate_nothing),
                                     cmocka_unit_test(test_compile_fails_at_each_allocation)};
  machine_world_open(&world);
  const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
  machine_world_close(&world);
  return n_failed;
}
