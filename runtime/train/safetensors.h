/* One safetensors file: 8 bytes of header length (little endian), a JSON header, the tensors' bytes
 * one after the other. https://github.com/huggingface/safetensors, format 0.
 *
 * Writing goes front to back, with XXH3 over every byte, and ends in an fsync. Reading maps
 * nothing: ranges are read where they are asked for. One thread each. */
#ifndef ZR_TRAIN_SAFETENSORS_H
#define ZR_TRAIN_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

enum { ZR_SAFETENSORS_NAME_BYTES = 176, ZR_SAFETENSORS_MAX_DIMS = 4 };

typedef struct {
  char name[ZR_SAFETENSORS_NAME_BYTES];
  zr_dtype_t dtype;
  int n_dims;
  int64_t dim[ZR_SAFETENSORS_MAX_DIMS];
  int64_t offset, bytes; /* in the data part; filled in by both sides */
} zr_safetensors_entry_t;

typedef struct zr_safetensors_writer_t zr_safetensors_writer_t;

/* Writes the header of `n_entries` tensors; their offsets are filled in, in the order given. */
zr_status_t zr_safetensors_create(zr_alloc_t *alloc, const char *path,
                                  zr_safetensors_entry_t *entry, size_t n_entries,
                                  zr_safetensors_writer_t **out_writer) ZR_MUST_CHECK;
/* The next bytes of the data part. ZR_ERR_NO_SPACE: the disk is full. */
zr_status_t zr_safetensors_append(zr_safetensors_writer_t *writer, const void *data,
                                  int64_t bytes) ZR_MUST_CHECK;
/* Makes the file durable and closes it; frees the writer also on failure. */
zr_status_t zr_safetensors_finish(zr_safetensors_writer_t *writer, uint64_t *out_hash,
                                  int64_t *out_bytes) ZR_MUST_CHECK;
void zr_safetensors_abandon(zr_safetensors_writer_t *writer); /* NULL is fine */

typedef struct {
  zr_alloc_t *alloc;
  char *path;
  int fd;
  int64_t data_begin; /* in the file */
  zr_safetensors_entry_t *entry;
  size_t n_entries;
} zr_safetensors_t;

/* ZR_ERR_DATA, with the file's name, for what is cut off or is not safetensors. */
zr_status_t zr_safetensors_open(zr_alloc_t *alloc, const char *path,
                                zr_safetensors_t **out_file) ZR_MUST_CHECK;
void zr_safetensors_close(zr_safetensors_t *file); /* NULL is fine */
/* Bytes [offset, offset + bytes) of an entry. */
zr_status_t zr_safetensors_read(const zr_safetensors_t *file, const zr_safetensors_entry_t *entry,
                                int64_t offset, void *out_data, int64_t bytes) ZR_MUST_CHECK;

/* XXH3 of a whole file, read in pieces; *out_bytes: its length. */
zr_status_t zr_safetensors_hash(zr_alloc_t *alloc, const char *path, uint64_t *out_hash,
                                int64_t *out_bytes) ZR_MUST_CHECK;

#endif
