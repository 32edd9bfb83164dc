/* What two runs' checkpoints hold: the newest common one that is equal, and in the oldest that is
 * not the first state, in the model's order, that differs. Tensors are read as they lie, whatever
 * rank count wrote them. */
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launch/bisect.h"
#include "runtime/train/safetensors.h"

enum { WINDOW_BYTES = 1 << 22 };

/* A run of elements of one state in one file. */
typedef struct {
  char name[ZR_SAFETENSORS_NAME_BYTES]; /* without [begin:end] */
  int64_t begin, end;
  const zr_safetensors_t *file;
  const zr_safetensors_entry_t *entry;
} slice_t;

typedef struct {
  zr_alloc_t *alloc;
  zr_safetensors_t **file;
  size_t n_files, file_capacity;
  slice_t *slice; /* by name, then begin */
  size_t n_slices, capacity;
} snapshot_t;

/* --- one checkpoint -------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
  const slice_t *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order != 0 ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

static zr_status_t add_slice(snapshot_t *shot, const zr_safetensors_t *file,
                             const zr_safetensors_entry_t *entry) {
  ZR_TRY(zr_alloc_grow(shot->alloc, &shot->slice, &shot->capacity, shot->n_slices + 1,
                       sizeof *shot->slice));
  slice_t *slice = &shot->slice[shot->n_slices++];
  (void)snprintf(slice->name, sizeof slice->name, "%s", entry->name);
  slice->file = file;
  slice->entry = entry;
  slice->end = entry->bytes / (int64_t)zr_dtype_bytes(entry->dtype);
  char *range = strrchr(slice->name, '[');
  if (range == NULL) return ZR_OK;
  long long begin = 0, end = 0;
  if (sscanf(range, "[%lld:%lld]", &begin, &end) != 2 || end - begin != slice->end) {
    return zr_fail(ZR_ERR_DATA, "%s: %s: a wrong range", file->path, entry->name);
  }
  *range = 0;
  slice->begin = begin;
  slice->end = end;
  return ZR_OK;
}

static zr_status_t add_file(snapshot_t *shot, const char *path) {
  ZR_TRY(zr_alloc_grow(shot->alloc, &shot->file, &shot->file_capacity, shot->n_files + 1,
                       sizeof *shot->file));
  ZR_TRY(zr_safetensors_open(shot->alloc, path, &shot->file[shot->n_files]));
  const zr_safetensors_t *file = shot->file[shot->n_files++];
  for (size_t i = 0; i < file->n_entries; ++i) ZR_TRY(add_slice(shot, file, &file->entry[i]));
  return ZR_OK;
}

static void close_shot(snapshot_t *shot) {
  for (size_t i = 0; i < shot->n_files; ++i) zr_safetensors_close(shot->file[i]);
  zr_alloc_free(shot->alloc, shot->file);
  zr_alloc_free(shot->alloc, shot->slice);
}

static zr_status_t open_shot(zr_alloc_t *alloc, const char *dir, int64_t step, snapshot_t *shot) {
  char pattern[ZR_PATH_BYTES];
  glob_t found = {0};
  *shot = (snapshot_t){.alloc = alloc};
  (void)snprintf(pattern, sizeof pattern, "%s/checkpoints/step-%08lld/rank-*.safetensors", dir,
                 (long long)step);
  int result = glob(pattern, 0, NULL, &found);
  zr_status_t status =
      result == 0 ? ZR_OK : zr_fail(ZR_ERR_NOT_FOUND, "%s: there is no such file", pattern);
  for (size_t i = 0; result == 0 && status == ZR_OK && i < found.gl_pathc; ++i) {
    status = add_file(shot, found.gl_pathv[i]);
  }
  globfree(&found);
  if (status != ZR_OK) return status;
  qsort(shot->slice, shot->n_slices, sizeof *shot->slice, by_name);
  return ZR_OK;
}

static size_t find(const snapshot_t *shot, const char *name) {
  size_t low = 0, high = shot->n_slices;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (strcmp(shot->slice[middle].name, name) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Elements of a state; 0: it is not there. */
