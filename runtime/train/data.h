/* Training data: token files or plain text, as one long sequence of tokens cut into samples.
 *
 * Files are mapped read-only, in the order of their patterns (a glob's matches sorted by name).
 * Sample i is tokens i S .. i S + S of the whole: inputs the first S, targets the last S; n tokens
 * hold floor((n - 1) / S) samples. Which sample a step sees is a function of (seed, global index)
 * alone. After zr_data_open everything is read-only: any thread. Nothing is allocated by a fetch.
 *
 * Formats, all files of one list of one kind:
 *   text      with the byte tokenizer: a token is a byte
 *   llm.c     256 int32 of header (magic 20240520, version 1, number of tokens), uint16 tokens; or
 *             magic 20240801, version 7, uint32 tokens
 *   nanoGPT   uint16 tokens, nothing else
 *   Megatron  tokens in NAME.bin, their type, sequences and documents in NAME.idx
 *
 * A target counts unless its mask byte is 0, its id is ignore_id, or, with separate documents, it
 * begins a document: a file, a document of Megatron's index, or what follows eot_id. */
#ifndef ZR_TRAIN_DATA_H
#define ZR_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

typedef struct zr_data_t zr_data_t;

typedef enum { /* in data.format's order */
               ZR_DATA_AUTO = 0,
               ZR_DATA_LLMC,
               ZR_DATA_NANOGPT,
               ZR_DATA_MEGATRON
} zr_data_format_t;

typedef struct {
  const char *key;            /* "data.train": for messages */
  const char *const *pattern; /* files or globs */
  size_t n_patterns;
  bool bytes;              /* plain text, a token is a byte; false: token files */
  zr_data_format_t format; /* of token files; auto: llm.c by its magic, Megatron by its index,
                              another file NAME.bin is nanoGPT's */
  const char *mask_ending; /* FILE + this holds a byte for each token: 0, it does not count as a
                              target, or 1; NULL: there are none */
  int64_t ignore_id;       /* targets of this id do not count; < 0: none */
  int64_t eot_id;          /* ends a document; < 0: none */
  bool separate;           /* documents are apart */
  int64_t seq_len;
  int64_t vocab_size; /* ids at or above it are errors */
  uint64_t seed;
  bool shuffle;
} zr_data_options_t;

/* No masks, no documents, everything else zero. */
void zr_data_defaults(zr_data_options_t *out_options);

/* ZR_ERR_NOT_FOUND: a pattern without files; ZR_ERR_DATA: a file that is empty, cut off, of another
 * format, shorter than a sample, or that holds an id outside the vocabulary (the file and the
 * token's position are named). */
zr_status_t zr_data_open(zr_alloc_t *alloc, const zr_data_options_t *options,
                         zr_data_t **out_data) ZR_MUST_CHECK;
void zr_data_close(zr_data_t *data); /* NULL is fine */

int64_t zr_data_n_tokens(const zr_data_t *data);
int64_t zr_data_n_samples(const zr_data_t *data);
/* "3 files of nanoGPT's format (no known header)", and what a person should know of them. */
void zr_data_describe(const zr_data_t *data, char *out_text, size_t bytes);

/* The sample at place `index` >= 0 of the run's order: epoch index / n_samples, shuffled anew in
 * each. Fills [seq_len] tokens, targets (-1: not counted) and, unless NULL, starts: the place in
 * the sample where the token's document begins (0 without separate documents). */
zr_status_t zr_data_sample(const zr_data_t *data, int64_t index, int32_t *out_tokens,
                           int32_t *out_targets, int32_t *out_starts) ZR_MUST_CHECK;
/* Sample `index` of the files' own order; past the last one: tokens 0, targets -1. For evaluation.
 */
zr_status_t zr_data_sample_in_order(const zr_data_t *data, int64_t index, int32_t *out_tokens,
                                    int32_t *out_targets, int32_t *out_starts) ZR_MUST_CHECK;

#endif
