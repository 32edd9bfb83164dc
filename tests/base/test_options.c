#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/options.h"
#include "tests/support/cmocka_all.h"

typedef struct {
  int64_t steps, batch, stage;
  double lr, clip;
  char *dir, *name;
  int type, serial, bf16;
  zr_option_bytes_t device;
  zr_option_list_t train;
} config_t;

static const char *const types[] = {"Adam", "AdamW", NULL};
#define AT(field) .offset = offsetof(config_t, field)
static const zr_option_t table[] = {
    {.key = "train_batch_size",
     .type = ZR_OPTION_INT,
     .kind = ZR_OPTION_NUMERIC,
     AT(batch),
     .may_be_auto = true,
     .default_text = "auto",
     .min = 1,
     .max = INFINITY,
     .help = "samples"},
    {.key = "run.steps",
     .type = ZR_OPTION_INT,
     AT(steps),
     .default_text = "100",
     .min = 1,
     .max = 1e9,
     .help = "updates | to make"},
    {.key = "run.dir", .type = ZR_OPTION_STRING, AT(dir), .default_text = "runs/a"},
    {.key = "zero_optimization.stage",
     .type = ZR_OPTION_INT,
     .kind = ZR_OPTION_SCHEDULE,
     AT(stage),
     .default_text = "0",
     .min = 0,
     .max = 3,
     .may_be_auto = true},
    {.key = "zero_optimization.overlap_comm",
     .type = ZR_OPTION_BOOL,
     .no_field = true,
     .support = ZR_OPTION_NEEDLESS,
     .default_text = "false",
     .reason = "the plan overlaps"},
    {.key = "zero_optimization.zero_quantized_weights",
     .type = ZR_OPTION_BOOL,
     .no_field = true,
     .support = ZR_OPTION_REFUSED,
     .default_text = "false",
     .reason = "not built yet"},
    {.key = "optimizer.type",
     .type = ZR_OPTION_ENUM,
     .kind = ZR_OPTION_NUMERIC,
     AT(type),
     .names = types,
     .default_text = "AdamW"},
    {.key = "optimizer.params.lr",
     .type = ZR_OPTION_DOUBLE,
     .kind = ZR_OPTION_NUMERIC,
     AT(lr),
     .default_text = "1e-3",
     .min = 0,
     .max = INFINITY,
     .may_be_auto = true},
    {.key = "gradient_clipping",
     .type = ZR_OPTION_DOUBLE,
     AT(clip),
     .min = -1,
     .max = 5,
     .default_text = "0"},
    {.key = "run.serial",
     .alias = "serial",
     .type = ZR_OPTION_BOOL,
     AT(serial),
     .default_text = "false"},
    {.key = "run.name", .type = ZR_OPTION_STRING, AT(name)},
    {.key = "bf16.enabled",
     .type = ZR_OPTION_BOOL,
     AT(bf16),
     .default_text = "false",
     .may_be_auto = true},
    {.key = "memory.device",
     .type = ZR_OPTION_BYTES,
     AT(device),
     .may_be_auto = true,
     .default_text = "80%",
     .min = 4096,
     .max = INFINITY},
    {.key = "data.train", .type = ZR_OPTION_LIST, AT(train)},
    {.key = "flops_profiler.*",
     .type = ZR_OPTION_ANY,
     .support = ZR_OPTION_NEEDLESS,
     .reason = "traces are always there"},
};
enum { N_ROWS = sizeof table / sizeof table[0] };

static config_t config;
static zr_alloc_t alloc;

static zr_options_t *open_options(void) {
  memset(&config, 0, sizeof config);
  zr_alloc_init(&alloc);
  zr_options_t *options = NULL;
  assert_int_equal(zr_options_create(&alloc, table, N_ROWS, &config, &options), ZR_OK);
  return options;
}

static void close_options(zr_options_t *options) {
  zr_options_destroy(options);
  assert_int_equal(alloc.live_count, 0);
}

static zr_status_t set(zr_options_t *options, const char *key, const char *text) {
  return zr_options_set(options, key, text, ZR_OPTION_FROM_COMMAND_LINE, "c.yaml:3:5");
}