static int64_t elems_of(const snapshot_t *shot, const char *name, zr_dtype_t *out_dtype) {
  int64_t elems = 0;
  for (size_t i = find(shot, name); i < shot->n_slices; ++i) {
    if (strcmp(shot->slice[i].name, name) != 0) break;
    *out_dtype = shot->slice[i].entry->dtype;
    elems = shot->slice[i].end;
  }
  return elems;
}

static zr_status_t read_range(const snapshot_t *shot, const char *name, int64_t begin, int64_t end,
                              int64_t width, char *out_data) {
  int64_t at = begin;
  for (size_t i = find(shot, name); i < shot->n_slices && at < end; ++i) {
    const slice_t *slice = &shot->slice[i];
    if (strcmp(slice->name, name) != 0 || slice->begin > at) break;
    if (slice->end <= at) continue;
    int64_t to = slice->end < end ? slice->end : end;
    ZR_TRY(zr_safetensors_read(slice->file, slice->entry, (at - slice->begin) * width,
                               out_data + (at - begin) * width, (to - at) * width));
    at = to;
  }
  return at == end ? ZR_OK
                   : zr_fail(ZR_ERR_DATA, "%s has no element %lld of %s",
                             shot->n_files > 0 ? shot->file[0]->path : "?", (long long)at, name);
}

/* --- two states ------------------------------------------------------------------------------ */

typedef struct {
  int64_t element, n_differ; /* the first that differs */
  json_t *a, *b;             /* its values; new references */
} difference_t;

static json_t *value_of(const char *bytes, zr_dtype_t dtype) {
  uint32_t bits = 0;
  float value;
  if (dtype == ZR_F32) memcpy(&bits, bytes, 4);
  if (dtype == ZR_BF16) memcpy((char *)&bits + 2, bytes, 2);
  memcpy(&value, &bits, sizeof value);
  return dtype != ZR_F32 && dtype != ZR_BF16 ? json_null()
         : isfinite(value)                   ? json_real((double)value)
                                             : json_sprintf("%f", (double)value);
}

static void compare_window(const char *a, const char *b, int64_t n, int64_t first, zr_dtype_t dtype,
                           difference_t *found) {
  int64_t width = (int64_t)zr_dtype_bytes(dtype);
  if (memcmp(a, b, (size_t)(n * width)) == 0) return;
  for (int64_t i = 0; i < n; ++i) {
    if (memcmp(a + i * width, b + i * width, (size_t)width) == 0) continue;
    if (found->n_differ++ > 0) continue;
    found->element = first + i;
    found->a = value_of(a + i * width, dtype);
    found->b = value_of(b + i * width, dtype);
  }
}

static zr_status_t compare_state(const snapshot_t shot[2], const char *name, int64_t elems,
                                 zr_dtype_t dtype, char *window, difference_t *found) {
  int64_t width = (int64_t)zr_dtype_bytes(dtype), most = WINDOW_BYTES / 2 / width;
  char *other = window + WINDOW_BYTES / 2;
  for (int64_t at = 0; at < elems; at += most) {
    int64_t end = at + most < elems ? at + most : elems;
    ZR_TRY(read_range(&shot[0], name, at, end, width, window));
    ZR_TRY(read_range(&shot[1], name, at, end, width, other));
    compare_window(window, other, end - at, at, dtype, found);
  }
  return ZR_OK;
}

/* --- two checkpoints ------------------------------------------------------------------------- */

typedef struct {
  zr_bisect_t *bisect;
  const zr_tape_t *tape;
  snapshot_t shot[2];
  char *window;
  int64_t n_compared, n_states, n_elems; /* the last two: that differ */
  json_t *first;
} pair_t;

