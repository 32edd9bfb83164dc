#include "runtime/base/options.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/options_private.h"

/* A value of any type on its way to its field. Strings are still the caller's. */
typedef struct {
  int boolean, choice;
  int64_t integer;
  double real;
  zr_option_bytes_t bytes;
  const char *text;
  const char *const *items;
  size_t n_items;
} value_t;

/* --- finding a key --------------------------------------------------------------------------- */

size_t zr_option_pattern_chars(const char *key) {
  size_t chars = strlen(key);
  return chars > 2 && strcmp(key + chars - 2, ".*") == 0 ? chars - 1 : 0;
}

int64_t zr_options_find(const zr_options_t *options, const char *key) {
  int64_t pattern_row = -1;
  for (size_t row = 0; row < options->n_rows; ++row) {
    const zr_option_t *option = &options->table[row];
    size_t pattern = zr_option_pattern_chars(option->key);
    if (strcmp(option->key, key) == 0 && !pattern) return (int64_t)row;
    if (option->alias && strcmp(option->alias, key) == 0) return (int64_t)row;
    if (pattern && strncmp(option->key, key, pattern) == 0 && key[pattern]) {
      pattern_row = (int64_t)row;
    }
  }
  return pattern_row;
}

bool zr_options_is_block(const zr_options_t *options, const char *key) {
  size_t chars = strlen(key);
  for (size_t row = 0; row < options->n_rows; ++row) {
    const char *name = options->table[row].key, *alias = options->table[row].alias;
    if (strncmp(name, key, chars) == 0 && name[chars] == '.') return true;
    if (alias && strncmp(alias, key, chars) == 0 && alias[chars] == '.') return true;
  }
  return false;
}

/* Levenshtein's distance; longer words than fit here are not typing mistakes. */
static int edit_distance(const char *a, const char *b) {
  enum { MOST_CHARS = 96 };
  int distance[MOST_CHARS + 1];
  size_t n_a = strlen(a), n_b = strlen(b);
  if (n_a > MOST_CHARS || n_b > MOST_CHARS) return MOST_CHARS;
  for (size_t j = 0; j <= n_b; ++j) distance[j] = (int)j;
  for (size_t i = 1; i <= n_a; ++i) {
    int diagonal = distance[0];
    distance[0] = (int)i;
    for (size_t j = 1; j <= n_b; ++j) {
      int best = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = distance[j];
      if (distance[j - 1] + 1 < best) best = distance[j - 1] + 1;
      if (diagonal + 1 < best) best = diagonal + 1;
      distance[j] = best;
    }
  }
  return distance[n_b];
}

static const char *last_component(const char *key) {
  const char *dot = strrchr(key, '.');
  return dot ? dot + 1 : key;
}

static size_t common_chars(const char *a, const char *b) {
  size_t chars = 0;
  while (a[chars] && a[chars] == b[chars]) ++chars;
  return chars;
}

/* The same last component in another block: in one that begins as `key` does, if there is one. */
static const char *elsewhere(const zr_options_t *options, const char *key) {
  const char *best = NULL;
  for (size_t row = 0; row < options->n_rows; ++row) {
    const char *known = options->table[row].key;
    if (zr_option_pattern_chars(known)) continue;
    if (strcmp(last_component(known), last_component(key)) != 0) continue;
    if (best == NULL || common_chars(known, key) > common_chars(best, key)) best = known;
  }
  return best;
}

const char *zr_options_nearest(const zr_options_t *options, const char *key) {
  const char *best = elsewhere(options, key);
  if (best != NULL) return best;
  int best_distance = (int)strlen(key) / 3;
  for (size_t row = 0; row < options->n_rows; ++row) {
    const char *known = options->table[row].key;
    if (zr_option_pattern_chars(known)) continue;
    int distance = edit_distance(key, known);
    if (distance < best_distance || (distance == best_distance && !best)) {
      best = known;
      best_distance = distance;
    }
  }
  if (best) return best;
  best_distance = (int)strlen(last_component(key)) / 3;
  for (size_t row = 0; row < options->n_rows; ++row) {
    const char *known = options->table[row].key;
    if (zr_option_pattern_chars(known)) continue;
    int distance = edit_distance(last_component(key), last_component(known));
    if (distance < best_distance || (distance == best_distance && !best)) {
      best = known;
      best_distance = distance;
    }
  }
  return best;
}

