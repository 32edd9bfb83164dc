/* nanoGPT's and Megatron's token files, masks, documents, and what is wrong with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/train/data.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

static const char *path_of(const char *name) {
  static char path[4][128];
  static int turn;
  turn = (turn + 1) % 4;
  (void)snprintf(path[turn], sizeof path[turn], "%s/%s", temp_dir, name);
  return path[turn];
}

static void write_bytes(const char *name, const void *bytes, size_t n) {
  FILE *file = fopen(path_of(name), "w");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
}

/* first, first + 1, ... as uint16 */
static void write_u16(const char *name, int first, int n) {
  uint16_t ids[256];
  for (int i = 0; i < n; ++i) ids[i] = (uint16_t)(first + i);
  write_bytes(name, ids, 2 * (size_t)n);
}

/* An index of Megatron's, and ways to break it. */
typedef struct {
  int64_t version, n_sequences, n_documents;
  int type;
  int32_t size[8];
  int64_t pointer[8], document[9];
  int cut, more;
} index_t;

static void write_index(const char *name, const index_t *index) {
  uint8_t bytes[512] = "MMIDIDX\0";
  size_t at = 9;
  int64_t counts[2] = {index->n_sequences, index->n_documents + 1};
  memcpy(bytes + at, &index->version, 8), at += 8;
  bytes[at++] = (uint8_t)index->type;
  memcpy(bytes + at, counts, 16), at += 16;
  memcpy(bytes + at, index->size, 4 * (size_t)index->n_sequences);
  at += 4 * (size_t)index->n_sequences;
  memcpy(bytes + at, index->pointer, 8 * (size_t)index->n_sequences);
  at += 8 * (size_t)index->n_sequences;
  memcpy(bytes + at, index->document, 8 * (size_t)(index->n_documents + 1));
  at += 8 * (size_t)(index->n_documents + 1);
  write_bytes(name, bytes, at - (size_t)index->cut + (size_t)index->more);
}

/* 13 tokens from 100 on: sequences of 3, 2, 0, 5, 3; documents begin with tokens 0, 5, 10. */
static const index_t good = {.version = 1,
                             .n_sequences = 5,
                             .n_documents = 3,
                             .type = 8,
                             .size = {3, 2, 0, 5, 3},
                             .pointer = {0, 6, 10, 10, 20},
                             .document = {0, 2, 4, 5}};

