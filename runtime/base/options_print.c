/* The configuration as YAML, and the reference page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/options.h"
#include "runtime/base/options_private.h"

/* --- values ---------------------------------------------------------------------------------- */

/* Plain where YAML reads the same text back as a string, else in double quotes. */
static void print_string(const char *text, FILE *out) {
  int unused;
  int64_t integer;
  double real;
  static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+";
  bool is_plain = *text && text[strspn(text, safe)] == 0 && !strchr("-+.", text[0]) &&
                  !zr_parse_bool(text, &unused) && !zr_parse_int(text, &integer) &&
                  !zr_parse_double(text, &real) && strcmp(text, "null") != 0;
  if (is_plain) {
    (void)fputs(text, out);
    return;
  }
  (void)fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c; ++c) {
    if (*c == '"' || *c == '\\') (void)fputc('\\', out);
    if (*c < 0x20) {
      (void)fprintf(out, "\\x%02x", *c);
    } else {
      (void)fputc(*c, out);
    }
  }
  (void)fputc('"', out);
}

/* The shortest form that reads back to the same double; 600, not 6e+02. */
static void print_double(double value, FILE *out) {
  char text[40];
  if (isnan(value)) {
    (void)fputs("auto", out);
    return;
  }
  for (int digits = 1; digits <= 17; ++digits) {
    (void)snprintf(text, sizeof text, "%.*g", digits, value);
    bool plain = !strchr(text, 'e') || fabs(value) >= 1e15 || fabs(value) < 1e-4;
    if (plain && strtod(text, NULL) == value) break;
  }
  (void)fputs(text, out);
}

static void print_bytes(const zr_option_bytes_t *value, FILE *out) {
  static const char *const units[] = {"PiB", "TiB", "GiB", "MiB", "KiB"};
  if (value->share > 0) {
    print_double(value->share * 100, out);
    (void)fputc('%', out);
    return;
  }
  if (value->bytes < 0) {
    (void)fputs("auto", out);
    return;
  }
  for (int i = 0; i < 5; ++i) {
    int64_t unit = (int64_t)1 << (50 - 10 * i);
    if (value->bytes >= unit && value->bytes % unit == 0) {
      (void)fprintf(out, "%lld%s", (long long)(value->bytes / unit), units[i]);
      return;
    }
  }
  (void)fprintf(out, "%lld", (long long)value->bytes);
}

static void print_list(const zr_option_list_t *list, FILE *out) {
  (void)fputc('[', out);
  for (size_t i = 0; i < list->n_items; ++i) {
    if (i > 0) (void)fputs(", ", out);
    print_string(list->items[i], out);
  }
  (void)fputc(']', out);
}

static void print_value(const zr_options_t *options, size_t row, FILE *out) {
  const zr_option_t *option = &options->table[row];
  const void *field = zr_option_field(options, row);
  bool is_given = option->default_text || options->state[row].source != ZR_OPTION_FROM_DEFAULT;
  if (!is_given || (option->type == ZR_OPTION_STRING && !*(char *const *)field)) {
    (void)fputs("null", out);
    return;
  }
  switch (option->type) {
    case ZR_OPTION_BOOL: {
      int value = *(const int *)field;
      (void)fputs(value == ZR_OPTION_AUTO_BOOL ? "auto" : value ? "true" : "false", out);
      break;
    }
    case ZR_OPTION_INT: {
      int64_t value = *(const int64_t *)field;
      if (value == ZR_OPTION_AUTO_INT) {
        (void)fputs("auto", out);
      } else {
        (void)fprintf(out, "%lld", (long long)value);
      }
      break;
    }
    case ZR_OPTION_DOUBLE:
      print_double(*(const double *)field, out);
      break;
    case ZR_OPTION_STRING:
      print_string(*(char *const *)field, out);
      break;
    case ZR_OPTION_ENUM:
      (void)fputs(option->names[*(const int *)field], out);
      break;
    case ZR_OPTION_BYTES:
      print_bytes(field, out);
      break;
    case ZR_OPTION_LIST:
      print_list(field, out);
      break;
    default:
      break;
  }
}

/* --- YAML ------------------------------------------------------------------------------------ */

static bool is_printed(const zr_options_t *options, size_t row, unsigned kinds) {
  const zr_option_t *option = &options->table[row];
  return zr_option_has_field(option) && !zr_option_pattern_chars(option->key) &&
         (kinds == 0 || (kinds & (1u << option->kind)));
}

/* True when an earlier printed row has the same first `chars` characters: its block is out. */
static bool block_is_out(const zr_options_t *options, size_t row, size_t chars, unsigned kinds) {
  for (size_t i = 0; i < row; ++i) {
    if (is_printed(options, i, kinds) &&
        strncmp(options->table[i].key, options->table[row].key, chars) == 0) {
      return true;
    }
  }
  return false;
}

/* All rows whose key begins with the first `prefix_chars` of `prefix`; a block where its first row
 * is, whatever the order of the table. */
