#include "runtime/train/data.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/train/data_file.h"

struct zr_data_t {
  zr_alloc_t *alloc;
  zr_data_file_t *file;
  size_t n_files, capacity;
  zr_data_options_t options; /* its strings are used while opening only, but for `key` */
  char *key;
  int64_t n_tokens, n_samples;
  uint64_t shuffle_key;
};

/* --- checks ---------------------------------------------------------------------------------- */

static zr_status_t fail_id(const zr_data_t *data, const zr_data_file_t *file, int64_t index) {
  bool guessed = file->format == ZR_DATA_NANOGPT && !file->by_name;
  return zr_fail(
      ZR_ERR_DATA,
      "%s: %s: token %lld (from 0) is %lld, but model.vocab_size is %lld; use the "
      "model's own tokenizer or a larger vocabulary%s",
      data->key, file->path, (long long)index, (long long)zr_data_file_token(file, index),
      (long long)data->options.vocab_size,
      guessed ? " (the file has no known header and was read as nanoGPT's uint16 ids)" : "");
}

static zr_status_t fail_mask(const zr_data_file_t *file, int64_t index) {
  return zr_fail(ZR_ERR_DATA,
                 "data.mask: byte %lld (from 0) of the mask of %s is %d; it must be 0 (not "
                 "counted) or 1",
                 (long long)index, file->path, file->mask.at[index]);
}

static bool is_id(const zr_data_t *data, int64_t token) {
  return token >= 0 && token < data->options.vocab_size;
}

/* The largest id that tokens of this width can have. */
static int64_t most_id(const zr_data_file_t *file) {
  switch (file->width) {
    case 1:
      return UINT8_MAX;
    case -1:
      return INT8_MAX;
    case 2:
      return UINT16_MAX;
    case -2:
      return INT16_MAX;
    default:
      return INT32_MAX;
  }
}

static zr_status_t scan(const zr_data_t *data, const zr_data_file_t *file) {
  if (file->n_tokens > ZR_DATA_SCAN_TOKENS) return ZR_OK;
  bool may_be_wrong = file->width < 0 || data->options.vocab_size <= most_id(file);
  for (int64_t i = 0; may_be_wrong && i < file->n_tokens; ++i) {
    if (!is_id(data, zr_data_file_token(file, i))) return fail_id(data, file, i);
  }
  for (size_t i = 0; i < file->mask.bytes; ++i) {
    if (file->mask.at[i] > 1) return fail_mask(file, (int64_t)i);
  }
  return ZR_OK;
}

static zr_status_t check_kind(const zr_data_t *data, const zr_data_file_t *file) {
  const zr_data_file_t *first = &data->file[0];
  if (file->format == first->format) return ZR_OK;
  return zr_fail(ZR_ERR_DATA,
                 "%s: %s is of %s's format, but %s of %s's; the files of one list are of one kind: "
                 "convert them, or train on one kind",
                 data->key, file->path, zr_data_format_name(file->format), first->path,
                 zr_data_format_name(first->format));
}

/* An id that ends documents or is ignored, and that no file can hold. */
static zr_status_t check_special(const zr_data_t *data, const char *key, int64_t id) {
  if (id < 0) return ZR_OK;
  if (id >= data->options.vocab_size) {
    return zr_fail(ZR_ERR_CONFIG, "%s = %lld is not an id: model.vocab_size is %lld", key,
                   (long long)id, (long long)data->options.vocab_size);
  }
  for (size_t i = 0; i < data->n_files; ++i) {
    if (id > most_id(&data->file[i])) {
      return zr_fail(ZR_ERR_DATA, "%s = %lld can not be in %s: its tokens end at %lld", key,
                     (long long)id, data->file[i].path, (long long)most_id(&data->file[i]));
    }
  }
  return ZR_OK;
}

static zr_status_t check_documents(const zr_data_t *data) {
  const zr_data_options_t *o = &data->options;
  ZR_TRY(check_special(data, "data.ignore_id", o->ignore_id));
  ZR_TRY(check_special(data, "data.eot_id", o->eot_id));
  if (!o->separate || o->eot_id >= 0 || data->file[0].format == ZR_DATA_MEGATRON ||
      data->n_files > 1) {
    return ZR_OK;
  }
  return zr_fail(ZR_ERR_CONFIG,
                 "data.documents: separate needs to know where documents end in %s: set "
                 "data.eot_id, use Megatron's format, or a file for each",
                 data->file[0].path);
}

/* --- open and close -------------------------------------------------------------------------- */

