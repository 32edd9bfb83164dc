/* LD_PRELOAD it: from the n-th read or write of a tier's file on, a drive that answers EIO.
 *
 * ZR_DISK_FAIL = "read:200" or "write:200", for the rank in ZR_DISK_FAIL_RANK (default 0). Only
 * requests of memory.disk_backend = posix pass here; a tier's file is known by its name. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static _Atomic long n_calls;

static bool is_tier_file(int fd) {
  char link[64], name[4096];
  (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, name, sizeof name - 1);
  if (length < 0) return false;
  name[length] = '\0';
  return strstr(name, "/zerorun-") != NULL;
}

static bool is_my_rank(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *wanted = getenv("ZR_DISK_FAIL_RANK");
  return strcmp(rank ? rank : "0", wanted ? wanted : "0") == 0;
}

static bool fails(int fd, const char *verb) {
  const char *wanted = getenv("ZR_DISK_FAIL");
  const size_t length = strlen(verb);
  if (!wanted || strncmp(wanted, verb, length) != 0 || wanted[length] != ':') return false;
  if (!is_my_rank() || !is_tier_file(fd)) return false;
  return atomic_fetch_add(&n_calls, 1) + 1 >= strtol(wanted + length + 1, NULL, 10);
}

typedef ssize_t (*read_fn_t)(int, void *, size_t, off_t);
typedef ssize_t (*write_fn_t)(int, const void *, size_t, off_t);

static read_fn_t next_read(void) {
  read_fn_t function;
  *(void **)&function = dlsym(RTLD_NEXT, "pread");
  return function;
}

static write_fn_t next_write(void) {
  write_fn_t function;
  *(void **)&function = dlsym(RTLD_NEXT, "pwrite");
  return function;
}

ssize_t pread(int fd, void *memory, size_t bytes, off_t offset) {
  if (!fails(fd, "read")) return next_read()(fd, memory, bytes, offset);
  errno = EIO;
  return -1;
}

ssize_t pwrite(int fd, const void *memory, size_t bytes, off_t offset) {
  if (!fails(fd, "write")) return next_write()(fd, memory, bytes, offset);
  errno = EIO;
  return -1;
}

ssize_t pread64(int fd, void *memory, size_t bytes, off64_t offset) {
  return pread(fd, memory, bytes, offset);
}

ssize_t pwrite64(int fd, const void *memory, size_t bytes, off64_t offset) {
  return pwrite(fd, memory, bytes, offset);
}