static void says(const char *part) {
  if (!strstr(zr_detail(), part)) print_error("'%s' lacks '%s'\n", zr_detail(), part);
  assert_non_null(strstr(zr_detail(), part));
}

static void parsers(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t value;
  } ints[] = {{"0", 0},
              {"-7", -7},
              {"+3", 3},
              {"5e8", 500000000},
              {"5E+8", 500000000},
              {"3.0", 3},
              {"1_000", 1000},
              {"0x1F", 31},
              {"0o17", 15},
              {"-0x10", -16},
              {"9223372036854775807", INT64_MAX},
              {"1e18", 1000000000000000000},
              {"12.5e1", 125}};
  int64_t integer;
  double real;
  for (size_t i = 0; i < sizeof ints / sizeof ints[0]; ++i) {
    assert_true(zr_parse_int(ints[i].text, &integer));
    assert_int_equal(integer, ints[i].value);
  }
  static const char *const not_ints[] = {
      "",     "x",  "1.5", "1e-1", "5 ",   "1e19", "0x",   "9223372036854775808",
      "1__0", "_1", "--1", "nan",  ".inf", "true", "0x1g", "1e999"};
  for (size_t i = 0; i < sizeof not_ints / sizeof not_ints[0]; ++i) {
    if (zr_parse_int(not_ints[i], &integer)) print_error("'%s' taken\n", not_ints[i]);
    assert_false(zr_parse_int(not_ints[i], &integer));
  }
  assert_true(zr_parse_double("2e-5", &real) && real == 2e-5);
  assert_true(zr_parse_double(".5", &real) && real == 0.5);
  assert_true(zr_parse_double("-3", &real) && real == -3);
  assert_false(zr_parse_double("inf", &real) || zr_parse_double("1e400", &real) ||
               zr_parse_double("0x1p3", &real) || zr_parse_double("1.2.3", &real) ||
               zr_parse_double("", &real) || zr_parse_double(".", &real));
  int boolean;
  assert_true(zr_parse_bool("True", &boolean) && boolean == 1);
  assert_true(zr_parse_bool("off", &boolean) && boolean == 0);
  assert_false(zr_parse_bool("1", &boolean) || zr_parse_bool("", &boolean));
}

static void parse_byte_counts(void **state) {
  (void)state;
  zr_option_bytes_t bytes;
  assert_true(zr_parse_bytes("24GiB", &bytes) && bytes.bytes == (int64_t)24 << 30);
  assert_true(zr_parse_bytes("1.5 GB", &bytes) && bytes.bytes == 1500000000);
  assert_true(zr_parse_bytes("5e8", &bytes) && bytes.bytes == 500000000);
  assert_true(zr_parse_bytes("512B", &bytes) && bytes.bytes == 512);
  assert_true(zr_parse_bytes("80%", &bytes) && bytes.share == 0.8 && bytes.bytes == -1);
  assert_true(zr_parse_bytes("auto", &bytes) && bytes.share == 0 && bytes.bytes == -1);
  static const char *const bad[] = {"24G", "GiB", "1.5", "120%", "0%", "24GiBs", "", "9999999PiB"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    if (zr_parse_bytes(bad[i], &bytes)) print_error("'%s' taken\n", bad[i]);
    assert_false(zr_parse_bytes(bad[i], &bytes));
  }
}