static void print_block(const zr_options_t *options, const char *prefix, size_t prefix_chars,
                        int depth, unsigned kinds, bool comments, FILE *out) {
  for (size_t row = 0; row < options->n_rows; ++row) {
    const char *key = options->table[row].key;
    if (!is_printed(options, row, kinds) || strncmp(key, prefix, prefix_chars) != 0) continue;
    const char *dot = strchr(key + prefix_chars, '.');
    size_t chars = dot ? (size_t)(dot - key) + 1 : strlen(key);
    if (dot && block_is_out(options, row, chars, kinds)) continue;
    (void)fprintf(out, "%*s%.*s:", 2 * depth, "", (int)(chars - prefix_chars - (dot ? 1 : 0)),
                  key + prefix_chars);
    if (dot) {
      (void)fputc('\n', out);
      print_block(options, key, chars, depth + 1, kinds, comments, out);
      continue;
    }
    (void)fputc(' ', out);
    print_value(options, row, out);
    bool is_default = options->state[row].source == ZR_OPTION_FROM_DEFAULT;
    (void)fputs(comments && is_default ? "  # default\n" : "\n", out);
  }
}

void zr_options_print_yaml(const zr_options_t *options, unsigned kinds, bool comments, FILE *out) {
  print_block(options, "", 0, 0, kinds, comments, out);
}

/* --- reference ------------------------------------------------------------------------------- */

static size_t block_chars(const char *key) {
  const char *dot = strchr(key, '.');
  return dot ? (size_t)(dot - key) : 0;
}

/* Text inside a table cell. */
static void print_cell(const char *text, FILE *out) {
  for (; *text; ++text) {
    if (*text == '|') (void)fputc('\\', out);
    (void)fputc(*text, out);
  }
}

static void print_form(const zr_option_t *option, FILE *out) {
  static const char *const types[] = {
      [ZR_OPTION_BOOL] = "true, false", [ZR_OPTION_INT] = "integer", [ZR_OPTION_DOUBLE] = "number",
      [ZR_OPTION_STRING] = "text",      [ZR_OPTION_ENUM] = "",       [ZR_OPTION_BYTES] = "size",
      [ZR_OPTION_LIST] = "list",        [ZR_OPTION_ANY] = "anything"};
  (void)fputs(types[option->type], out);
  for (int i = 0; option->type == ZR_OPTION_ENUM && option->names[i]; ++i) {
    (void)fprintf(out, "%s`%s`", i ? ", " : "", option->names[i]);
  }
  bool is_number = option->type == ZR_OPTION_INT || option->type == ZR_OPTION_DOUBLE ||
                   option->type == ZR_OPTION_BYTES;
  if (is_number && (option->min != 0 || option->max != 0)) {
    if (isfinite(option->min)) (void)fprintf(out, ", >= %.15g", option->min);
    if (isfinite(option->max)) (void)fprintf(out, ", <= %.15g", option->max);
  }
  if (option->may_be_auto) (void)fputs(", `auto`", out);
}

static void print_reference_row(const zr_option_t *option, FILE *out) {
  static const char *const kinds[ZR_OPTION_N_KINDS] = {
      [ZR_OPTION_RUN] = "", [ZR_OPTION_NUMERIC] = "numeric", [ZR_OPTION_SCHEDULE] = "schedule"};
  (void)fprintf(out, "| `%s` | ", option->key);
  print_form(option, out);
  (void)fprintf(out, " | %s%s%s | %s | ", option->default_text ? "`" : "",
                option->default_text ? option->default_text : "", option->default_text ? "`" : "",
                kinds[option->kind]);
  print_cell(option->help ? option->help : "", out);
  if (option->alias) (void)fprintf(out, " (also `%s`)", option->alias);
  if (option->support != ZR_OPTION_HONOURED) {
    (void)fputs(option->support == ZR_OPTION_NEEDLESS ? ". Accepted, of no effect: "
                                                      : ". Refused for now: ",
                out);
    print_cell(option->reason ? option->reason : "", out);
  }
  (void)fputs(" |\n", out);
}

void zr_options_print_reference(const zr_option_t *table, size_t n_rows, FILE *out) {
  for (size_t first = 0; first < n_rows; ++first) {
    size_t chars = block_chars(table[first].key);
    bool is_out = false;
    for (size_t i = 0; i < first; ++i) {
      is_out = is_out || (block_chars(table[i].key) == chars &&
                          strncmp(table[i].key, table[first].key, chars) == 0);
    }
    if (is_out) continue;
    (void)fprintf(out,
                  "## %.*s\n\n| key | value | default | kind | meaning |\n|---|---|---|---|---|\n",
                  chars ? (int)chars : 9, chars ? table[first].key : "Top level");
    for (size_t row = first; row < n_rows; ++row) {
      if (block_chars(table[row].key) == chars &&
          strncmp(table[row].key, table[first].key, chars) == 0) {
        print_reference_row(&table[row], out);
      }
    }
    (void)fputc('\n', out);
  }
}
