#include "tests/cts/disk_cts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "tests/support/cmocka_all.h"

enum { GRAIN = ZR_DISK_ALIGN_BYTES, N_GRAINS = 512 + 3, BYTES = N_GRAINS * GRAIN };

typedef struct {
  const zr_cts_disk_t *backend;
  zr_alloc_t alloc;
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  char *memory; /* [BYTES], grain-aligned */
} fixture_t;

static void open_backend(void **state, fixture_t *f) {
  *f = (fixture_t){.backend = *state, .memory = aligned_alloc(GRAIN, BYTES)};
  assert_non_null(f->memory);
  zr_alloc_init(&f->alloc);
  const zr_status_t status =
      f->backend->open(f->backend->context, &f->alloc, BYTES, &f->ops, &f->disk);
  if (status != ZR_OK) print_message("open: %s\n", zr_detail());
  assert_int_equal(status, ZR_OK);
}

static void close_backend(fixture_t *f) {
  f->ops->close(f->disk);
  assert_int_equal(atomic_load(&f->alloc.live_count), 0);
  free(f->memory);
}

/* The word at `offset` of the disk after its `version`-th write. */
static uint64_t word_at(int64_t offset, uint64_t version) {
  return zr_mix64((uint64_t)offset * 31 + version);
}

static void fill(char *memory, int64_t offset, int64_t bytes, uint64_t version) {
  for (int64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = word_at(offset + at, version);
    memcpy(memory + at, &word, 8);
  }
}

static int64_t n_wrong(const char *memory, int64_t offset, int64_t bytes, uint64_t version) {
  int64_t wrong = 0;
  for (int64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = word_at(offset + at, version);
    wrong += memcmp(memory + at, &word, 8) != 0;
  }
  return wrong;
}

static bool all_are(const char *memory, int64_t bytes, int value) {
  for (int64_t i = 0; i < bytes; i++) {
    if (memory[i] != (char)value) return false;
  }
  return true;
}

static void write_and_read(fixture_t *f, int64_t offset, int64_t bytes, uint64_t version) {
  char *memory = f->memory + GRAIN;
  fill(memory, offset, bytes, version);
  assert_int_equal(f->ops->write(f->disk, offset, memory, bytes), ZR_OK);
  memset(f->memory, 0x55, (size_t)(bytes + 2 * GRAIN));
  assert_int_equal(f->ops->read(f->disk, offset, memory, bytes), ZR_OK);
  if (!f->backend->has_memory) return;
  assert_int_equal(n_wrong(memory, offset, bytes, version), 0);
  assert_true(all_are(f->memory, GRAIN, 0x55));
  assert_true(all_are(memory + bytes, GRAIN, 0x55));
}

static void odd_pieces_come_back_and_nothing_else_changes(void **state) {
  fixture_t f;
  open_backend(state, &f);
  static const int grains[] = {1, 2, 3, 17, 64, 255, 256, 257, 400};
  uint8_t version[N_GRAINS];
  memset(version, 1, sizeof version);
  fill(f.memory, 0, BYTES, 1);
  assert_int_equal(f.ops->write(f.disk, 0, f.memory, BYTES), ZR_OK);
  for (size_t i = 0; i < sizeof grains / sizeof *grains; i++) {
    const int n = grains[i], begin = (int)(zr_mix64(i + 7) % (uint64_t)(N_GRAINS - n + 1));
    write_and_read(&f, (int64_t)begin * GRAIN, (int64_t)n * GRAIN, i + 2);
    memset(version + begin, (int)i + 2, (size_t)n);
  }
  memset(f.memory, 0, BYTES);
  assert_int_equal(f.ops->read(f.disk, 0, f.memory, BYTES), ZR_OK);
  for (int64_t g = 0; f.backend->has_memory && g < N_GRAINS; g++) {
    assert_int_equal(n_wrong(f.memory + g * GRAIN, g * GRAIN, GRAIN, version[g]), 0);
  }
  close_backend(&f);
}

static void bytes_are_counted(void **state) {
  fixture_t f;
  open_backend(state, &f);
  const int64_t n_calls = atomic_load(&f.alloc.n_calls);
  memset(f.memory, 3, BYTES);
  assert_int_equal(f.ops->write(f.disk, 0, f.memory, BYTES), ZR_OK);
  assert_int_equal(f.ops->read(f.disk, GRAIN, f.memory, 5 * GRAIN), ZR_OK);
  zr_disk_stats_t stats;
  f.ops->stats(f.disk, &stats);
  assert_int_equal(stats.written_bytes, BYTES);
  assert_int_equal(stats.read_bytes, 5 * GRAIN);
  assert_int_equal(stats.reading_bytes, 0);
  assert_int_equal(stats.writing_bytes, 0);
  assert_true(stats.n_requests >= 2);
  assert_true(f.ops->describe(f.disk)[0] != '\0');
  assert_int_equal(atomic_load(&f.alloc.n_calls), n_calls);
  close_backend(&f);
}

static void wrong_ranges_are_refused(void **state) {
  fixture_t f;
  open_backend(state, &f);
  memset(f.memory, 0, BYTES);
  static const int64_t wrong[][3] = {
      /* offset, memory, bytes */
      {-GRAIN, 0, GRAIN},  {512, 0, GRAIN},   {0, 512, GRAIN},
      {0, 0, GRAIN + 512}, {0, 0, 0},         {0, 0, -GRAIN},
      {BYTES, 0, GRAIN},   {GRAIN, 0, BYTES}, {INT64_MAX / GRAIN * GRAIN, 0, GRAIN}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const int64_t *w = wrong[i];
    assert_int_equal(f.ops->read(f.disk, w[0], f.memory + w[1], w[2]), ZR_ERR_INVALID_ARGUMENT);
    assert_int_equal(f.ops->write(f.disk, w[0], f.memory + w[1], w[2]), ZR_ERR_INVALID_ARGUMENT);
  }
  assert_int_equal(f.ops->write(f.disk, BYTES - GRAIN, f.memory, GRAIN), ZR_OK);
  f.ops->close(NULL);
  close_backend(&f);
}

