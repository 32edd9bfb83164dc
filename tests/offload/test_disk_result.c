/* What requests may come back with: errors, fewer bytes, later, in another order, or not at all.
 * Each test runs on both engines. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "tests/offload/seam.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

enum { READ = 0, WRITE = 1 };

static const int kinds[] = {ZR_DISK_POSIX, ZR_DISK_URING};
static const char *const engine_names[] = {"posix", "uring"};

/* false: this machine has no such engine, which is said. */
static bool open_some(seam_t *s, size_t engine, int queue_depth, bool checksums) {
  const zr_status_t status = seam_open(s, temp_dir, kinds[engine], queue_depth, checksums);
  if (status == ZR_ERR_UNSUPPORTED) {
    print_message("skipped on %s: %s\n", engine_names[engine], zr_detail());
    seam_close(s);
    return false;
  }
  if (status != ZR_OK) fail_msg("%s", zr_detail());
  return true;
}

#define FOR_EACH_ENGINE(s, depth, sums)                                                      \
  (void)state;                                                                               \
  for (size_t e = 0; e < 2; e++)                                                             \
    for (seam_t s, *once = (seam_init(&s), open_some(&s, e, depth, sums) ? &s : NULL); once; \
         once = NULL, seam_close(&s))

static zr_status_t move(seam_t *s, int way) {
  return way == WRITE ? s->ops->write(s->disk, 0, s->memory, SEAM_BYTES)
                      : s->ops->read(s->disk, 0, s->memory, SEAM_BYTES);
}

static void write_all(seam_t *s, int version) {
  seam_fill(s, version);
  if (move(s, WRITE) != ZR_OK) fail_msg("%s", zr_detail());
}

/* The next transfer of that way: its at-th result and n - 1 after it are replaced. */
static void script(seam_t *s, int at, int n, int answer) {
  atomic_store(&s->n_results, 0);
  s->at = at;
  s->n = n;
  s->answer = answer;
}

/* The disk still works, and has these bytes. */
static void check_all(seam_t *s, int version) {
  script(s, 0, 0, 0);
  memset(s->memory, 0, SEAM_BYTES);
  if (move(s, READ) != ZR_OK) fail_msg("%s", zr_detail());
  assert_int_equal(seam_n_wrong(s, version), 0);
}

static void an_error_names_file_offset_and_cause(void **state) {
  FOR_EACH_ENGINE(s, 4, false) {
    write_all(&s, 1);
    for (int way = READ; way <= WRITE; way++) {
      atomic_store(&s.is_over, 0);
      script(&s, 3, 1, -EIO);
      assert_int_equal(move(&s, way), ZR_ERR_IO);
      atomic_store(&s.is_over, 1);
      assert_non_null(strstr(zr_detail(), "/zerorun-"));
      assert_non_null(strstr(zr_detail(), way == WRITE ? "write of 32768" : "read of 32768"));
      assert_non_null(strstr(zr_detail(), strerror(EIO)));
      zr_clock_sleep_ns(3000000);
      assert_int_equal(atomic_load(&s.n_late), 0);
    }
    atomic_store(&s.is_over, 0);
    write_all(&s, 2);
    check_all(&s, 2);
  }
}

static void no_space_while_writing_says_where(void **state) {
  FOR_EACH_ENGINE(s, 4, false) {
    seam_fill(&s, 1);
    script(&s, 5, 1, -ENOSPC);
    assert_int_equal(move(&s, WRITE), ZR_ERR_NO_SPACE);
    assert_non_null(strstr(zr_detail(), temp_dir));
    assert_non_null(strstr(zr_detail(), "missing"));
  }
}

/* Whole grains, odd bytes, less than a grain: what came is kept, the rest is asked for again. */
static void short_transfers_go_on_where_they_stopped(void **state) {
  static const int moved[] = {SEAM_GRAIN, 3 * SEAM_GRAIN, SEAM_GRAIN + 1000, 1000, 1};
  FOR_EACH_ENGINE(s, 4, true) {
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
      const zr_disk_stats_t before = seam_stats(&s);
      seam_fill(&s, (int)i);
      script(&s, 2, 3, moved[i]);
      assert_int_equal(move(&s, WRITE), ZR_OK);
      assert_true(seam_stats(&s).n_resumed > before.n_resumed);
      check_all(&s, (int)i);
      memset(s.memory, 0, SEAM_BYTES);
      const int64_t n_resumed = seam_stats(&s).n_resumed;
      script(&s, 2, 3, moved[i]);
      assert_int_equal(move(&s, READ), ZR_OK);
      assert_true(seam_stats(&s).n_resumed > n_resumed);
      assert_int_equal(seam_n_wrong(&s, (int)i), 0);
    }
    const zr_disk_stats_t stats = seam_stats(&s);
    assert_int_equal(stats.written_bytes, 5 * SEAM_BYTES);
    assert_int_equal(stats.read_bytes, 10 * SEAM_BYTES);
  }
}