static zr_status_t unknown_key(const zr_options_t *options, const char *key, const char *where) {
  const char *dot = strrchr(key, '.');
  if (zr_options_is_block(options, key)) {
    return zr_fail(ZR_ERR_CONFIG, "%s: '%s' is a block of keys, not a value", where, key);
  }
  for (size_t row = 0; dot && row < options->n_rows; ++row) {
    const char *known = options->table[row].key;
    if (strlen(known) == (size_t)(dot - key) && strncmp(known, key, strlen(known)) == 0) {
      return zr_fail(ZR_ERR_CONFIG, "%s: '%s' takes a value, not a block with '%s'", where, known,
                     dot + 1);
    }
  }
  const char *nearest = zr_options_nearest(options, key);
  return nearest ? zr_fail(ZR_ERR_CONFIG, "%s: unknown key '%s'; did you mean '%s'?", where, key,
                           nearest)
                 : zr_fail(ZR_ERR_CONFIG, "%s: unknown key '%s'", where, key);
}

/* --- from text to a value -------------------------------------------------------------------- */

static bool is_limited(const zr_option_t *option) {
  return option->min != 0 || option->max != 0;
}

static bool in_range(const zr_option_t *option, double value) {
  return !is_limited(option) || (value >= option->min && value <= option->max);
}

static bool parse_choice(const zr_option_t *option, const char *text, int *out_choice) {
  for (int i = 0; option->names[i]; ++i) {
    if ((option->is_exact ? strcmp : strcasecmp)(option->names[i], text) == 0) {
      *out_choice = i;
      return true;
    }
  }
  return false;
}

/* false: not one of the option's type. */
static bool parse_value(const zr_option_t *option, const char *text, value_t *value) {
  bool is_auto = option->may_be_auto && strcmp(text, "auto") == 0;
  switch (option->type) {
    case ZR_OPTION_BOOL:
      if (is_auto) value->boolean = ZR_OPTION_AUTO_BOOL;
      return is_auto || zr_parse_bool(text, &value->boolean);
    case ZR_OPTION_INT:
      if (is_auto) value->integer = ZR_OPTION_AUTO_INT;
      return is_auto ||
             (zr_parse_int(text, &value->integer) && value->integer != ZR_OPTION_AUTO_INT);
    case ZR_OPTION_DOUBLE:
      if (is_auto) value->real = (double)NAN;
      return is_auto || zr_parse_double(text, &value->real);
    case ZR_OPTION_ENUM:
      return parse_choice(option, text, &value->choice);
    case ZR_OPTION_BYTES:
      return (is_auto || strcmp(text, "auto") != 0) && zr_parse_bytes(text, &value->bytes);
    default:
      value->text = text;
      return true;
  }
}

static bool value_in_range(const zr_option_t *option, const value_t *value) {
  switch (option->type) {
    case ZR_OPTION_INT:
      return value->integer == ZR_OPTION_AUTO_INT || in_range(option, (double)value->integer);
    case ZR_OPTION_DOUBLE:
      return isnan(value->real) || in_range(option, value->real);
    case ZR_OPTION_BYTES:
      if (value->bytes.bytes < 0 && (value->bytes.share > 0 || option->may_be_auto)) return true;
      return value->bytes.bytes >= 0 && in_range(option, (double)value->bytes.bytes);
    default:
      return true;
  }
}

static void add_text(char *out, size_t out_bytes, const char *text) {
  size_t used = strlen(out);
  if (used + 1 < out_bytes) (void)snprintf(out + used, out_bytes - used, "%s", text);
}

