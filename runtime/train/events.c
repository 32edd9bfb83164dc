#include "runtime/train/events.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/train/curve.h"
#include "runtime/train/files.h"

enum { DIGITS = 9, LINE_BYTES = 512 };

struct zr_events_t {
  zr_alloc_t *alloc;
  zr_events_options_t options;
  char path[ZR_PATH_BYTES];
  int fd;
  bool in_place, line_open; /* a progress line without its newline is on the screen */
  int64_t drawn_ns;
  zr_curve_t curve;
  double mean_step_s;
  int64_t n_steps;                /* of this process */
  double shown_tokens, shown_s;   /* since the last line ... */
  int64_t shown_link, shown_disk; /* bytes */
};

/* A line that a crash cut off must not run into the first new one. */
static zr_status_t end_last_line(zr_events_t *events) {
  char last;
  off_t end = lseek(events->fd, 0, SEEK_END);
  if (end <= 0 || pread(events->fd, &last, 1, end - 1) != 1 || last == '\n') return ZR_OK;
  return zr_files_write_all(events->fd, events->path, "\n", 1);
}

static zr_status_t open_log(zr_events_t *events) {
  ZR_TRY(zr_files_join(events->path, events->options.dir, "log.jsonl"));
  events->fd = open(events->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (events->fd < 0) return zr_files_fail("open", events->path, errno);
  if (flock(events->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return zr_fail(ZR_ERR_CONFIG, "another run is writing to %s; set run.dir to another folder",
                   events->options.dir);
  }
  return end_last_line(events);
}

zr_status_t zr_events_open(zr_alloc_t *alloc, const zr_events_options_t *options,
                           zr_events_t **out_events) {
  zr_events_t *events = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *events, &events));
  events->alloc = alloc;
  events->options = *options;
  events->fd = -1;
  events->in_place = options->progress == ZR_PROGRESS_INPLACE;
  if (options->progress == ZR_PROGRESS_AUTO) events->in_place = isatty(STDOUT_FILENO) == 1;
  zr_status_t status = open_log(events);
  if (status != ZR_OK) {
    zr_events_close(events);
    return status;
  }
  *out_events = events;
  return ZR_OK;
}

static void end_progress(zr_events_t *events) {
  if (!events->line_open) return;
  (void)fputc('\n', stdout);
  (void)fflush(stdout);
  events->line_open = false;
}

void zr_events_close(zr_events_t *events) {
  if (events == NULL) return;
  end_progress(events);
  if (events->fd >= 0) close(events->fd);
  zr_alloc_free(events->alloc, events);
}

zr_status_t zr_events_put(zr_events_t *events, json_t *event) {
  if (events == NULL) {
    json_decref(event);
    return ZR_OK;
  }
  char *text =
      event == NULL
          ? NULL
          : json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS));
  json_decref(event);
  if (text == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for a line of the log");
  size_t bytes = strlen(text);
  text[bytes] = '\n'; /* in the place of the zero byte: one write, so lines are whole */
  zr_status_t status = zr_files_write_all(events->fd, events->path, text, bytes + 1);
  if (events->options.json) {
    (void)fwrite(text, 1, bytes + 1, stdout);
    (void)fflush(stdout);
  }
  zr_files_release(text);
  return status;
}

zr_status_t zr_events_sync(zr_events_t *events) {
  if (events == NULL || fsync(events->fd) == 0) return ZR_OK;
  return zr_files_fail("sync", events->path, errno);
}

json_t *zr_events_real(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

/* --- for people ------------------------------------------------------------------------------ */

void zr_events_bytes(int64_t bytes, char *out_text, size_t text_bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 1024 && unit < 5; ++unit) value /= 1024;
  (void)snprintf(out_text, text_bytes, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value,
                 units[unit]);
}

void zr_events_duration(double seconds, char *out_text, size_t text_bytes) {
  long long s = seconds < 0 || !isfinite(seconds) ? 0 : (long long)(seconds + 0.5);
  if (s < 60) {
    (void)snprintf(out_text, text_bytes, "%llds", s);
  } else if (s < 3600) {
    (void)snprintf(out_text, text_bytes, "%lldm%02llds", s / 60, s % 60);
  } else {
    (void)snprintf(out_text, text_bytes, "%lldh%02lldm", s / 3600, s / 60 % 60);
  }
}

