/* The numbers of a run: a table for people, JSON for machines. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "bench/zerobench/bench.h"

enum { TEXT_BYTES = 512 };

void zr_bench_say(const zr_bench_t *b, const char *format, ...) {
  if (b->rank != 0) return;
  char text[TEXT_BYTES];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  (void)fprintf(stderr, "zerobench: %s: %s\n", b->command, text);
}

static zr_status_t kept(int result) {
  return result == 0 ? ZR_OK : zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for the report");
}

static json_t *real_or_null(double value) {
  return isfinite(value) && value != 0 ? json_real(value) : json_null();
}

zr_status_t zr_bench_row(zr_bench_t *b, const zr_bench_row_t *row) {
  const char *of = row->ceiling_of;
  json_t *json = json_pack(
      "{s:s, s:o, s:o, s:s, s:o, s:o, s:o}", "what", row->what, "seconds",
      real_or_null(row->seconds), "value", real_or_null(row->value), "unit", row->unit, "ceiling",
      real_or_null(row->ceiling), "ceiling_of", of == NULL ? json_null() : json_string(of), "ratio",
      row->ceiling > 0 ? real_or_null(row->value / row->ceiling) : json_null());
  if (json == NULL) return kept(-1);
  if (row->count > 0) (void)json_object_set_new(json, "count", json_integer(row->count));
  if (row->share > 0) (void)json_object_set_new(json, "share", json_real(row->share));
  return kept(json_array_append_new(b->rows, json));
}

zr_status_t zr_bench_fact(zr_bench_t *b, const char *name, double value) {
  return kept(json_object_set_new(b->facts, name, real_or_null(value)));
}

zr_status_t zr_bench_note(zr_bench_t *b, const char *format, ...) {
  char text[TEXT_BYTES];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return kept(json_array_append_new(b->notes, json_string(text)));
}

/* --- the machine ----------------------------------------------------------------------------- */

/* "AMD EPYC, family 25 model 1" from /proc/cpuinfo; "unknown" elsewhere. */
static void processor(char *out_text, size_t bytes) {
  char line[256], name[128] = "unknown";
  int family = -1, model = -1;
  FILE *file = fopen("/proc/cpuinfo", "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != '\n') {
    (void)sscanf(line, "model name : %127[^\n]", name);
    (void)sscanf(line, "cpu family : %d", &family);
    (void)sscanf(line, "model : %d", &model);
  }
  if (file != NULL) (void)fclose(file);
  if (family < 0) {
    (void)snprintf(out_text, bytes, "%s", name);
  } else {
    (void)snprintf(out_text, bytes, "%s, family %d model %d", name, family, model);
  }
}

/* --- for people ------------------------------------------------------------------------------ */

static double number(const json_t *row, const char *key) {
  return json_number_value(json_object_get(row, key));
}

static bool any(const zr_bench_t *b, const char *key) {
  for (size_t i = 0; i < json_array_size(b->rows); i++) {
    if (json_object_get(json_array_get(b->rows, i), key) != NULL) return true;
  }
  return false;
}

/* Of the column of names. */
static int find_width(const zr_bench_t *b) {
  size_t width = 34;
  for (size_t i = 0; i < json_array_size(b->rows); i++) {
    const json_t *what = json_object_get(json_array_get(b->rows, i), "what");
    if (json_string_length(what) > width) width = json_string_length(what);
  }
  return (int)width;
}

static void print_row(const json_t *row, int width, bool counts, bool shares, FILE *out) {
  const json_t *of = json_object_get(row, "ceiling_of");
  (void)fprintf(out, "%-*s", width, json_string_value(json_object_get(row, "what")));
  if (counts) (void)fprintf(out, " %5.0f", number(row, "count"));
  (void)fprintf(out, " %10.3f", 1e3 * number(row, "seconds"));
  if (shares) (void)fprintf(out, " %5.1f%%", 100 * number(row, "share"));
  (void)fprintf(out, " %9.2f %-5s", number(row, "value"),
                json_string_value(json_object_get(row, "unit")));
  if (json_is_string(of)) {
    (void)fprintf(out, " %9.2f %6.3f  %s", number(row, "ceiling"), number(row, "ratio"),
                  json_string_value(of));
  }
  (void)fputc('\n', out);
}

static void print_facts(const zr_bench_t *b, FILE *out) {
  const char *name;
  json_t *value;
  json_object_foreach(b->facts, name, value) {
    if (json_is_object(value)) { /* to be pasted into JSON or YAML */
      (void)fprintf(out, "\"%s\": ", name);
      (void)json_dumpf(value, out, 0);
      (void)fputc('\n', out);
    } else {
      (void)fprintf(out, "%s: %.4g\n", name, json_number_value(value));
    }
  }
}

void zr_bench_print(const zr_bench_t *b, FILE *out) {
  char cpu[256];
  processor(cpu, sizeof cpu);
  (void)fprintf(out, "zerobench %s%s: %s; %d rank%s x %d thread%s; %s\n", b->command,
                b->options.quick ? " (quick: shows that it runs)" : "", cpu, b->n_ranks,
                b->n_ranks == 1 ? "" : "s", b->n_threads, b->n_threads == 1 ? "" : "s",
                b->kern_ops->name);
  bool counts = any(b, "count"), shares = any(b, "share");
  const int width = find_width(b);
  (void)fprintf(out, "%-*s%s %10s%s %9s %-5s %9s %6s  %s\n", width, "what", counts ? " count" : "",
                "ms", shares ? "  share" : "", "measured", "", "ceiling", "ratio",
                "the ceiling is");
  for (size_t i = 0; i < json_array_size(b->rows); i++) {
    print_row(json_array_get(b->rows, i), width, counts, shares, out);
  }
  print_facts(b, out);
  for (size_t i = 0; i < json_array_size(b->notes); i++) {
    (void)fprintf(out, "%s\n", json_string_value(json_array_get(b->notes, i)));
  }
}

/* --- for machines ---------------------------------------------------------------------------- */

zr_status_t zr_bench_write_json(const zr_bench_t *b, const char *path) {
  char cpu[256];
  processor(cpu, sizeof cpu);
  json_t *json = json_pack("{s:s, s:b, s:{s:s, s:s, s:i, s:i}, s:O, s:O, s:O}", "bench", b->command,
                           "quick", b->options.quick, "machine", "processor", cpu, "kernels",
                           b->kern_ops->name, "ranks", b->n_ranks, "threads", b->n_threads, "rows",
                           b->rows, "facts", b->facts, "notes", b->notes);
  if (json == NULL) return kept(-1);
  int failed = json_dump_file(json, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  json_decref(json);
  if (failed == 0) return ZR_OK;
  return zr_fail(ZR_ERR_IO, "--json %s: it can not be written: %s", path, strerror(errno));
}
