#include "runtime/train/data_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  HEADER_INTS = 256,
  HEADER_BYTES = HEADER_INTS * 4,
  LLMC_MAGIC = 20240520, /* uint16 ids */
  LLMC_VERSION = 1,
  LLMC_WIDE_MAGIC = 20240801, /* uint32 ids: llm.c's Llama 3 */
  LLMC_WIDE_VERSION = 7
};

/* --- mapping --------------------------------------------------------------------------------- */

zr_status_t zr_data_map(const char *key, const char *path, zr_data_map_t *out_map) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (fd < 0 || fstat(fd, &about) != 0) {
    int error = errno;
    if (fd >= 0) close(fd);
    return zr_fail(error == ENOENT ? ZR_ERR_NOT_FOUND : ZR_ERR_DATA, "%s: can not open %s: %s", key,
                   path, strerror(error));
  }
  zr_status_t status = ZR_OK;
  if (!S_ISREG(about.st_mode)) {
    status = zr_fail(ZR_ERR_DATA, "%s: %s is not a regular file", key, path);
  } else if (about.st_size == 0) {
    status = zr_fail(ZR_ERR_DATA, "%s: %s is empty", key, path);
  } else {
    void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
      status = zr_fail(ZR_ERR_IO, "%s: can not map %s: %s", key, path, strerror(errno));
    } else {
      *out_map = (zr_data_map_t){.at = map, .bytes = (size_t)about.st_size};
    }
  }
  close(fd);
  return status;
}

void zr_data_unmap(zr_data_map_t *map) {
  if (map->at != NULL) (void)munmap((void *)(uintptr_t)map->at, map->bytes);
  *map = (zr_data_map_t){0};
}

/* --- names ----------------------------------------------------------------------------------- */

const char *zr_data_format_name(zr_data_format_t format) {
  static const char *const names[] = {"auto", "llm.c", "nanoGPT", "Megatron"};
  return names[format];
}

static bool ends_in(const char *path, const char *ending) {
  size_t chars = strlen(path), end = strlen(ending);
  return chars > end && strcmp(path + chars - end, ending) == 0;
}

static bool is_there(const char *path) {
  struct stat about;
  return stat(path, &about) == 0;
}

/* The two names of a Megatron pair, of either of them or of what they have in common. */
static bool pair_of(const char *path, char bin[ZR_PATH_BYTES], char idx[ZR_PATH_BYTES]) {
  size_t stem = strlen(path) - (ends_in(path, ".bin") || ends_in(path, ".idx") ? 4 : 0);
  if (stem + 5 > ZR_PATH_BYTES) return false;
  (void)snprintf(bin, ZR_PATH_BYTES, "%.*s.bin", (int)stem, path);
  (void)snprintf(idx, ZR_PATH_BYTES, "%.*s.idx", (int)stem, path);
  return true;
}

/* --- formats --------------------------------------------------------------------------------- */

static zr_status_t read_llmc(const char *key, zr_data_file_t *file) {
  int32_t header[HEADER_INTS];
  if (file->tokens.bytes < HEADER_BYTES) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s is %zu bytes long, a token file of llm.c has %d bytes of header; for "
                   "plain text set data.tokenizer: byte",
                   key, file->path, file->tokens.bytes, (int)HEADER_BYTES);
  }
  memcpy(header, file->tokens.at, sizeof header);
  bool wide = header[0] == LLMC_WIDE_MAGIC;
  if (header[0] != LLMC_MAGIC && !wide) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s is not an llm.c token file (it begins with %d, not %d); for plain text "
                   "set data.tokenizer: byte",
                   key, file->path, header[0], (int)LLMC_MAGIC);
  }
  if (header[1] != (wide ? LLMC_WIDE_VERSION : LLMC_VERSION)) {
    return zr_fail(ZR_ERR_DATA, "%s: %s has version %d of the llm.c format, known is %d", key,
                   file->path, header[1], wide ? (int)LLMC_WIDE_VERSION : (int)LLMC_VERSION);
  }
  file->width = wide ? -4 : 2;
  size_t width = wide ? 4 : 2, rest = file->tokens.bytes - HEADER_BYTES;
  file->skip_bytes = HEADER_BYTES;
  file->n_tokens = header[2];
  int64_t there = (int64_t)(rest / width);
  if (file->n_tokens < 0 || there != file->n_tokens || rest % width != 0) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s is %s: its header says %d tokens, the file has %zu bytes of them "
                   "(%lld); write it again",
                   key, file->path, there < file->n_tokens ? "cut off" : "damaged", header[2], rest,
                   (long long)there);
  }
  return ZR_OK;
}

