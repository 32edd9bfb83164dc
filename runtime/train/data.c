#include "runtime/train/data.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/rng.h"

enum {
  HEADER_INTS = 256,
  HEADER_BYTES = HEADER_INTS * 4,
  LLMC_MAGIC = 20240520,
  LLMC_VERSION = 1,
  /* Ids of files up to here are checked before the run starts; of larger ones when fetched. */
  SCAN_TOKENS = 1 << 28
};

typedef struct {
  char *path;
  const uint8_t *map;
  size_t map_bytes;
  size_t skip_bytes; /* header */
  int64_t first, n_tokens;
} data_file_t;

struct zr_data_t {
  zr_alloc_t *alloc;
  data_file_t *file;
  size_t n_files, capacity;
  char *key;
  bool bytes, shuffle;
  int64_t seq_len, vocab_size, n_tokens, n_samples;
  uint64_t shuffle_key;
};

static int64_t file_token(const zr_data_t *data, const data_file_t *file, int64_t index) {
  const uint8_t *at = file->map + file->skip_bytes;
  if (data->bytes) return at[index];
  uint16_t token;
  memcpy(&token, at + 2 * index, sizeof token);
  return token;
}

static zr_status_t fail_id(const zr_data_t *data, const data_file_t *file, int64_t index) {
  return zr_fail(ZR_ERR_DATA,
                 "%s: %s: token %lld (from 0) is %lld, but model.vocab_size is %lld; use the "
                 "model's own tokenizer or a larger vocabulary",
                 data->key, file->path, (long long)index, (long long)file_token(data, file, index),
                 (long long)data->vocab_size);
}

/* Checks the header of a token file: what it says must be what is there. */
static zr_status_t check_tokens(const zr_data_t *data, data_file_t *file) {
  int32_t header[HEADER_INTS];
  if (file->map_bytes < HEADER_BYTES) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s is %zu bytes long, a token file has %d bytes of header; for plain text "
                   "set data.tokenizer: byte",
                   data->key, file->path, file->map_bytes, (int)HEADER_BYTES);
  }
  memcpy(header, file->map, sizeof header);
  if (header[0] != LLMC_MAGIC) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s is not an llm.c token file (it begins with %d, not %d); for plain text "
                   "set data.tokenizer: byte",
                   data->key, file->path, header[0], (int)LLMC_MAGIC);
  }
  if (header[1] != LLMC_VERSION) {
    return zr_fail(ZR_ERR_DATA, "%s: %s has version %d of the llm.c format, known is %d", data->key,
                   file->path, header[1], (int)LLMC_VERSION);
  }
  file->skip_bytes = HEADER_BYTES;
  file->n_tokens = header[2];
  int64_t there = (int64_t)(file->map_bytes - HEADER_BYTES) / 2;
  if (file->n_tokens < 0 || there != file->n_tokens || (file->map_bytes - HEADER_BYTES) % 2 != 0) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s is %s: its header says %d tokens, the file has %zu bytes of them "
                   "(%lld); write it again",
                   data->key, file->path, there < file->n_tokens ? "cut off" : "damaged", header[2],
                   file->map_bytes - HEADER_BYTES, (long long)there);
  }
  return ZR_OK;
}

static zr_status_t map_file(zr_data_t *data, data_file_t *file) {
  int fd = open(file->path, O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (fd < 0 || fstat(fd, &about) != 0) {
    int error = errno;
    if (fd >= 0) close(fd);
    return zr_fail(error == ENOENT ? ZR_ERR_NOT_FOUND : ZR_ERR_DATA, "%s: can not open %s: %s",
                   data->key, file->path, strerror(error));
  }
  zr_status_t status = ZR_OK;
  if (!S_ISREG(about.st_mode)) {
    status = zr_fail(ZR_ERR_DATA, "%s: %s is not a regular file", data->key, file->path);
  } else if (about.st_size == 0) {
    status = zr_fail(ZR_ERR_DATA, "%s: %s is empty", data->key, file->path);
  } else {
    void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
      status = zr_fail(ZR_ERR_IO, "%s: can not map %s: %s", data->key, file->path, strerror(errno));
    } else {
      file->map = map;
      file->map_bytes = (size_t)about.st_size;
    }
  }
  close(fd);
  return status;
}

static zr_status_t add_file(zr_data_t *data, const char *path) {
  ZR_TRY(zr_alloc_grow(data->alloc, &data->file, &data->capacity, data->n_files + 1,
                       sizeof *data->file));
  data_file_t *file = &data->file[data->n_files++];
  ZR_TRY(zr_alloc_strdup(data->alloc, path, &file->path));
  ZR_TRY(map_file(data, file));
  file->first = data->n_tokens;
  if (data->bytes) {
    file->n_tokens = (int64_t)file->map_bytes;
  } else {
    ZR_TRY(check_tokens(data, file));
  }
  if (file->n_tokens <= SCAN_TOKENS && data->vocab_size < (data->bytes ? 256 : 65536)) {
    for (int64_t i = 0; i < file->n_tokens; ++i) {
      if (file_token(data, file, i) >= data->vocab_size) return fail_id(data, file, i);
    }
  }
  data->n_tokens += file->n_tokens;
  return ZR_OK;
}

