/* Training data: token files or plain text, as one long sequence of tokens cut into samples.
 *
 * Files are mapped read-only, in the order of their patterns (a glob's matches sorted by name).
 * Sample i is tokens i S .. i S + S of the whole: inputs the first S, targets the last S; n tokens
 * hold floor((n - 1) / S) samples. Which sample a step sees is a function of (seed, global index)
 * alone. After zr_data_open everything is read-only: any thread. Nothing is allocated by a fetch.
 *
 * Formats: llm.c token files (256 int32 of header: magic 20240520, version 1, number of tokens;
 * then uint16 tokens); plain text with the byte tokenizer (a token is a byte). */
#ifndef ZR_TRAIN_DATA_H
#define ZR_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

typedef struct zr_data_t zr_data_t;

typedef struct {
  const char *key;            /* "data.train": for messages */
  const char *const *pattern; /* files or globs */
  size_t n_patterns;
  bool bytes; /* plain text, a token is a byte; false: token files */
  int64_t seq_len;
  int64_t vocab_size; /* ids at or above it are errors */
  uint64_t seed;
  bool shuffle;
} zr_data_options_t;

/* ZR_ERR_NOT_FOUND: a pattern without files; ZR_ERR_DATA: a file that is empty, cut off, of another
 * format, shorter than a sample, or that holds an id outside the vocabulary (the file and the
 * token's position are named). */
zr_status_t zr_data_open(zr_alloc_t *alloc, const zr_data_options_t *options,
                         zr_data_t **out_data) ZR_MUST_CHECK;
void zr_data_close(zr_data_t *data); /* NULL is fine */

int64_t zr_data_n_tokens(const zr_data_t *data);
int64_t zr_data_n_samples(const zr_data_t *data);

/* The sample at place `index` >= 0 of the run's order: epoch index / n_samples, shuffled anew in
 * each. Fills [seq_len] tokens and targets. */
zr_status_t zr_data_sample(const zr_data_t *data, int64_t index, int32_t *out_tokens,
                           int32_t *out_targets) ZR_MUST_CHECK;
/* Sample `index` of the files' own order; past the last one: tokens 0, targets -1 (not counted).
 * For evaluation. */
zr_status_t zr_data_sample_in_order(const zr_data_t *data, int64_t index, int32_t *out_tokens,
                                    int32_t *out_targets) ZR_MUST_CHECK;

#endif
