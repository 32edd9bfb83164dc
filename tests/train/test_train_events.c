/* What a run writes: lines for machines, and the curve for people. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/curve.h"
#include "runtime/train/events.h"
#include "runtime/train/files.h"
#include "tests/support/cmocka_all.h"

static char dir[] = "/tmp/zr_events_XXXXXX";

static void curve_keeps_its_width_and_shape(void **state) {
  (void)state;
  zr_curve_t curve;
  char text[ZR_CURVE_BYTES];
  memset(&curve, 0, sizeof curve);
  zr_curve_draw(&curve, text);
  assert_int_equal(strlen(text), ZR_CURVE_BUCKETS);
  for (int i = 0; i < 1000; ++i) zr_curve_add(&curve, 1000 - i);
  zr_curve_add(&curve, (double)NAN);
  int64_t count = 0;
  for (int i = 0; i < curve.n_buckets; ++i) count += curve.count[i];
  assert_int_equal(count, 1000);
  assert_true(curve.n_buckets > ZR_CURVE_BUCKETS / 2 && curve.n_buckets <= ZR_CURVE_BUCKETS);
  zr_curve_draw(&curve, text);
  assert_int_equal(strncmp(text, "█", 3), 0);
  assert_int_equal(strncmp(text + 3 * (curve.n_buckets - 1), "▁", 3), 0);
}

static void numbers_are_written_for_people(void **state) {
  (void)state;
  char text[32];
  static const struct {
    int64_t bytes;
    const char *text;
  } sizes[] = {{0, "0 B"}, {1023, "1023 B"}, {1536, "1.5 KiB"}, {(int64_t)132 << 20, "132 MiB"}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    zr_events_bytes(sizes[i].bytes, text, sizeof text);
    assert_string_equal(text, sizes[i].text);
  }
  static const struct {
    double seconds;
    const char *text;
  } times[] = {{0.4, "0s"}, {59.6, "1m00s"}, {130, "2m10s"}, {7260, "2h01m"}, {-1, "0s"}};
  for (size_t i = 0; i < sizeof times / sizeof times[0]; ++i) {
    zr_events_duration(times[i].seconds, text, sizeof text);
    assert_string_equal(text, times[i].text);
  }
}

static zr_events_t *open_events(void) {
  zr_events_options_t options = {
      .dir = dir, .progress = ZR_PROGRESS_LINES, .log_every = 1 << 20, .total_steps = 1 << 21};
  zr_events_t *events = NULL;
  assert_int_equal(zr_events_open(zr_alloc_default(), &options, &events), ZR_OK);
  return events;
}

static void a_line_has_nine_digits_and_is_whole(void **state) {
  (void)state;
  zr_events_t *events = open_events();
  json_t *event = json_pack("{s:s, s:o, s:o}", "event", "step", "loss",
                            zr_events_real(1.23456789012345), "norm", zr_events_real(INFINITY));
  assert_int_equal(zr_events_put(events, event), ZR_OK);
  assert_int_equal(zr_events_sync(events), ZR_OK);
  zr_events_t *other = NULL;
  zr_events_options_t options = {.dir = dir, .log_every = 1};
  assert_int_equal(zr_events_open(zr_alloc_default(), &options, &other), ZR_ERR_CONFIG);
  zr_events_close(events);
  char path[ZR_PATH_BYTES], *text = NULL;
  size_t bytes;
  assert_int_equal(zr_files_join(path, dir, "log.jsonl"), ZR_OK);
  FILE *file = fopen(path, "a");
  assert_non_null(file);
  assert_true(fputs("{\"event\":\"cut", file) >= 0); /* a crash in the middle of a line */
  assert_int_equal(fclose(file), 0);
  events = open_events();
  assert_int_equal(zr_events_put(events, json_pack("{s:s}", "event", "end")), ZR_OK);
  zr_events_close(events);
  assert_int_equal(zr_files_read_text(zr_alloc_default(), path, &text, &bytes), ZR_OK);
  assert_string_equal(text,
                      "{\"event\":\"step\",\"loss\":1.23456789,\"norm\":null}\n{\"event\":\"cut\n"
                      "{\"event\":\"end\"}\n");
  zr_alloc_free(zr_alloc_default(), text);
}

static void other_ranks_say_nothing(void **state) {
  (void)state;
  zr_progress_step_t step = {.step = 1};
  zr_events_progress(NULL, &step);
  zr_events_say(NULL, "%d", 1);
  assert_int_equal(zr_events_put(NULL, json_object()), ZR_OK);
  assert_int_equal(zr_events_sync(NULL), ZR_OK);
  zr_events_close(NULL);
}

static int make_dir(void **state) {
  (void)state;
  return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state) {
  (void)state;
  zr_files_remove_dir(dir);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(curve_keeps_its_width_and_shape),
      cmocka_unit_test(numbers_are_written_for_people),
      cmocka_unit_test(a_line_has_nine_digits_and_is_whole),
      cmocka_unit_test(other_ranks_say_nothing),
  };
  return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