static zr_status_t add_file(zr_data_t *data, const char *path) {
  ZR_TRY(zr_alloc_grow(data->alloc, &data->file, &data->capacity, data->n_files + 1,
                       sizeof *data->file));
  zr_data_file_t *file = &data->file[data->n_files++];
  ZR_TRY(zr_data_file_open(data->alloc, &data->options, path, file));
  file->first = data->n_tokens;
  ZR_TRY(check_kind(data, file));
  ZR_TRY(scan(data, file));
  data->n_tokens += file->n_tokens;
  return ZR_OK;
}

static bool ends_in(const char *path, const char *ending) {
  size_t chars = strlen(path), end = strlen(ending);
  return chars > end && strcmp(path + chars - end, ending) == 0;
}

/* A glob finds masks beside their files, and indices beside their tokens. */
static bool is_companion(const zr_data_t *data, const glob_t *found, const char *path) {
  const char *mask = data->options.mask_ending;
  if (mask != NULL && ends_in(path, mask)) return true;
  if (data->options.bytes || !ends_in(path, ".idx")) return false;
  for (size_t i = 0; i < found->gl_pathc; ++i) {
    const char *other = found->gl_pathv[i];
    if (ends_in(other, ".bin") && strlen(other) == strlen(path) &&
        strncmp(other, path, strlen(path) - 4) == 0) {
      return true;
    }
  }
  return false;
}

static zr_status_t add_pattern(zr_data_t *data, const char *pattern) {
  if (strpbrk(pattern, "*?[") == NULL) return add_file(data, pattern);
  glob_t found = {0};
  size_t before = data->n_files;
  int result = glob(pattern, 0, NULL, &found);
  zr_status_t status = ZR_OK;
  for (size_t i = 0; result == 0 && status == ZR_OK && i < found.gl_pathc; ++i) {
    if (!is_companion(data, &found, found.gl_pathv[i])) status = add_file(data, found.gl_pathv[i]);
  }
  globfree(&found);
  if (status == ZR_OK && data->n_files == before) {
    status = zr_fail(ZR_ERR_NOT_FOUND, "%s: no file matches %s", data->key, pattern);
  }
  return status;
}

static zr_status_t open_all(zr_data_t *data) {
  const zr_data_options_t *o = &data->options;
  ZR_TRY(zr_alloc_strdup(data->alloc, o->key, &data->key));
  data->options.key = data->key;
  if (o->n_patterns == 0) {
    return zr_fail(ZR_ERR_CONFIG, "%s: no file is named; give a file, a glob or a list of them",
                   data->key);
  }
  for (size_t i = 0; i < o->n_patterns; ++i) ZR_TRY(add_pattern(data, o->pattern[i]));
  ZR_TRY(check_documents(data));
  data->n_samples = data->n_tokens > 0 ? (data->n_tokens - 1) / o->seq_len : 0;
  if (data->n_samples < 1) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s%s hold%s %lld tokens, one sample of data.seq_len = %lld needs %lld; "
                   "shorten data.seq_len or give more text",
                   data->key, data->file[0].path, data->n_files > 1 ? " and the others" : "",
                   data->n_files > 1 ? "" : "s", (long long)data->n_tokens, (long long)o->seq_len,
                   (long long)o->seq_len + 1);
  }
  return ZR_OK;
}

void zr_data_defaults(zr_data_options_t *out_options) {
  *out_options = (zr_data_options_t){.ignore_id = -1, .eot_id = -1};
}

zr_status_t zr_data_open(zr_alloc_t *alloc, const zr_data_options_t *options,
                         zr_data_t **out_data) {
  zr_data_t *data = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *data, &data));
  data->alloc = alloc;
  data->options = *options;
  data->shuffle_key = zr_rng_key(options->seed, "data.shuffle");
  zr_status_t status = open_all(data);
  if (status != ZR_OK) {
    zr_data_close(data);
    return status;
  }
  *out_data = data;
  return ZR_OK;
}

void zr_data_close(zr_data_t *data) {
  if (data == NULL) return;
  for (size_t i = 0; i < data->n_files; ++i) zr_data_file_close(data->alloc, &data->file[i]);
  zr_alloc_free(data->alloc, data->file);
  zr_alloc_free(data->alloc, data->key);
  zr_alloc_free(data->alloc, data);
}

int64_t zr_data_n_tokens(const zr_data_t *data) {
  return data->n_tokens;
}

int64_t zr_data_n_samples(const zr_data_t *data) {
  return data->n_samples;
}

