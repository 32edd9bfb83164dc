/* Finding, checking and loading a checkpoint. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/train/checkpoint.h"
#include "runtime/train/checkpoint_names.h"
#include "runtime/train/files.h"

/* A run of elements of one state in one file. */
typedef struct {
  char name[ZR_SAFETENSORS_NAME_BYTES]; /* without [begin:end] */
  int64_t begin, end;
  size_t file;
  const zr_safetensors_entry_t *entry;
} slice_t;

struct zr_checkpoint_t {
  zr_alloc_t *alloc;
  char *path; /* of its folder */
  json_t *manifest;
  zr_checkpoint_counters_t counters;
  zr_safetensors_t **file;
  size_t n_files;
  slice_t *slice; /* by name, then begin */
  size_t n_slices, capacity;
};

static const char remedy[] =
    "; to go on from an older checkpoint write its name into checkpoints/latest";

/* --- the manifest ---------------------------------------------------------------------------- */

static int64_t number(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

static uint64_t hex_number(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text == NULL ? 0 : strtoull(text, NULL, 16);
}

static zr_status_t check_manifest(zr_checkpoint_t *checkpoint, const char *path) {
  json_t *root = checkpoint->manifest;
  const char *format = json_string_value(json_object_get(root, "format"));
  if (format == NULL || strcmp(format, "zerorun checkpoint") != 0 || number(root, "version") != 1) {
    return zr_fail(ZR_ERR_DATA, "%s is not a manifest that this version reads", path);
  }
  uint64_t said = hex_number(root, "checksum");
  (void)json_object_del(root, "checksum");
  char *plain = json_dumps(root, ZR_CHECKPOINT_CANONICAL);
  if (plain == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for %s", path);
  uint64_t found = XXH3_64bits(plain, strlen(plain));
  zr_files_release(plain);
  if (said != found) {
    return zr_fail(ZR_ERR_DATA, "%s is damaged: its checksum does not fit%s", path, remedy);
  }
  return ZR_OK;
}

static void take_counters(zr_checkpoint_t *checkpoint) {
  const json_t *root = checkpoint->manifest, *counters = json_object_get(root, "counters");
  const json_t *scaler = json_object_get(root, "scaler");
  checkpoint->counters = (zr_checkpoint_counters_t){
      .step = number(root, "step"),
      .iteration = number(json_object_get(root, "data"), "iteration"),
      .skipped = number(counters, "skipped"),
      .skipped_in_row = number(counters, "skipped_in_row"),
      .tokens = number(counters, "tokens"),
      .digest_valid = number(counters, "digest_valid"),
      .digest = {hex_number(counters, "digest_params"), hex_number(counters, "digest_states")},
      .loss_scale = json_number_value(json_object_get(scaler, "loss_scale")),
      .scale_chances = number(scaler, "chances"),
      .scale_last_skipped = number(scaler, "last_skipped")};
}

static zr_status_t read_manifest(zr_checkpoint_t *checkpoint) {
  char path[ZR_PATH_BYTES], *text = NULL;
  size_t bytes;
  ZR_TRY(zr_files_join(path, checkpoint->path, ZR_CHECKPOINT_MANIFEST));
  zr_status_t status = zr_files_read_text(checkpoint->alloc, path, &text, &bytes);
  if (status != ZR_OK) return status;
  json_error_t error;
  checkpoint->manifest = json_loadb(text, bytes, 0, &error);
  zr_alloc_free(checkpoint->alloc, text);
  if (checkpoint->manifest == NULL) {
    return zr_fail(ZR_ERR_DATA, "%s:%d: is damaged: %s%s", path, error.line, error.text, remedy);
  }
  ZR_TRY(check_manifest(checkpoint, path));
  take_counters(checkpoint);
  return ZR_OK;
}

/* --- the files ------------------------------------------------------------------------------- */

static zr_status_t file_path(const zr_checkpoint_t *checkpoint, size_t index,
                             char out_path[ZR_PATH_BYTES]) {
  const json_t *row = json_array_get(json_object_get(checkpoint->manifest, "files"), index);
  const char *name = json_string_value(json_object_get(row, "name"));
  return zr_files_join(out_path, checkpoint->path, name == NULL ? "" : name);
}

/* "model.norm.weight.exp_avg[64:128]" */
static zr_status_t add_slice(zr_checkpoint_t *checkpoint, size_t file,
                             const zr_safetensors_entry_t *entry) {
  ZR_TRY(zr_alloc_grow(checkpoint->alloc, &checkpoint->slice, &checkpoint->capacity,
                       checkpoint->n_slices + 1, sizeof *checkpoint->slice));
  slice_t *slice = &checkpoint->slice[checkpoint->n_slices++];
  (void)snprintf(slice->name, sizeof slice->name, "%s", entry->name);
  slice->file = file;
  slice->entry = entry;
  int64_t elems = entry->bytes / 4;
  char *range = strrchr(slice->name, '[');
  long long begin = 0, end = elems;
  if (range != NULL) {
    if (sscanf(range, "[%lld:%lld]", &begin, &end) != 2) begin = end = 0;
    *range = 0;
  }
  if (entry->dtype != ZR_F32 || begin < 0 || end - begin != elems) {
    return zr_fail(ZR_ERR_DATA, "%s: %s: a wrong range or type", checkpoint->file[file]->path,
                   entry->name);
  }
  slice->begin = begin;
  slice->end = end;
  return ZR_OK;
}

static int compare_slices(const void *a, const void *b) {
  const slice_t *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order != 0 ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

static zr_status_t open_files(zr_checkpoint_t *checkpoint) {
  size_t n_files = json_array_size(json_object_get(checkpoint->manifest, "files"));
  ZR_TRY(zr_alloc_get(checkpoint->alloc, n_files, sizeof *checkpoint->file, &checkpoint->file));
  for (size_t i = 0; i < n_files; ++i) {
    char path[ZR_PATH_BYTES];
    ZR_TRY(file_path(checkpoint, i, path));
    ZR_TRY(zr_safetensors_open(checkpoint->alloc, path, &checkpoint->file[i]));
    checkpoint->n_files = i + 1;
    for (size_t e = 0; e < checkpoint->file[i]->n_entries; ++e) {
      ZR_TRY(add_slice(checkpoint, i, &checkpoint->file[i]->entry[e]));
    }
  }
  qsort(checkpoint->slice, checkpoint->n_slices, sizeof *checkpoint->slice, compare_slices);
  return ZR_OK;
}

/* --- open and close -------------------------------------------------------------------------- */

static zr_status_t read_latest(zr_alloc_t *alloc, const char *folder, char out_path[ZR_PATH_BYTES],
                               bool *out_there) {
  char path[ZR_PATH_BYTES], *name = NULL;
  size_t bytes;
  *out_there = false;
  ZR_TRY(zr_files_join(path, folder, ZR_CHECKPOINT_LATEST));
  zr_status_t status = zr_files_read_text(alloc, path, &name, &bytes);
  if (status == ZR_ERR_NOT_FOUND) return ZR_OK;
  if (status != ZR_OK) return status;
  name[strcspn(name, " \r\n")] = 0;
  *out_there = true;
  status = zr_files_join(out_path, folder, name);
  zr_alloc_free(alloc, name);
  return status;
}

zr_status_t zr_checkpoint_open_latest(zr_alloc_t *alloc, const char *folder,
                                      zr_checkpoint_t **out_checkpoint) {
  char path[ZR_PATH_BYTES];
  bool there;
  ZR_TRY(read_latest(alloc, folder, path, &there));
  if (!there) {
    *out_checkpoint = NULL;
    return ZR_OK;
  }
  zr_checkpoint_t *checkpoint = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *checkpoint, &checkpoint));
  checkpoint->alloc = alloc;
  zr_status_t status = zr_alloc_strdup(alloc, path, &checkpoint->path);
  if (status == ZR_OK) status = read_manifest(checkpoint);
  if (status == ZR_OK) status = open_files(checkpoint);
  if (status != ZR_OK) {
    zr_checkpoint_close(checkpoint);
    return status;
  }
  *out_checkpoint = checkpoint;
  return ZR_OK;
}

void zr_checkpoint_close(zr_checkpoint_t *checkpoint) {
  if (checkpoint == NULL) return;
  for (size_t i = 0; i < checkpoint->n_files; ++i) zr_safetensors_close(checkpoint->file[i]);
  zr_alloc_free(checkpoint->alloc, checkpoint->file);
  zr_alloc_free(checkpoint->alloc, checkpoint->slice);
  zr_alloc_free(checkpoint->alloc, checkpoint->path);
  json_decref(checkpoint->manifest);
  zr_alloc_free(checkpoint->alloc, checkpoint);
}

const zr_checkpoint_counters_t *zr_checkpoint_counters(const zr_checkpoint_t *checkpoint) {
  return &checkpoint->counters;
}

const char *zr_checkpoint_path(const zr_checkpoint_t *checkpoint) {
  return checkpoint->path;
}

/* --- options --------------------------------------------------------------------------------- */

enum { KEY_BYTES = 256 };

/* Follows the blocks of a printed configuration: the full key of its line. */
typedef struct {
  char key[KEY_BYTES];
  size_t end[8]; /* where the key of each depth ends */
} path_t;

static void follow(path_t *path, const char *line, size_t chars) {
  size_t indent = 0;
  while (indent < chars && line[indent] == ' ') ++indent;
  size_t depth = indent / 2 < 7 ? indent / 2 : 7;
  size_t from = depth == 0 ? 0 : path->end[depth - 1];
  const char *colon = memchr(line, ':', chars);
  size_t name = colon == NULL ? chars : (size_t)(colon - line);
  int used = snprintf(path->key + from, sizeof path->key - from, "%s%.*s", depth == 0 ? "" : ".",
                      (int)(name - indent), line + indent);
  path->end[depth] = from + (used > 0 ? (size_t)used : 0);
  if (path->end[depth] >= sizeof path->key) path->end[depth] = sizeof path->key - 1;
}

static void value_of(const char *line, size_t chars, char *out, size_t out_bytes) {
  const char *colon = memchr(line, ':', chars);
  size_t skip = colon == NULL ? chars : (size_t)(colon - line) + 1;
  while (skip < chars && line[skip] == ' ') ++skip;
  (void)snprintf(out, out_bytes, "%.*s", (int)(chars - skip), line + skip);
}

zr_status_t zr_checkpoint_compare(const zr_checkpoint_t *checkpoint, const char *options,
                                  const char *kernels) {
  const char *then = json_string_value(json_object_get(checkpoint->manifest, "options"));
  const char *kernels_then = json_string_value(json_object_get(checkpoint->manifest, "kernels"));
  const char *advice =
      "; continue with the same options, start a new run.dir, or set "
      "checkpoint.ignore_options=true";
  if (then == NULL) then = "";
  path_t path = {{0}, {0}};
  for (const char *a = then, *b = options; *a != 0 || *b != 0;) {
    size_t n_a = strcspn(a, "\n"), n_b = strcspn(b, "\n");
    follow(&path, b, n_b);
    if (n_a != n_b || memcmp(a, b, n_a) != 0) {
      char was[80], is[80];
      value_of(a, n_a, was, sizeof was);
      value_of(b, n_b, is, sizeof is);
      return zr_fail(ZR_ERR_CONFIG, "%s was made with %s: %s, now it is %s%s", checkpoint->path,
                     path.key, was, is, advice);
    }
    a += n_a + (a[n_a] != 0);
    b += n_b + (b[n_b] != 0);
  }
  if (kernels_then == NULL || strcmp(kernels_then, kernels) != 0) {
    return zr_fail(ZR_ERR_CONFIG, "%s was made with kernels %s, here they are %s%s",
                   checkpoint->path, kernels_then == NULL ? "?" : kernels_then, kernels, advice);
  }
  return ZR_OK;
}

zr_status_t zr_checkpoint_compare_data(const zr_checkpoint_t *checkpoint, int64_t data_tokens) {
  int64_t then = number(json_object_get(checkpoint->manifest, "data"), "tokens");
  if (then == data_tokens) return ZR_OK;
  return zr_fail(ZR_ERR_DATA,
                 "%s was made with %lld tokens in data.train, now there are %lld: samples would "
                 "come in another order; bring the data back, start a new run.dir, or set "
                 "checkpoint.ignore_options=true",
                 checkpoint->path, (long long)then, (long long)data_tokens);
}

/* --- checksums ------------------------------------------------------------------------------- */

zr_status_t zr_checkpoint_verify(const zr_checkpoint_t *checkpoint, int rank, int n_ranks) {
  const json_t *rows = json_object_get(checkpoint->manifest, "files");
  for (size_t i = (size_t)rank; i < checkpoint->n_files; i += (size_t)n_ranks) {
    char path[ZR_PATH_BYTES];
    const json_t *row = json_array_get(rows, i);
    uint64_t hash = 0;
    int64_t bytes = 0;
    ZR_TRY(file_path(checkpoint, i, path));
    ZR_TRY(zr_safetensors_hash(checkpoint->alloc, path, &hash, &bytes));
    if (bytes != number(row, "bytes")) {
      return zr_fail(ZR_ERR_DATA, "%s is cut off: it has %lld bytes, the manifest says %lld%s",
                     path, (long long)bytes, (long long)number(row, "bytes"), remedy);
    }
    if (hash != hex_number(row, "xxh3")) {
      return zr_fail(ZR_ERR_DATA, "%s is damaged: its checksum does not fit the manifest's%s", path,
                     remedy);
    }
  }
  return ZR_OK;
}

/* --- loading --------------------------------------------------------------------------------- */

/* The tensors of the model must be those of the checkpoint. */
static zr_status_t check_shapes(const zr_checkpoint_t *checkpoint, const zr_zero_t *zero) {
  const json_t *shapes = json_object_get(checkpoint->manifest, "model");
  for (size_t i = 0; i < zero->tape->n_tensors; ++i) {
    const zr_tape_tensor_t *tensor = &zero->tape->tensor[i];
    const json_t *shape = json_object_get(shapes, tensor->name);
    if (shape == NULL) {
      return zr_fail(ZR_ERR_DATA, "%s has no tensor %s", checkpoint->path, tensor->name);
    }
    bool flat = json_array_size(shape) == 1;
    int64_t rows = flat ? 1 : json_integer_value(json_array_get(shape, 0));
    int64_t cols = json_integer_value(json_array_get(shape, flat ? 0 : 1));
    if (rows != tensor->rows || cols != tensor->cols) {
      return zr_fail(ZR_ERR_DATA,
                     "%s: tensor %s is %lld x %lld there, the model here has %lld x %lld",
                     checkpoint->path, tensor->name, (long long)rows, (long long)cols,
                     (long long)tensor->rows, (long long)tensor->cols);
    }
  }
  if (json_object_size(shapes) != zero->tape->n_tensors) {
    return zr_fail(ZR_ERR_DATA, "%s has %zu tensors, the model here %zu", checkpoint->path,
                   json_object_size(shapes), zero->tape->n_tensors);
  }
  return ZR_OK;
}

static size_t first_slice(const zr_checkpoint_t *checkpoint, const char *name) {
  size_t low = 0, high = checkpoint->n_slices;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (strcmp(checkpoint->slice[middle].name, name) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

typedef struct {
  const zr_checkpoint_t *checkpoint;
  const zr_states_t *states;
} load_t;

static zr_status_t load_piece(void *context, const zr_piece_t *piece, float *data) {
  const load_t *load = context;
  const zr_checkpoint_t *checkpoint = load->checkpoint;
  char name[ZR_SAFETENSORS_NAME_BYTES];
  zr_state_name(load->states->zero, piece, name, sizeof name);
  int64_t at = piece->begin;
  for (size_t i = first_slice(checkpoint, name); i < checkpoint->n_slices; ++i) {
    const slice_t *slice = &checkpoint->slice[i];
    if (strcmp(slice->name, name) != 0 || at >= piece->end) break;
    if (slice->end <= at) continue;
    if (slice->begin > at) break;
    int64_t to = slice->end < piece->end ? slice->end : piece->end;
    ZR_TRY(zr_safetensors_read(checkpoint->file[slice->file], slice->entry, (at - slice->begin) * 4,
                               data + (at - piece->begin), (to - at) * 4));
    at = to;
  }
  if (at < piece->end) {
    return zr_fail(ZR_ERR_DATA, "%s has no element %lld of %s", checkpoint->path, (long long)at,
                   name);
  }
  return ZR_OK;
}

zr_status_t zr_checkpoint_load(const zr_checkpoint_t *checkpoint, const zr_states_t *states) {
  ZR_TRY(check_shapes(checkpoint, states->zero));
  load_t load = {checkpoint, states};
  for (int kind = 0; kind < zr_states_n_kinds(states->zero); ++kind) {
    ZR_TRY(zr_states_fill(states, kind, load_piece, &load));
  }
  return ZR_OK;
}