static void defaults_and_settings(void **state) {
  (void)state;
  zr_options_t *options = open_options();
  assert_int_equal(config.batch, ZR_OPTION_AUTO_INT);
  assert_int_equal(config.steps, 100);
  assert_string_equal(config.dir, "runs/a");
  assert_null(config.name);
  assert_int_equal(config.type, 1);
  assert_true(config.lr == 1e-3 && config.device.share == 0.8);
  assert_int_equal(set(options, "run.steps", "2e3"), ZR_OK);
  assert_int_equal(set(options, "run.dir", "b"), ZR_OK);
  assert_int_equal(set(options, "optimizer.type", "adam"), ZR_OK);
  assert_int_equal(set(options, "optimizer.params.lr", "auto"), ZR_OK);
  assert_int_equal(set(options, "bf16.enabled", "auto"), ZR_OK);
  assert_int_equal(set(options, "serial", "true"), ZR_OK);
  assert_int_equal(set(options, "memory.device", "2GiB"), ZR_OK);
  assert_int_equal(config.steps, 2000);
  assert_string_equal(config.dir, "b");
  assert_int_equal(config.type, 0);
  assert_true(isnan(config.lr) && config.device.bytes == (int64_t)2 << 30);
  assert_int_equal(config.bf16, ZR_OPTION_AUTO_BOOL);
  assert_int_equal(config.serial, 1);
  assert_int_equal(set(options, "run.steps", NULL), ZR_OK);
  assert_int_equal(config.steps, 100);
  assert_int_equal(set(options, "run.name", "x"), ZR_OK);
  assert_int_equal(set(options, "run.name", NULL), ZR_OK);
  assert_null(config.name);
  int64_t row = zr_options_find(options, "run.dir");
  assert_int_equal(zr_options_source(options, (size_t)row), ZR_OPTION_FROM_COMMAND_LINE);
  assert_string_equal(zr_options_where(options, (size_t)row), "c.yaml:3:5");
  close_options(options);
}

static void lists(void **state) {
  (void)state;
  zr_options_t *options = open_options();
  assert_int_equal(config.train.n_items, 0);
  assert_int_equal(set(options, "data.train", "one.bin"), ZR_OK);
  assert_int_equal(config.train.n_items, 1);
  assert_int_equal(set(options, "data.train", "[a.bin, \"b c\" , d]"), ZR_OK);
  assert_int_equal(config.train.n_items, 3);
  assert_string_equal(config.train.items[0], "a.bin");
  assert_string_equal(config.train.items[1], "b c");
  assert_string_equal(config.train.items[2], "d");
  static const char *const items[] = {"x", "y"};
  assert_int_equal(zr_options_set_list(options, "data.train", items, 2, ZR_OPTION_FROM_PROGRAM, ""),
                   ZR_OK);
  assert_string_equal(config.train.items[1], "y");
  assert_int_equal(
      zr_options_set_list(options, "run.steps", items, 2, ZR_OPTION_FROM_FILE, "f:1:2"),
      ZR_ERR_CONFIG);
  says("f:1:2: 'run.steps' must be an integer from 1 to 1000000000, not 'a list'");
  assert_int_equal(
      zr_options_set_list(options, "flops_profiler.x", items, 2, ZR_OPTION_FROM_FILE, "f"), ZR_OK);
  close_options(options);
}

static void wrong_values(void **state) {
  (void)state;
  zr_options_t *options = open_options();
  assert_int_equal(set(options, "run.steps", "many"), ZR_ERR_CONFIG);
  says("c.yaml:3:5: 'run.steps' must be an integer from 1 to 1000000000, not 'many'");
  assert_int_equal(set(options, "run.steps", "0"), ZR_ERR_CONFIG);
  assert_int_equal(set(options, "run.steps", "auto"), ZR_ERR_CONFIG);
  assert_int_equal(set(options, "optimizer.params.lr", "-1"), ZR_ERR_CONFIG);
  says("must be a number of at least 0, or auto, not '-1'");
  assert_int_equal(set(options, "optimizer.type", "SGDD"), ZR_ERR_CONFIG);
  says("must be one of Adam, AdamW, not 'SGDD'");
  assert_int_equal(set(options, "memory.device", "24G"), ZR_ERR_CONFIG);
  assert_int_equal(set(options, "memory.device", "12"), ZR_ERR_CONFIG);
  assert_int_equal(set(options, "run.serial", "2"), ZR_ERR_CONFIG);
  assert_int_equal(set(options, "zero_optimization.stage", "4"), ZR_ERR_CONFIG);
  assert_int_equal(config.steps, 100);
  assert_int_equal(zr_options_complain(options, "run.steps", "is %d too many", 3), ZR_ERR_CONFIG);
  assert_string_equal(zr_detail(), "'run.steps' is 3 too many");
  close_options(options);
}

