#include <string.h>

#include "runtime/base/half.h"
#include "runtime/comm/comm.h"

enum { TREE_BLOCK_ELEMS = 512 }; /* one buffer of this size on the stack for each level */

/* The largest power of two below n >= 2. */
static int split_of(int n) {
  int split = 1;
  while (2 * split < n) split *= 2;
  return split;
}

/* Sum of n parts at `offset`, in the tree: the part itself for a leaf, otherwise `buffer`. */
static const float *node_sum(const float *const *parts, int n, int64_t offset, int64_t count,
                             float *buffer) {
  if (n == 1) return parts[0] + offset;
  float own[TREE_BLOCK_ELEMS];
  int split = split_of(n);
  const float *left = node_sum(parts, split, offset, count, buffer);
  const float *right = node_sum(parts + split, n - split, offset, count, own);
  for (int64_t i = 0; i < count; ++i) buffer[i] = left[i] + right[i];
  return buffer;
}

void zr_comm_tree_sum_f32(const float *const *parts, int n_parts, float *out, int64_t count,
                          int accumulate) {
  float buffer[TREE_BLOCK_ELEMS];
  for (int64_t offset = 0; offset < count; offset += TREE_BLOCK_ELEMS) {
    int64_t n = count - offset < TREE_BLOCK_ELEMS ? count - offset : TREE_BLOCK_ELEMS;
    const float *sum = node_sum(parts, n_parts, offset, n, buffer);
    if (accumulate) {
      for (int64_t i = 0; i < n; ++i) out[offset + i] = out[offset + i] + sum[i];
    } else {
      memmove(out + offset, sum, (size_t)n * sizeof *sum);
    }
  }
}

static uint16_t add_bf16(uint16_t a, uint16_t b) {
  return zr_bf16_from_f32(zr_bf16_to_f32(a) + zr_bf16_to_f32(b));
}

static const uint16_t *node_sum_bf16(const uint16_t *const *parts, int n, int64_t offset,
                                     int64_t count, uint16_t *buffer) {
  if (n == 1) return parts[0] + offset;
  uint16_t own[TREE_BLOCK_ELEMS];
  int split = split_of(n);
  const uint16_t *left = node_sum_bf16(parts, split, offset, count, buffer);
  const uint16_t *right = node_sum_bf16(parts + split, n - split, offset, count, own);
  for (int64_t i = 0; i < count; ++i) buffer[i] = add_bf16(left[i], right[i]);
  return buffer;
}

void zr_comm_tree_sum_bf16(const uint16_t *const *parts, int n_parts, uint16_t *out, int64_t count,
                           int accumulate) {
  uint16_t buffer[TREE_BLOCK_ELEMS];
  for (int64_t offset = 0; offset < count; offset += TREE_BLOCK_ELEMS) {
    int64_t n = count - offset < TREE_BLOCK_ELEMS ? count - offset : TREE_BLOCK_ELEMS;
    const uint16_t *sum = node_sum_bf16(parts, n_parts, offset, n, buffer);
    if (accumulate) {
      for (int64_t i = 0; i < n; ++i) out[offset + i] = add_bf16(out[offset + i], sum[i]);
    } else {
      memmove(out + offset, sum, (size_t)n * sizeof *sum);
    }
  }
}

int64_t zr_comm_exchange_scratch_bytes(int n_ranks, int64_t shard_bytes) {
  enum { CHUNK_BYTES = 1 << 20, ALIGN_BYTES = 64 };
  int64_t part_bytes = shard_bytes < CHUNK_BYTES ? shard_bytes : CHUNK_BYTES;
  part_bytes = (part_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
  return n_ranks * part_bytes;
}
