/* Systems that refuse io_uring, direct transfers, allocation or registered memory, at first or
 * later. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "tests/offload/seam.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

static bool has_uring; /* of this build and this machine */

static void move_all(seam_t *s, int version) {
  seam_fill(s, version);
  if (s->ops->write(s->disk, 0, s->memory, SEAM_BYTES) != ZR_OK) fail_msg("%s", zr_detail());
  memset(s->memory, 0, SEAM_BYTES);
  if (s->ops->read(s->disk, 0, s->memory, SEAM_BYTES) != ZR_OK) fail_msg("%s", zr_detail());
  assert_int_equal(seam_n_wrong(s, version), 0);
}

static void need_uring(void) {
  if (has_uring) return;
  print_message("skipped: no io_uring here\n");
  skip();
}

static void threads_replace_a_refused_io_uring(void **state) {
  (void)state;
  need_uring();
  static const struct {
    zr_disk_call_t call;
    int error, skip;
    const char *said;
  } rows[] = {{ZR_DISK_CALL_SETUP, -ENOSYS, 0, "setup"},
              {ZR_DISK_CALL_SETUP, -EPERM, 1, "setup"}, /* of the second ring */
              {ZR_DISK_CALL_REGISTER_FILES, -EPERM, 0, "register"},
              {ZR_DISK_CALL_ENTER, -EPERM, 0, "enter"},
              {ZR_DISK_CALL_ENTER, -ENOSYS, 1, "enter"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (int kind = ZR_DISK_AUTO; kind <= ZR_DISK_URING; kind++) {
      seam_t s;
      seam_init(&s);
      s.refuse[rows[i].call] = rows[i].error;
      s.skip[rows[i].call] = rows[i].skip;
      const zr_status_t status = seam_open(&s, temp_dir, kind, 4, true);
      if (kind == ZR_DISK_URING) {
        assert_int_equal(status, ZR_ERR_UNSUPPORTED);
        assert_non_null(strstr(zr_detail(), rows[i].said));
      } else {
        assert_int_equal(status, ZR_OK);
        assert_string_equal(s.ops->name, "posix");
        assert_non_null(strstr(s.ops->describe(s.disk), "io_uring refused"));
        assert_non_null(strstr(s.ops->describe(s.disk), strerror(-rows[i].error)));
        move_all(&s, 1);
      }
      seam_close(&s);
    }
  }
}

static void without_direct_transfers_the_page_cache_does(void **state) {
  (void)state;
  for (int kind = ZR_DISK_AUTO; kind <= ZR_DISK_POSIX; kind++) {
    if (kind == ZR_DISK_URING && !has_uring) continue;
    seam_t s;
    seam_init(&s);
    s.refuse[ZR_DISK_CALL_OPEN_DIRECT] = -EINVAL;
    assert_int_equal(seam_open(&s, temp_dir, kind, 4, true), ZR_OK);
    assert_string_equal(s.ops->name, kind == ZR_DISK_URING ? "uring" : "posix");
    assert_non_null(strstr(s.ops->describe(s.disk), "page cache"));
    assert_non_null(strstr(s.ops->describe(s.disk), "refuses O_DIRECT"));
    move_all(&s, 1);
    assert_int_equal(seam_stats(&s).n_retried, 0);
    seam_close(&s);
  }
}

static void a_block_that_comes_back_wrong_refuses_the_path(void **state) {
  (void)state;
  seam_t s;
  seam_init(&s);
  s.refuse[ZR_DISK_CALL_OPEN_DIRECT] = -EIO;
  assert_int_equal(seam_open(&s, temp_dir, ZR_DISK_AUTO, 4, false), ZR_ERR_IO);
  assert_non_null(strstr(zr_detail(), temp_dir));
  seam_close(&s);
}

static void blocks_that_can_not_be_allocated_are_said(void **state) {
  (void)state;
  seam_t s;
  seam_init(&s);
  s.refuse[ZR_DISK_CALL_FALLOCATE] = -EOPNOTSUPP;
  assert_int_equal(seam_open(&s, temp_dir, ZR_DISK_AUTO, 4, false), ZR_OK);
  assert_non_null(strstr(s.ops->describe(s.disk), "can not allocate"));
  move_all(&s, 1);
  seam_close(&s);
  /* Then the room for all ranks of the node is asked for. */
  const char *path = temp_dir;
  const zr_disk_options_t options = {
      .path = &path, .n_paths = 1, .bytes = SEAM_BYTES, .node_bytes = (int64_t)1 << 58};
  seam_init(&s);
  s.refuse[ZR_DISK_CALL_FALLOCATE] = -EOPNOTSUPP;
  assert_int_equal(zr_disk_open_with(NULL, &options, &s.seam, &s.ops, &s.disk), ZR_ERR_NO_SPACE);
  assert_non_null(strstr(zr_detail(), "by this node's ranks"));
  assert_non_null(strstr(zr_detail(), "are missing"));
  seam_close(&s);
}

static void room_that_runs_out_while_allocating_is_said(void **state) {
  (void)state;
  seam_t s;
  seam_init(&s);
  s.refuse[ZR_DISK_CALL_FALLOCATE] = -ENOSPC;
  assert_int_equal(seam_open(&s, temp_dir, ZR_DISK_AUTO, 4, false), ZR_ERR_NO_SPACE);
  assert_non_null(strstr(zr_detail(), temp_dir));
  seam_close(&s);
}

static void memory_that_can_not_be_registered_works(void **state) {
  (void)state;
  need_uring();
  for (int skipped = 0; skipped < 2; skipped++) {
    seam_t s;
    seam_init(&s);
    s.refuse[ZR_DISK_CALL_REGISTER_BUFFERS] = -ENOMEM;
    s.skip[ZR_DISK_CALL_REGISTER_BUFFERS] = skipped;
    assert_int_equal(seam_open(&s, temp_dir, ZR_DISK_URING, 4, true), ZR_OK);
    assert_int_equal(s.ops->attach(s.disk, s.memory, SEAM_BYTES), ZR_OK);
    assert_non_null(strstr(s.ops->describe(s.disk), "not registered"));
    move_all(&s, 1);
    seam_close(&s);
  }
}

static int check_buffer(void *context, const zr_disk_request_t *r, int answer) {
  seam_t *s = context;
  const int64_t begin = r->memory - s->memory, end = begin + r->bytes - 1;
  if (begin / s->seam.buffer_bytes != end / s->seam.buffer_bytes) s->n_straddling++;
  return answer;
}

/* Buffers of 5 grains, blocks of 8: requests end with both. */
static void no_request_lies_in_two_registered_buffers(void **state) {
  (void)state;
  need_uring();
  seam_t s;
  seam_init(&s);
  s.seam.buffer_bytes = 5 * SEAM_GRAIN;
  s.seam.result = check_buffer;
  assert_int_equal(seam_open(&s, temp_dir, ZR_DISK_URING, 4, true), ZR_OK);
  assert_int_equal(s.ops->attach(s.disk, s.memory, SEAM_BYTES), ZR_OK);
  assert_null(strstr(s.ops->describe(s.disk), "not registered"));
  move_all(&s, 1);
  assert_int_equal(s.n_straddling, 0);
  assert_true(seam_stats(&s).n_requests > 2 * SEAM_BYTES / (8 * SEAM_GRAIN));
  seam_close(&s);
}

static void entering_is_retried_for_a_while(void **state) {
  (void)state;
  need_uring();
  seam_t s;
  seam_init(&s);
  s.refuse[ZR_DISK_CALL_ENTER] = -EAGAIN;
  s.skip[ZR_DISK_CALL_ENTER] = 4;
  s.times[ZR_DISK_CALL_ENTER] = 3;
  assert_int_equal(seam_open(&s, temp_dir, ZR_DISK_URING, 2, true), ZR_OK);
  move_all(&s, 1);
  assert_int_equal(seam_stats(&s).n_retried, 3);
  seam_close(&s);
}

/* Refused for good in the middle: an error at once, and from then on. */
static void a_ring_that_may_not_be_entered_any_more_fails(void **state) {
  (void)state;
  need_uring();
  for (int is_lasting = 0; is_lasting < 2; is_lasting++) {
    seam_t s;
    seam_init(&s);
    s.refuse[ZR_DISK_CALL_ENTER] = is_lasting ? -EAGAIN : -EPERM;
    s.skip[ZR_DISK_CALL_ENTER] = 4;
    s.seam.retry_ns = 30000000;
    assert_int_equal(seam_open(&s, temp_dir, ZR_DISK_URING, 2, false), ZR_OK);
    seam_fill(&s, 1);
    assert_int_equal(s.ops->write(s.disk, 0, s.memory, SEAM_BYTES), ZR_ERR_IO);
    assert_non_null(strstr(zr_detail(), "io_uring_enter"));
    assert_int_equal(s.ops->write(s.disk, 0, s.memory, SEAM_BYTES), ZR_ERR_IO);
    seam_close(&s);
  }
}

int main(void) {
  zr_log_set_level(ZR_LOG_ERROR + 1);
  if (make_temp_dir(NULL) != 0) return 2;
  seam_t s;
  seam_init(&s);
  has_uring = seam_open(&s, temp_dir, ZR_DISK_URING, 1, false) == ZR_OK;
  seam_close(&s);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_replace_a_refused_io_uring),
      cmocka_unit_test(without_direct_transfers_the_page_cache_does),
      cmocka_unit_test(a_block_that_comes_back_wrong_refuses_the_path),
      cmocka_unit_test(blocks_that_can_not_be_allocated_are_said),
      cmocka_unit_test(room_that_runs_out_while_allocating_is_said),
      cmocka_unit_test(memory_that_can_not_be_registered_works),
      cmocka_unit_test(no_request_lies_in_two_registered_buffers),
      cmocka_unit_test(entering_is_retried_for_a_while),
      cmocka_unit_test(a_ring_that_may_not_be_entered_any_more_fails),
  };
  const int n_failed = cmocka_run_group_tests_name("disk refused", tests, NULL, NULL);
  return n_failed + remove_temp_dir(NULL) ? 1 : 0;
}