static zr_status_t add_pattern(zr_data_t *data, const char *pattern) {
  if (strpbrk(pattern, "*?[") == NULL) return add_file(data, pattern);
  glob_t found = {0};
  int result = glob(pattern, 0, NULL, &found);
  zr_status_t status = ZR_OK;
  if (result != 0) {
    status = zr_fail(ZR_ERR_NOT_FOUND, "%s: no file matches %s", data->key, pattern);
  }
  for (size_t i = 0; result == 0 && status == ZR_OK && i < found.gl_pathc; ++i) {
    status = add_file(data, found.gl_pathv[i]);
  }
  globfree(&found);
  return status;
}

static zr_status_t open_all(zr_data_t *data, const zr_data_options_t *options) {
  ZR_TRY(zr_alloc_strdup(data->alloc, options->key, &data->key));
  if (options->n_patterns == 0) {
    return zr_fail(ZR_ERR_CONFIG, "%s: no file is named; give a file, a glob or a list of them",
                   data->key);
  }
  for (size_t i = 0; i < options->n_patterns; ++i) ZR_TRY(add_pattern(data, options->pattern[i]));
  data->n_samples = data->n_tokens > 0 ? (data->n_tokens - 1) / data->seq_len : 0;
  if (data->n_samples < 1) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s%s hold%s %lld tokens, one sample of data.seq_len = %lld needs %lld; "
                   "shorten data.seq_len or give more text",
                   data->key, data->file[0].path, data->n_files > 1 ? " and the others" : "",
                   data->n_files > 1 ? "" : "s", (long long)data->n_tokens,
                   (long long)data->seq_len, (long long)data->seq_len + 1);
  }
  return ZR_OK;
}

zr_status_t zr_data_open(zr_alloc_t *alloc, const zr_data_options_t *options,
                         zr_data_t **out_data) {
  zr_data_t *data = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *data, &data));
  data->alloc = alloc;
  data->bytes = options->bytes;
  data->shuffle = options->shuffle;
  data->seq_len = options->seq_len;
  data->vocab_size = options->vocab_size;
  data->shuffle_key = zr_rng_key(options->seed, "data.shuffle");
  zr_status_t status = open_all(data, options);
  if (status != ZR_OK) {
    zr_data_close(data);
    return status;
  }
  *out_data = data;
  return ZR_OK;
}

void zr_data_close(zr_data_t *data) {
  if (data == NULL) return;
  for (size_t i = 0; i < data->n_files; ++i) {
    if (data->file[i].map != NULL) {
      (void)munmap((void *)(uintptr_t)data->file[i].map, data->file[i].map_bytes);
    }
    zr_alloc_free(data->alloc, data->file[i].path);
  }
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

/* The file that holds token `at`. */
static const data_file_t *find_file(const zr_data_t *data, int64_t at) {
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

zr_status_t zr_data_sample_in_order(const zr_data_t *data, int64_t index, int32_t *out_tokens,
                                    int32_t *out_targets) {
  int64_t seq_len = data->seq_len;
  if (index >= data->n_samples) {
    for (int64_t i = 0; i < seq_len; ++i) {
      out_tokens[i] = 0;
      out_targets[i] = -1;
    }
    return ZR_OK;
  }
  int64_t at = index * seq_len;
  const data_file_t *file = find_file(data, at);
  const data_file_t *end = data->file + data->n_files;
  for (int64_t i = 0; i <= seq_len; ++i) {
    while (file + 1 < end && at + i >= file->first + file->n_tokens) ++file;
    int64_t token = file_token(data, file, at + i - file->first);
    if (token >= data->vocab_size) return fail_id(data, file, at + i - file->first);
    if (i < seq_len) out_tokens[i] = (int32_t)token;
    if (i > 0) out_targets[i - 1] = (int32_t)token;
  }
  return ZR_OK;
}

zr_status_t zr_data_sample(const zr_data_t *data, int64_t index, int32_t *out_tokens,
                           int32_t *out_targets) {
  int64_t epoch = index / data->n_samples, place = index % data->n_samples;
  if (data->shuffle) {
    uint64_t key = zr_rng_u64(data->shuffle_key, (uint64_t)epoch);
    place = (int64_t)zr_rng_permute(key, (uint64_t)data->n_samples, (uint64_t)place);
  }
  return zr_data_sample_in_order(data, place, out_tokens, out_targets);
}
