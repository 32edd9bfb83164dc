/* Paths, room, other disks on the same path, and what is left behind: nothing. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/disk/disk_internal.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

enum { GRAIN = ZR_DISK_ALIGN_BYTES, BYTES = 64 * GRAIN };

static zr_status_t open_at(const char *path, int64_t bytes, const zr_disk_ops_t **out_ops,
                           zr_disk_t **out_disk) {
  const zr_disk_options_t options = {.path = &path, .n_paths = 1, .bytes = bytes, .rank = 5};
  return zr_disk_open(NULL, &options, out_ops, out_disk);
}

static int n_entries(const char *path) {
  DIR *folder = opendir(path);
  assert_non_null(folder);
  int n = 0;
  while (readdir(folder)) n++;
  (void)closedir(folder);
  return n - 2; /* itself and its parent */
}

static void wrong_paths_are_named(void **state) {
  (void)state;
  char file[64];
  (void)snprintf(file, sizeof file, "%s/file", temp_dir);
  (void)close(open(file, O_CREAT | O_WRONLY, 0600));
  const char *paths[] = {"/nowhere/at/all", file, "/proc", ""};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    const zr_disk_ops_t *ops = NULL;
    zr_disk_t *disk = NULL;
    assert_int_equal(open_at(paths[i], BYTES, &ops, &disk), ZR_ERR_CONFIG);
    assert_non_null(strstr(zr_detail(), paths[i]));
    assert_null(disk);
  }
  (void)unlink(file);
}

static void wrong_options_are_refused(void **state) {
  (void)state;
  const char *path = temp_dir;
  const zr_disk_options_t right = {.path = &path, .n_paths = 1, .bytes = BYTES};
  zr_disk_options_t wrong[9];
  for (int i = 0; i < 9; i++) wrong[i] = right;
  wrong[0].n_paths = 0;
  wrong[1].path = NULL;
  wrong[2].bytes = 0;
  wrong[3].bytes = 4097;
  wrong[4].block_bytes = 1000;
  wrong[5].block_bytes = -4096;
  wrong[6].queue_depth = -1;
  wrong[7].kind = 7;
  wrong[8].block_bytes = (int64_t)2 << 30;
  for (int i = 0; i < 9; i++) {
    const zr_disk_ops_t *ops;
    zr_disk_t *disk;
    const zr_status_t status = zr_disk_open(NULL, &wrong[i], &ops, &disk);
    assert_true(status == ZR_ERR_INVALID_ARGUMENT || status == ZR_ERR_CONFIG);
  }
}

static void missing_room_is_counted(void **state) {
  (void)state;
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  assert_int_equal(open_at(temp_dir, (int64_t)1 << 58, &ops, &disk), ZR_ERR_NO_SPACE);
  assert_non_null(strstr(zr_detail(), temp_dir));
  assert_non_null(strstr(zr_detail(), "288230376151711744 bytes are wanted"));
  assert_non_null(strstr(zr_detail(), "are missing"));
  assert_int_equal(n_entries(temp_dir), 0);
}

static void the_file_is_nameless_locked_and_private(void **state) {
  (void)state;
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  assert_int_equal(open_at(temp_dir, BYTES, &ops, &disk), ZR_OK);
  assert_int_equal(n_entries(temp_dir), 0);
  struct stat about;
  assert_int_equal(fstat(disk->file[0].buffered_fd, &about), 0);
  assert_int_equal(about.st_nlink, 0);
  assert_int_equal(about.st_mode & 0777, 0600);
  assert_int_equal(about.st_size, BYTES);
  assert_true((int64_t)about.st_blocks * 512 >= BYTES);
  char again[64];
  (void)snprintf(again, sizeof again, "/proc/self/fd/%d", disk->file[0].buffered_fd);
  const int fd = open(again, O_RDWR);
  assert_true(fd >= 0);
  assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1);
  (void)close(fd);
  assert_non_null(strstr(disk->file[0].name, "/zerorun-"));
  assert_non_null(strstr(disk->file[0].name, "-5-"));
  assert_non_null(strstr(ops->describe(disk), temp_dir));
  ops->close(disk);
}

static void two_disks_share_a_path(void **state) {
  (void)state;
  static _Alignas(GRAIN) char memory[BYTES];
  const zr_disk_ops_t *ops[2];
  zr_disk_t *disk[2];
  for (int i = 0; i < 2; i++) {
    assert_int_equal(open_at(temp_dir, BYTES, &ops[i], &disk[i]), ZR_OK);
    memset(memory, 10 + i, sizeof memory);
    assert_int_equal(ops[i]->write(disk[i], 0, memory, BYTES), ZR_OK);
  }
  for (int i = 0; i < 2; i++) {
    assert_int_equal(ops[i]->read(disk[i], 0, memory, BYTES), ZR_OK);
    for (int b = 0; b < BYTES; b++) assert_int_equal(memory[b], 10 + i);
    ops[i]->close(disk[i]);
  }
}

static void child_opens_and_waits(int to_parent) {
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  const char answer = open_at(temp_dir, BYTES, &ops, &disk) == ZR_OK ? 'y' : 'n';
  if (write(to_parent, &answer, 1) != 1) _exit(1);
  for (;;) (void)pause();
}

static void a_killed_process_leaves_nothing(void **state) {
  (void)state;
  int ends[2];
  char answer = 0;
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) child_opens_and_waits(ends[1]);
  assert_int_equal(read(ends[0], &answer, 1), 1);
  (void)kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(answer, 'y');
  assert_int_equal(n_entries(temp_dir), 0);
  (void)close(ends[0]);
  (void)close(ends[1]);
}

static void descriptors_do_not_leak(void **state) {
  (void)state;
  const int before = n_entries("/proc/self/fd");
  for (int i = 0; i < 200; i++) {
    const zr_disk_ops_t *ops;
    zr_disk_t *disk;
    assert_int_equal(open_at(temp_dir, BYTES, &ops, &disk), ZR_OK);
    ops->close(disk);
  }
  assert_int_equal(n_entries("/proc/self/fd"), before);
}

/* A disk smaller than one block for each path. */
static void paths_without_a_block_are_fine(void **state) {
  (void)state;
  static _Alignas(GRAIN) char memory[GRAIN];
  const char *paths[] = {temp_dir, temp_dir, temp_dir};
  const zr_disk_options_t options = {.path = paths, .n_paths = 3, .bytes = GRAIN};
  const zr_disk_ops_t *ops;
  zr_disk_t *disk;
  assert_int_equal(zr_disk_open(NULL, &options, &ops, &disk), ZR_OK);
  memset(memory, 9, GRAIN);
  assert_int_equal(ops->write(disk, 0, memory, GRAIN), ZR_OK);
  memset(memory, 0, GRAIN);
  assert_int_equal(ops->read(disk, 0, memory, GRAIN), ZR_OK);
  for (int b = 0; b < GRAIN; b++) assert_int_equal(memory[b], 9);
  ops->close(disk);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_paths_are_named),
      cmocka_unit_test(wrong_options_are_refused),
      cmocka_unit_test(missing_room_is_counted),
      cmocka_unit_test(the_file_is_nameless_locked_and_private),
      cmocka_unit_test(two_disks_share_a_path),
      cmocka_unit_test(a_killed_process_leaves_nothing),
      cmocka_unit_test(descriptors_do_not_leak),
      cmocka_unit_test(paths_without_a_block_are_fine),
  };
  return cmocka_run_group_tests_name("disk open", tests, make_temp_dir, remove_temp_dir);
}
