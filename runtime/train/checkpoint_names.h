/* Names inside a checkpoint folder. Private to checkpoint_write.c and checkpoint_read.c. */
#ifndef ZR_TRAIN_CHECKPOINT_NAMES_H
#define ZR_TRAIN_CHECKPOINT_NAMES_H

#include <jansson.h>
#include <stdio.h>

#define ZR_CHECKPOINT_WRITING ".writing-"
#define ZR_CHECKPOINT_MANIFEST "manifest.json"
#define ZR_CHECKPOINT_LATEST "latest"
/* The manifest's own checksum is of this form of it, without the key "checksum". */
#define ZR_CHECKPOINT_CANONICAL (JSON_COMPACT | JSON_SORT_KEYS)

enum { ZR_CHECKPOINT_FILE_BYTES = 64 };

static inline void zr_checkpoint_file_name(int rank, int n_ranks,
                                           char out_name[ZR_CHECKPOINT_FILE_BYTES]) {
  (void)snprintf(out_name, ZR_CHECKPOINT_FILE_BYTES, "rank-%05d-of-%05d.safetensors", rank,
                 n_ranks);
}

#endif
