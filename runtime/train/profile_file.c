#include "runtime/train/profile_file.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"

enum { FORMAT = 1 };

/* The plain numbers: names of the file, places in the struct. */
typedef struct {
  const char *key;
  size_t offset;
  bool may_be_zero;
} number_t;

#define AT(field) offsetof(zr_profile_t, field)
static const number_t numbers[] = {
    {"product_flops_per_ns_fp32", AT(product_flops_per_ns[ZR_PROFILE_F32]), false},
    {"product_flops_per_ns_bf16", AT(product_flops_per_ns[ZR_PROFILE_BF16]), false},
    {"product_flops_per_ns_fp16", AT(product_flops_per_ns[ZR_PROFILE_F16]), false},
    {"memory_bytes_per_ns_one", AT(memory_bytes_per_ns[ZR_PROFILE_ONE]), false},
    {"memory_bytes_per_ns_all", AT(memory_bytes_per_ns[ZR_PROFILE_ALL]), false},
    {"link_bytes_per_ns", AT(link_bytes_per_ns), false},
    {"link_latency_ns", AT(link_latency_ns), true},
    {"disk_bytes_per_ns", AT(disk_bytes_per_ns), false},
    {"disk_latency_ns", AT(disk_latency_ns), true},
    {"overhead_ns", AT(overhead_ns), true},
    {"crowded_cores", AT(crowded_cores), false},
    {"mixed_drive", AT(mixed_drive), false},
};
enum { N_NUMBERS = sizeof numbers / sizeof numbers[0] };

static double *number_of(zr_profile_t *profile, int i) {
  return (double *)(void *)((char *)profile + numbers[i].offset);
}

/* --- reading --------------------------------------------------------------------------------- */

static zr_status_t bad(const char *path, const char *what) {
  return zr_fail(ZR_ERR_CONFIG,
                 "%s: %s: not a machine profile of this version; "
                 "`zerobench calibrate` writes one",
                 path, what);
}

static zr_status_t read_numbers(const json_t *json, const char *path, zr_profile_t *profile) {
  for (int i = 0; i < N_NUMBERS; i++) {
    const json_t *value = json_object_get(json, numbers[i].key);
    double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || (number <= 0 && !numbers[i].may_be_zero)) {
      return bad(path, numbers[i].key);
    }
    *number_of(profile, i) = number;
  }
  return ZR_OK;
}

static zr_status_t read_curve(const json_t *entry, const char *path, zr_profile_t *profile) {
  const char *kind_name = json_string_value(json_object_get(entry, "kind"));
  const char *type_name = json_string_value(json_object_get(entry, "type"));
  const json_t *points = json_object_get(entry, "points"), *point;
  json_int_t workers = json_integer_value(json_object_get(entry, "workers"));
  int32_t kind = kind_name == NULL ? -1 : zr_op_find(kind_name);
  int type = ZR_PROFILE_TYPES - 1;
  while (type >= 0 && (type_name == NULL ||
                       strcmp(type_name, zr_profile_type_name((zr_profile_type_t)type)) != 0)) {
    type--;
  }
  if (kind < 0 || type < 0) return bad(path, "an entry of \"times\" has no known kind or type");
  int team = workers == 1 ? ZR_PROFILE_ONE : ZR_PROFILE_ALL;
  zr_profile_curve_t *curve = &profile->curve[team][kind][type];
  size_t i;
  json_array_foreach(points, i, point) {
    double work = json_number_value(json_array_get(point, 0));
    double ns = json_number_value(json_array_get(point, 1));
    if (!zr_profile_curve_add(curve, work, ns)) return bad(path, kind_name);
  }
  return ZR_OK;
}

static zr_status_t read_json(const json_t *json, const char *path, zr_profile_t *profile) {
  const json_t *times = json_object_get(json, "times"), *entry;
  json_int_t workers = json_integer_value(json_object_get(json, "workers"));
  if (json_integer_value(json_object_get(json, "format")) != FORMAT) return bad(path, "format");
  if (workers < 1 || workers > 1 << 20) return bad(path, "workers");
  profile->n_workers = (int)workers;
  profile->is_measured = true;
  (void)snprintf(profile->source, sizeof profile->source, "%s", path);
  ZR_TRY(read_numbers(json, path, profile));
  size_t i;
  json_array_foreach(times, i, entry) {
    ZR_TRY(read_curve(entry, path, profile));
  }
  return json_is_array(times) ? ZR_OK : bad(path, "times");
}

