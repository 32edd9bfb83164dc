#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "tests/support/cmocka_all.h"

static void dtypes(void **state) {
  (void)state;
  static const int64_t bytes[ZR_N_DTYPES] = {1, 4, 8, 4, 8, 2, 2, 2};
  for (int i = 0; i < ZR_N_DTYPES; ++i) {
    zr_dtype_t dtype = (zr_dtype_t)i, parsed = ZR_N_DTYPES;
    assert_int_equal(zr_dtype_bytes(dtype), bytes[i]);
    assert_int_equal(zr_dtype_parse(zr_dtype_name(dtype), &parsed), ZR_OK);
    assert_int_equal(parsed, dtype);
    parsed = ZR_N_DTYPES;
    assert_int_equal(zr_dtype_parse(zr_dtype_safetensors(dtype), &parsed), ZR_OK);
    assert_int_equal(parsed, dtype);
  }
  zr_dtype_t untouched = ZR_F64;
  assert_int_equal(zr_dtype_parse("float33", &untouched), ZR_ERR_DATA);
  assert_int_equal(untouched, ZR_F64);
}

static void clocks(void **state) {
  (void)state;
  int64_t begin = zr_clock_ns(), cpu = zr_clock_thread_cpu_ns();
  zr_clock_sleep_ns(3000000);
  zr_clock_sleep_ns(-1);
  assert_true(zr_clock_ns() - begin >= 3000000);
  assert_true(zr_clock_thread_cpu_ns() >= cpu);
}

static _Atomic uint32_t word;

static void *waker(void *context) {
  (void)context;
  zr_clock_sleep_ns(2000000);
  atomic_store(&word, 1);
  zr_futex_wake_all(&word);
  return NULL;
}

static void futex(void **state) {
  (void)state;
  assert_true(zr_futex_wait(&word, 7, -1)); /* differs already */
  int64_t begin = zr_clock_ns();
  while (zr_futex_wait(&word, 0, 2000000)) {
  }
  assert_true(zr_clock_ns() - begin >= 2000000);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, waker, NULL), 0);
  while (atomic_load(&word) == 0) assert_true(zr_futex_wait(&word, 0, -1));
  assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Runs `emit` with standard error going to a file, and returns what arrived. */
static void capture(void (*emit)(void), char *out, size_t out_bytes) {
  FILE *file = tmpfile();
  assert_non_null(file);
  int saved = dup(STDERR_FILENO);
  assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
  emit();
  assert_true(dup2(saved, STDERR_FILENO) >= 0);
  (void)close(saved);
  rewind(file);
  size_t bytes = fread(out, 1, out_bytes - 1, file);
  out[bytes] = 0;
  (void)fclose(file);
}

static void emit_levels(void) {
  zr_log(ZR_LOG_DEBUG, "hidden");
  zr_info("one %d", 1);
  zr_log_set_rank(2, 4);
  zr_info("only rank 0 says this");
  zr_warn("two");
  zr_error("three");
  zr_log_set_rank(0, 1);
  zr_log_set_level(ZR_LOG_ERROR);
  zr_warn("hidden");
  zr_log_set_level(ZR_LOG_INFO);
}

static void *emit_many(void *context) {
  for (int i = 0; i < 200; ++i) {
    zr_info("%s", (const char *)context);
  }
  return NULL;
}

static void emit_threads(void) {
  static char texts[3][101];
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) {
    memset(texts[i], 'a' + i, 100);
    assert_int_equal(pthread_create(&threads[i], NULL, emit_many, texts[i]), 0);
  }
  for (int i = 0; i < 3; ++i) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void emit_long(void) {
  static char text[5000];
  memset(text, 'x', sizeof text - 1);
  zr_info("%s", text);
}

static void log_lines(void **state) {
  (void)state;
  static char text[1 << 17];
  capture(emit_levels, text, sizeof text);
  assert_string_equal(text, "zerorun: one 1\nzerorun[2]: warning: two\nzerorun[2]: error: three\n");
  capture(emit_long, text, sizeof text);
  assert_int_equal(strlen(text), 2048);
  assert_int_equal(text[2047], '\n');
  capture(emit_threads, text, sizeof text);
  int lines = 0;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), ++lines) {
    assert_int_equal(strlen(line), 109);
    for (int i = 10; i < 109; ++i) assert_int_equal(line[i], line[9]);
  }
  assert_int_equal(lines, 600);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dtypes),
      cmocka_unit_test(clocks),
      cmocka_unit_test(futex),
      cmocka_unit_test(log_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
