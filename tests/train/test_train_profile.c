/* Machine profiles: written and read back to the same times; files that are not one are refused by
 * name; which one is found. */
#include <stdlib.h>
#include <string.h>

#include "runtime/train/profile_file.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

static zr_profile_t profile, other;

static const char *path_of(const char *name) {
  static char path[ZR_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/%s", temp_dir, name);
  return path;
}

static void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static void fill(void) {
  zr_profile_defaults(&profile);
  profile.n_workers = 3;
  profile.overhead_ns = 0;
  profile.crowded_cores = 0.75;
  profile.mixed_drive = 1.25;
  for (int i = 0; i < ZR_PROFILE_POINTS; i++) {
    double work = 1e3 * (1 << i);
    assert_true(zr_profile_curve_add(&profile.curve[ZR_PROFILE_ALL][ZR_OP_LINEAR][ZR_PROFILE_BF16],
                                     work, work / 4));
  }
  assert_true(zr_profile_curve_add(&profile.curve[ZR_PROFILE_ONE][ZR_OP_DISK_READ][ZR_PROFILE_F32],
                                   4096, 80000));
}

static void test_round_trip(void **state) {
  (void)state;
  fill();
  assert_int_equal(zr_profile_write(path_of("deep/er/p.json"), &profile, "a machine"), ZR_OK);
  assert_int_equal(zr_profile_read(NULL, path_of("deep/er/p.json"), &other), ZR_OK);
  assert_true(other.is_measured);
  assert_string_equal(other.source, path_of("deep/er/p.json"));
  assert_int_equal(other.n_workers, 3);
  assert_true(other.crowded_cores == 0.75 && other.mixed_drive == 1.25 && other.overhead_ns == 0);
  assert_memory_equal(other.curve, profile.curve, sizeof profile.curve);
}

static void refused(const char *text, const char *why) {
  write_text(path_of("bad.json"), text);
  assert_int_equal(zr_profile_read(NULL, path_of("bad.json"), &other), ZR_ERR_CONFIG);
  assert_non_null(strstr(zr_detail(), "bad.json"));
  assert_non_null(strstr(zr_detail(), why));
}

/* One line of a good file replaced. */
static void refused_with(const char *from, const char *to, const char *why) {
  char *text = NULL;
  size_t bytes = 0;
  static char changed[1 << 16];
  fill();
  assert_int_equal(zr_profile_write(path_of("good.json"), &profile, "m"), ZR_OK);
  assert_int_equal(zr_files_read_text(NULL, path_of("good.json"), &text, &bytes), ZR_OK);
  char *at = strstr(text, from);
  assert_non_null(at);
  *at = 0;
  (void)snprintf(changed, sizeof changed, "%s%s%s", text, to, at + strlen(from));
  zr_alloc_free(NULL, text);
  refused(changed, why);
}

static void test_what_is_not_a_profile(void **state) {
  (void)state;
  assert_int_equal(zr_profile_read(NULL, path_of("none.json"), &other), ZR_ERR_NOT_FOUND);
  refused("", "zerobench calibrate");
  refused("[1, 2]", "format");
  refused("{\"format\": 2}", "format");
  refused_with("\"workers\": 3", "\"workers\": 0", "workers");
  refused_with("\"crowded_cores\": 0.75", "\"crowded_cores\": 0", "crowded_cores");
  refused_with("\"disk_bytes_per_ns\": 0.5", "\"disk_bytes_per_ns\": \"x\"", "disk_bytes_per_ns");
  refused_with("\"linear\"", "\"lineal\"", "times");
  refused_with("\"bf16\"", "\"bf17\"", "times");
  refused_with("80000", "-80000", "disk_read");
}

static zr_profile_t *found(const char *path, zr_status_t expected) {
  zr_profile_t *p = NULL;
  assert_int_equal(zr_profile_find(NULL, path, &p), expected);
  return p;
}

static void test_which_one(void **state) {
  (void)state;
  char path[ZR_PATH_BYTES];
  assert_int_equal(setenv("XDG_CACHE_HOME", temp_dir, 1), 0);
  zr_profile_t *p = found(NULL, ZR_OK);
  assert_string_equal(p->source, "built-in");
  assert_false(p->is_measured);
  zr_alloc_free(NULL, p);
  zr_profile_default_path(path);
  assert_string_equal(path, path_of("zerorun/profile.json"));
  fill();
  assert_int_equal(zr_profile_write(path, &profile, "m"), ZR_OK);
  p = found(NULL, ZR_OK);
  assert_string_equal(p->source, path);
  zr_alloc_free(NULL, p);
  write_text(path, "{"); /* said, and left alone */
  p = found(NULL, ZR_OK);
  assert_string_equal(p->source, "built-in");
  zr_alloc_free(NULL, p);
  assert_null(found(path, ZR_ERR_CONFIG)); /* what was asked for by name must be right */
  assert_null(found("/nowhere/p.json", ZR_ERR_NOT_FOUND));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_what_is_not_a_profile),
      cmocka_unit_test(test_which_one),
  };
  return cmocka_run_group_tests(tests, make_temp_dir, remove_temp_dir);
}