static void passing_refusals_are_retried(void **state) {
  static const int errors[] = {EAGAIN, EINTR};
  FOR_EACH_ENGINE(s, 1, false) {
    for (int i = 0; i < 2; i++) {
      const int64_t n_retried = seam_stats(&s).n_retried;
      seam_fill(&s, i);
      script(&s, 2, 3, -errors[i]);
      assert_int_equal(move(&s, WRITE), ZR_OK);
      assert_int_equal(seam_stats(&s).n_retried, n_retried + 3);
      check_all(&s, i);
    }
  }
}

static void lasting_refusals_end(void **state) {
  static const int errors[] = {EAGAIN, EINTR};
  for (int i = 0; i < 2; i++) {
    FOR_EACH_ENGINE(s, 4, false) {
      s.disk->seam.retry_ns = 30000000;
      seam_fill(&s, 1);
      script(&s, 1, 1 << 30, -errors[i]);
      assert_int_equal(move(&s, WRITE), ZR_ERR_IO);
      assert_non_null(strstr(zr_detail(), "again and again"));
      write_all((script(&s, 0, 0, 0), &s), 3);
      check_all(&s, 3);
    }
  }
}

static void a_refused_direct_transfer_goes_through_the_page_cache(void **state) {
  FOR_EACH_ENGINE(s, 4, true) {
    const bool is_direct = s.disk->file[0].direct_fd >= 0;
    s.only_direct = true;
    seam_fill(&s, 1);
    script(&s, 3, 2, -EINVAL);
    assert_int_equal(move(&s, WRITE), ZR_OK);
    assert_int_equal(seam_stats(&s).n_retried, is_direct ? 2 : 0);
    check_all(&s, 1);
    memset(s.memory, 0, SEAM_BYTES);
    script(&s, 1, 1, -EINVAL);
    assert_int_equal(move(&s, READ), ZR_OK);
    assert_int_equal(seam_n_wrong(&s, 1), 0);
    assert_int_equal(seam_stats(&s).n_retried, is_direct ? 3 : 0);
    s.only_direct = false;
    script(&s, 1, 1 << 30, -EINVAL);
    assert_int_equal(move(&s, READ), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), strerror(EINVAL)));
  }
}

static void a_file_that_ends_early_is_an_error(void **state) {
  FOR_EACH_ENGINE(s, 4, false) {
    write_all(&s, 1);
    script(&s, 4, 1, 0);
    assert_int_equal(move(&s, READ), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), "the file is shorter"));
    script(&s, 4, 1, 0);
    assert_int_equal(move(&s, WRITE), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), "no bytes were written"));
  }
}

/* Really: nothing is replaced. */
static void a_file_that_somebody_cut_is_an_error(void **state) {
  FOR_EACH_ENGINE(s, 4, false) {
    write_all(&s, 1);
    assert_int_equal(ftruncate(s.disk->file[1].buffered_fd, 50 * SEAM_GRAIN + 100), 0);
    assert_int_equal(move(&s, READ), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), s.disk->file[1].name));
    assert_non_null(strstr(zr_detail(), "the file is shorter"));
  }
}

static void late_and_reordered_results_are_all_right(void **state) {
  FOR_EACH_ENGINE(s, 8, true) {
    for (int i = 0; i < 2; i++) {
      s.shuffle = (uint64_t)i + 1;
      write_all(&s, i);
      check_all(&s, i);
    }
  }
}

static void wrong_bytes_are_found_by_their_checksum(void **state) {
  FOR_EACH_ENGINE(s, 4, true) {
    write_all(&s, 1);
    s.flip_at = 2 * 8 * SEAM_GRAIN + 3 * SEAM_GRAIN + 5; /* block 2: file 0, its block 1 */
    assert_int_equal(move(&s, READ), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), "/zerorun-"));
    assert_non_null(strstr(zr_detail(), "4096 bytes at 45056 are not what was written"));
    s.flip_at = 0;
    check_all(&s, 1);
  }
}

static void what_was_never_written_is_not_read_with_checksums(void **state) {
  FOR_EACH_ENGINE(s, 4, true) {
    seam_fill(&s, 1);
    assert_int_equal(s.ops->write(s.disk, 0, s.memory, 8 * SEAM_GRAIN), ZR_OK);
    assert_int_equal(s.ops->read(s.disk, 0, s.memory, 8 * SEAM_GRAIN), ZR_OK);
    assert_int_equal(s.ops->read(s.disk, 0, s.memory, 9 * SEAM_GRAIN), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), "4096 bytes at 0 are read and were never written"));
  }
}