static zr_data_options_t options_for(const char *const *patterns, size_t n) {
  zr_data_options_t options;
  zr_data_defaults(&options);
  options.key = "data.train";
  options.pattern = patterns;
  options.n_patterns = n;
  options.seq_len = 4;
  options.vocab_size = 1000;
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

static void expect_failure(const zr_data_options_t *options, zr_status_t status, const char *text) {
  zr_data_t *data = NULL;
  assert_int_equal(zr_data_open(zr_alloc_default(), options, &data), status);
  assert_null(data);
  if (strstr(message(), text) == NULL) assert_string_equal(message(), text);
}

static void expect_error(const char *name, zr_status_t status, const char *text) {
  const char *pattern = path_of(name);
  zr_data_options_t options = options_for(&pattern, 1);
  expect_failure(&options, status, text);
}

static zr_data_t *open_data(const zr_data_options_t *options) {
  zr_data_t *data = NULL;
  zr_status_t status = zr_data_open(zr_alloc_default(), options, &data);
  if (status != ZR_OK) print_error("%s\n", zr_detail());
  assert_int_equal(status, ZR_OK);
  return data;
}

/* A sample as "tokens | targets | starts". */
static void expect_sample(const zr_data_t *data, int64_t index, const char *text) {
  int32_t tokens[4], targets[4], starts[4];
  assert_int_equal(zr_data_sample_in_order(data, index, tokens, targets, starts), ZR_OK);
  char found[128];
  (void)snprintf(found, sizeof found, "%d %d %d %d | %d %d %d %d | %d %d %d %d", tokens[0],
                 tokens[1], tokens[2], tokens[3], targets[0], targets[1], targets[2], targets[3],
                 starts[0], starts[1], starts[2], starts[3]);
  assert_string_equal(found, text);
}

static void nanogpt_is_ids_alone(void **state) {
  (void)state;
  write_u16("nano0.bin", 100, 7);
  write_u16("nano1.bin", 107, 6);
  const char *pattern = path_of("nano?.bin");
  zr_data_options_t options = options_for(&pattern, 1);
  zr_data_t *data = open_data(&options);
  char text[256];
  zr_data_describe(data, text, sizeof text);
  assert_string_equal(text, "2 files of nanoGPT format (no known header: read as uint16 ids)");
  assert_int_equal(zr_data_n_tokens(data), 13);
  expect_sample(data, 1, "104 105 106 107 | 105 106 107 108 | 0 0 0 0");
  zr_data_close(data);
  write_u16("named.dat", 65530, 6);
  pattern = path_of("named.dat");
  options.format = ZR_DATA_NANOGPT;
  options.vocab_size = 128256;
  data = open_data(&options);
  expect_sample(data, 0, "65530 65531 65532 65533 | 65531 65532 65533 65534 | 0 0 0 0");
  zr_data_describe(data, text, sizeof text);
  assert_string_equal(text,
                      "1 file of nanoGPT format; their ids end at 65535, model.vocab_size is "
                      "128256: were larger ones cut off?");
  zr_data_close(data);
}

static void wide_llmc_ids(void **state) {
  (void)state;
  int32_t words[256 + 6] = {20240801, 7, 6};
  for (int i = 0; i < 6; ++i) words[256 + i] = 100000 + i;
  write_bytes("wide.bin", words, sizeof words);
  const char *pattern = path_of("wide.bin");
  zr_data_options_t options = options_for(&pattern, 1);
  expect_failure(&options, ZR_ERR_DATA, "token 0 (from 0) is 100000, but model.vocab_size is 1000");
  options.vocab_size = 128256;
  zr_data_t *data = open_data(&options);
  expect_sample(data, 0, "100000 100001 100002 100003 | 100001 100002 100003 100004 | 0 0 0 0");
  zr_data_close(data);
}

static void bad_nanogpt(void **state) {
  (void)state;
  write_bytes("odd.bin", "abcdefghijk", 11);
  expect_error("odd.bin", ZR_ERR_DATA,
               "data.train: odd.bin (no known header: read as nanoGPT's) has 11 bytes, an odd "
               "number: 16-bit ids were cut off, or it is something else; for plain text set "
               "data.tokenizer: byte");
  write_u16("big.bin", 998, 5);
  expect_error("big.bin", ZR_ERR_DATA,
               "data.train: big.bin: token 2 (from 0) is 1000, but model.vocab_size is 1000; use "
               "the model's own tokenizer or a larger vocabulary (the file has no known header and "
               "was read as nanoGPT's uint16 ids)");
  int32_t wide[40];
  for (int i = 0; i < 40; ++i) wide[i] = 60000 + 1000 * i;
  write_bytes("wide32.bin", wide, sizeof wide);
  expect_error("wide32.bin", ZR_ERR_DATA,
               "looks like 32-bit ids, or begins with a header that is not known; nanoGPT's ids "
               "are uint16, which ends at 65535");
  write_bytes("ids.npy", "\x93NUMPY\1\0abcdef", 14);
  expect_error("ids.npy", ZR_ERR_DATA,
               "ids.npy is not a token file (llm.c's header, or Megatron's "
               ".bin and .idx): it is a numpy array; for plain text");
}

static void megatron_by_any_name(void **state) {
  (void)state;
  write_u16("mega.bin", 100, 13);
  write_index("mega.idx", &good);
  static const char *const names[] = {"mega.bin", "mega.idx", "mega", "mega.*"};
  for (int i = 0; i < 4; ++i) {
    const char *pattern = path_of(names[i]);
    zr_data_options_t options = options_for(&pattern, 1);
    zr_data_t *data = open_data(&options);
    char text[256];
    zr_data_describe(data, text, sizeof text);
    assert_string_equal(text, "1 file of Megatron format");
    assert_int_equal(zr_data_n_samples(data), 3);
    expect_sample(data, 0, "100 101 102 103 | 101 102 103 104 | 0 0 0 0");
    expect_sample(data, 3, "0 0 0 0 | -1 -1 -1 -1 | 0 0 0 0");
    options.separate = true;
    zr_data_close(data);
    data = open_data(&options);
    expect_sample(data, 0, "100 101 102 103 | 101 102 103 104 | 0 0 0 0");
    expect_sample(data, 1, "104 105 106 107 | -1 106 107 108 | 0 1 1 1");
    expect_sample(data, 2, "108 109 110 111 | 109 -1 111 112 | 0 0 2 2");
    zr_data_close(data);
  }
}

static void megatron_types(void **state) {
  (void)state;
  index_t index = {.version = 1, .n_sequences = 1, .n_documents = 1, .document = {0, 1}};
  int32_t ids[6] = {1, 2, 70000, 3, 4, 5};
  index.type = 4, index.size[0] = 6;
  write_bytes("i32.bin", ids, sizeof ids);
  write_index("i32.idx", &index);
  const char *pattern = path_of("i32.bin");
  zr_data_options_t options = options_for(&pattern, 1);
  options.vocab_size = 100000;
  zr_data_t *data = open_data(&options);
  expect_sample(data, 0, "1 2 70000 3 | 2 70000 3 4 | 0 0 0 0");
  zr_data_close(data);
  ids[3] = -7;
  write_bytes("i32.bin", ids, sizeof ids);
  expect_failure(&options, ZR_ERR_DATA, "i32.bin: token 3 (from 0) is -7, but model.vocab_size is");
  index.type = 7;
  write_index("i32.idx", &index);
  expect_failure(&options, ZR_ERR_DATA, "i32.idx says its tokens are of type 7 (float32); ids are");
}

static void bad_index(const char *text, const index_t *index) {
  write_index("bad.idx", index);
  expect_error("bad.bin", ZR_ERR_DATA, text);
}

static void bad_megatron(void **state) {
  (void)state;
  write_u16("bad.bin", 100, 13);
  index_t index = good;
  index.version = 2;
  bad_index("bad.idx has version 2 of Megatron's index, known is 1", &index);
  index = good, index.cut = 1;
  bad_index(
      "bad.idx is cut off or damaged: it says 5 sequences and 3 documents, which do not fit "
      "its 125 bytes",
      &index);
  index = good, index.more = 3;
  bad_index("bad.idx is damaged: it says 5 sequences and 3 documents", &index);
  index = good, index.more = 5;
  bad_index("bad.idx is of a multimodal data set", &index);
  index = good, index.pointer[3] = 12;
  bad_index("bad.idx is damaged: sequence 3 has 5 tokens and begins at byte 12, not 10", &index);
  index = good, index.size[4] = -1;
  bad_index("bad.idx is damaged: sequence 4 has -1 tokens", &index);
  index = good, index.size[4] = 4;
  bad_index("bad.bin has 26 bytes, but its index", &index);
  index = good, index.document[2] = 1;
  bad_index("entry 2 of its document index is 1; entries rise from 0 to its 5 sequences", &index);
  index = good, index.document[3] = 4;
  bad_index("entry 3 of its document index is 4", &index);
  uint8_t huge[34] = "MMIDIDX\0";
  huge[9] = 1, huge[17] = 8, huge[25] = 0x7f, huge[26] = 1;
  write_bytes("bad.idx", huge, sizeof huge);
  expect_error("bad.bin", ZR_ERR_DATA, "bad.idx is cut off or damaged");
  write_bytes("bad.idx", "what else", 9);
  expect_error("bad.bin", ZR_ERR_DATA, "bad.idx is not a Megatron index");
  (void)unlink(path_of("bad.idx"));
  const char *pattern = path_of("bad.bin");
  zr_data_options_t options = options_for(&pattern, 1);
  options.format = ZR_DATA_MEGATRON;
  expect_failure(&options, ZR_ERR_NOT_FOUND, "bad.bin has no index beside it");
}

static void kinds_do_not_mix(void **state) {
  (void)state;
  int32_t header[256] = {20240520, 1, 0};
  write_bytes("mix0.bin", header, sizeof header);
  write_u16("mix1.bin", 100, 9);
  expect_error("mix?.bin", ZR_ERR_DATA,
               "mix1.bin is of nanoGPT's format, but mix0.bin of llm.c's; the files of one list "
               "are of one kind");
}

static void masks_and_ignored_ids(void **state) {
  (void)state;
  write_u16("masked.bin", 100, 9);
  write_bytes("masked.bin.mask", "\1\1\0\1\1\0\1\1\1", 9);
  const char *pattern = path_of("masked.bin*");
  zr_data_options_t options = options_for(&pattern, 1);
  options.mask_ending = ".mask";
  options.ignore_id = 107;
  zr_data_t *data = open_data(&options);
  expect_sample(data, 0, "100 101 102 103 | 101 -1 103 104 | 0 0 0 0");
  expect_sample(data, 1, "104 105 106 107 | -1 106 -1 108 | 0 0 0 0");
  zr_data_close(data);
  write_bytes("masked.bin.mask", "\1\1\0\1\1\0\1\1", 8);
  expect_failure(&options, ZR_ERR_DATA,
                 "data.mask: masked.bin.mask has 8 bytes, but masked.bin has "
                 "9 tokens");
  write_bytes("masked.bin.mask", "111111111", 9);
  expect_failure(&options, ZR_ERR_DATA,
                 "data.mask: byte 0 (from 0) of the mask of masked.bin is 49");
  options.mask_ending = ".other";
  pattern = path_of("masked.bin");
  expect_failure(&options, ZR_ERR_NOT_FOUND, "data.mask: can not open masked.bin.other");
  options.mask_ending = NULL;
  options.ignore_id = 70000;
  expect_failure(&options, ZR_ERR_CONFIG, "data.ignore_id = 70000 is not an id");
  options.vocab_size = 100000;
  expect_failure(&options, ZR_ERR_DATA,
                 "data.ignore_id = 70000 can not be in masked.bin: its tokens end at 65535");
}

static void documents_by_their_last_id(void **state) {
  (void)state;
  static const uint16_t ids[] = {5, 9, 6, 7, 9, 9, 8, 3, 4};
  write_bytes("docs.bin", ids, sizeof ids);
  const char *pattern = path_of("docs.bin");
  zr_data_options_t options = options_for(&pattern, 1);
  options.separate = true;
  expect_failure(&options, ZR_ERR_CONFIG,
                 "data.documents: separate needs to know where documents "
                 "end in docs.bin: set data.eot_id");
  options.eot_id = 9;
  zr_data_t *data = open_data(&options);
  expect_sample(data, 0, "5 9 6 7 | 9 -1 7 9 | 0 0 2 2");
  expect_sample(data, 1, "9 9 8 3 | -1 -1 3 4 | 0 1 2 2");
  zr_data_close(data);
}

static void nothing_is_left_when_memory_fails(void **state) {
  (void)state;
  write_u16("mem.bin", 100, 13);
  write_index("mem.idx", &good);
  const char *pattern[] = {path_of("mem.bin"), path_of("mem.*")};
  zr_alloc_t alloc;
  zr_data_t *data = NULL;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  for (int64_t n = 1; status != ZR_OK; ++n) {
    assert_true(n < 50);
    zr_alloc_init(&alloc);
    alloc.fail_at = n;
    zr_data_options_t options = options_for(pattern, 2);
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
      cmocka_unit_test(nanogpt_is_ids_alone),
      cmocka_unit_test(wide_llmc_ids),
      cmocka_unit_test(bad_nanogpt),
      cmocka_unit_test(megatron_by_any_name),
      cmocka_unit_test(megatron_types),
      cmocka_unit_test(bad_megatron),
      cmocka_unit_test(kinds_do_not_mix),
      cmocka_unit_test(masks_and_ignored_ids),
      cmocka_unit_test(documents_by_their_last_id),
      cmocka_unit_test(nothing_is_left_when_memory_fails),
  };
  return cmocka_run_group_tests(tests, make_temp_dir, remove_temp_dir);
}