/* "an integer from 1 to 64, or auto" */
static void describe_form(const zr_option_t *option, char *out, size_t out_bytes) {
  static const char *const forms[] = {
      [ZR_OPTION_BOOL] = "true or false", [ZR_OPTION_INT] = "an integer",
      [ZR_OPTION_DOUBLE] = "a number",    [ZR_OPTION_STRING] = "a text",
      [ZR_OPTION_ENUM] = "one of",        [ZR_OPTION_BYTES] = "a size like 24GiB, 500MB or 80%",
      [ZR_OPTION_LIST] = "a list",        [ZR_OPTION_ANY] = "anything"};
  (void)snprintf(out, out_bytes, "%s", forms[option->type]);
  for (int i = 0; option->type == ZR_OPTION_ENUM && option->names[i]; ++i) {
    add_text(out, out_bytes, i == 0 ? " " : ", ");
    add_text(out, out_bytes, option->names[i]);
  }
  bool is_number = option->type == ZR_OPTION_INT || option->type == ZR_OPTION_DOUBLE ||
                   option->type == ZR_OPTION_BYTES;
  char range[80] = "";
  if (is_number && is_limited(option)) {
    if (isinf(option->max)) {
      (void)snprintf(range, sizeof range, " of at least %.15g", option->min);
    } else if (isinf(option->min)) {
      (void)snprintf(range, sizeof range, " of at most %.15g", option->max);
    } else {
      (void)snprintf(range, sizeof range, " from %.15g to %.15g", option->min, option->max);
    }
  }
  add_text(out, out_bytes, range);
  if (option->may_be_auto) add_text(out, out_bytes, ", or auto");
}

static zr_status_t wrong_value(const zr_option_t *option, const char *key, const char *text,
                               const char *where) {
  char form[256];
  describe_form(option, form, sizeof form);
  return zr_fail(ZR_ERR_CONFIG, "%s: '%s' must be %s, not '%.80s'", where, key, form, text);
}

/* --- from a value to its field --------------------------------------------------------------- */

static void free_list(zr_options_t *options, zr_option_list_t *list) {
  for (size_t i = 0; i < list->n_items; ++i) zr_alloc_free(options->alloc, list->items[i]);
  zr_alloc_free(options->alloc, list->items);
  *list = (zr_option_list_t){0};
}

static zr_status_t copy_list(zr_options_t *options, const value_t *value, zr_option_list_t *out) {
  zr_option_list_t list = {0};
  zr_status_t status =
      zr_alloc_get(options->alloc, value->n_items, sizeof *list.items, &list.items);
  for (size_t i = 0; status == ZR_OK && i < value->n_items; ++i) {
    status = zr_alloc_strdup(options->alloc, value->items[i], &list.items[i]);
    if (status == ZR_OK) list.n_items = i + 1;
  }
  if (status != ZR_OK) {
    free_list(options, &list);
    return status;
  }
  *out = list;
  return ZR_OK;
}

static zr_status_t store(zr_options_t *options, size_t row, const value_t *value) {
  void *field = zr_option_field(options, row);
  switch (options->table[row].type) {
    case ZR_OPTION_BOOL:
      *(int *)field = value->boolean;
      return ZR_OK;
    case ZR_OPTION_INT:
      *(int64_t *)field = value->integer;
      return ZR_OK;
    case ZR_OPTION_DOUBLE:
      *(double *)field = value->real;
      return ZR_OK;
    case ZR_OPTION_ENUM:
      *(int *)field = value->choice;
      return ZR_OK;
    case ZR_OPTION_BYTES:
      *(zr_option_bytes_t *)field = value->bytes;
      return ZR_OK;
    case ZR_OPTION_STRING: {
      char *copy = NULL;
      if (value->text) ZR_TRY(zr_alloc_strdup(options->alloc, value->text, &copy));
      zr_alloc_free(options->alloc, *(char **)field);
      *(char **)field = copy;
      return ZR_OK;
    }
    case ZR_OPTION_LIST: {
      zr_option_list_t list;
      ZR_TRY(copy_list(options, value, &list));
      free_list(options, field);
      *(zr_option_list_t *)field = list;
      return ZR_OK;
    }
    default:
      return ZR_OK;
  }
}