/* --- cancel --- */

typedef struct {
  seam_t *s;
  bool is_released; /* the hung requests end with the cancel */
  int64_t cancel_ns;
} canceller_t;

static void *cancel_soon(void *context) {
  canceller_t *c = context;
  zr_clock_sleep_ns(30000000);
  c->cancel_ns = zr_clock_ns();
  c->s->ops->cancel(c->s->disk, ZR_ERR_PEER, "rank 1 is gone");
  if (c->is_released) atomic_store(&c->s->is_hung, 0);
  return NULL;
}

static int64_t cancel_while_hung(seam_t *s, bool is_released) {
  canceller_t canceller = {.s = s, .is_released = is_released};
  pthread_t thread;
  seam_fill(s, 1);
  atomic_store(&s->is_hung, 1);
  if (pthread_create(&thread, NULL, cancel_soon, &canceller) != 0) fail_msg("no thread");
  const zr_status_t status = move(s, WRITE);
  const int64_t end_ns = zr_clock_ns();
  char detail[ZR_DETAIL_BYTES];
  (void)snprintf(detail, sizeof detail, "%s", zr_detail());
  (void)pthread_join(thread, NULL);
  assert_int_equal(status, ZR_ERR_PEER);
  assert_non_null(strstr(detail, "rank 1 is gone"));
  assert_int_equal(move(s, READ), ZR_ERR_PEER);
  return end_ns - canceller.cancel_ns;
}

static void a_cancel_waits_for_what_is_in_flight(void **state) {
  FOR_EACH_ENGINE(s, 4, false) {
    (void)cancel_while_hung(&s, true);
    assert_false(s.disk->lane[WRITE].is_stuck);
    const zr_disk_stats_t stats = seam_stats(&s);
    assert_true(stats.written_bytes < SEAM_BYTES);
    assert_int_equal(stats.writing_bytes, 0);
  }
}

static void a_cancel_ends_a_transfer_that_hangs_for_ever(void **state) {
  FOR_EACH_ENGINE(s, 4, false) {
    s.disk->seam.drain_ns = 50000000;
    assert_true(cancel_while_hung(&s, false) >= 50000000);
    assert_true(s.disk->lane[WRITE].is_stuck);
    atomic_store(&s.is_hung, 0);
  }
}

/* One write fails and the others never end: the lane moves nothing more, and reading goes on. */
static void a_hung_lane_stays_closed(void **state) {
  char *other = aligned_alloc(SEAM_GRAIN, SEAM_BYTES);
  FOR_EACH_ENGINE(s, 4, false) {
    write_all(&s, 1);
    s.disk->seam.drain_ns = 50000000;
    s.hang_begin = 1;
    atomic_store(&s.is_hung, 1);
    script(&s, 1, 1, -EIO);
    assert_int_equal(move(&s, WRITE), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), strerror(EIO)));
    assert_true(s.disk->lane[WRITE].is_stuck);
    assert_int_equal(move(&s, WRITE), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), "never completed"));
    assert_int_equal(s.ops->read(s.disk, 0, other, SEAM_BYTES), ZR_OK);
    assert_memory_equal(other, s.memory, SEAM_BYTES);
    atomic_store(&s.is_hung, 0);
  }
  free(other);
}

int main(void) {
  zr_log_set_level(ZR_LOG_ERROR + 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_error_names_file_offset_and_cause),
      cmocka_unit_test(no_space_while_writing_says_where),
      cmocka_unit_test(short_transfers_go_on_where_they_stopped),
      cmocka_unit_test(passing_refusals_are_retried),
      cmocka_unit_test(lasting_refusals_end),
      cmocka_unit_test(a_refused_direct_transfer_goes_through_the_page_cache),
      cmocka_unit_test(a_file_that_ends_early_is_an_error),
      cmocka_unit_test(a_file_that_somebody_cut_is_an_error),
      cmocka_unit_test(late_and_reordered_results_are_all_right),
      cmocka_unit_test(wrong_bytes_are_found_by_their_checksum),
      cmocka_unit_test(what_was_never_written_is_not_read_with_checksums),
      cmocka_unit_test(a_cancel_waits_for_what_is_in_flight),
      cmocka_unit_test(a_cancel_ends_a_transfer_that_hangs_for_ever),
      cmocka_unit_test(a_hung_lane_stays_closed),
  };
  return cmocka_run_group_tests_name("disk results", tests, make_temp_dir, remove_temp_dir);
}