static void note(pair_t *pair, const zr_tape_tensor_t *tensor, const char *suffix,
                 const difference_t *found, const char *text) {
  pair->n_states += 1;
  pair->n_elems += found->n_differ;
  if (pair->first != NULL) return;
  pair->first = json_pack("{s:s, s:s, s:s}", "unit", pair->tape->unit_name[tensor->unit], "tensor",
                          tensor->name, "state", *suffix ? suffix + 1 : "parameter");
  if (text != NULL) {
    (void)json_object_set_new(pair->first, "text", json_string(text));
    return;
  }
  (void)json_object_set_new(pair->first, "element", json_integer((json_int_t)found->element));
  (void)json_object_set(pair->first, "a", found->a);
  (void)json_object_set(pair->first, "b", found->b);
  (void)json_object_set_new(pair->first, "elements_of_it",
                            json_integer((json_int_t)found->n_differ));
}

static zr_status_t compare_named(pair_t *pair, const zr_tape_tensor_t *tensor, const char *suffix) {
  char name[ZR_SAFETENSORS_NAME_BYTES];
  (void)snprintf(name, sizeof name, "%s%s", tensor->name, suffix);
  zr_dtype_t dtype[2] = {ZR_F32, ZR_F32};
  int64_t elems[2] = {elems_of(&pair->shot[0], name, &dtype[0]),
                      elems_of(&pair->shot[1], name, &dtype[1])};
  difference_t found = {0};
  if (elems[0] == 0 && elems[1] == 0) return ZR_OK;
  pair->n_compared += 1;
  if (elems[0] != elems[1] || dtype[0] != dtype[1]) {
    note(pair, tensor, suffix, &found,
         elems[0] == 0   ? "only in B"
         : elems[1] == 0 ? "only in A"
                         : "of another type or size");
    return ZR_OK;
  }
  zr_status_t status = compare_state(pair->shot, name, elems[0], dtype[0], pair->window, &found);
  if (status == ZR_OK && found.n_differ > 0) note(pair, tensor, suffix, &found, NULL);
  json_decref(found.a);
  json_decref(found.b);
  return status;
}

/* Every state of a tensor is the tensor's name and one more part. */
static zr_status_t compare_tensor(pair_t *pair, const zr_tape_tensor_t *tensor) {
  size_t chars = strlen(tensor->name);
  ZR_TRY(compare_named(pair, tensor, ""));
  for (int which = 0; which < 2; ++which) {
    const snapshot_t *shot = &pair->shot[which];
    char before[ZR_SAFETENSORS_NAME_BYTES] = "";
    for (size_t i = find(shot, tensor->name); i < shot->n_slices; ++i) {
      const char *name = shot->slice[i].name, *suffix = name + chars;
      if (strncmp(name, tensor->name, chars) != 0) break;
      if (*suffix != '.' || strcmp(name, before) == 0) continue;
      (void)snprintf(before, sizeof before, "%s", name);
      zr_dtype_t dtype;
      if (which == 1 && elems_of(&pair->shot[0], name, &dtype) > 0) continue; /* done */
      ZR_TRY(compare_named(pair, tensor, suffix));
    }
  }
  return ZR_OK;
}

static zr_status_t compare_at(pair_t *pair, int64_t step) {
  zr_bisect_t *bisect = pair->bisect;
  pair->n_compared = pair->n_states = pair->n_elems = 0;
  zr_status_t status = ZR_OK;
  for (int i = 0; i < 2; ++i) pair->shot[i] = (snapshot_t){.alloc = bisect->alloc};
  for (int i = 0; i < 2 && status == ZR_OK; ++i) {
    status = open_shot(bisect->alloc, bisect->run[i].dir, step, &pair->shot[i]);
  }
  for (size_t i = 0; status == ZR_OK && i < pair->tape->n_tensors; ++i) {
    status = compare_tensor(pair, &pair->tape->tensor[i]);
  }
  for (int i = 0; i < 2; ++i) close_shot(&pair->shot[i]);
  return status;
}

/* --- the checkpoints of both runs ------------------------------------------------------------ */

