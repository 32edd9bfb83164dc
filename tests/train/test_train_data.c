/* Token files, plain text, their order, and what is wrong with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/train/data.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

static const char *path_of(const char *name) {
  static char path[2][128];
  static int turn;
  turn = !turn;
  (void)snprintf(path[turn], sizeof path[turn], "%s/%s", temp_dir, name);
  return path[turn];
}

static void write_tokens(const char *name, int32_t magic, int32_t version, int32_t said, int n,
                         uint16_t first, size_t cut) {
  FILE *file = fopen(path_of(name), "w");
  assert_non_null(file);
  int32_t header[256] = {magic, version, said};
  assert_int_equal(fwrite(header, 4, 256, file), 256);
  for (int i = 0; i < n; ++i) {
    uint16_t token = (uint16_t)(first + i);
    assert_int_equal(fwrite(&token, 2, 1, file), 1);
  }
  long end = ftell(file);
  assert_int_equal(fclose(file), 0);
  if (cut) assert_int_equal(truncate(path_of(name), end - (long)cut), 0);
}

static void write_text(const char *name, const char *text) {
  FILE *file = fopen(path_of(name), "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static zr_data_options_t options_for(const char *const *patterns, size_t n) {
  zr_data_options_t options;
  zr_data_defaults(&options);
  options.key = "data.train";
  options.pattern = patterns;
  options.n_patterns = n;
  options.seq_len = 4;
  options.vocab_size = 1000;
  options.seed = 7;
  return options;
}

/* Message without the folder. */
static const char *message(void) {
  static char text[600];
  text[0] = 0;
  const char *rest = zr_detail();
  for (const char *at; (at = strstr(rest, temp_dir)) != NULL; rest = at + strlen(temp_dir) + 1) {
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s", (int)(at - rest), rest);
  }
  (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s", rest);
  return text;
}

static void expect_error(const char *name, bool bytes, int64_t seq_len, int64_t vocab,
                         zr_status_t status, const char *text) {
  const char *pattern = path_of(name);
  zr_data_options_t options = options_for(&pattern, 1);
  options.bytes = bytes;
  options.seq_len = seq_len;
  options.vocab_size = vocab;
  zr_data_t *data = NULL;
  assert_int_equal(zr_data_open(zr_alloc_default(), &options, &data), status);
  assert_null(data);
  assert_string_equal(message(), text);
}

static void bad_files_are_named(void **state) {
  (void)state;
  expect_error("none.bin", false, 4, 9, ZR_ERR_NOT_FOUND,
               "data.train: can not open none.bin: No such file or directory");
  expect_error("none*.bin", false, 4, 9, ZR_ERR_NOT_FOUND, "data.train: no file matches none*.bin");
  write_text("empty.txt", "");
  expect_error("empty.txt", true, 4, 256, ZR_ERR_DATA, "data.train: empty.txt is empty");
  write_text("short.txt", "abcd");
  expect_error("short.txt", true, 4, 256, ZR_ERR_DATA,
               "data.train: short.txt holds 4 tokens, one sample of data.seq_len = 4 needs 5; "
               "shorten data.seq_len or give more text");
  expect_error("short.txt", false, 4, 256, ZR_ERR_DATA,
               "data.train: short.txt is not a token file (llm.c's header, or Megatron's .bin and "
               ".idx); for plain text set data.tokenizer: byte, for 16-bit ids without a header "
               "data.format: nanogpt");
  write_tokens("magic.bin", 7, 1, 4, 4, 0, 0);
  expect_error("magic.bin", false, 4, 256, ZR_ERR_DATA,
               "data.train: magic.bin (no known header: read as nanoGPT's) looks like 32-bit ids, "
               "or begins with a header that is not known; nanoGPT's ids are uint16, which ends at "
               "65535: write it as uint16, or with larger ids as Megatron's .bin and .idx");
  write_tokens("version.bin", 20240520, 2, 4, 4, 0, 0);
  expect_error("version.bin", false, 4, 256, ZR_ERR_DATA,
               "data.train: version.bin has version 2 of the llm.c format, known is 1");
  write_tokens("cut.bin", 20240520, 1, 10, 10, 0, 3);
  expect_error("cut.bin", false, 4, 256, ZR_ERR_DATA,
               "data.train: cut.bin is cut off: its header says 10 tokens, the file has 17 bytes "
               "of them (8); write it again");
  write_tokens("long.bin", 20240520, 1, 9, 10, 0, 0);
  expect_error("long.bin", false, 4, 256, ZR_ERR_DATA,
               "data.train: long.bin is damaged: its header says 9 tokens, the file has 20 bytes "
               "of them (10); write it again");
  write_tokens("vocab.bin", 20240520, 1, 10, 10, 250, 0);
  expect_error("vocab.bin", false, 4, 256, ZR_ERR_DATA,
               "data.train: vocab.bin: token 6 (from 0) is 256, but model.vocab_size is 256; use "
               "the model's own tokenizer or a larger vocabulary");
  expect_error(".", false, 4, 256, ZR_ERR_DATA, "data.train: . is not a regular file");
}

static void samples_run_over_files(void **state) {
  (void)state;
  write_tokens("part0.bin", 20240520, 1, 7, 7, 0, 0);
  write_tokens("part1.bin", 20240520, 1, 1, 1, 7, 0);
  write_tokens("part2.bin", 20240520, 1, 13, 13, 8, 0);
  const char *pattern = path_of("part?.bin");
  zr_data_options_t options = options_for(&pattern, 1);
  zr_data_t *data = NULL;
  assert_int_equal(zr_data_open(zr_alloc_default(), &options, &data), ZR_OK);
  assert_int_equal(zr_data_n_tokens(data), 21);
  assert_int_equal(zr_data_n_samples(data), 5);
  int32_t tokens[4], targets[4];
  for (int64_t i = 0; i < 10; ++i) {
    assert_int_equal(zr_data_sample(data, i, tokens, targets, NULL), ZR_OK);
    for (int j = 0; j < 4; ++j) {
      assert_int_equal(tokens[j], 4 * (i % 5) + j);
      assert_int_equal(targets[j], 4 * (i % 5) + j + 1);
    }
  }
  assert_int_equal(zr_data_sample_in_order(data, 5, tokens, targets, NULL), ZR_OK);
  assert_int_equal(tokens[3], 0);
  assert_int_equal(targets[3], -1);
  zr_data_close(data);
}

static void each_epoch_is_a_new_order(void **state) {
  (void)state;
  char text[64 * 4 + 2];
  for (int i = 0; i < 64 * 4 + 1; ++i) text[i] = (char)('!' + i / 4);
  text[64 * 4 + 1] = 0;
  write_text("order.txt", text);
  const char *pattern = path_of("order.txt");
  zr_data_options_t options = options_for(&pattern, 1);
  options.bytes = true;
  options.shuffle = true;
  zr_data_t *data = NULL;
  assert_int_equal(zr_data_open(zr_alloc_default(), &options, &data), ZR_OK);
  int order[2][64], seen[64] = {0}, n_moved = 0, n_differ = 0;
  for (int i = 0; i < 128; ++i) {
    int32_t tokens[4], targets[4];
    assert_int_equal(zr_data_sample(data, i, tokens, targets, NULL), ZR_OK);
    order[i / 64][i % 64] = tokens[0] - '!';
    seen[tokens[0] - '!'] += 1;
  }
  for (int i = 0; i < 64; ++i) {
    assert_int_equal(seen[i], 2);
    n_moved += order[0][i] != i;
    n_differ += order[0][i] != order[1][i];
  }
  assert_true(n_moved > 48 && n_differ > 48);
  zr_data_close(data);
}

static void nothing_is_left_when_memory_fails(void **state) {
  (void)state;
  write_text("mem.txt", "abcdefgh");
  const char *pattern[] = {path_of("mem.txt"), path_of("mem*.txt")};
  zr_alloc_t alloc;
  zr_data_t *data = NULL;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  for (int64_t n = 1; status != ZR_OK; ++n) {
    assert_true(n < 50);
    zr_alloc_init(&alloc);
    alloc.fail_at = n;
    zr_data_options_t options = options_for(pattern, 2);
    options.bytes = true;
    status = zr_data_open(&alloc, &options, &data);
    if (status != ZR_OK) {
      assert_int_equal(status, ZR_ERR_OUT_OF_MEMORY);
      assert_int_equal(alloc.live_count, 0);
    }
  }
  zr_data_close(data);
  assert_int_equal(alloc.live_count, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bad_files_are_named),
      cmocka_unit_test(samples_run_over_files),
      cmocka_unit_test(each_epoch_is_a_new_order),
      cmocka_unit_test(nothing_is_left_when_memory_fails),
  };
  return cmocka_run_group_tests(tests, make_temp_dir, remove_temp_dir);
}
