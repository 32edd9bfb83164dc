/* The verifier against random plans and their mutations. A mutated plan that it accepts must give
 * the digest of the original list, run serially, under every schedule tried; a rejected one is run
 * too, to count the rejections that were not needed. `--long` (or ZR_TEST_LONG) tries many more
 * (minutes); `--first N` and
 * `--plans N` choose the seeds. */
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/verify_internal.h"
#include "tests/plan/verify_mutate.h"
#include "tests/plan/verify_run.h"
#include "tests/support/cmocka_all.h"

enum { N_STEPS = 3 };

static struct {
  uint64_t first_seed;
  int n_plans, n_mutations, n_schedules, n_schedules_unmutated;
} size = {1, 1500, 1, 200, 2};

typedef struct {
  int n_accepted, n_needed, n_needless;
} count_t;
static count_t counts[2][N_MUTATIONS];
static bool explain;

typedef zr_status_t (*verify_fn_t)(const zr_plan_t *plan, const int64_t *budget_bytes,
                                   zr_violation_t *out_violation);

/* Whether all schedules give the digest; stops at the first that does not. */
static bool all_equal(verify_run_t *run, const zr_plan_t *plan, uint64_t digest, int n_schedules,
                      uint64_t seed) {
  for (int i = 0; i < n_schedules; i++) {
    uint64_t got;
    if (!verify_run_random(run, plan, N_STEPS, seed * 1000003 + (uint64_t)i, &got)) return false;
    if (got != digest) return false;
  }
  return true;
}

static void judge(verify_run_t *run, const zr_plan_t *mutant, int mutation, uint64_t digest,
                  uint64_t seed, bool any_stream) {
  count_t *count = &counts[any_stream][mutation];
  verify_fn_t verify =
      any_stream || mutation == MUTATION_STREAM_CHANGED ? zr_verify_any_stream : zr_verify;
  zr_violation_t violation = {-1, -1, ""};
  zr_status_t status = verify(mutant, NULL, &violation);
  bool equal = all_equal(run, mutant, digest, size.n_schedules, seed);
  if (status == ZR_OK) {
    if (!equal)
      fail_msg("seed %llu: accepted, but a schedule differs: %s", (unsigned long long)seed,
               verify_mutation_name(mutation));
    count->n_accepted++;
    if (mutation == MUTATION_STREAM_CHANGED && !any_stream) {
      assert_int_equal(zr_verify(mutant, NULL, &violation), ZR_ERR_VERIFY);
    }
    return;
  }
  assert_int_equal(status, ZR_ERR_VERIFY);
  if (violation.op < 0 || violation.other_op < 0 || strstr(zr_detail(), violation.text) == NULL) {
    fail_msg("seed %llu: two operations are not named: %s", (unsigned long long)seed, zr_detail());
  }
  if (equal && explain) {
    print_message("needless, seed %llu, %s: %s\n", (unsigned long long)seed,
                  verify_mutation_name(mutation), violation.text);
  }
  if (equal) {
    count->n_needless++;
  } else {
    count->n_needed++;
  }
}

static void try_plan(uint64_t seed, bool any_stream) {
  verify_random_options_t options = {.n_ops = 6 + (int)(seed % 40), .any_stream = any_stream};
  zr_program_t *program = verify_random_program(seed, &options);
  zr_status_t status = verify_random_compile(program, seed, &options);
  if (status == ZR_OK) status = zr_verify_any_stream(program->plan[0], NULL, NULL);
  if (status != ZR_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, zr_detail());
  const zr_plan_t *plan = program->plan[0];
  verify_run_t *run = verify_run_create(plan);
  uint64_t digest = verify_run_serial(run, plan, N_STEPS, seed);
  assert_true(digest == verify_run_serial(run, plan, N_STEPS, seed + 1)); /* other garbage */
  if (!all_equal(run, plan, digest, size.n_schedules_unmutated, seed)) {
    fail_msg("seed %llu: the plan itself depends on the schedule", (unsigned long long)seed);
  }
  verify_rng_t rng = {seed * 31 + 7};
  for (int i = 0; i < size.n_mutations; i++) {
    int mutation = (int)verify_draw(&rng, N_MUTATIONS);
    zr_plan_t *mutant = verify_plan_copy(plan);
    if (verify_mutate(mutant, mutation, &rng))
      judge(run, mutant, mutation, digest, seed, any_stream);
    verify_plan_free(mutant);
  }
  verify_run_destroy(run);
  zr_program_destroy(program);
}

static void report(bool any_stream) {
  int n = 0, n_needless = 0;
  for (int m = 0; m < N_MUTATIONS; m++) {
    const count_t *count = &counts[any_stream][m];
    print_message("%-15s %6d rejected, %5d of them needlessly; %6d accepted, digests equal\n",
                  verify_mutation_name(m), count->n_needed + count->n_needless, count->n_needless,
                  count->n_accepted);
    n += count->n_needed + count->n_needless;
    n_needless += count->n_needless;
  }
  print_message("%d needless rejections of %d (%d plans, streams %s)\n", n_needless, n,
                size.n_plans, any_stream ? "random" : "of the kinds");
}

static void test_random_plans_and_mutations(void **state) {
  (void)state;
  for (int i = 0; i < size.n_plans; i++) try_plan(size.first_seed + (uint64_t)i, false);
  report(false);
}

static void test_random_streams_and_mutations(void **state) {
  (void)state;
  for (int i = 0; i < size.n_plans; i++) try_plan(size.first_seed + (uint64_t)i, true);
  report(true);
}

static void be_long(void) {
  size.n_plans = 5000;
  size.n_mutations = 5;
  size.n_schedules = 500;
}

int main(int argc, char **argv) {
  if (getenv("ZR_TEST_LONG") != NULL) be_long();
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--long") == 0) {
      be_long();
    } else if (strcmp(argv[i], "--first") == 0 && i + 1 < argc) {
      size.first_seed = strtoull(argv[++i], NULL, 10);
    } else if (strcmp(argv[i], "--plans") == 0 && i + 1 < argc) {
      size.n_plans = atoi(argv[++i]);
    } else if (strcmp(argv[i], "--explain") == 0) {
      explain = true;
    }
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_plans_and_mutations),
                                     cmocka_unit_test(test_random_streams_and_mutations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