/* A refused option may be given with the value it has anyway. */
static bool is_default(const zr_option_t *option, const char *text, const value_t *value) {
  value_t standard = {0};
  if (!option->default_text || !parse_value(option, option->default_text, &standard)) return false;
  switch (option->type) {
    case ZR_OPTION_BOOL:
      return value->boolean == standard.boolean;
    case ZR_OPTION_INT:
      return value->integer == standard.integer;
    case ZR_OPTION_DOUBLE:
      return value->real == standard.real;
    case ZR_OPTION_ENUM:
      return value->choice == standard.choice;
    case ZR_OPTION_BYTES:
      return value->bytes.bytes == standard.bytes.bytes &&
             value->bytes.share == standard.bytes.share;
    default:
      return text && strcmp(text, option->default_text) == 0;
  }
}

static zr_status_t check_source(const zr_options_t *options, size_t row, const char *key,
                                zr_option_source_t source, const char *where) {
  const zr_option_state_t *state = &options->state[row];
  if (zr_option_pattern_chars(options->table[row].key)) return ZR_OK;
  if (source != ZR_OPTION_FROM_FILE || state->source != source) return ZR_OK;
  return zr_fail(ZR_ERR_CONFIG, "%s: '%s' is given twice, first at %s", where, key, state->where);
}

static void note_source(zr_options_t *options, size_t row, zr_option_source_t source,
                        const char *where) {
  zr_option_state_t *state = &options->state[row];
  state->source = source;
  (void)snprintf(state->where, sizeof state->where, "%s", where);
}

static bool outranked(const zr_options_t *options, size_t row, zr_option_source_t source) {
  return source < options->state[row].source;
}

/* --- setting --------------------------------------------------------------------------------- */

static zr_status_t set_items(zr_options_t *options, size_t row, const char *const *items,
                             size_t n_items) {
  value_t value = {.items = items, .n_items = n_items};
  return zr_option_has_field(&options->table[row]) ? store(options, row, &value) : ZR_OK;
}

/* "[a, b]": cuts the copy in place. */
static zr_status_t set_flow_list(zr_options_t *options, size_t row, const char *text) {
  enum { MOST_ITEMS = 256 };
  size_t chars = strlen(text), n_items = 0;
  const char *items[MOST_ITEMS];
  if (chars < 2 || text[0] != '[' || text[chars - 1] != ']') {
    return set_items(options, row, &text, 1);
  }
  char *copy = NULL, *rest = NULL;
  ZR_TRY(zr_alloc_strdup(options->alloc, text + 1, &copy));
  copy[chars - 2] = 0;
  for (char *item = strtok_r(copy, ",", &rest); item && n_items < MOST_ITEMS;
       item = strtok_r(NULL, ",", &rest)) {
    item += strspn(item, " \t\"'");
    size_t used = strlen(item);
    while (used > 0 && strchr(" \t\"'", item[used - 1])) item[--used] = 0;
    if (used > 0) items[n_items++] = item;
  }
  zr_status_t status = set_items(options, row, items, n_items);
  zr_alloc_free(options->alloc, copy);
  return status;
}

static zr_status_t set_parsed(zr_options_t *options, size_t row, const char *key, const char *text,
                              const char *where) {
  const zr_option_t *option = &options->table[row];
  value_t value = {0};
  if (text && (!parse_value(option, text, &value) || !value_in_range(option, &value))) {
    return wrong_value(option, key, text, where);
  }
  if (option->support == ZR_OPTION_REFUSED && text && !is_default(option, text, &value)) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "%s: '%s: %.80s' is not possible: %s", where, key, text,
                   option->reason ? option->reason : "not built yet");
  }
  if (!zr_option_has_field(option)) return ZR_OK;
  if (!text) {
    return store(options, row, &value); /* zero bytes: not given */
  }
  if (option->type == ZR_OPTION_LIST) return set_flow_list(options, row, text);
  return store(options, row, &value);
}

zr_status_t zr_options_set(zr_options_t *options, const char *key, const char *text,
                           zr_option_source_t source, const char *where) {
  int64_t found = zr_options_find(options, key);
  if (found < 0) return unknown_key(options, key, where);
  size_t row = (size_t)found;
  ZR_TRY(check_source(options, row, key, source, where));
  if (outranked(options, row, source)) return ZR_OK;
  if (text == NULL) text = options->table[row].is_exact ? "null" : options->table[row].default_text;
  ZR_TRY(set_parsed(options, row, key, text, where));
  note_source(options, row, source, where);
  return ZR_OK;
}