zr_status_t zr_profile_read(zr_alloc_t *alloc, const char *path, zr_profile_t *out_profile) {
  char *text = NULL;
  size_t bytes = 0;
  json_error_t error;
  zr_profile_t *profile = NULL;
  ZR_TRY(zr_files_read_text(alloc, path, &text, &bytes));
  json_t *json = json_loadb(text, bytes, 0, &error);
  zr_alloc_free(alloc, text);
  if (json == NULL) return bad(path, error.text);
  zr_status_t status = zr_alloc_get(alloc, 1, sizeof *profile, &profile);
  if (status == ZR_OK) status = read_json(json, path, profile);
  if (status == ZR_OK) *out_profile = *profile;
  json_decref(json);
  zr_alloc_free(alloc, profile);
  return status;
}

/* --- writing --------------------------------------------------------------------------------- */

static void put_curve(json_t *times, const zr_profile_t *profile, int team, int kind, int type) {
  const zr_profile_curve_t *curve = &profile->curve[team][kind][type];
  if (curve->n_points == 0) return;
  json_t *points = json_array();
  for (int i = 0; i < curve->n_points; i++) {
    (void)json_array_append_new(points, json_pack("[f, f]", curve->work[i], curve->ns[i]));
  }
  (void)json_array_append_new(
      times, json_pack("{s:s, s:s, s:i, s:o}", "kind", zr_op_row(kind)->name, "type",
                       zr_profile_type_name((zr_profile_type_t)type), "workers",
                       team == ZR_PROFILE_ONE ? 1 : profile->n_workers, "points", points));
}

static json_t *to_json(const zr_profile_t *profile, const char *machine) {
  json_t *times = json_array();
  json_t *json = json_pack("{s:i, s:s, s:i}", "format", FORMAT, "machine", machine, "workers",
                           profile->n_workers);
  for (int i = 0; i < N_NUMBERS; i++) {
    double number = *number_of((zr_profile_t *)(uintptr_t)profile, i);
    (void)json_object_set_new(json, numbers[i].key, json_real(number));
  }
  for (int team = 0; team < ZR_PROFILE_TEAMS; team++) {
    for (int kind = 0; kind < ZR_N_OP_KINDS; kind++) {
      for (int type = 0; type < ZR_PROFILE_TYPES; type++) {
        put_curve(times, profile, team, kind, type);
      }
    }
  }
  (void)json_object_set_new(json, "times", times);
  return json;
}

zr_status_t zr_profile_write(const char *path, const zr_profile_t *profile, const char *machine) {
  char folder[ZR_PATH_BYTES];
  (void)snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash != NULL && slash != folder) {
    *slash = 0;
    ZR_TRY(zr_files_make_dirs(folder));
  }
  json_t *json = to_json(profile, machine);
  char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  json_decref(json);
  if (text == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for %s", path);
  zr_status_t status = zr_files_replace(path, text, strlen(text));
  zr_files_release(text);
  return status;
}

/* --- which one ------------------------------------------------------------------------------- */

void zr_profile_default_path(char out_path[ZR_PATH_BYTES]) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *between = "";
  if (cache == NULL || cache[0] != '/') {
    cache = home;
    between = "/.cache";
  }
  out_path[0] = 0;
  if (cache == NULL || cache[0] == 0) return;
  int n = snprintf(out_path, ZR_PATH_BYTES, "%s%s/zerorun/profile.json", cache, between);
  if (n >= ZR_PATH_BYTES) out_path[0] = 0;
}

static void find_default(zr_alloc_t *alloc, zr_profile_t *profile) {
  char path[ZR_PATH_BYTES];
  zr_profile_default_path(path);
  if (path[0] == 0) return;
  zr_status_t status = zr_profile_read(alloc, path, profile);
  if (status != ZR_OK && status != ZR_ERR_NOT_FOUND) {
    zr_warn("the built-in machine profile is used: %s", zr_detail());
  }
}

zr_status_t zr_profile_find(zr_alloc_t *alloc, const char *path, zr_profile_t **out_profile) {
  zr_profile_t *profile = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *profile, &profile));
  zr_profile_defaults(profile);
  zr_status_t status = ZR_OK;
  if (path == NULL) {
    find_default(alloc, profile);
  } else {
    status = zr_profile_read(alloc, path, profile);
  }
  if (status != ZR_OK) {
    zr_alloc_free(alloc, profile);
    return status;
  }
  *out_profile = profile;
  return ZR_OK;
}