static void unknown_keys_and_hints(void **state) {
  (void)state;
  zr_options_t *options = open_options();
  assert_int_equal(set(options, "run.stpes", "1"), ZR_ERR_CONFIG);
  says("unknown key 'run.stpes'; did you mean 'run.steps'?");
  assert_string_equal(zr_options_nearest(options, "stage"), "zero_optimization.stage");
  assert_string_equal(zr_options_nearest(options, "train_batchsize"), "train_batch_size");
  assert_string_equal(zr_options_nearest(options, "optimizer.lr"), "optimizer.params.lr");
  assert_string_equal(zr_options_nearest(options, "zero_optimisation.stge"),
                      "zero_optimization.stage");
  assert_null(zr_options_nearest(options, "qqqqqqq"));
  assert_int_equal(set(options, "qqqqqqq", "1"), ZR_ERR_CONFIG);
  assert_string_equal(zr_detail(), "c.yaml:3:5: unknown key 'qqqqqqq'");
  assert_int_equal(set(options, "zero_optimization", "3"), ZR_ERR_CONFIG);
  says("is a block of keys");
  assert_int_equal(set(options, "train_batch_size.x", "3"), ZR_ERR_CONFIG);
  says("'train_batch_size' takes a value, not a block");
  assert_true(zr_options_is_block(options, "optimizer.params"));
  assert_true(zr_options_is_block(options, "flops_profiler"));
  assert_false(zr_options_is_block(options, "run.steps"));
  assert_false(zr_options_is_block(options, "run.st"));
  close_options(options);
}

static void needless_and_refused(void **state) {
  (void)state;
  zr_options_t *options = open_options();
  const char *needless = "zero_optimization.overlap_comm";
  const char *refused = "zero_optimization.zero_quantized_weights";
  assert_int_equal(set(options, needless, "true"), ZR_OK);
  assert_int_equal(set(options, needless, "maybe"), ZR_ERR_CONFIG);
  assert_int_equal(set(options, refused, "False"), ZR_OK);
  assert_int_equal(set(options, refused, "true"), ZR_ERR_UNSUPPORTED);
  says("not built yet");
  assert_int_equal(set(options, "flops_profiler.deep.key", "3"), ZR_OK);
  int64_t row = zr_options_find(options, "flops_profiler.any");
  assert_int_equal(row, N_ROWS - 1);
  assert_int_equal(zr_options_source(options, (size_t)row), ZR_OPTION_FROM_COMMAND_LINE);
  assert_int_equal(zr_options_find(options, "flops_profiler"), -1);
  close_options(options);
}

static void sources_are_ranked(void **state) {
  (void)state;
  zr_options_t *options = open_options();
  assert_int_equal(zr_options_set(options, "run.serial", "true", ZR_OPTION_FROM_FILE, "c:1:1"),
                   ZR_OK);
  assert_int_equal(zr_options_set(options, "serial", "true", ZR_OPTION_FROM_FILE, "c:9:1"),
                   ZR_ERR_CONFIG);
  says("c:9:1: 'serial' is given twice, first at c:1:1");
  assert_int_equal(zr_options_set_pair(options, "run.steps=5", "--set"), ZR_OK);
  assert_int_equal(zr_options_set_pair(options, "run.steps=6", "--set"), ZR_OK);
  assert_int_equal(zr_options_set(options, "run.steps", "7", ZR_OPTION_FROM_FILE, "c:2:1"), ZR_OK);
  assert_int_equal(config.steps, 6);
  assert_int_equal(zr_options_set_pair(options, "run.dir=a=b", "--set"), ZR_OK);
  assert_string_equal(config.dir, "a=b");
  assert_int_equal(zr_options_set_pair(options, "run.dir", "--set"), ZR_ERR_CONFIG);
  assert_int_equal(zr_options_set_pair(options, "=3", "--set"), ZR_ERR_CONFIG);
  close_options(options);
}

static char *printed(const zr_options_t *options, unsigned kinds, bool comments) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  assert_non_null(out);
  if (options) zr_options_print_yaml(options, kinds, comments, out);
  if (!options) zr_options_print_reference(table, N_ROWS, out);
  assert_int_equal(fclose(out), 0);
  return text;
}

