/* A disk is given other settings: what was written stays, refusals leave it as it was. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "offload/disk/retune.h"
#include "runtime/base/log.h"
#include "tests/offload/seam.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

/* On one path, of two threads. */
static void open_one(seam_t *s, int kind, bool checksums) {
  const char *path = temp_dir;
  const zr_disk_options_t options = {.kind = kind,
                                     .path = &path,
                                     .n_paths = 1,
                                     .bytes = SEAM_BYTES,
                                     .queue_depth = 2,
                                     .checksums = checksums};
  const zr_status_t status = zr_disk_open_with(NULL, &options, &s->seam, &s->ops, &s->disk);
  if (status != ZR_OK) fail_msg("%s", zr_detail());
}

static void check_read(seam_t *s, int version) {
  memset(s->memory, 0, SEAM_BYTES);
  if (s->ops->read(s->disk, 0, s->memory, SEAM_BYTES) != ZR_OK) fail_msg("%s", zr_detail());
  assert_int_equal(seam_n_wrong(s, version), 0);
}

static void check_write(seam_t *s, int version) {
  seam_fill(s, version);
  if (s->ops->write(s->disk, 0, s->memory, SEAM_BYTES) != ZR_OK) fail_msg("%s", zr_detail());
}

static void what_was_written_stays(void **state) {
  (void)state;
  seam_t s;
  seam_init(&s);
  open_one(&s, ZR_DISK_POSIX, true);
  assert_int_equal(s.ops->attach(s.disk, s.memory, SEAM_BYTES), ZR_OK);
  check_write(&s, 1);
  static const int kind[] = {ZR_DISK_URING, ZR_DISK_POSIX, ZR_DISK_URING, ZR_DISK_URING};
  for (int i = 0; i < 4; i++) {
    const int64_t block_bytes = SEAM_GRAIN << (2 * i);
    const zr_status_t status = zr_disk_retune(s.disk, kind[i], block_bytes, 1 + 7 * i);
    assert_true(status == ZR_OK || status == ZR_ERR_UNSUPPORTED);
    check_read(&s, 1 + i);
    check_write(&s, 2 + i);
  }
  check_read(&s, 5);
  seam_close(&s);
}

static void a_refusal_leaves_it_as_it_was(void **state) {
  (void)state;
  seam_t s;
  seam_init(&s);
  s.refuse[ZR_DISK_CALL_SETUP] = -EPERM;
  open_one(&s, ZR_DISK_POSIX, false);
  check_write(&s, 1);
  assert_int_equal(zr_disk_retune(s.disk, ZR_DISK_URING, SEAM_GRAIN, 1), ZR_ERR_UNSUPPORTED);
  assert_true(zr_detail()[0] != 0);
  assert_int_equal(zr_disk_retune(s.disk, ZR_DISK_AUTO, SEAM_GRAIN, 1), ZR_ERR_CONFIG);
  assert_int_equal(zr_disk_retune(s.disk, ZR_DISK_POSIX, SEAM_GRAIN + 1, 1), ZR_ERR_CONFIG);
  assert_int_equal(zr_disk_retune(s.disk, ZR_DISK_POSIX, SEAM_GRAIN, 0), ZR_ERR_CONFIG);
  check_read(&s, 1);
  check_write(&s, 2);
  check_read(&s, 2);
  seam_close(&s);
}

static void its_file_is_reached_by_its_descriptor(void **state) {
  (void)state;
  seam_t s;
  seam_init(&s);
  open_one(&s, ZR_DISK_AUTO, false);
  struct stat about;
  assert_int_equal(fstat(zr_disk_descriptor(s.disk), &about), 0);
  assert_true(about.st_size == SEAM_BYTES && about.st_nlink == 0);
  seam_close(&s);
}

static void stripes_keep_their_block(void **state) {
  (void)state;
  seam_t s;
  seam_init(&s);
  assert_int_equal(seam_open(&s, temp_dir, ZR_DISK_POSIX, 4, false), ZR_OK);
  assert_int_equal(zr_disk_retune(s.disk, ZR_DISK_POSIX, SEAM_GRAIN, 1), ZR_ERR_CONFIG);
  check_write(&s, 1);
  check_read(&s, 1);
  seam_close(&s);
}

int main(void) {
  zr_log_set_level(ZR_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_written_stays),
      cmocka_unit_test(a_refusal_leaves_it_as_it_was),
      cmocka_unit_test(stripes_keep_their_block),
      cmocka_unit_test(its_file_is_reached_by_its_descriptor),
  };
  return cmocka_run_group_tests_name("disk retune", tests, make_temp_dir, remove_temp_dir);
}