/* 32-bit ids read as 16-bit ones are ids and their upper halves, which are nearly nothing. */
static bool looks_wide(const zr_data_file_t *file) {
  enum { LEAST = 32, MOST = 4096, MOST_UPPER = 3 };
  int64_t n = file->n_tokens < MOST ? file->n_tokens : MOST;
  bool even_is_more = false;
  for (int64_t i = 0; i + 1 < n; i += 2) {
    if (zr_data_file_token(file, i + 1) > MOST_UPPER) return false;
    if (zr_data_file_token(file, i) > MOST_UPPER) even_is_more = true;
  }
  return n >= LEAST && file->tokens.bytes % 4 == 0 && even_is_more;
}

static zr_status_t read_nanogpt(const char *key, zr_data_file_t *file) {
  file->width = 2;
  file->n_tokens = (int64_t)(file->tokens.bytes / 2);
  const char *how = file->by_name ? "data.format: nanogpt" : "no known header: read as nanoGPT's";
  if (file->tokens.bytes % 2 != 0) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s (%s) has %zu bytes, an odd number: 16-bit ids were cut off, or it is "
                   "something else; for plain text set data.tokenizer: byte",
                   key, file->path, how, file->tokens.bytes);
  }
  if (looks_wide(file)) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s (%s) looks like 32-bit ids, or begins with a header that is not "
                   "known; nanoGPT's ids are uint16, which ends at 65535: write it as uint16, or "
                   "with larger ids as Megatron's .bin and .idx",
                   key, file->path, how);
  }
  return ZR_OK;
}

static zr_status_t read_megatron(const char *key, zr_data_file_t *file) {
  char bin[ZR_PATH_BYTES], idx[ZR_PATH_BYTES];
  if (!pair_of(file->path, bin, idx) || !is_there(idx)) {
    return zr_fail(ZR_ERR_NOT_FOUND,
                   "%s: %s has no index beside it; Megatron's format is NAME.bin and NAME.idx", key,
                   file->path);
  }
  return zr_data_megatron_read(key, idx, file);
}

/* What the first bytes and the name say. */
static zr_status_t recognise(const char *key, zr_data_file_t *file) {
  int32_t begin = 0;
  const zr_data_map_t *map = &file->tokens;
  if (map->bytes >= sizeof begin) memcpy(&begin, map->at, sizeof begin);
  if (begin == LLMC_MAGIC || begin == LLMC_WIDE_MAGIC) {
    file->format = ZR_DATA_LLMC;
    return ZR_OK;
  }
  const char *other = map->bytes >= 6 && memcmp(map->at, "\x93NUMPY", 6) == 0 ? "a numpy array"
                      : map->bytes >= 4 && memcmp(map->at, "PAR1", 4) == 0    ? "a parquet file"
                                                                              : NULL;
  if (other == NULL && ends_in(file->path, ".bin")) {
    file->format = ZR_DATA_NANOGPT;
    return ZR_OK;
  }
  return zr_fail(
      ZR_ERR_DATA,
      "%s: %s is not a token file (llm.c's header, or Megatron's .bin and .idx)%s%s; for "
      "plain text set data.tokenizer: byte, for 16-bit ids without a header data.format: "
      "nanogpt",
      key, file->path, other ? ": it is " : "", other ? other : "");
}

