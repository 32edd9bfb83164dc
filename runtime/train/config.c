#include "runtime/train/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/files.h"
#include "runtime/train/yaml.h"

enum { KEY_BYTES = 256, WHERE_BYTES = 96, MOST_ITEMS = 1024, MOST_FILE_BYTES = 1 << 24 };

typedef struct {
  zr_config_file_t *config;
  const zr_yaml_t *yaml;
  const char *name;
  zr_option_source_t source;
} walk_t;

static void place(const walk_t *walk, const zr_yaml_node_t *node, char where[WHERE_BYTES]) {
  bool has_key = node->key != NULL;
  (void)snprintf(where, WHERE_BYTES, "%s:%d:%d", walk->name, has_key ? node->key_line : node->line,
                 has_key ? node->key_column : node->column);
}

static const char *last_part(const char *key) {
  const char *dot = strrchr(key, '.');
  return dot ? dot + 1 : key;
}

/* The block inside which a block of that name belongs: its characters in *out_key; 0: none. */
static size_t block_of(const char *name, const char **out_key) {
  size_t n_rows, chars = strlen(name);
  const zr_option_t *table = zr_config_table(&n_rows);
  for (size_t row = 0; row < n_rows; ++row) {
    const char *key = table[row].key;
    for (const char *dot = strchr(key, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
      if (strncmp(dot + 1, name, chars) != 0 || dot[1 + chars] != '.') continue;
      *out_key = key;
      return (size_t)(dot - key);
    }
  }
  return 0;
}

/* A key that exists, but in another block. ZR_OK when that is not what is wrong. */
static zr_status_t check_level(const walk_t *walk, const char *key, const char *where) {
  const zr_options_t *options = walk->config->options;
  if (zr_options_find(options, key) >= 0 || zr_options_is_block(options, key)) return ZR_OK;
  const char *last = last_part(key);
  if (last != key && zr_options_is_block(options, last)) {
    return zr_fail(ZR_ERR_CONFIG,
                   "%s: block '%s' is at the wrong level: it belongs at the top level", where,
                   last);
  }
  const char *right = NULL;
  size_t right_chars = block_of(last, &right);
  if (right_chars > 0) {
    return zr_fail(ZR_ERR_CONFIG, "%s: block '%s' is at the wrong level: it belongs under '%.*s'",
                   where, last, (int)right_chars, right);
  }
  const char *nearest = zr_options_nearest(options, key);
  if (nearest == NULL || strcmp(last_part(nearest), last) != 0) return ZR_OK;
  size_t block = (size_t)(last_part(nearest) - nearest);
  if (block == 0) {
    return zr_fail(ZR_ERR_CONFIG, "%s: key '%s' is at the wrong level: it belongs at the top level",
                   where, last);
  }
  return zr_fail(ZR_ERR_CONFIG, "%s: key '%s' is at the wrong level: it belongs under '%.*s'",
                 where, last, (int)block - 1, nearest);
}

static zr_status_t take_list(const walk_t *walk, const char *key, const zr_yaml_node_t *list,
                             const char *where) {
  const char *items[MOST_ITEMS];
  size_t n_items = 0;
  for (int i = list->child; i >= 0; i = walk->yaml->node[i].next) {
    const zr_yaml_node_t *item = &walk->yaml->node[i];
    if (item->kind != ZR_YAML_SCALAR || n_items == MOST_ITEMS) {
      char here[WHERE_BYTES];
      place(walk, item, here);
      return zr_fail(ZR_ERR_CONFIG, "%s: '%s' takes a list of at most %d plain values", here, key,
                     (int)MOST_ITEMS);
    }
    items[n_items++] = item->text;
  }
  return zr_options_set_list(walk->config->options, key, items, n_items, walk->source, where);
}

static bool is_null(const zr_yaml_node_t *node) {
  return !node->quoted && (strcmp(node->text, "") == 0 || strcmp(node->text, "~") == 0 ||
                           strcmp(node->text, "null") == 0 || strcmp(node->text, "Null") == 0 ||
                           strcmp(node->text, "NULL") == 0);
}

/* A key that is known, and not one that takes anything. */
static bool takes_value(const zr_options_t *options, const char *key) {
  size_t n_rows;
  int64_t row = zr_options_find(options, key);
  return row >= 0 && zr_config_table(&n_rows)[row].type != ZR_OPTION_ANY;
}

/* null is "not given" there. */
static bool has_no_default(const zr_options_t *options, const char *key) {
  size_t n_rows;
  int64_t row = zr_options_find(options, key);
  return row >= 0 && zr_config_table(&n_rows)[row].default_text == NULL;
}

/* Newer configurations of Hugging Face have one block of rotary angles: rope_parameters. */
static void canonical(char key[KEY_BYTES]) {
  static const char now[] = "model.rope_parameters", here[] = "model.rope_scaling";
  static const char theta[] = "model.rope_scaling.rope_theta";
  const size_t cut = sizeof now - 1, kept = sizeof here - 1;
  if (strncmp(key, now, cut) == 0 && (key[cut] == '\0' || key[cut] == '.')) {
    memmove(key + kept, key + cut, strlen(key + cut) + 1);
    memcpy(key, here, kept);
  }
  if (strcmp(key, theta) == 0) memcpy(key, "model.rope_theta", sizeof "model.rope_theta");
}

static zr_status_t take_map(const walk_t *walk, const char *prefix, const zr_yaml_node_t *map);

static zr_status_t take_node(const walk_t *walk, const char *key, const zr_yaml_node_t *node) {
  char where[WHERE_BYTES];
  place(walk, node, where);
  zr_options_t *options = walk->config->options;
  ZR_TRY(check_level(walk, key, where));
  bool is_block = zr_options_is_block(options, key);
  switch ((zr_yaml_kind_t)node->kind) {
    case ZR_YAML_MAP:
      if (is_block) return take_map(walk, key, node);
      if (takes_value(options, key)) {
        return zr_fail(ZR_ERR_CONFIG, "%s: '%s' takes a value, not a block", where, key);
      }
      return zr_options_set(options, key, "{...}", walk->source, where);
    case ZR_YAML_LIST:
      return take_list(walk, key, node, where);
    default:
      if (is_null(node) && (is_block || has_no_default(options, key))) return ZR_OK;
      return zr_options_set(options, key, is_null(node) ? NULL : node->text, walk->source, where);
  }
}

static zr_status_t take_map(const walk_t *walk, const char *prefix, const zr_yaml_node_t *map) {
  for (int i = map->child; i >= 0; i = walk->yaml->node[i].next) {
    const zr_yaml_node_t *node = &walk->yaml->node[i];
    char key[KEY_BYTES];
    int used = snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", node->key);
    canonical(key);
    if (used < 0 || used >= KEY_BYTES) {
      char where[WHERE_BYTES];
      place(walk, node, where);
      return zr_fail(ZR_ERR_CONFIG, "%s: a key is longer than %d characters", where,
                     (int)KEY_BYTES - 1);
    }
    ZR_TRY(take_node(walk, key, node));
  }
  return ZR_OK;
}

/* runs/NAME of the file's name without folder and ending. */
static zr_status_t default_dir(zr_config_file_t *config, const char *name) {
  char text[KEY_BYTES];
  const char *slash = strrchr(name, '/');
  (void)snprintf(text, sizeof text, "runs/%s", slash ? slash + 1 : name);
  char *dot = strrchr(text, '.');
  if (dot != NULL && dot > text + strlen("runs/")) *dot = 0;
  return zr_options_set(config->options, "run.dir", text, ZR_OPTION_FROM_DEFAULT, "");
}

static zr_status_t fill(zr_config_file_t *config, const char *name, const char *text,
                        size_t text_bytes) {
  size_t n_rows;
  const zr_option_t *table = zr_config_table(&n_rows);
  ZR_TRY(zr_options_create(config->alloc, table, n_rows, &config->values, &config->options));
  ZR_TRY(default_dir(config, name));
  zr_yaml_t *yaml = NULL;
  ZR_TRY(zr_yaml_parse(config->alloc, name, text, text_bytes, &yaml));
  walk_t walk = {.config = config, .yaml = yaml, .name = name, .source = ZR_OPTION_FROM_FILE};
  zr_status_t status = ZR_OK;
  if (yaml->node[0].kind != ZR_YAML_MAP) {
    status = zr_fail(ZR_ERR_CONFIG, "%s:%d:%d: a configuration is a block of keys, like run: {...}",
                     name, yaml->node[0].line, yaml->node[0].column);
  } else {
    status = take_map(&walk, "", &yaml->node[0]);
  }
  zr_yaml_destroy(yaml);
  return status;
}

zr_status_t zr_config_parse(zr_alloc_t *alloc, const char *name, const char *text,
                            size_t text_bytes, zr_config_file_t **out_config) {
  zr_config_file_t *config = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *config, &config));
  config->alloc = alloc;
  zr_status_t status = fill(config, name, text, text_bytes);
  if (status != ZR_OK) {
    zr_config_destroy(config);
    return status;
  }
  *out_config = config;
  return ZR_OK;
}

