#include "tests/cts/comm_cts.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/rng.h"
#include "tests/support/cmocka_all.h"

/* Bytes around every buffer that no collective may touch. */
enum { GUARD_BYTES = 64, GUARD = 0xa5 };

static void *guarded(int64_t bytes) {
  unsigned char *memory = malloc((size_t)bytes + 2 * GUARD_BYTES);
  memset(memory, GUARD, (size_t)bytes + 2 * GUARD_BYTES);
  return memory + GUARD_BYTES;
}

static void release(void *guarded_memory, int64_t bytes) {
  unsigned char *memory = guarded_memory;
  for (int i = 1; i <= GUARD_BYTES; i++) {
    assert_int_equal(memory[-i], GUARD);
    assert_int_equal(memory[bytes + i - 1], GUARD);
  }
  free(memory - GUARD_BYTES);
}

typedef struct {
  const zr_comm_ops_t *ops;
  zr_comm_t *comm;
  int rank, n_ranks;
} job_t;

static job_t job_of(void **state) {
  const zr_cts_comm_t *opened = *state;
  const zr_comm_info_t info = opened->ops->info(opened->comm);
  return (job_t){opened->ops, opened->comm, info.rank, info.n_ranks};
}

static void facts_are_sane(void **state) {
  const job_t job = job_of(state);
  const zr_comm_info_t info = job.ops->info(job.comm);
  assert_true(info.n_ranks >= 1 && info.rank >= 0 && info.rank < info.n_ranks);
  assert_true(info.n_local_ranks >= 1 && info.n_local_ranks <= info.n_ranks);
  assert_true(info.local_rank >= 0 && info.local_rank < info.n_local_ranks);
  assert_int_equal(job.ops->scratch_bytes(job.comm, 12345),
                   zr_comm_exchange_scratch_bytes(info.n_ranks, 12345));
  int rank = -7;
  assert_int_equal(job.ops->cause(job.comm, &rank, NULL, 0), ZR_OK);
  assert_int_equal(rank, -7);
}

/* Odd sizes, tails, and sizes around the chunks of 256 KiB and the parts of 1 MiB. */
static const int64_t byte_sizes[] = {
    0, 1, 3, 4096, 65537, 262143, 262144, 262145, 1048576 - 1, 1048576 + 1, 2097152, 3145728 + 20};
enum { N_BYTE_SIZES = sizeof byte_sizes / sizeof *byte_sizes };

static unsigned char byte_of(int rank, int64_t i) {
  return (unsigned char)zr_mix64((uint64_t)i * 64 + (uint64_t)rank);
}

static void all_gather_puts_each_shard_in_its_place(void **state) {
  const job_t job = job_of(state);
  for (int i = 0; i < N_BYTE_SIZES; i++) {
    for (int in_place = 0; in_place < 2; in_place++) {
      const int64_t bytes = byte_sizes[i];
      unsigned char *flat = guarded(bytes * job.n_ranks), *shard = guarded(bytes);
      unsigned char *source = in_place ? flat + job.rank * bytes : shard;
      for (int64_t b = 0; b < bytes; b++) source[b] = byte_of(job.rank, b);
      const int64_t sent = job.ops->sent_bytes(job.comm);
      assert_int_equal(job.ops->all_gather(job.comm, source, flat, bytes), ZR_OK);
      assert_int_equal(job.ops->sent_bytes(job.comm) - sent, (job.n_ranks - 1) * bytes);
      int64_t n_wrong = 0;
      for (int r = 0; r < job.n_ranks; r++) {
        for (int64_t b = 0; b < bytes; b++) n_wrong += flat[r * bytes + b] != byte_of(r, b);
      }
      assert_int_equal(n_wrong, 0);
      release(flat, bytes * job.n_ranks);
      release(shard, bytes);
    }
  }
}

static const int64_t float_counts[] = {
    0, 1, 5, 1023, 16384, 16385, 65536 + 13, 262144 - 1, 262144, 262144 + 1, 300000, 786432 + 13};
enum { N_FLOAT_COUNTS = sizeof float_counts / sizeof *float_counts };

/* exact: integers whose sums are exact in any order. Otherwise values of very different size and
 * sign, whose sum shows the order it was made in. */
static float float_of(int rank, int64_t i, int exact) {
  const uint64_t bits = zr_mix64((uint64_t)i * 64 + (uint64_t)rank + 1);
  if (exact) return (float)((int64_t)(bits % 2001) - 1000);
  const float mantissa = (float)(int32_t)(bits & 0xffffff) - 8388608.0f;
  return mantissa * (float)(1u << (bits >> 24) % 20);
}

/* The tree of the header, written down once more. */
static float tree_of(int first, int n, int64_t i, int exact) {
  if (n == 1) return float_of(first, i, exact);
  int split = 1;
  while (split * 2 < n) split *= 2;
  return tree_of(first, split, i, exact) + tree_of(first + split, n - split, i, exact);
}

