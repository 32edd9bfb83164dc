/* The run's two voices: log.jsonl for machines, and the progress line for people. Rank 0 owns one;
 * other ranks pass NULL, which does nothing. The loop's thread.
 *
 * Events are JSON objects, one a line, field `event` first; numbers have nine digits, a number that
 * is not finite is null. With `json` the same lines go to standard output and the progress line to
 * nobody. */
#ifndef ZR_TRAIN_EVENTS_H
#define ZR_TRAIN_EVENTS_H

#include <jansson.h>
#include <stdbool.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

typedef struct zr_events_t zr_events_t;

typedef enum { ZR_PROGRESS_AUTO = 0, ZR_PROGRESS_LINES, ZR_PROGRESS_INPLACE } zr_progress_t;

typedef struct {
  const char *dir; /* of log.jsonl, which is appended to */
  bool json;
  int progress; /* zr_progress_t; auto: in place where standard output is a terminal */
  int64_t log_every, total_steps;
  int64_t tier_bytes[3]; /* device, host, disk: what the plan holds */
} zr_events_options_t;

zr_status_t zr_events_open(zr_alloc_t *alloc, const zr_events_options_t *options,
                           zr_events_t **out_events) ZR_MUST_CHECK;
void zr_events_close(zr_events_t *events); /* NULL is fine */

/* Writes one line and releases `event`. */
zr_status_t zr_events_put(zr_events_t *events, json_t *event) ZR_MUST_CHECK;
/* Makes every line so far durable. */
zr_status_t zr_events_sync(zr_events_t *events) ZR_MUST_CHECK;
/* A number as it stands in an event: null when it is not finite. */
json_t *zr_events_real(double value);

typedef struct {
  int64_t step;
  double loss, tokens_per_s, step_s;
  int64_t link_bytes, disk_bytes; /* moved between device and host, to and from disk */
} zr_progress_step_t;
/* Shows a step: "step  120/800  loss 2.1034  <curve>  12.3k tok/s  0.21 s  132 MiB  ETA 2m10s",
 * and behind the memory, where any of it is away, "link 1.2 GiB/s, disk 310 MiB/s". */
void zr_events_progress(zr_events_t *events, const zr_progress_step_t *step);
/* A line of its own for people, above the progress line. */
void zr_events_say(zr_events_t *events, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "132 MiB"; "2m10s". */
void zr_events_bytes(int64_t bytes, char *out_text, size_t text_bytes);
void zr_events_duration(double seconds, char *out_text, size_t text_bytes);

#endif