static void yaml_output(void **state) {
  (void)state;
  zr_options_t *options = open_options();
  assert_int_equal(set(options, "optimizer.params.lr", "0.1"), ZR_OK);
  assert_int_equal(set(options, "run.dir", "a: \"b\"\n"), ZR_OK);
  assert_int_equal(set(options, "run.name", "12"), ZR_OK);
  assert_int_equal(set(options, "data.train", "[a.bin, x*]"), ZR_OK);
  assert_int_equal(set(options, "memory.device", "1536MiB"), ZR_OK);
  char *text = printed(options, 0, false);
  assert_string_equal(text,
                      "train_batch_size: auto\n"
                      "run:\n"
                      "  steps: 100\n"
                      "  dir: \"a: \\\"b\\\"\\x0a\"\n"
                      "  serial: false\n"
                      "  name: \"12\"\n"
                      "zero_optimization:\n"
                      "  stage: 0\n"
                      "optimizer:\n"
                      "  type: AdamW\n"
                      "  params:\n"
                      "    lr: 0.1\n"
                      "gradient_clipping: 0\n"
                      "bf16:\n"
                      "  enabled: false\n"
                      "memory:\n"
                      "  device: 1536MiB\n"
                      "data:\n"
                      "  train: [a.bin, \"x*\"]\n");
  free(text);
  text = printed(options, 1u << ZR_OPTION_NUMERIC, true);
  assert_string_equal(text,
                      "train_batch_size: auto  # default\n"
                      "optimizer:\n"
                      "  type: AdamW  # default\n"
                      "  params:\n"
                      "    lr: 0.1\n");
  free(text);
  close_options(options);
}

static void reference_output(void **state) {
  (void)state;
  char *text = printed(NULL, 0, false);
  assert_non_null(strstr(text, "## Top level\n"));
  assert_non_null(strstr(text,
                         "| `run.steps` | integer, >= 1, <= 1000000000 | `100` |  | "
                         "updates \\| to make |\n"));
  assert_non_null(strstr(text, "Accepted, of no effect: the plan overlaps"));
  assert_non_null(strstr(text, "(also `serial`)"));
  int headings = 0, rows = 0;
  for (const char *c = text; (c = strstr(c, "\n\n| key")) != NULL; ++c) ++headings;
  for (const char *c = text; (c = strstr(c, "\n| `")) != NULL; ++c) ++rows;
  assert_int_equal(headings, 8);
  assert_int_equal(rows, N_ROWS);
  free(text);
}

static void every_failing_allocation_is_an_error(void **state) {
  (void)state;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  for (int64_t n = 1; status != ZR_OK; ++n) {
    memset(&config, 0, sizeof config);
    zr_alloc_init(&alloc);
    alloc.fail_at = n;
    zr_options_t *options = NULL;
    status = zr_options_create(&alloc, table, N_ROWS, &config, &options);
    if (status == ZR_OK) status = set(options, "data.train", "[a, b, c]");
    if (status == ZR_OK) status = set(options, "run.name", "x");
    if (status != ZR_OK) assert_int_equal(status, ZR_ERR_OUT_OF_MEMORY);
    zr_options_destroy(options);
    assert_int_equal(alloc.live_count, 0);
    assert_null(config.dir);
  }
}

static void a_bad_default_is_a_bug(void **state) {
  (void)state;
  static const zr_option_t bad[] = {
      {.key = "x", .type = ZR_OPTION_INT, AT(steps), .default_text = "0", .min = 1, .max = 2}};
  zr_options_t *options = NULL;
  assert_int_equal(zr_options_create(NULL, bad, 1, &config, &options), ZR_ERR_INTERNAL);
  assert_null(options);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parsers),
      cmocka_unit_test(parse_byte_counts),
      cmocka_unit_test(defaults_and_settings),
      cmocka_unit_test(lists),
      cmocka_unit_test(wrong_values),
      cmocka_unit_test(unknown_keys_and_hints),
      cmocka_unit_test(needless_and_refused),
      cmocka_unit_test(sources_are_ranked),
      cmocka_unit_test(yaml_output),
      cmocka_unit_test(reference_output),
      cmocka_unit_test(every_failing_allocation_is_an_error),
      cmocka_unit_test(a_bad_default_is_a_bug),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