static void check_reduce_scatter(const job_t *job, int64_t count, int accumulate, int exact,
                                 int in_place) {
  const int64_t bytes = count * 4, scratch_bytes = job->ops->scratch_bytes(job->comm, bytes);
  float *flat = guarded(bytes * job->n_ranks), *shard = guarded(bytes);
  void *scratch = guarded(scratch_bytes);
  float *out = in_place ? flat + job->rank * count : shard;
  for (int64_t i = 0; i < count * job->n_ranks; i++) flat[i] = float_of(job->rank, i, exact);
  for (int64_t i = 0; i < count && !in_place; i++) shard[i] = (float)(i % 977) * 0.37f;
  const int64_t sent = job->ops->sent_bytes(job->comm);
  assert_int_equal(
      job->ops->reduce_scatter(job->comm, flat, out, bytes, ZR_F32, accumulate, scratch), ZR_OK);
  assert_int_equal(job->ops->sent_bytes(job->comm) - sent, (job->n_ranks - 1) * bytes);
  int64_t n_wrong = 0;
  for (int64_t i = 0; i < count; i++) {
    float expected = tree_of(0, job->n_ranks, job->rank * count + i, exact);
    if (accumulate) expected = (float)(i % 977) * 0.37f + expected;
    n_wrong += memcmp(&out[i], &expected, sizeof expected) != 0;
  }
  assert_int_equal(n_wrong, 0);
  if (!in_place) { /* what was sent is as it was */
    for (int64_t i = 0; i < count * job->n_ranks; i++) {
      n_wrong += flat[i] != float_of(job->rank, i, exact);
    }
    assert_int_equal(n_wrong, 0);
  }
  release(flat, bytes * job->n_ranks);
  release(shard, bytes);
  release(scratch, scratch_bytes);
}

static void reduce_scatter_sums_in_the_tree(void **state) {
  const job_t job = job_of(state);
  for (int i = 0; i < N_FLOAT_COUNTS; i++) {
    check_reduce_scatter(&job, float_counts[i], 0, 1, 0);
    check_reduce_scatter(&job, float_counts[i], 0, 0, 0);
    check_reduce_scatter(&job, float_counts[i], 1, 0, 0);
    check_reduce_scatter(&job, float_counts[i], 0, 0, 1);
  }
}

/* The tree in bf16: a node is the fp32 sum of its two parts, rounded. */
static uint16_t bf16_tree_of(int first, int n, int64_t i, int exact) {
  if (n == 1) { /* 8 bits hold these integers and their sums over 16 ranks */
    float value = float_of(first, i, exact);
    return zr_bf16_from_f32(exact ? (float)((int)value % 16) : value);
  }
  int split = 1;
  while (split * 2 < n) split *= 2;
  float left = zr_bf16_to_f32(bf16_tree_of(first, split, i, exact));
  return zr_bf16_from_f32(left + zr_bf16_to_f32(bf16_tree_of(first + split, n - split, i, exact)));
}

static void check_reduce_scatter_bf16(const job_t *job, int64_t count, int accumulate, int exact,
                                      int in_place) {
  const int64_t bytes = count * 2, scratch_bytes = job->ops->scratch_bytes(job->comm, bytes);
  uint16_t *flat = guarded(bytes * job->n_ranks), *shard = guarded(bytes);
  void *scratch = guarded(scratch_bytes);
  uint16_t *out = in_place ? flat + job->rank * count : shard;
  for (int64_t i = 0; i < count * job->n_ranks; i++) flat[i] = bf16_tree_of(job->rank, 1, i, exact);
  for (int64_t i = 0; i < count && !in_place; i++)
    shard[i] = zr_bf16_from_f32((float)(i % 977) * 0.37f);
  const int64_t sent = job->ops->sent_bytes(job->comm);
  assert_int_equal(
      job->ops->reduce_scatter(job->comm, flat, out, bytes, ZR_BF16, accumulate, scratch), ZR_OK);
  assert_int_equal(job->ops->sent_bytes(job->comm) - sent, (job->n_ranks - 1) * bytes);
  int64_t n_wrong = 0;
  for (int64_t i = 0; i < count; i++) {
    uint16_t expected = bf16_tree_of(0, job->n_ranks, job->rank * count + i, exact);
    float before = zr_bf16_to_f32(zr_bf16_from_f32((float)(i % 977) * 0.37f));
    if (accumulate) expected = zr_bf16_from_f32(before + zr_bf16_to_f32(expected));
    n_wrong += out[i] != expected;
  }
  for (int64_t i = 0; i < count * job->n_ranks && !in_place; i++)
    n_wrong += flat[i] != bf16_tree_of(job->rank, 1, i, exact);
  assert_int_equal(n_wrong, 0);
  release(flat, bytes * job->n_ranks);
  release(shard, bytes);
  release(scratch, scratch_bytes);
}

