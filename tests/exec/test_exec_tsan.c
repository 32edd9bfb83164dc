/* Every wait of the small programs is needed: without any one of them ThreadSanitizer reports a
 * race (exit code 66); with all of them it is silent. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "mini.h"

static const char *helper;

static int run_helper(const char *program, const char *which) {
  char command[1024];
  snprintf(command, sizeof command,
           "TSAN_OPTIONS='exitcode=66 halt_on_error=1' '%s' %s %s 2>/dev/null", helper, program,
           which);
  const int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int count_waits(const char *program) {
  char command[1024], line[32] = "";
  snprintf(command, sizeof command, "'%s' %s count", helper, program);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  assert_non_null(fgets(line, sizeof line, pipe));
  assert_int_equal(pclose(pipe), 0);
  return atoi(line);
}

static void test_all_waits_kept(void **state) {
  (void)state;
  assert_int_equal(run_helper("mini", "none"), 0);
  assert_int_equal(run_helper("tiers", "none"), 0);
}

/* Every step-th. */
static void drop_waits(const char *program, int first, int step) {
  const int n_waits = count_waits(program);
  assert_true(n_waits > 10);
  for (int k = first; k < n_waits; k += step) {
    char which[16];
    snprintf(which, sizeof which, "%d", k);
    if (run_helper(program, which) != 66) {
      fail_msg("%s: wait %d was dropped without a report", program, k);
    }
  }
}

static void test_each_wait_dropped(void **state) {
  (void)state;
  drop_waits("mini", 0, 1);
}

/* A third of them: each run takes most of a second. */
static void test_waits_over_three_tiers_dropped(void **state) {
  (void)state;
  drop_waits("tiers", 0, 3);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_waits_kept),
                                     cmocka_unit_test(test_each_wait_dropped),
                                     cmocka_unit_test(test_waits_over_three_tiers_dropped)};
  if (argc < 2) {
    fprintf(stderr, "skipped: only with -fsanitize=thread\n");
    return 77;
  }
  helper = argv[1];
  return cmocka_run_group_tests(tests, NULL, NULL);
}
