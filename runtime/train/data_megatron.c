/* Megatron's index (IndexedDataset of megatron/core/datasets): all numbers little endian,
 *
 *   "MMIDIDX\0\0"  u64 version = 1  u8 type  u64 n_sequences  u64 n_documents + 1
 *   i32 tokens of each sequence   i64 where each begins in .bin, in bytes
 *   i64 the sequence each document begins with, and n_sequences
 *
 * Sequences lie one behind the other without gaps. Multimodal indices have a byte more for each. */
#include <string.h>

#include "runtime/train/data_file.h"

enum { HEADER_BYTES = 34, TYPE_AT = 17, N_SEQUENCES_AT = 18, N_DOCUMENTS_AT = 26 };

static int64_t number(const uint8_t *at, int64_t index) {
  int64_t value;
  memcpy(&value, at + 8 * index, sizeof value);
  return value;
}

static int32_t short_number(const uint8_t *at, int64_t index) {
  int32_t value;
  memcpy(&value, at + 4 * index, sizeof value);
  return value;
}

static zr_status_t check_header(const char *key, const char *path, zr_data_file_t *file) {
  static const char *const types[] = {"?",     "uint8",   "int8",    "int16", "int32",
                                      "int64", "float64", "float32", "uint16"};
  static const int widths[] = {0, 1, -1, -2, -4, -8, 0, 0, 2};
  const zr_data_map_t *map = &file->index;
  if (map->bytes < HEADER_BYTES || memcmp(map->at, "MMIDIDX\0", 9) != 0) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s is not a Megatron index: it does not begin with MMIDIDX; write both "
                   "files again",
                   key, path);
  }
  int64_t version = number(map->at + 9, 0);
  if (version != 1) {
    return zr_fail(ZR_ERR_DATA, "%s: %s has version %lld of Megatron's index, known is 1", key,
                   path, (long long)version);
  }
  int type = map->at[TYPE_AT], known = type < (int)(sizeof widths / sizeof widths[0]);
  if (!known || widths[type] == 0) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s says its tokens are of type %d (%s); ids are uint8, int8, int16, "
                   "uint16, int32 or int64",
                   key, path, type, known ? types[type] : "?");
  }
  file->width = widths[type];
  file->n_sequences = number(map->at + N_SEQUENCES_AT, 0);
  file->n_documents = number(map->at + N_DOCUMENTS_AT, 0) - 1;
  return ZR_OK;
}

/* The counts against the file's length, without overflow. */
static zr_status_t check_counts(const char *key, const char *path, zr_data_file_t *file) {
  int64_t rest = (int64_t)file->index.bytes - HEADER_BYTES;
  int64_t sequences = file->n_sequences, entries = file->n_documents + 1;
  bool possible = sequences >= 0 && entries >= 1 && sequences <= rest / 12 && entries <= rest / 8;
  int64_t wanted = possible ? 12 * sequences + 8 * entries : -1;
  if (possible && rest == wanted + sequences && sequences > 0) {
    return zr_fail(ZR_ERR_DATA, "%s: %s is of a multimodal data set; only text is read", key, path);
  }
  if (rest != wanted) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s is %s: it says %lld sequences and %lld documents, which do not fit "
                   "its %zu bytes; write it again",
                   key, path, !possible || rest < wanted ? "cut off or damaged" : "damaged",
                   (long long)sequences, (long long)(entries - 1), file->index.bytes);
  }
  file->pointers = file->index.at + HEADER_BYTES + 4 * sequences;
  file->documents = file->pointers + 8 * sequences;
  return ZR_OK;
}

static zr_status_t check_sequences(const char *key, const char *path, zr_data_file_t *file) {
  const uint8_t *sizes = file->index.at + HEADER_BYTES;
  int64_t width = file->width < 0 ? -file->width : file->width, n_tokens = 0;
  for (int64_t i = 0; i < file->n_sequences; ++i) {
    int32_t size = short_number(sizes, i);
    int64_t pointer = number(file->pointers, i);
    if (size < 0 || pointer != n_tokens * width) {
      return zr_fail(ZR_ERR_DATA,
                     "%s: %s is damaged: sequence %lld has %d tokens and begins at byte %lld, not "
                     "%lld; write it again",
                     key, path, (long long)i, size, (long long)pointer,
                     (long long)(n_tokens * width));
    }
    n_tokens += size;
  }
  if ((uint64_t)(n_tokens * width) != file->tokens.bytes) {
    return zr_fail(ZR_ERR_DATA,
                   "%s: %s has %zu bytes, but its index %s says %lld tokens of %lld bytes; write "
                   "both again",
                   key, file->path, file->tokens.bytes, path, (long long)n_tokens,
                   (long long)width);
  }
  file->n_tokens = n_tokens;
  return ZR_OK;
}

static zr_status_t check_documents(const char *key, const char *path, const zr_data_file_t *file) {
  int64_t before = 0;
  for (int64_t i = 0; i <= file->n_documents; ++i) {
    int64_t sequence = number(file->documents, i);
    bool right = sequence >= before && sequence <= file->n_sequences && (i > 0 || sequence == 0) &&
                 (i < file->n_documents || sequence == file->n_sequences);
    if (!right) {
      return zr_fail(ZR_ERR_DATA,
                     "%s: %s is damaged: entry %lld of its document index is %lld; entries rise "
                     "from 0 to its %lld sequences; write it again",
                     key, path, (long long)i, (long long)sequence, (long long)file->n_sequences);
    }
    before = sequence;
  }
  return ZR_OK;
}

zr_status_t zr_data_megatron_read(const char *key, const char *index_path, zr_data_file_t *file) {
  ZR_TRY(zr_data_map(key, index_path, &file->index));
  ZR_TRY(check_header(key, index_path, file));
  ZR_TRY(check_counts(key, index_path, file));
  ZR_TRY(check_sequences(key, index_path, file));
  return check_documents(key, index_path, file);
}

static int64_t document_begin(const zr_data_file_t *file, int64_t document) {
  int64_t sequence = number(file->documents, document);
  int64_t width = file->width < 0 ? -file->width : file->width;
  return sequence == file->n_sequences ? file->n_tokens : number(file->pointers, sequence) / width;
}

int64_t zr_data_megatron_next(const zr_data_file_t *file, int64_t index) {
  int64_t low = 0, high = file->n_documents;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (document_begin(file, middle) < index) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return document_begin(file, low);
}
