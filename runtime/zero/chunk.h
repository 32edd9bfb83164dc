/* Chunks: how a state that lives on disk is cut, and the sizes of what moves. Private to
 * runtime/zero.
 *
 * Chunk c of a state holds elements [c C, min((c + 1) C, n)) and begins at a multiple of 4 KiB. A
 * chunk of an optimizer's states is [low | state 0 | state 1]: one request. */
#ifndef ZR_ZERO_CHUNK_H
#define ZR_ZERO_CHUNK_H

#include "runtime/zero/zero.h"

typedef struct {
  int64_t elems, chunk_elems; /* n, C */
  int64_t item;               /* bytes of one element of all that a chunk holds */
} zr_chunks_t;

typedef struct {
  int64_t begin, elems;
  int64_t offset, bytes; /* on disk; bytes is a multiple of 4 KiB */
} zr_chunk_t;

static inline int64_t zr_pad_bytes(int64_t bytes) {
  return (bytes + ZR_PLAN_DISK_ALIGN_BYTES - 1) / ZR_PLAN_DISK_ALIGN_BYTES *
         ZR_PLAN_DISK_ALIGN_BYTES;
}

static inline int64_t zr_chunks_count(const zr_chunks_t *chunks) {
  return (chunks->elems + chunks->chunk_elems - 1) / chunks->chunk_elems;
}

static inline zr_chunk_t zr_chunk_at(const zr_chunks_t *chunks, int64_t index) {
  int64_t begin = index * chunks->chunk_elems, left = chunks->elems - begin;
  int64_t elems = left < chunks->chunk_elems ? left : chunks->chunk_elems;
  return (zr_chunk_t){begin, elems, index * zr_pad_bytes(chunks->chunk_elems * chunks->item),
                      zr_pad_bytes(elems * chunks->item)};
}

static inline zr_chunk_t zr_chunk_of(const zr_chunks_t *chunks, int64_t elem) {
  return zr_chunk_at(chunks, elem / chunks->chunk_elems);
}

/* Of the whole state on disk. */
static inline int64_t zr_chunks_bytes(const zr_chunks_t *chunks) {
  zr_chunk_t last = zr_chunk_at(chunks, zr_chunks_count(chunks) - 1);
  return last.offset + last.bytes;
}

/* Bytes of one element: what 16-bit parameters leave of their master, and all states together. */
static inline int64_t zr_low_bytes(const zr_zero_t *zero) {
  if (zero->tape->dtype == ZR_F32) return 0;
  return zero->tape->dtype == ZR_BF16 ? 2 : 4;
}

static inline int64_t zr_packed_bytes(const zr_zero_t *zero) {
  return zr_low_bytes(zero) +
         zr_zero_n_states(&zero->options) * zr_dtype_bytes(zero->options.state_dtype);
}

/* How many elements of a state this rank holds. */
static inline int64_t zr_held_elems(const zr_zero_unit_t *unit, bool sharded) {
  return sharded ? unit->shard_elems : unit->flat_elems;
}

/* How each state of a unit is cut. */
static inline zr_chunks_t zr_param_chunks(const zr_zero_t *zero, const zr_zero_unit_t *unit) {
  return (zr_chunks_t){zr_held_elems(unit, unit->param_sharded), zero->options.chunk_elems,
                       zr_dtype_bytes((zr_dtype_t)zero->tape->dtype)};
}

static inline zr_chunks_t zr_grad_chunks(const zr_zero_t *zero, const zr_zero_unit_t *unit) {
  return (zr_chunks_t){unit->away_elems, zero->options.chunk_elems,
                       zr_dtype_bytes(zero->options.grad_dtype)};
}

static inline zr_chunks_t zr_state_chunks(const zr_zero_t *zero, const zr_zero_unit_t *unit) {
  return (zr_chunks_t){unit->away_elems, zero->options.chunk_elems, zr_packed_bytes(zero)};
}

#endif
