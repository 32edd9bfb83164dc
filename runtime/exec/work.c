/* What runs on the streams' threads: one operation, with its delay, its times and its failure. */
#include "runtime/base/clock.h"
#include "runtime/base/rng.h"
#include "runtime/exec/state.h"

static void delay(const zr_exec_op_t *op, int64_t iteration) {
  const zr_exec_options_t *o = &op->exec->options;
  if (!o->delay_seed || o->delay_max_ns <= 0) return;
  const uint64_t counter = (uint64_t)iteration << 32 | (uint32_t)(op->plan << 24 ^ op->op);
  const uint64_t range_ns = (uint64_t)o->delay_max_ns + 1;
  zr_clock_sleep_ns((int64_t)(zr_rng_u64(o->delay_seed, counter) % range_ns));
}

static zr_status_t run_op(const zr_exec_op_t *op, int64_t iteration) {
  const zr_exec_options_t *o = &op->exec->options;
  const zr_kern_call_t *call = &op->call;
  const int64_t *attr = call->shape->attr;
  void *const *x = call->operand;
  switch (op->kind) {
    case ZR_OP_NOP:
      return ZR_OK;
    case ZR_OP_FETCH:
      return o->fetch(o->fetch_context, op->plan, iteration, attr[ZR_FETCH_MICRO], x[0], x[1], x[2],
                      attr[ZR_FETCH_ROWS]);
    case ZR_OP_ALL_GATHER:
      return o->comm_ops->all_gather(o->comm, x[0], x[1], attr[ZR_COMM_SHARD_BYTES]);
    case ZR_OP_REDUCE_SCATTER:
      return o->comm_ops->reduce_scatter(o->comm, x[0], x[1], attr[ZR_COMM_SHARD_BYTES],
                                         (zr_dtype_t)call->shape->dtype[0],
                                         (int)(call->shape->accumulate >> 1 & 1), x[2]);
    case ZR_OP_ALL_REDUCE:
      return o->comm_ops->all_reduce(o->comm, x[0], call->bytes[0] / 8, x[1]);
    case ZR_OP_BROADCAST:
      return o->comm_ops->broadcast(o->comm, x[0], call->bytes[0], 0);
    case ZR_OP_BARRIER:
      return o->comm_ops->barrier(o->comm);
    case ZR_OP_H2D:
    case ZR_OP_D2H:
    case ZR_OP_DISK_READ:
    case ZR_OP_DISK_WRITE:
      return zr_exec_copy(op);
    case ZR_OP_CONTROL_COUNT:
      ZR_TRY(o->kern_ops->run(o->kern, call));
      if (o->ask) ((zr_control_t *)x[0])->flags += o->ask(o->fetch_context, op->plan);
      return ZR_OK;
    default:
      return o->kern_ops->run(o->kern, call);
  }
}

/* One thread writes an operation's: its stream's. */
static void note_least(const zr_exec_op_t *op, int64_t took_ns) {
  _Atomic int64_t *least_ns = &op->exec->plan[op->plan].least_ns[op->op];
  const int64_t before_ns = atomic_load_explicit(least_ns, memory_order_relaxed);
  if (took_ns < 1) took_ns = 1;
  if (before_ns > 0 && before_ns <= took_ns) return;
  atomic_store_explicit(least_ns, took_ns, memory_order_relaxed);
}

static void note_end(const zr_exec_op_t *op, int64_t iteration, uint64_t value, int64_t begin_ns,
                     int64_t end_ns) {
  zr_exec_t *exec = op->exec;
  zr_exec_stream_t *stream = &exec->stream[op->stream];
  stream->previous_end_ns = end_ns;
  note_least(op, end_ns - begin_ns);
  const size_t slot = value % ZR_EXEC_TIMES;
  atomic_store_explicit(&stream->time[slot].begin_ns, begin_ns, memory_order_relaxed);
  atomic_store_explicit(&stream->time[slot].end_ns, end_ns, memory_order_relaxed);
  atomic_fetch_add_explicit(&stream->busy_ns, end_ns - begin_ns, memory_order_relaxed);
  zr_exec_event_t *event = zr_exec_event(exec, op->plan, iteration, op->op);
  if (!event) return;
  event->begin_ns = begin_ns - exec->created_ns;
  event->end_ns = end_ns - exec->created_ns;
  event->traced = true;
}

/* Only the timeline orders this copy, so it can be read while later executions run. The slot is
 * free: nobody asks for an execution that long ago. */
static void keep_record(const zr_exec_op_t *op, int64_t execution) {
  zr_exec_t *exec = op->exec;
  if (exec->plan[op->plan].control_end != op->op) return;
  const zr_control_t *control = op->call.operand[0];
  zr_exec_kept_t *kept = &exec->kept[(exec->n_before + execution) % ZR_CONTROL_RECORDS];
  kept->record = control->record[control->iteration % ZR_CONTROL_RECORDS];
}

static zr_status_t run_timed(const zr_exec_op_t *op, int64_t iteration) {
  zr_exec_t *exec = op->exec;
  zr_exec_stream_t *stream = &exec->stream[op->stream];
  const uint64_t value = atomic_fetch_add(&stream->n_begun, 1) + 1;
  if (exec->is_virtual) return ZR_OK;
  const int64_t execution = zr_exec_execution_of_value(exec, op->stream, value);
  delay(op, iteration);
  zr_exec_declare_operands(op);
  const int64_t begin_ns = zr_clock_ns();
  zr_exec_note_exposed(op, execution, begin_ns);
  const zr_status_t status = run_op(op, iteration);
  note_end(op, iteration, value, begin_ns, zr_clock_ns());
  if (status == ZR_OK) {
    const zr_exec_options_t *o = &exec->options;
    if (o->serial && o->observe) {
      o->observe(o->observe_context, exec->plan[op->plan].plan, iteration, op->op, &op->call);
    }
    keep_record(op, execution);
    return ZR_OK;
  }
  zr_exec_failure_of_op(exec, op, status, zr_detail());
  return zr_exec_failure_get(exec);
}

/* After a failure everything still queued fails at once, here, on its own thread: a stream whose
 * timeline has failed or reached its last value then holds no operation of this executor. */
zr_status_t zr_exec_work(void *context, int64_t iteration) {
  const zr_exec_op_t *op = context;
  zr_exec_t *exec = op->exec;
  zr_exec_stream_t *stream = &exec->stream[op->stream];
  atomic_store(&stream->is_running, 1);
  const zr_status_t status =
      zr_exec_has_failed(exec) ? zr_exec_failure_get(exec) : run_timed(op, iteration);
  atomic_store(&stream->is_running, 0);
  return status;
}
