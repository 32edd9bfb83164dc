#include <linux/capability.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/tier.h"
#include "tests/support/cmocka_all.h"

enum { HUGE_BYTES = 2 << 20 };

static void memory_is_zeroed_aligned_and_exact(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 4096, 4097, HUGE_BYTES - 1, HUGE_BYTES + 1, 70 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    zr_host_memory_t memory;
    assert_int_equal(zr_host_map(sizes[i], i % 2 == 0, &memory), ZR_OK);
    assert_int_equal(memory.bytes, sizes[i]);
    assert_int_equal((uintptr_t)memory.memory % 4096, 0);
    if (sizes[i] >= HUGE_BYTES) assert_int_equal((uintptr_t)memory.memory % HUGE_BYTES, 0);
    if (sizes[i] <= 4097) assert_false(memory.is_huge);
    if (i % 2 == 1) assert_false(memory.is_pinned);
    assert_true(memory.is_pinned || i % 2 == 1 || memory.notice[0] != '\0');
    const char *bytes = memory.memory;
    for (int64_t at = 0; at < sizes[i]; at++) {
      if (bytes[at] != 0) fail_msg("byte %lld is not zero", (long long)at);
    }
    memset(memory.memory, 1, (size_t)sizes[i]);
    zr_host_unmap(&memory);
    assert_null(memory.memory);
    zr_host_unmap(&memory);
  }
}

static void memory_that_cannot_be_is_refused(void **state) {
  (void)state;
  zr_host_memory_t memory = {.bytes = 7};
  assert_int_equal(zr_host_map(0, false, &memory), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(zr_host_map(-1, false, &memory), ZR_ERR_INVALID_ARGUMENT);
  assert_int_equal(zr_host_map((int64_t)1 << 60, false, &memory), ZR_ERR_OUT_OF_MEMORY);
  assert_non_null(strstr(zr_detail(), "1152921504606846976"));
  assert_non_null(strstr(zr_detail(), "missing"));
  assert_int_equal(memory.bytes, 7);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MLOCK_IS_REAL = 0 }; /* sanitizers make it do nothing */
#else
enum { MLOCK_IS_REAL = 1 };
#endif

/* 0: as it should be; other values name the line of what is not. */
static int map_without_a_limit(void) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[2] = {{0}, {0}};
  const struct rlimit zero = {0, 0};
  if (setrlimit(RLIMIT_MEMLOCK, &zero) != 0 || syscall(SYS_capset, &header, none) != 0) return 1;
  zr_host_memory_t memory;
  if (zr_host_map(3 << 20, true, &memory) != ZR_OK) return 2;
  if (memory.is_pinned) return 3;
  if (!strstr(memory.notice, "ulimit -l") || !strstr(memory.notice, "3072")) return 4;
  ((char *)memory.memory)[memory.bytes - 1] = 1;
  zr_host_unmap(&memory);
  return 0;
}

static void without_a_limit_it_goes_on_unpinned_and_says_so(void **state) {
  (void)state;
  if (!MLOCK_IS_REAL) {
    print_message("skipped: this build's sanitizer replaces mlock\n");
    skip();
  }
  const pid_t child = fork();
  if (child == 0) _exit(map_without_a_limit());
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_zeroed_aligned_and_exact),
      cmocka_unit_test(memory_that_cannot_be_is_refused),
      cmocka_unit_test(without_a_limit_it_goes_on_unpinned_and_says_so),
  };
  return cmocka_run_group_tests_name("host memory", tests, NULL, NULL);
}