static void attached_memory_and_other_memory_work(void **state) {
  fixture_t f;
  open_backend(state, &f);
  /* Transfers inside, outside, and across both of the attached memory's ends. */
  char *attached = f.memory + 100 * GRAIN;
  assert_int_equal(f.ops->attach(f.disk, attached, 200 * GRAIN), ZR_OK);
  static const uint16_t begins[] = {100, 0, 50, 250, 299, 300},
                        counts[] = {200, 100, 400, 100, 2, 9};
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
    char *memory = f.memory + begins[i] * GRAIN;
    const int64_t bytes = (int64_t)counts[i] * GRAIN, offset = (int64_t)(i + 1) * 37 * GRAIN;
    fill(memory, offset, bytes, i);
    assert_int_equal(f.ops->write(f.disk, offset, memory, bytes), ZR_OK);
    memset(memory, 0, (size_t)bytes);
    assert_int_equal(f.ops->read(f.disk, offset, memory, bytes), ZR_OK);
    if (f.backend->has_memory) assert_int_equal(n_wrong(memory, offset, bytes, i), 0);
  }
  close_backend(&f);
}

typedef struct {
  fixture_t *f;
  char *memory;
  int64_t wrong;
  zr_status_t status;
} reader_t;

enum { HALF = N_GRAINS / 2 * GRAIN, N_ROUNDS = 3 };

static void *read_half(void *context) {
  reader_t *r = context;
  for (int i = 0; i < N_ROUNDS && r->status == ZR_OK; i++) {
    memset(r->memory, 0, HALF);
    r->status = r->f->ops->read(r->f->disk, 0, r->memory, HALF);
    r->wrong += n_wrong(r->memory, 0, HALF, 1);
  }
  return NULL;
}

static void one_reads_while_one_writes(void **state) {
  fixture_t f;
  open_backend(state, &f);
  reader_t reader = {.f = &f, .memory = f.memory};
  char *written = f.memory + HALF;
  assert_int_equal(f.ops->attach(f.disk, f.memory, BYTES), ZR_OK);
  fill(f.memory, 0, HALF, 1);
  assert_int_equal(f.ops->write(f.disk, 0, f.memory, HALF), ZR_OK);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, read_half, &reader), 0);
  zr_status_t status = ZR_OK;
  for (uint64_t i = 0; i < N_ROUNDS && status == ZR_OK; i++) {
    fill(written, HALF, HALF, 10 + i);
    status = f.ops->write(f.disk, HALF, written, HALF);
  }
  (void)pthread_join(thread, NULL);
  assert_int_equal(status, ZR_OK);
  assert_int_equal(reader.status, ZR_OK);
  assert_int_equal(f.ops->read(f.disk, HALF, f.memory, HALF), ZR_OK);
  if (f.backend->has_memory) {
    assert_int_equal(reader.wrong, 0);
    assert_int_equal(n_wrong(f.memory, HALF, HALF, 10 + N_ROUNDS - 1), 0);
  }
  close_backend(&f);
}

static void after_a_cancel_all_transfers_fail(void **state) {
  fixture_t f;
  open_backend(state, &f);
  memset(f.memory, 0, GRAIN);
  assert_int_equal(f.ops->write(f.disk, 0, f.memory, GRAIN), ZR_OK);
  f.ops->cancel(f.disk, ZR_ERR_PEER, "rank 3 is gone");
  f.ops->cancel(f.disk, ZR_ERR_TIMEOUT, "later");
  for (int i = 0; i < 2; i++) {
    assert_int_equal(f.ops->read(f.disk, 0, f.memory, GRAIN), ZR_ERR_PEER);
    assert_non_null(strstr(zr_detail(), "rank 3 is gone"));
    assert_int_equal(f.ops->write(f.disk, 0, f.memory, GRAIN), ZR_ERR_PEER);
  }
  close_backend(&f);
}

static void open_survives_any_failed_allocation(void **state) {
  const zr_cts_disk_t *backend = *state;
  for (int64_t n = 1;; n++) {
    const zr_disk_ops_t *ops = NULL;
    zr_disk_t *disk = NULL;
    zr_alloc_t alloc;
    zr_alloc_init(&alloc);
    alloc.fail_at = n;
    const zr_status_t status = backend->open(backend->context, &alloc, BYTES, &ops, &disk);
    if (status == ZR_OK) {
      ops->close(disk);
      assert_int_equal(atomic_load(&alloc.live_count), 0);
      assert_true(n > 1);
      return;
    }
    assert_int_equal(status, ZR_ERR_OUT_OF_MEMORY);
    assert_null(disk);
    assert_int_equal(atomic_load(&alloc.live_count), 0);
  }
}

int zr_cts_disk(const zr_cts_disk_t *backend, const char *name) {
  void *state = (void *)(uintptr_t)backend;
#define CASE(test) \
  { #test, test, NULL, NULL, state }
  const struct CMUnitTest tests[] = {
      CASE(odd_pieces_come_back_and_nothing_else_changes),
      CASE(bytes_are_counted),
      CASE(wrong_ranges_are_refused),
      CASE(attached_memory_and_other_memory_work),
      CASE(one_reads_while_one_writes),
      CASE(after_a_cancel_all_transfers_fail),
      CASE(open_survives_any_failed_allocation),
  };
#undef CASE
  return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