/* --- open and close -------------------------------------------------------------------------- */

/* Megatron's tokens are in the .bin, whichever name was given. */
static zr_status_t choose_path(zr_alloc_t *alloc, const zr_data_options_t *options,
                               const char *path, zr_data_file_t *file) {
  char bin[ZR_PATH_BYTES], idx[ZR_PATH_BYTES];
  bool asked = options->format == ZR_DATA_MEGATRON, may = asked || options->format == ZR_DATA_AUTO;
  if (!options->bytes && may && pair_of(path, bin, idx) && is_there(idx) &&
      (is_there(bin) || ends_in(path, ".idx"))) {
    bool is_pair = ends_in(path, ".bin") || ends_in(path, ".idx") || !is_there(path);
    if (is_pair) {
      file->format = ZR_DATA_MEGATRON;
      return zr_alloc_strdup(alloc, bin, &file->path);
    }
  }
  return zr_alloc_strdup(alloc, path, &file->path);
}

static zr_status_t map_mask(const zr_data_options_t *options, zr_data_file_t *file) {
  char path[ZR_PATH_BYTES];
  if (options->mask_ending == NULL) return ZR_OK;
  int used = snprintf(path, sizeof path, "%s%s", file->path, options->mask_ending);
  if (used >= ZR_PATH_BYTES) return zr_fail(ZR_ERR_CONFIG, "data.mask: too long a name");
  ZR_TRY(zr_data_map("data.mask", path, &file->mask));
  if ((int64_t)file->mask.bytes == file->n_tokens) return ZR_OK;
  return zr_fail(ZR_ERR_DATA,
                 "data.mask: %s has %zu bytes, but %s has %lld tokens: a mask is one byte, 0 or 1, "
                 "for each",
                 path, file->mask.bytes, file->path, (long long)file->n_tokens);
}

zr_status_t zr_data_file_open(zr_alloc_t *alloc, const zr_data_options_t *options, const char *path,
                              zr_data_file_t *file) {
  ZR_TRY(choose_path(alloc, options, path, file));
  ZR_TRY(zr_data_map(options->key, file->path, &file->tokens));
  if (options->bytes) {
    file->width = 1;
    file->n_tokens = (int64_t)file->tokens.bytes;
    return map_mask(options, file);
  }
  file->by_name = options->format != ZR_DATA_AUTO;
  if (file->by_name) file->format = options->format;
  if (file->format == ZR_DATA_AUTO) ZR_TRY(recognise(options->key, file));
  ZR_TRY(file->format == ZR_DATA_LLMC      ? read_llmc(options->key, file)
         : file->format == ZR_DATA_NANOGPT ? read_nanogpt(options->key, file)
                                           : read_megatron(options->key, file));
  return map_mask(options, file);
}

void zr_data_file_close(zr_alloc_t *alloc, zr_data_file_t *file) {
  zr_data_unmap(&file->tokens);
  zr_data_unmap(&file->index);
  zr_data_unmap(&file->mask);
  zr_alloc_free(alloc, file->path);
}

/* Files have no alignment: a header of 34 bytes, a path of any kind. */
int64_t zr_data_file_token(const zr_data_file_t *file, int64_t index) {
  const uint8_t *at = file->tokens.at + file->skip_bytes;
  int16_t shorter;
  int32_t integer;
  int64_t longer;
  switch (file->width) {
    case 1:
      return at[index];
    case -1:
      return (int8_t)at[index];
    case 2:
      memcpy(&shorter, at + 2 * index, sizeof shorter);
      return (uint16_t)shorter;
    case -2:
      memcpy(&shorter, at + 2 * index, sizeof shorter);
      return shorter;
    case -4:
      memcpy(&integer, at + 4 * index, sizeof integer);
      return integer;
    default:
      memcpy(&longer, at + 8 * index, sizeof longer);
      return longer;
  }
}
