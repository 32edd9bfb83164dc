/* A folder of the test program's own, as cmocka's group set-up and tear-down: `temp_dir` is its
 * path between the two. One translation unit a program. */
#ifndef ZR_TESTS_SUPPORT_TEMP_DIR_H
#define ZR_TESTS_SUPPORT_TEMP_DIR_H

#include <stdio.h>
#include <stdlib.h>

static char temp_dir[] = "/tmp/zr_test_XXXXXX";

static inline int make_temp_dir(void **state) {
  (void)state;
  return mkdtemp(temp_dir) == NULL;
}

static inline int remove_temp_dir(void **state) {
  (void)state;
  char command[64];
  (void)snprintf(command, sizeof command, "rm -r %s", temp_dir);
  return system(command);
}

#endif