zr_status_t zr_options_set_list(zr_options_t *options, const char *key, const char *const *items,
                                size_t n_items, zr_option_source_t source, const char *where) {
  int64_t found = zr_options_find(options, key);
  if (found < 0) return unknown_key(options, key, where);
  size_t row = (size_t)found;
  const zr_option_t *option = &options->table[row];
  if (option->type != ZR_OPTION_LIST && option->type != ZR_OPTION_ANY) {
    return wrong_value(option, key, "a list", where);
  }
  ZR_TRY(check_source(options, row, key, source, where));
  if (option->support == ZR_OPTION_REFUSED) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "%s: '%s' is not possible: %s", where, key,
                   option->reason ? option->reason : "not built yet");
  }
  if (outranked(options, row, source)) return ZR_OK;
  ZR_TRY(set_items(options, row, items, n_items));
  note_source(options, row, source, where);
  return ZR_OK;
}

zr_status_t zr_options_set_pair(zr_options_t *options, const char *pair, const char *where) {
  const char *equals = strchr(pair, '=');
  if (!equals || equals == pair) {
    return zr_fail(ZR_ERR_CONFIG, "%s: '%.80s' is not of the form key=value", where, pair);
  }
  char *key = NULL;
  ZR_TRY(zr_alloc_strdup(options->alloc, pair, &key));
  key[equals - pair] = 0;
  zr_status_t status = zr_options_set(options, key, equals + 1, ZR_OPTION_FROM_COMMAND_LINE, where);
  zr_alloc_free(options->alloc, key);
  return status;
}

/* --- the object ------------------------------------------------------------------------------ */

static zr_status_t set_defaults(zr_options_t *options) {
  for (size_t row = 0; row < options->n_rows; ++row) {
    const zr_option_t *option = &options->table[row];
    if (!option->default_text || !zr_option_has_field(option)) continue;
    zr_status_t status = set_parsed(options, row, option->key, option->default_text, "default");
    if (status == ZR_ERR_CONFIG) return zr_fail(ZR_ERR_INTERNAL, "%s", zr_detail());
    ZR_TRY(status);
  }
  return ZR_OK;
}

zr_status_t zr_options_create(zr_alloc_t *alloc, const zr_option_t *table, size_t n_rows,
                              void *values, zr_options_t **out_options) {
  zr_options_t *options = NULL;
  zr_status_t status = zr_alloc_get(alloc, 1, sizeof *options, &options);
  if (status != ZR_OK) goto fail;
  *options = (zr_options_t){.alloc = alloc, .table = table, .n_rows = n_rows, .values = values};
  status = zr_alloc_get(alloc, n_rows, sizeof *options->state, &options->state);
  if (status != ZR_OK) goto fail;
  status = set_defaults(options);
  if (status != ZR_OK) goto fail;
  *out_options = options;
  return ZR_OK;
fail:
  zr_options_destroy(options);
  return status;
}

void zr_options_destroy(zr_options_t *options) {
  if (!options) return;
  for (size_t row = 0; row < options->n_rows; ++row) {
    if (!zr_option_has_field(&options->table[row])) continue;
    void *field = zr_option_field(options, row);
    if (options->table[row].type == ZR_OPTION_LIST) free_list(options, field);
    if (options->table[row].type == ZR_OPTION_STRING) {
      zr_alloc_free(options->alloc, *(char **)field);
      *(char **)field = NULL;
    }
  }
  zr_alloc_free(options->alloc, options->state);
  zr_alloc_free(options->alloc, options);
}

zr_option_source_t zr_options_source(const zr_options_t *options, size_t row) {
  return options->state[row].source;
}

const char *zr_options_where(const zr_options_t *options, size_t row) {
  return options->state[row].where;
}

zr_status_t zr_options_complain(const zr_options_t *options, const char *key, const char *format,
                                ...) {
  char text[ZR_DETAIL_BYTES];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  int64_t row = zr_options_find(options, key);
  const char *where = row >= 0 ? options->state[row].where : "";
  return zr_fail(ZR_ERR_CONFIG, "%s%s'%s' %s", where, *where ? ": " : "", key, text);
}