void zr_data_describe(const zr_data_t *data, char *out_text, size_t bytes) {
  const zr_data_file_t *file = &data->file[0];
  const char *kind = data->options.bytes ? "text" : zr_data_format_name(file->format);
  int64_t most = most_id(file);
  bool guessed = !data->options.bytes && file->format == ZR_DATA_NANOGPT && !file->by_name;
  int used = snprintf(out_text, bytes, "%zu file%s of %s%s", data->n_files,
                      data->n_files == 1 ? "" : "s", kind,
                      guessed               ? " format (no known header: read as uint16 ids)"
                      : data->options.bytes ? ", a token is a byte"
                                            : " format");
  if (used > 0 && (size_t)used < bytes && !data->options.bytes &&
      most + 1 < data->options.vocab_size) {
    (void)snprintf(out_text + used, bytes - (size_t)used,
                   "; their ids end at %lld, model.vocab_size is %lld: were larger ones cut off?",
                   (long long)most, (long long)data->options.vocab_size);
  }
}

/* --- samples --------------------------------------------------------------------------------- */

/* The file that holds token `at`. */
static const zr_data_file_t *find_file(const zr_data_t *data, int64_t at) {
  size_t low = 0, high = data->n_files;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (data->file[middle].first <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return &data->file[low];
}

/* A walk over tokens, across files. */
typedef struct {
  const zr_data_t *data;
  const zr_data_file_t *file;
  int64_t next_document; /* in the file, at or after the token; -1: to be looked for */
  int64_t previous;      /* token; -1: none yet */
} walk_t;

static bool begins_document(walk_t *walk, int64_t index) {
  const zr_data_options_t *o = &walk->data->options;
  if (!o->separate) return false;
  if (index == 0 || (o->eot_id >= 0 && walk->previous == o->eot_id)) return true;
  if (walk->file->format != ZR_DATA_MEGATRON) return false;
  if (walk->next_document < index) {
    walk->next_document = zr_data_megatron_next(walk->file, index);
  }
  return walk->next_document == index;
}

static zr_status_t step(walk_t *walk, int64_t at, int64_t *out_token, bool *out_begins,
                        bool *out_counts) {
  const zr_data_t *data = walk->data;
  const zr_data_file_t *end = data->file + data->n_files;
  while (walk->file + 1 < end && at >= walk->file->first + walk->file->n_tokens) {
    ++walk->file;
    walk->next_document = -1;
  }
  const zr_data_file_t *file = walk->file;
  int64_t index = at - file->first, token = zr_data_file_token(file, index);
  if (!is_id(data, token)) return fail_id(data, file, index);
  if (file->mask.at != NULL && file->mask.at[index] > 1) return fail_mask(file, index);
  *out_begins = begins_document(walk, index);
  *out_counts = token != data->options.ignore_id && !*out_begins &&
                (file->mask.at == NULL || file->mask.at[index] != 0);
  *out_token = walk->previous = token;
  return ZR_OK;
}

/* Past the last sample: nothing that counts. */
static void fill_empty(int64_t seq_len, int32_t *out_tokens, int32_t *out_targets,
                       int32_t *out_starts) {
  for (int64_t i = 0; i < seq_len; ++i) {
    out_tokens[i] = 0;
    out_targets[i] = -1;
    if (out_starts != NULL) out_starts[i] = 0;
  }
}

zr_status_t zr_data_sample_in_order(const zr_data_t *data, int64_t index, int32_t *out_tokens,
                                    int32_t *out_targets, int32_t *out_starts) {
  int64_t seq_len = data->options.seq_len, start = 0;
  if (index >= data->n_samples) {
    fill_empty(seq_len, out_tokens, out_targets, out_starts);
    return ZR_OK;
  }
  walk_t walk = {
      .data = data, .file = find_file(data, index * seq_len), .next_document = -1, .previous = -1};
  for (int64_t i = 0; i <= seq_len; ++i) {
    int64_t token = 0;
    bool begins = false, counts = false;
    ZR_TRY(step(&walk, index * seq_len + i, &token, &begins, &counts));
    if (begins) start = i;
    if (i < seq_len) out_tokens[i] = (int32_t)token;
    if (i < seq_len && out_starts != NULL) out_starts[i] = (int32_t)start;
    if (i > 0) out_targets[i - 1] = counts ? (int32_t)token : -1;
  }
  return ZR_OK;
}

zr_status_t zr_data_sample(const zr_data_t *data, int64_t index, int32_t *out_tokens,
                           int32_t *out_targets, int32_t *out_starts) {
  int64_t epoch = index / data->n_samples, place = index % data->n_samples;
  if (data->options.shuffle) {
    uint64_t key = zr_rng_u64(data->shuffle_key, (uint64_t)epoch);
    place = (int64_t)zr_rng_permute(key, (uint64_t)data->n_samples, (uint64_t)place);
  }
  return zr_data_sample_in_order(data, place, out_tokens, out_targets, out_starts);
}