/* The whole file; it is small. */
static zr_status_t read_text(zr_alloc_t *alloc, const char *path, FILE *file, char **out_text,
                             size_t *out_bytes) {
  char *text = NULL;
  size_t capacity = 0, used = 0;
  for (;;) {
    zr_status_t status = zr_alloc_grow(alloc, &text, &capacity, used + 4096, 1);
    if (status == ZR_OK && used > MOST_FILE_BYTES) {
      status = zr_fail(ZR_ERR_CONFIG, "%s: larger than a configuration can be", path);
    }
    size_t got = status == ZR_OK ? fread(text + used, 1, capacity - used, file) : 0;
    used += got;
    if (status == ZR_OK && ferror(file)) {
      status = zr_fail(ZR_ERR_CONFIG, "%s: can not be read: %s", path, strerror(errno));
    }
    if (status != ZR_OK) {
      zr_alloc_free(alloc, text);
      return status;
    }
    if (got == 0) break;
  }
  *out_text = text;
  *out_bytes = used;
  return ZR_OK;
}

zr_status_t zr_config_load(zr_alloc_t *alloc, const char *path, zr_config_file_t **out_config) {
  bool is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : fopen(path, "re");
  if (file == NULL) {
    return zr_fail(ZR_ERR_CONFIG, "%s: can not be opened: %s; name a configuration file", path,
                   strerror(errno));
  }
  char *text = NULL;
  size_t bytes = 0;
  zr_status_t status = read_text(alloc, path, file, &text, &bytes);
  if (!is_stdin) (void)fclose(file);
  if (status != ZR_OK) return status;
  status = zr_config_parse(alloc, is_stdin ? "stdin" : path, text, bytes, out_config);
  zr_alloc_free(alloc, text);
  return status;
}

