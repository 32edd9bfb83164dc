/* What two runs' log.jsonl say. */
#include <string.h>

#include "launch/bisect.h"

/* --- reading --------------------------------------------------------------------------------- */

static int64_t number(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

/* A run that goes on from an older checkpoint makes its steps again: the later ones count. */
static void forget_from(zr_bisect_run_t *run, int64_t step) {
  while (run->n_steps > 0 && run->step[run->n_steps - 1].step >= step) {
    json_decref(run->step[--run->n_steps].line);
  }
}

static zr_status_t take_line(zr_bisect_run_t *run, json_t *line) {
  const char *event = json_string_value(json_object_get(line, "event"));
  if (event != NULL && strcmp(event, "start") == 0) {
    forget_from(run, number(line, "step") + 1);
    return json_array_append(run->starts, line) == 0
               ? ZR_OK
               : zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for a log");
  }
  if (event == NULL || strcmp(event, "step") != 0) return ZR_OK;
  int64_t step = number(line, "step");
  forget_from(run, step);
  ZR_TRY(
      zr_alloc_grow(run->alloc, &run->step, &run->capacity, run->n_steps + 1, sizeof *run->step));
  run->step[run->n_steps++] =
      (zr_bisect_step_t){.step = step,
                         .line = json_incref(line),
                         .start = json_array_get(run->starts, json_array_size(run->starts) - 1)};
  return ZR_OK;
}

static zr_status_t take_file(zr_bisect_run_t *run, const char *path, FILE *file) {
  char *text = NULL;
  size_t bytes = 0;
  zr_status_t status = ZR_OK;
  for (ssize_t got; status == ZR_OK && (got = getline(&text, &bytes, file)) > 0;) {
    json_error_t error;
    json_t *line = json_loadb(text, (size_t)got, 0, &error);
    if (line == NULL && text[got - 1] != '\n') break; /* being written, or cut off by a crash */
    if (line == NULL) {
      status = zr_fail(ZR_ERR_DATA, "%s has a line that is not JSON: %s", path, error.text);
    } else {
      status = take_line(run, line);
    }
    json_decref(line);
  }
  zr_files_release(text);
  return status;
}

zr_status_t zr_bisect_log_read(zr_alloc_t *alloc, const char *dir, zr_bisect_run_t *out_run) {
  char path[ZR_PATH_BYTES];
  *out_run = (zr_bisect_run_t){.alloc = alloc, .dir = dir, .starts = json_array()};
  ZR_TRY(zr_files_join(path, dir, "log.jsonl"));
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return zr_fail(ZR_ERR_NOT_FOUND, "%s can not be opened; name the folder of a run (run.dir)",
                   path);
  }
  zr_status_t status = take_file(out_run, path, file);
  (void)fclose(file);
  ZR_TRY(status);
  if (json_array_size(out_run->starts) == 0) {
    return zr_fail(ZR_ERR_DATA, "%s has no start of a run", path);
  }
  return ZR_OK;
}

void zr_bisect_log_free(zr_bisect_run_t *run) {
  forget_from(run, 0);
  zr_alloc_free(run->alloc, run->step);
  json_decref(run->starts);
}

const zr_bisect_step_t *zr_bisect_log_find(const zr_bisect_run_t *run, int64_t step) {
  for (size_t i = 0; i < run->n_steps; ++i) {
    if (run->step[i].step == step) return &run->step[i];
  }
  return NULL;
}

const json_t *zr_bisect_log_start(const zr_bisect_run_t *run, int64_t step) {
  const zr_bisect_step_t *found = zr_bisect_log_find(run, step);
  return found != NULL ? found->start
                       : json_array_get(run->starts, json_array_size(run->starts) - 1);
}

/* --- options --------------------------------------------------------------------------------- */

zr_status_t zr_bisect_config(zr_alloc_t *alloc, const zr_bisect_run_t *run, int64_t step,
                             zr_config_file_t **out_config) {
  char name[ZR_PATH_BYTES];
  ZR_TRY(zr_files_join(name, run->dir, "log.jsonl"));
  const json_t *start = zr_bisect_log_start(run, step);
  const char *text = json_string_value(json_object_get(start, "configuration"));
  if (text == NULL) return zr_fail(ZR_ERR_DATA, "%s does not say its configuration", name);
  return zr_config_parse(alloc, name, text, strlen(text), out_config);
}

enum { KEY_BYTES = 256, MOST_DEPTH = 8 };

/* Follows the blocks of a printed configuration: the full key of its line. */
typedef struct {
  char key[KEY_BYTES];
  size_t end[MOST_DEPTH];
} place_t;