static void print_rate(double per_s, char *out_text, size_t text_bytes) {
  const char *unit = "";
  if (per_s >= 1e6) {
    per_s /= 1e6;
    unit = "M";
  } else if (per_s >= 1e3) {
    per_s /= 1e3;
    unit = "k";
  }
  (void)snprintf(out_text, text_bytes, "%.*f%s tok/s", per_s < 100 ? 1 : 0, per_s, unit);
}

/* "132 MiB", or with several tiers "2.1 GiB + 8.0 GiB host". */
static void print_memory(const zr_events_t *events, char *out_text, size_t text_bytes) {
  static const char *const names[] = {"", " host", " disk"};
  size_t used = 0;
  out_text[0] = 0;
  for (int tier = 0; tier < 3 && used < text_bytes; ++tier) {
    char size[32];
    if (events->options.tier_bytes[tier] <= 0) continue;
    zr_events_bytes(events->options.tier_bytes[tier], size, sizeof size);
    used += (size_t)snprintf(out_text + used, text_bytes - used, "%s%s%s", used ? " + " : "", size,
                             names[tier]);
  }
}

/* "  link 1.2 GiB/s, disk 310 MiB/s" since the last line; nothing where nothing moves. */
static void print_traffic(const zr_events_t *events, char *out_text, size_t text_bytes) {
  static const char *const names[] = {"link", "disk"};
  const int64_t bytes[] = {events->shown_link, events->shown_disk};
  size_t used = 0;
  out_text[0] = 0;
  for (int i = 0; i < 2 && events->shown_s > 0 && used < text_bytes; ++i) {
    char size[32];
    if (bytes[i] == 0) continue;
    zr_events_bytes((int64_t)((double)bytes[i] / events->shown_s), size, sizeof size);
    used += (size_t)snprintf(out_text + used, text_bytes - used, "%s%s %s/s", used ? ", " : "  ",
                             names[i], size);
  }
}

static bool is_due(zr_events_t *events, const zr_progress_step_t *step) {
  if (events->options.json) return false;
  if (step->step == events->options.total_steps) return true;
  if (!events->in_place) {
    return events->n_steps == 1 || step->step % events->options.log_every == 0;
  }
  int64_t now_ns = zr_clock_ns();
  if (now_ns - events->drawn_ns < 100000000) return false;
  events->drawn_ns = now_ns;
  return true;
}

void zr_events_progress(zr_events_t *events, const zr_progress_step_t *step) {
  if (events == NULL) return;
  zr_curve_add(&events->curve, step->loss);
  /* The first step warms everything up: its time tells nothing about the others. */
  double old = ++events->n_steps <= 2 ? step->step_s : events->mean_step_s;
  events->mean_step_s = 0.95 * old + 0.05 * step->step_s;
  events->shown_tokens += step->tokens_per_s * step->step_s;
  events->shown_s += step->step_s;
  events->shown_link += step->link_bytes;
  events->shown_disk += step->disk_bytes;
  if (!is_due(events, step)) return;
  int64_t total = events->options.total_steps;
  char curve[ZR_CURVE_BYTES], rate[32], memory[96], traffic[96], eta[32];
  char line[LINE_BYTES];
  zr_curve_draw(&events->curve, curve);
  print_rate(events->shown_tokens / events->shown_s, rate, sizeof rate);
  print_traffic(events, traffic, sizeof traffic);
  events->shown_tokens = events->shown_s = 0;
  events->shown_link = events->shown_disk = 0;
  print_memory(events, memory, sizeof memory);
  zr_events_duration((double)(total - step->step) * events->mean_step_s, eta, sizeof eta);
  (void)snprintf(line, sizeof line, "step %*lld/%lld  loss %.6f  %s  %s  %.3g s  %s%s  ETA %s",
                 (int)snprintf(NULL, 0, "%lld", (long long)total), (long long)step->step,
                 (long long)total, step->loss, curve, rate, step->step_s, memory, traffic, eta);
  (void)fprintf(stdout, events->in_place ? "\r\033[K%s" : "%s\n", line);
  (void)fflush(stdout);
  events->line_open = events->in_place;
}

void zr_events_say(zr_events_t *events, const char *format, ...) {
  if (events == NULL || events->options.json) return;
  end_progress(events);
  va_list args;
  va_start(args, format);
  (void)vfprintf(stdout, format, args);
  va_end(args);
  (void)fputc('\n', stdout);
  (void)fflush(stdout);
}