static int by_step(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* The steps of the first run's checkpoints that the second has too. */
static zr_status_t common_steps(const zr_bisect_t *bisect, int64_t **out_step, size_t *out_n) {
  char pattern[ZR_PATH_BYTES], path[ZR_PATH_BYTES];
  glob_t found = {0}, other = {0};
  (void)snprintf(pattern, sizeof pattern, "%s/checkpoints/step-*", bisect->run[0].dir);
  int result = glob(pattern, 0, NULL, &found);
  size_t most = result == 0 ? found.gl_pathc : 0, n = 0;
  int64_t *step = NULL;
  zr_status_t status = zr_alloc_get(bisect->alloc, most, sizeof *step, &step);
  for (size_t i = 0; status == ZR_OK && i < most; ++i) {
    const char *name = strrchr(found.gl_pathv[i], '/') + 1;
    (void)snprintf(path, sizeof path, "%s/checkpoints/%s/manifest.json", bisect->run[1].dir, name);
    if (glob(path, 0, NULL, &other) == 0) step[n++] = strtoll(name + strlen("step-"), NULL, 10);
    globfree(&other);
  }
  globfree(&found);
  if (status != ZR_OK) return status;
  qsort(step, n, sizeof *step, by_step);
  *out_step = step;
  *out_n = n;
  return ZR_OK;
}

static zr_status_t compare_all(pair_t *pair) {
  zr_bisect_t *bisect = pair->bisect;
  int64_t *step = NULL;
  size_t n_steps = 0, i = 0;
  ZR_TRY(common_steps(bisect, &step, &n_steps));
  zr_status_t status = ZR_OK;
  for (; status == ZR_OK && i < n_steps && bisect->first_bad == 0; ++i) {
    status = compare_at(pair, step[i]);
    if (status != ZR_OK) break;
    if (pair->first == NULL) {
      bisect->last_equal = step[i];
    } else {
      bisect->first_bad = step[i];
    }
  }
  zr_alloc_free(bisect->alloc, step);
  ZR_TRY(status);
  (void)json_object_set_new(bisect->report, "checkpoints_compared", json_integer((json_int_t)i));
  if (bisect->last_equal > 0) {
    (void)json_object_set_new(bisect->report, "last_equal_checkpoint",
                              json_integer((json_int_t)bisect->last_equal));
  }
  if (pair->first == NULL) return ZR_OK;
  (void)json_object_set_new(pair->first, "step", json_integer((json_int_t)bisect->first_bad));
  (void)json_object_set_new(pair->first, "states", json_integer((json_int_t)pair->n_states));
  (void)json_object_set_new(pair->first, "states_compared",
                            json_integer((json_int_t)pair->n_compared));
  (void)json_object_set_new(pair->first, "elements", json_integer((json_int_t)pair->n_elems));
  (void)json_object_set(bisect->report, "state", pair->first);
  return ZR_OK;
}

/* The model tells units and their order. */
static zr_status_t record_model(zr_bisect_t *bisect, zr_tape_t **out_tape) {
  zr_config_file_t *config = NULL;
  ZR_TRY(zr_bisect_config(bisect->alloc, &bisect->run[0], bisect->first_step, &config));
  zr_status_t status = zr_config_check(config);
  if (status == ZR_OK) {
    zr_model_run_t run = {.micro_batch = 1, .seq_len = config->values.seq_len};
    status = zr_model_record(bisect->alloc, &config->values.model, &run, out_tape);
  }
  zr_config_destroy(config);
  return status;
}

zr_status_t zr_bisect_states(zr_bisect_t *bisect) {
  zr_tape_t *tape = NULL;
  ZR_TRY(record_model(bisect, &tape));
  pair_t pair = {.bisect = bisect, .tape = tape};
  zr_status_t status = zr_alloc_get(bisect->alloc, WINDOW_BYTES, 1, &pair.window);
  if (status == ZR_OK) status = compare_all(&pair);
  json_decref(pair.first);
  zr_alloc_free(bisect->alloc, pair.window);
  zr_tape_destroy(tape);
  return status;
}
