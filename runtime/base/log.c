#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int log_level = ZR_LOG_INFO;
static _Atomic int log_rank = 0;
static _Atomic int log_n_ranks = 1;

void zr_log_set_level(zr_log_level_t level) {
  atomic_store(&log_level, (int)level);
}

void zr_log_set_rank(int rank, int n_ranks) {
  atomic_store(&log_rank, rank);
  atomic_store(&log_n_ranks, n_ranks);
}

static const char *level_prefix(zr_log_level_t level) {
  switch (level) {
    case ZR_LOG_DEBUG:
      return "debug: ";
    case ZR_LOG_WARNING:
      return "warning: ";
    case ZR_LOG_ERROR:
      return "error: ";
    default:
      return "";
  }
}

/* One write of the whole line, so that lines of threads and ranks are not mixed. */
static void write_line(const char *line, size_t bytes) {
  while (bytes > 0) {
    ssize_t written = write(STDERR_FILENO, line, bytes);
    if (written <= 0) return; /* nowhere left to say so */
    line += written;
    bytes -= (size_t)written;
  }
}

void zr_log(zr_log_level_t level, const char *format, ...) {
  int rank = atomic_load(&log_rank), n_ranks = atomic_load(&log_n_ranks);
  if ((int)level < atomic_load(&log_level)) return;
  if (level == ZR_LOG_INFO && rank != 0) return;
  enum { LINE_BYTES = 2048 };
  char line[LINE_BYTES + 1];
  int used = n_ranks > 1 ? snprintf(line, LINE_BYTES, "zerorun[%d]: %s", rank, level_prefix(level))
                         : snprintf(line, LINE_BYTES, "zerorun: %s", level_prefix(level));
  va_list args;
  va_start(args, format);
  int text = vsnprintf(line + used, (size_t)(LINE_BYTES - used), format, args);
  va_end(args);
  if (text < 0) text = 0;
  size_t bytes = (size_t)used + (size_t)text;
  if (bytes > LINE_BYTES - 1) bytes = LINE_BYTES - 1; /* cut, but still a line */
  line[bytes++] = '\n';
  write_line(line, bytes);
}
