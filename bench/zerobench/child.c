#include "bench/zerobench/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"

extern char **environ;

/* Its standard output is `fd`, the other two are nothing: what it complains about comes as its exit
 * code. */
static int spawn(char *const argv[], int fd, pid_t *out_pid) {
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, fd, 1);
  if (!error) error = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  if (!error) error = posix_spawnp(out_pid, argv[0], &actions, NULL, argv, environ);
  (void)posix_spawn_file_actions_destroy(&actions);
  return error;
}

/* Until the other end is closed; false: it still is not at until_ns. */
static bool collect(int fd, int64_t until_ns, char *out_text, size_t bytes) {
  char lost[4096];
  size_t used = 0;
  out_text[0] = 0;
  for (int64_t left_ns; (left_ns = until_ns - zr_clock_ns()) > 0;) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, (int)(left_ns / 1000000) + 1) <= 0) continue;
    const size_t room = bytes - 1 - used;
    const ssize_t got = room > 0 ? read(fd, out_text + used, room) : read(fd, lost, sizeof lost);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    if (room > 0) used += (size_t)got;
    out_text[used] = 0;
  }
  return false;
}

zr_status_t zr_bench_child(char *const argv[], double limit_s, char *out_text, size_t bytes) {
  int fd[2], code = 0;
  pid_t pid = 0;
  if (pipe2(fd, O_CLOEXEC) != 0) {
    return zr_fail(ZR_ERR_UNSUPPORTED, "%.200s: no pipe: %s", argv[0], strerror(errno));
  }
  const int error = spawn(argv, fd[1], &pid);
  (void)close(fd[1]);
  if (error) {
    (void)close(fd[0]);
    return zr_fail(ZR_ERR_UNSUPPORTED, "%.200s: %s", argv[0], strerror(error));
  }
  const bool ended = collect(fd[0], zr_clock_ns() + (int64_t)(limit_s * 1e9), out_text, bytes);
  if (!ended) (void)kill(pid, SIGKILL);
  (void)close(fd[0]);
  while (waitpid(pid, &code, 0) < 0 && errno == EINTR) continue;
  if (!ended) return zr_fail(ZR_ERR_UNSUPPORTED, "%.200s ran past %.0f s", argv[0], limit_s);
  if (code == 0) return ZR_OK;
  return zr_fail(ZR_ERR_UNSUPPORTED, "%.200s failed (%s %d)", argv[0],
                 WIFEXITED(code) ? "exit code" : "signal",
                 WIFEXITED(code) ? WEXITSTATUS(code) : WTERMSIG(code));
}
