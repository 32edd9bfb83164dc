/* Every wait of the small program is needed: without any one of them ThreadSanitizer reports a race
 * (exit code 66); with all of them it is silent. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "mini.h"

static const char *helper;

static int run_helper(const char *which) {
  char command[1024];
  snprintf(command, sizeof command,
           "TSAN_OPTIONS='exitcode=66 halt_on_error=1' '%s' %s 2>/dev/null", helper, which);
  const int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int count_waits(void) {
  char command[1024], line[32] = "";
  snprintf(command, sizeof command, "'%s' count", helper);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  assert_non_null(fgets(line, sizeof line, pipe));
  assert_int_equal(pclose(pipe), 0);
  return atoi(line);
}

static void test_all_waits_kept(void **state) {
  (void)state;
  assert_int_equal(run_helper("none"), 0);
}

static void test_each_wait_dropped(void **state) {
  (void)state;
  const int n_waits = count_waits();
  assert_true(n_waits > 10);
  for (int k = 0; k < n_waits; k++) {
    char which[16];
    snprintf(which, sizeof which, "%d", k);
    if (run_helper(which) != 66) fail_msg("wait %d was dropped without a report", k);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_waits_kept),
                                     cmocka_unit_test(test_each_wait_dropped)};
  if (argc < 2) {
    fprintf(stderr, "skipped: only with -fsanitize=thread\n");
    return 77;
  }
  helper = argv[1];
  return cmocka_run_group_tests(tests, NULL, NULL);
}