static void reduce_scatter_of_bf16_rounds_each_node(void **state) {
  const job_t job = job_of(state);
  static const int64_t counts[] = {0, 1, 5, 1023, 32769, 131071, 524288 + 13};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const int64_t count = counts[i];
    check_reduce_scatter_bf16(&job, count, 0, 1, 0);
    check_reduce_scatter_bf16(&job, count, 1, 0, 0);
    check_reduce_scatter_bf16(&job, count, 0, 0, 1);
  }
}

static void reduce_scatter_refuses_other_types(void **state) {
  const job_t job = job_of(state);
  char data[64], scratch[4096];
  assert_int_equal(job.ops->reduce_scatter(job.comm, data, data, 8, ZR_F64, 0, scratch),
                   ZR_ERR_UNSUPPORTED);
}

static void all_reduce_adds_integers(void **state) {
  const job_t job = job_of(state);
  static const int64_t counts[] = {0, 1, 23, 8191, 8192, 8193, 131072 + 5, 300000};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    const int64_t bytes = counts[c] * 8, scratch_bytes = job.ops->scratch_bytes(job.comm, bytes);
    int64_t *data = guarded(bytes);
    void *scratch = guarded(scratch_bytes);
    for (int64_t i = 0; i < counts[c]; i++) {
      data[i] = (int64_t)(zr_mix64((uint64_t)i * 64 + (uint64_t)job.rank) >> 4) - (1ll << 59);
    }
    const int64_t sent = job.ops->sent_bytes(job.comm);
    assert_int_equal(job.ops->all_reduce(job.comm, data, counts[c], scratch), ZR_OK);
    assert_int_equal(job.ops->sent_bytes(job.comm) - sent, (job.n_ranks - 1) * bytes);
    int64_t n_wrong = 0;
    for (int64_t i = 0; i < counts[c]; i++) {
      int64_t sum = 0;
      for (int r = 0; r < job.n_ranks; r++) {
        sum += (int64_t)(zr_mix64((uint64_t)i * 64 + (uint64_t)r) >> 4) - (1ll << 59);
      }
      n_wrong += data[i] != sum;
    }
    assert_int_equal(n_wrong, 0);
    release(data, bytes);
    release(scratch, scratch_bytes);
  }
}

static void broadcast_from_each_rank(void **state) {
  const job_t job = job_of(state);
  for (int root = 0; root < job.n_ranks; root++) {
    for (int i = 0; i < N_BYTE_SIZES; i++) {
      const int64_t bytes = byte_sizes[i];
      unsigned char *data = guarded(bytes);
      for (int64_t b = 0; b < bytes; b++) data[b] = byte_of(job.rank, b);
      const int64_t sent = job.ops->sent_bytes(job.comm);
      assert_int_equal(job.ops->broadcast(job.comm, data, bytes, root), ZR_OK);
      assert_int_equal(job.ops->sent_bytes(job.comm) - sent,
                       job.rank == root ? (job.n_ranks - 1) * bytes : 0);
      int64_t n_wrong = 0;
      for (int64_t b = 0; b < bytes; b++) n_wrong += data[b] != byte_of(root, b);
      assert_int_equal(n_wrong, 0);
      release(data, bytes);
    }
  }
  char data[4];
  assert_int_equal(job.ops->broadcast(job.comm, data, 4, job.n_ranks), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(job.ops->broadcast(job.comm, data, 4, -1), ZR_ERR_INVALID_ARGUMENT);
}

static void many_small_ones_and_barriers(void **state) {
  const job_t job = job_of(state);
  const int64_t sent = job.ops->sent_bytes(job.comm);
  char scratch[64 * 16] __attribute__((aligned(64)));
  assert_true(job.ops->scratch_bytes(job.comm, 8) <= (int64_t)sizeof scratch);
  for (int64_t i = 0; i < 200; i++) {
    int64_t value = i * (job.rank + 1);
    assert_int_equal(job.ops->all_reduce(job.comm, &value, 1, scratch), ZR_OK);
    assert_int_equal(value, i * job.n_ranks * (job.n_ranks + 1) / 2);
    assert_int_equal(job.ops->barrier(job.comm), ZR_OK);
  }
  assert_int_equal(job.ops->sent_bytes(job.comm) - sent, 200 * 8 * (job.n_ranks - 1));
}

int zr_cts_comm(const zr_cts_comm_t *opened, const char *name) {
  void *state = (void *)(uintptr_t)opened;
#define CASE(test) \
  { #test, test, NULL, NULL, state }
  const struct CMUnitTest tests[] = {
      CASE(facts_are_sane),
      CASE(all_gather_puts_each_shard_in_its_place),
      CASE(reduce_scatter_sums_in_the_tree),
      CASE(reduce_scatter_of_bf16_rounds_each_node),
      CASE(reduce_scatter_refuses_other_types),
      CASE(all_reduce_adds_integers),
      CASE(broadcast_from_each_rank),
      CASE(many_small_ones_and_barriers),
  };
#undef CASE
  return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