/* The block of a file that has it, or all of a file that is nothing else. */
static zr_status_t take_block(const walk_t *walk, const char *block) {
  const zr_yaml_node_t *root = &walk->yaml->node[0];
  if (root->kind != ZR_YAML_MAP) {
    return zr_fail(ZR_ERR_CONFIG, "%s:%d:%d: is not a block of keys", walk->name, root->line,
                   root->column);
  }
  for (int i = root->child; i >= 0; i = walk->yaml->node[i].next) {
    const zr_yaml_node_t *node = &walk->yaml->node[i];
    if (strcmp(node->key, block) == 0) return take_node(walk, block, node);
  }
  return take_map(walk, block, root);
}

zr_status_t zr_config_load_block(zr_config_file_t *config, const char *block, const char *path) {
  char *text = NULL;
  size_t bytes = 0;
  zr_yaml_t *yaml = NULL;
  ZR_TRY(zr_files_read_text(config->alloc, path, &text, &bytes));
  zr_status_t status = zr_yaml_parse(config->alloc, path, text, bytes, &yaml);
  zr_alloc_free(config->alloc, text);
  if (status != ZR_OK) return status;
  walk_t walk = {
      .config = config, .yaml = yaml, .name = path, .source = ZR_OPTION_FROM_COMMAND_LINE};
  status = take_block(&walk, block);
  zr_yaml_destroy(yaml);
  return status;
}

void zr_config_destroy(zr_config_file_t *config) {
  if (config == NULL) return;
  zr_options_destroy(config->options);
  zr_alloc_free(config->alloc, config);
}

zr_status_t zr_config_set(zr_config_file_t *config, const char *pair) {
  char key[KEY_BYTES];
  const char *equals = strchr(pair, '=');
  if (equals != NULL && (size_t)(equals - pair) < sizeof key) {
    (void)snprintf(key, sizeof key, "%.*s", (int)(equals - pair), pair);
    walk_t walk = {.config = config};
    ZR_TRY(check_level(&walk, key, "--set"));
    if (strcmp(equals + 1, "null") == 0) {
      return zr_options_set(config->options, key, NULL, ZR_OPTION_FROM_COMMAND_LINE, "--set");
    }
  }
  return zr_options_set_pair(config->options, pair, "--set");
}

void zr_config_needless(const zr_config_file_t *config, zr_config_needless_fn_t fn, void *context) {
  size_t n_rows;
  const zr_option_t *table = zr_config_table(&n_rows);
  for (size_t row = 0; row < n_rows; ++row) {
    if (table[row].support == ZR_OPTION_NEEDLESS &&
        zr_options_source(config->options, row) != ZR_OPTION_FROM_DEFAULT) {
      fn(context, table[row].key, table[row].reason);
    }
  }
  const zr_config_t *v = &config->values;
  static const char *const scale_keys[] = {"fp16.loss_scale",        "fp16.initial_scale_power",
                                           "fp16.loss_scale_window", "fp16.hysteresis",
                                           "fp16.min_loss_scale",    "fp16.consecutive_hysteresis"};
  for (size_t i = 0; !v->fp16 && i < sizeof scale_keys / sizeof scale_keys[0]; ++i) {
    int64_t row = zr_options_find(config->options, scale_keys[i]);
    if (zr_options_source(config->options, (size_t)row) != ZR_OPTION_FROM_DEFAULT) {
      fn(context, scale_keys[i], "fp16 is off");
    }
  }
  zr_config_homes_needless(config, fn, context);
  zr_config_schedule_needless(config, fn, context);
}

void zr_config_print(const zr_config_file_t *config, FILE *out) {
  zr_options_print_yaml(config->options, 0, true, out);
}

zr_status_t zr_config_numeric_text(const zr_config_file_t *config, char **out_text) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  if (file == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for the options' text");
  zr_options_print_yaml(config->options, 1u << ZR_OPTION_NUMERIC, false, file);
  int failed = fclose(file);
  zr_status_t status = failed ? zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for the options' text")
                              : zr_alloc_strdup(config->alloc, text, out_text);
  zr_files_release(text);
  return status;
}
