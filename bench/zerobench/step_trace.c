/* Reads what the executor traced. A step lasts from the first operation of its compute stream to
 * that of the next one; the last, until everything of it is done. */
#include <string.h>

#include "bench/zerobench/step.h"

enum { MAX_STEPS = 64 };

typedef struct {
  double begin[MAX_STEPS], end[MAX_STEPS]; /* us */
  int64_t first, n;                        /* iterations */
} steps_t;

static int64_t argument(const json_t *event, const char *key) {
  const json_t *value = json_object_get(json_object_get(event, "args"), key);
  return value == NULL ? -1 : (int64_t)json_integer_value(value);
}

static double number(const json_t *event, const char *key) {
  return json_number_value(json_object_get(event, key));
}

/* Index of an event's step, or -1 for what is no operation of one. */
static int64_t step_of(const json_t *event, const steps_t *steps) {
  if (!json_is_string(json_object_get(event, "ph")) ||
      strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) {
    return -1;
  }
  int64_t step = argument(event, "iteration") - steps->first;
  return step < 0 || step >= MAX_STEPS ? -1 : step;
}

static void find_steps(const json_t *events, steps_t *out) {
  *out = (steps_t){.first = INT64_MAX};
  size_t i;
  json_t *event;
  json_array_foreach(events, i, event) {
    int64_t iteration = argument(event, "iteration");
    if (iteration >= 0 && iteration < out->first) out->first = iteration;
  }
  for (int s = 0; s < MAX_STEPS; s++) out->begin[s] = 1e300;
  json_array_foreach(events, i, event) {
    int64_t s = step_of(event, out);
    if (s < 0) continue;
    double begin = number(event, "ts"), end = begin + number(event, "dur");
    bool computes = json_integer_value(json_object_get(event, "tid")) == ZR_STREAM_COMPUTE;
    if (computes && begin < out->begin[s]) out->begin[s] = begin;
    if (end > out->end[s]) out->end[s] = end;
    if (s >= out->n) out->n = s + 1;
  }
}

static double step_seconds(const steps_t *steps, int64_t s) {
  double until = s + 1 < steps->n ? steps->begin[s + 1] : steps->end[s];
  return 1e-6 * (until - steps->begin[s]);
}

static zr_status_t take(const json_t *events, const steps_t *steps, int64_t fastest,
                        zr_step_times_t *times) {
  size_t i;
  json_t *event;
  memset(times->op_seconds, 0, (size_t)times->n_ops * sizeof *times->op_seconds);
  json_array_foreach(events, i, event) {
    if (step_of(event, steps) != fastest) continue;
    int64_t op = argument(event, "op");
    if (op < 0 || op >= times->n_ops) {
      return zr_fail(ZR_ERR_INTERNAL, "the trace has operation %lld, the plan %lld", (long long)op,
                     (long long)times->n_ops);
    }
    times->op_seconds[op] = 1e-6 * number(event, "dur");
  }
  times->step_seconds = step_seconds(steps, fastest);
  return ZR_OK;
}

zr_status_t zr_step_trace_read(const char *path, const zr_plan_t *plan, zr_step_times_t *times) {
  json_error_t error;
  json_t *trace = json_load_file(path, 0, &error);
  const json_t *events = json_object_get(trace, "traceEvents");
  if (!json_is_array(events)) {
    json_decref(trace);
    return zr_fail(ZR_ERR_IO, "%s: no trace: %s", path, error.text);
  }
  steps_t steps;
  find_steps(events, &steps);
  int64_t fastest = -1;
  for (int64_t s = 0; s < steps.n; s++) {
    if (fastest < 0 || step_seconds(&steps, s) < step_seconds(&steps, fastest)) fastest = s;
  }
  zr_status_t status = ZR_OK;
  bool is_first = times->step_seconds <= 0;
  if (fastest < 0 || (size_t)times->n_ops != plan->n_ops) {
    status = zr_fail(ZR_ERR_INTERNAL, "%s: no step is traced", path);
  } else if (is_first || step_seconds(&steps, fastest) < times->step_seconds) {
    status = take(events, &steps, fastest, times);
  }
  json_decref(trace);
  return status;
}
