/* One file of tokens, whatever its format: mapped, recognised, checked. Private to
 * runtime/train/data*.c. */
#ifndef ZR_TRAIN_DATA_FILE_H
#define ZR_TRAIN_DATA_FILE_H

#include "runtime/train/data.h"
#include "runtime/train/files.h"

/* Ids and masks of files up to here are checked before the run starts; of larger ones when
 * fetched. */
enum { ZR_DATA_SCAN_TOKENS = 1 << 28 };

typedef struct {
  const uint8_t *at; /* NULL: not mapped */
  size_t bytes;
} zr_data_map_t;

typedef struct {
  char *path; /* of the tokens */
  zr_data_map_t tokens, index, mask;
  zr_data_format_t format;
  bool by_name;      /* data.format says so: nothing was recognised */
  size_t skip_bytes; /* header */
  int width;         /* bytes of a token: 1, 2, 4, 8; negative: signed */
  int64_t first, n_tokens;
  /* Megatron's index */
  int64_t n_sequences, n_documents;
  const uint8_t *pointers;  /* i64 [n_sequences]: where each begins, in bytes */
  const uint8_t *documents; /* i64 [n_documents + 1]: the sequence each begins with */
} zr_data_file_t;

/* Maps a whole regular file that is not empty. */
zr_status_t zr_data_map(const char *key, const char *path, zr_data_map_t *out_map) ZR_MUST_CHECK;
void zr_data_unmap(zr_data_map_t *map); /* not mapped is fine */

/* Fills a zeroed file: format, mapping, where the tokens lie; all that headers say is checked. On
 * failure what is mapped stays for zr_data_file_close. */
zr_status_t zr_data_file_open(zr_alloc_t *alloc, const zr_data_options_t *options, const char *path,
                              zr_data_file_t *file) ZR_MUST_CHECK;
void zr_data_file_close(zr_alloc_t *alloc, zr_data_file_t *file);
int64_t zr_data_file_token(const zr_data_file_t *file, int64_t index);
const char *zr_data_format_name(zr_data_format_t format);

/* data_megatron.c: the index of tokens that are mapped already. */
zr_status_t zr_data_megatron_read(const char *key, const char *index_path,
                                  zr_data_file_t *file) ZR_MUST_CHECK;
/* The first token at or after `index` that begins a document; n_tokens: none. */
int64_t zr_data_megatron_next(const zr_data_file_t *file, int64_t index);

#endif
