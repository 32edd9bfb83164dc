/* The trace: times of every operation of a few executions, for people (Perfetto) and for tests. */
#include <errno.h>
#include <string.h>

#include "runtime/exec/state.h"

zr_exec_event_t *zr_exec_event(const zr_exec_t *exec, int plan, int64_t iteration, int32_t op) {
  const zr_exec_options_t *o = &exec->options;
  if (!exec->event || plan != o->trace_plan) return NULL;
  const int64_t row = iteration - o->trace_first;
  if (row < 0 || row >= o->trace_count) return NULL;
  return &exec->event[row * (int64_t)exec->plan[plan].plan->n_ops + op];
}

zr_status_t zr_exec_trace_op(const zr_exec_t *exec, int64_t iteration, int32_t op,
                             int64_t *out_begin_ns, int64_t *out_end_ns) {
  const int plan = exec->options.trace_plan;
  const bool known = exec->event && op >= 0 && (size_t)op < exec->plan[plan].plan->n_ops;
  const zr_exec_event_t *event = known ? zr_exec_event(exec, plan, iteration, op) : NULL;
  if (!event || !event->traced) {
    return zr_fail(ZR_ERR_NOT_FOUND, "operation %d of execution %lld was not traced", op,
                   (long long)iteration);
  }
  *out_begin_ns = event->begin_ns;
  *out_end_ns = event->end_ns;
  return ZR_OK;
}

void zr_exec_op_times(const zr_exec_t *exec, int plan, int64_t *out_ns) {
  const zr_exec_plan_t *p = &exec->plan[plan];
  for (size_t i = 0; i < p->plan->n_ops; i++) {
    out_ns[i] = atomic_load_explicit(&p->least_ns[i], memory_order_relaxed);
  }
}

static void write_string(FILE *file, const char *text) {
  fputc('"', file);
  for (; *text; text++) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') {
      fprintf(file, "\\%c", c);
    } else if (c < 0x20) {
      fprintf(file, "\\u%04x", c);
    } else {
      fputc(c, file);
    }
  }
  fputc('"', file);
}

static void write_names(const zr_exec_t *exec, FILE *file) {
  fprintf(file,
          "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
          exec->rank, exec->rank);
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    fprintf(file,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
            "\"%s\"}}",
            exec->rank, s, zr_stream_name((zr_stream_id_t)s));
    fprintf(file,
            ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
            "\"sort_index\":%d}}",
            exec->rank, s, s);
  }
}

/* What a copy moves; of other operations, all that they touch. */
static int64_t bytes_of(const zr_op_t *op) {
  if (zr_kern_is_copy(op->shape.kind)) return op->shape.attr[ZR_COPY_BYTES];
  int64_t bytes = 0;
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (op->shape.present >> i & 1) bytes += op->operand[i].bytes;
  }
  return bytes;
}

static void write_event(const zr_exec_t *exec, int64_t iteration, int32_t index,
                        const zr_exec_event_t *event, FILE *file) {
  const zr_plan_t *plan = exec->plan[exec->options.trace_plan].plan;
  const zr_op_t *op = &plan->op[index];
  const int64_t bytes = bytes_of(op);
  char name[96];
  zr_plan_op_name(plan, index, name, sizeof name);
  fputs(",\n{\"name\":", file);
  write_string(file, name);
  fprintf(file, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"unit\":",
          exec->rank, op->stream, (double)event->begin_ns * 1e-3,
          (double)(event->end_ns - event->begin_ns) * 1e-3);
  write_string(file, op->unit < 0 ? "" : plan->unit_name[op->unit]);
  fprintf(file, ",\"micro\":%d,\"bytes\":%lld,\"op\":%d,\"iteration\":%lld}}", op->micro,
          (long long)bytes, index, (long long)iteration);
}

zr_status_t zr_exec_trace_write(const zr_exec_t *exec, const char *path) {
  const zr_exec_options_t *o = &exec->options;
  FILE *file = fopen(path, "w");
  if (!file) return zr_fail(ZR_ERR_IO, "%s: cannot write the trace: %s", path, strerror(errno));
  fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
  write_names(exec, file);
  for (int64_t row = 0; exec->event && row < o->trace_count; row++) {
    const int32_t n_ops = (int32_t)exec->plan[o->trace_plan].plan->n_ops;
    for (int32_t i = 0; i < n_ops; i++) {
      const zr_exec_event_t *event = &exec->event[row * n_ops + i];
      if (event->traced) write_event(exec, o->trace_first + row, i, event, file);
    }
  }
  fputs("\n]}\n", file);
  const int failed = ferror(file);
  if (fclose(file) != 0 || failed) {
    return zr_fail(errno == ENOSPC ? ZR_ERR_NO_SPACE : ZR_ERR_IO, "%s: cannot write the trace: %s",
                   path, strerror(errno));
  }
  return ZR_OK;
}