static const char *follow(place_t *place, const char *line, size_t chars) {
  size_t indent = strspn(line, " "), depth = indent / 2;
  const char *colon = memchr(line, ':', chars);
  if (colon == NULL || depth >= MOST_DEPTH) return "";
  size_t from = depth == 0 ? 0 : place->end[depth - 1];
  int used = snprintf(place->key + from, sizeof place->key - from, "%s%.*s", depth ? "." : "",
                      (int)(colon - line - (ptrdiff_t)indent), line + indent);
  place->end[depth] = from + (used > 0 ? (size_t)used : 0);
  return colon + 1 + strspn(colon + 1, " ");
}

/* Both texts have the same keys in the same order. */
static void compare_options(const char *a, const char *b, json_t *list) {
  place_t place = {{0}, {0}};
  while (*a != 0 && *b != 0) {
    size_t n_a = strcspn(a, "\n"), n_b = strcspn(b, "\n");
    const char *is_b = memchr(b, ':', n_b);
    const char *is_a = follow(&place, a, n_a);
    if ((n_a != n_b || memcmp(a, b, n_a) != 0) && is_b != NULL) {
      ++is_b;
      is_b += strspn(is_b, " ");
      (void)json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "key", place.key, "a",
                                                  json_stringn(is_a, (size_t)(a + n_a - is_a)), "b",
                                                  json_stringn(is_b, (size_t)(b + n_b - is_b))));
    }
    a += n_a + (a[n_a] != 0);
    b += n_b + (b[n_b] != 0);
  }
}

static zr_status_t numeric_text(zr_bisect_t *bisect, int which, char **out_text) {
  zr_config_file_t *config = NULL;
  ZR_TRY(zr_bisect_config(bisect->alloc, &bisect->run[which], bisect->first_step, &config));
  zr_status_t status = zr_config_numeric_text(config, out_text);
  zr_config_destroy(config);
  return status;
}

zr_status_t zr_bisect_options(zr_bisect_t *bisect) {
  char *text[2] = {NULL, NULL};
  zr_status_t status = numeric_text(bisect, 0, &text[0]);
  if (status == ZR_OK) status = numeric_text(bisect, 1, &text[1]);
  if (status == ZR_OK) {
    json_t *list = json_array();
    compare_options(text[0], text[1], list);
    (void)json_object_set_new(bisect->report, "options", list);
  }
  zr_alloc_free(bisect->alloc, text[0]);
  zr_alloc_free(bisect->alloc, text[1]);
  return status;
}

/* --- steps ----------------------------------------------------------------------------------- */

/* What of two lines differs, of what must be equal. */
static json_t *fields_of(const json_t *a, const json_t *b) {
  static const char *const keys[] = {"loss",          "grad_norm",    "lr",
                                     "tokens",        "skipped",      "loss_scale",
                                     "digest_params", "digest_states"};
  json_t *fields = json_object();
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    json_t *in_a = json_object_get(a, keys[i]), *in_b = json_object_get(b, keys[i]);
    if (in_a == NULL || in_b == NULL || json_equal(in_a, in_b)) continue;
    (void)json_object_set_new(fields, keys[i], json_pack("[O, O]", in_a, in_b));
  }
  return fields;
}

zr_status_t zr_bisect_logs(zr_bisect_t *bisect) {
  int64_t first = 0, last = 0, n_common = 0, n_digests = 0;
  const zr_bisect_run_t *a = &bisect->run[0], *b = &bisect->run[1];
  for (size_t i = 0; i < a->n_steps && bisect->first_step == 0; ++i) {
    const zr_bisect_step_t *other = zr_bisect_log_find(b, a->step[i].step);
    if (other == NULL) continue;
    first = n_common++ == 0 ? other->step : first;
    last = other->step;
    n_digests += json_object_get(a->step[i].line, "digest_states") != NULL &&
                 json_object_get(other->line, "digest_states") != NULL;
    json_t *fields = fields_of(a->step[i].line, other->line);
    if (json_object_size(fields) > 0) {
      bisect->first_step = other->step;
      (void)json_object_set(bisect->report, "fields", fields);
    }
    json_decref(fields);
  }
  if (n_common == 0) {
    return zr_fail(ZR_ERR_DATA, "%s and %s have no step in common", a->dir, b->dir);
  }
  (void)json_object_set_new(
      bisect->report, "steps",
      json_pack("{s:I, s:I, s:I, s:b}", "first", (json_int_t)first, "last", (json_int_t)last,
                "compared", (json_int_t)n_common, "digests", n_digests == n_common));
  if (bisect->first_step > 0) {
    (void)json_object_set_new(bisect->report, "first_step",
                              json_integer((json_int_t)bisect->first_step));
  }
  return ZR_OK;
}
