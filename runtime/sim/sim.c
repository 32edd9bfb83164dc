#include "runtime/sim/sim.h"

#include <math.h>
#include <string.h>

#include "runtime/sim/share.h"

/* What is left of a piece of work below which it is done: the clock is a sum of doubles. */
static const double nothing_ns = 1e-6;

typedef struct {
  int64_t n_begun; /* operations of this stream, over all executions */
  int64_t n_done;
  bool runs;
  double left_ns; /* of the running one, at full speed */
  double begin_ns;
  double end_ns; /* of the last one */
} sim_stream_t;

typedef struct {
  const zr_plan_t *plan;
  const zr_sim_options_t *options;
  sim_stream_t stream[ZR_N_STREAMS];
  int32_t *list[ZR_N_STREAMS];           /* operations of a stream in order */
  double *op_begin_ns[2], *op_end_ns[2]; /* [n_ops]: of even and odd executions */
  double *exec_end_ns;                   /* [n_executions] */
  int64_t *exec_left;                    /* [n_executions]: operations not yet done */
  int32_t record;                        /* the operation that writes a step's record; -1 */
  int64_t record_done;                   /* executions that have written it */
  double now_ns;
  int64_t n_left;
  /* sums over the measured executions */
  double busy_ns[ZR_N_STREAMS], exposed_ns[ZR_N_STREAMS], idle_ns, crowded_ns;
  zr_sim_result_t result;
} sim_t;

static bool measures(const sim_t *sim, int64_t execution) {
  return execution >= sim->options->n_executions / 2;
}

static int32_t next_op(const sim_t *sim, int s, int64_t *out_execution) {
  int64_t per_execution = sim->plan->stream_ops[s];
  *out_execution = sim->stream[s].n_begun / per_execution;
  return sim->list[s][sim->stream[s].n_begun % per_execution];
}

/* --- ready ----------------------------------------------------------------------------------- */

static bool is_done(const sim_t *sim, int32_t op, int64_t execution) {
  int s = sim->plan->op[op].stream;
  if (execution < 0) return true;
  return sim->stream[s].n_done >
         execution * sim->plan->stream_ops[s] + sim->plan->op[op].stream_index;
}

static bool is_started(const sim_t *sim, int64_t execution) {
  int64_t ahead = sim->options->ahead;
  return ahead <= 0 || sim->record < 0 || execution - ahead <= sim->record_done;
}

static bool is_ready(const sim_t *sim, int s) {
  int64_t execution;
  if (sim->stream[s].n_begun == sim->options->n_executions * (int64_t)sim->plan->stream_ops[s]) {
    return false;
  }
  int32_t op = next_op(sim, s, &execution);
  if (!is_started(sim, execution)) return false;
  for (int w = 0; w < sim->plan->op[op].n_waits; w++) {
    const zr_wait_t *wait = &sim->plan->op[op].wait[w];
    if (!is_done(sim, wait->op, execution - wait->back)) return false;
  }
  return true;
}

/* --- who compute waited for ------------------------------------------------------------------ */

enum { MAX_CAUSES = 8 };

/* An operation of one execution that has ended. op -1: none. */
typedef struct {
  int32_t op;
  int64_t execution;
  double end_ns;
} ended_t;

static void consider(const sim_t *sim, int32_t op, int64_t execution, double until_ns,
                     ended_t *last) {
  if (execution < 0) return;
  double end_ns = sim->op_end_ns[execution % 2][op];
  if (end_ns > last->end_ns && end_ns <= until_ns) *last = (ended_t){op, execution, end_ns};
}

/* Of all that the operation waited for, what ended last, if it ended after since_ns. */
static ended_t last_awaited(const sim_t *sim, int32_t op, int64_t execution, double since_ns,
                            double until_ns) {
  ended_t last = {.op = -1, .end_ns = since_ns};
  for (int w = 0; w < sim->plan->op[op].n_waits; w++) {
    const zr_wait_t *wait = &sim->plan->op[op].wait[w];
    if (sim->plan->op[wait->op].stream == sim->plan->op[op].stream) continue;
    consider(sim, wait->op, execution - wait->back, until_ns, &last);
  }
  return last;
}

/* The same for one that has run: it waited for the one before it on its stream, too. */
static ended_t cause_of(const sim_t *sim, const ended_t *of, double since_ns, double begin_ns) {
  ended_t last = last_awaited(sim, of->op, of->execution, since_ns, begin_ns);
  int s = sim->plan->op[of->op].stream;
  int32_t index = sim->plan->op[of->op].stream_index, n = sim->plan->stream_ops[s];
  int32_t before = sim->list[s][index > 0 ? index - 1 : n - 1];
  consider(sim, before, of->execution - (index == 0), begin_ns, &last);
  return last;
}

/* As the executor counts it (runtime/exec/exposed.c): going back from what compute waited for, each
 * operation is blamed from its begin on, and what lies before is its own cause's. */
static void note_idle(sim_t *sim, int32_t op, int64_t execution) {
  double since_ns = sim->stream[ZR_STREAM_COMPUTE].end_ns, until_ns = sim->now_ns;
  if (!measures(sim, execution)) return;
  ended_t at = last_awaited(sim, op, execution, since_ns, until_ns);
  if (at.op < 0) sim->idle_ns += until_ns - since_ns;
  for (int n = 1; at.op >= 0; n++) {
    double from_ns = sim->op_begin_ns[at.execution % 2][at.op];
    ended_t cause = {.op = -1};
    if (from_ns > since_ns && from_ns <= until_ns && n < MAX_CAUSES) {
      cause = cause_of(sim, &at, since_ns, from_ns);
    }
    if (cause.op < 0) from_ns = since_ns;
    sim->exposed_ns[sim->plan->op[at.op].stream] += until_ns - from_ns;
    until_ns = from_ns;
    at = cause;
  }
}

/* --- begin ----------------------------------------------------------------------------------- */

static void begin(sim_t *sim, int s) {
  int64_t execution;
  int32_t op = next_op(sim, s, &execution);
  sim_stream_t *stream = &sim->stream[s];
  if (s == ZR_STREAM_COMPUTE) note_idle(sim, op, execution);
  stream->runs = true;
  stream->left_ns = (double)sim->options->demand[op].alone_ns;
  stream->begin_ns = sim->op_begin_ns[execution % 2][op] = sim->now_ns;
  stream->n_begun++;
}

/* --- end ------------------------------------------------------------------------------------- */

static void touch(sim_t *sim, const zr_op_t *op) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (op->operand[i].buffer < 0) continue;
    const zr_buffer_t *buffer = &sim->plan->buffer[op->operand[i].buffer];
    int64_t end = buffer->offset + buffer->bytes;
    if (end > sim->result.peak_bytes[buffer->tier]) sim->result.peak_bytes[buffer->tier] = end;
  }
}

static void move(sim_t *sim, const zr_op_t *op) {
  zr_sim_result_t *r = &sim->result;
  r->sent_bytes += zr_cost_sent_bytes(sim->plan, op);
  if (op->shape.kind == ZR_OP_H2D) r->h2d_bytes += zr_cost_copy_bytes(op);
  if (op->shape.kind == ZR_OP_D2H) r->d2h_bytes += zr_cost_copy_bytes(op);
  if (op->shape.kind == ZR_OP_DISK_READ) r->disk_read_bytes += zr_cost_copy_bytes(op);
  if (op->shape.kind == ZR_OP_DISK_WRITE) r->disk_write_bytes += zr_cost_copy_bytes(op);
}

static void note_end(sim_t *sim, int s, int32_t op, int64_t execution) {
  double took_ns = sim->now_ns - sim->stream[s].begin_ns;
  if (--sim->exec_left[execution] == 0) sim->exec_end_ns[execution] = sim->now_ns;
  if (op == sim->record) sim->record_done = execution + 1;
  if (execution == sim->options->n_executions - 1) {
    touch(sim, &sim->plan->op[op]);
    move(sim, &sim->plan->op[op]);
  }
  if (!measures(sim, execution)) return;
  sim->busy_ns[s] += took_ns;
  if (s != ZR_STREAM_COMPUTE) return;
  sim->crowded_ns += took_ns - (double)sim->options->demand[op].alone_ns;
}

static void end(sim_t *sim, int s) {
  sim_stream_t *stream = &sim->stream[s];
  int64_t per_execution = sim->plan->stream_ops[s];
  int64_t execution = stream->n_done / per_execution;
  int32_t op = sim->list[s][stream->n_done % per_execution];
  stream->runs = false;
  stream->n_done++;
  stream->end_ns = sim->op_end_ns[execution % 2][op] = sim->now_ns;
  sim->n_left--;
  note_end(sim, s, op, execution);
}

/* --- time ------------------------------------------------------------------------------------ */

/* The streams that run, and their speeds under the shares of what they need together. */
static int speeds(const sim_t *sim, int out_stream[ZR_N_STREAMS], double out_speed[ZR_N_STREAMS]) {
  const zr_sim_options_t *o = sim->options;
  double need[ZR_N_STREAMS][ZR_SIM_RESOURCES] = {{0}}, cores = 0;
  int n = 0, directions = 0;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (!sim->stream[s].runs) continue;
    int64_t per_execution = sim->plan->stream_ops[s];
    int32_t op = sim->list[s][sim->stream[s].n_done % per_execution];
    bool drives = s == ZR_STREAM_READ || s == ZR_STREAM_WRITE;
    need[n][ZR_SIM_CORES] = o->demand[op].cores;
    need[n][ZR_SIM_MEMORY] = o->demand[op].memory_bytes_per_ns;
    need[n][ZR_SIM_DRIVE] = drives ? 1 : 0;
    cores += o->demand[op].cores;
    directions += drives;
    out_stream[n++] = s;
  }
  double capacity[ZR_SIM_RESOURCES];
  capacity[ZR_SIM_CORES] = cores > o->n_cores ? o->n_cores * o->crowded_cores : o->n_cores;
  capacity[ZR_SIM_MEMORY] = o->memory_bytes_per_ns > 0 ? o->memory_bytes_per_ns : -1;
  capacity[ZR_SIM_DRIVE] = directions > 1 ? o->mixed_drive : 1;
  zr_sim_share(n, (const double(*)[ZR_SIM_RESOURCES])need, capacity, out_speed);
  return n;
}

/* To the next end of any operation; all that end then end in the order of their streams. */
static zr_status_t advance(sim_t *sim) {
  int stream[ZR_N_STREAMS];
  double speed[ZR_N_STREAMS], wait_ns = INFINITY;
  int n = speeds(sim, stream, speed);
  for (int i = 0; i < n; i++) {
    double ns = sim->stream[stream[i]].left_ns / speed[i];
    if (ns < wait_ns) wait_ns = ns;
  }
  if (n == 0 || !isfinite(wait_ns)) {
    return zr_fail(ZR_ERR_INTERNAL,
                   "plan '%s' stands still after %.0f us: its operations wait for each other",
                   sim->plan->name, sim->now_ns * 1e-3);
  }
  sim->now_ns += wait_ns;
  for (int i = 0; i < n; i++) {
    sim_stream_t *s = &sim->stream[stream[i]];
    s->left_ns -= speed[i] * wait_ns;
    if (s->left_ns <= nothing_ns) end(sim, stream[i]);
  }
  return ZR_OK;
}

static zr_status_t run(sim_t *sim) {
  while (sim->n_left > 0) {
    for (int s = 0; s < ZR_N_STREAMS; s++) {
      if (!sim->stream[s].runs && is_ready(sim, s)) begin(sim, s);
    }
    ZR_TRY(advance(sim));
  }
  return ZR_OK;
}

/* --- all of it ------------------------------------------------------------------------------- */

static zr_status_t open(sim_t *sim) {
  const zr_plan_t *plan = sim->plan;
  int64_t n_executions = sim->options->n_executions;
  sim->record = -1;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    ZR_TRY(zr_alloc_get(plan->alloc, (size_t)plan->stream_ops[s], sizeof(int32_t), &sim->list[s]));
  }
  for (int i = 0; i < 2; i++) {
    ZR_TRY(zr_alloc_get(plan->alloc, plan->n_ops, sizeof(double), &sim->op_begin_ns[i]));
    ZR_TRY(zr_alloc_get(plan->alloc, plan->n_ops, sizeof(double), &sim->op_end_ns[i]));
  }
  ZR_TRY(zr_alloc_get(plan->alloc, (size_t)n_executions, sizeof(double), &sim->exec_end_ns));
  ZR_TRY(zr_alloc_get(plan->alloc, (size_t)n_executions, sizeof(int64_t), &sim->exec_left));
  for (size_t i = 0; i < plan->n_ops; i++) {
    sim->list[plan->op[i].stream][plan->op[i].stream_index] = (int32_t)i;
    if (plan->op[i].shape.kind == ZR_OP_CONTROL_END) sim->record = (int32_t)i;
  }
  for (int64_t e = 0; e < n_executions; e++) sim->exec_left[e] = (int64_t)plan->n_ops;
  sim->n_left = n_executions * (int64_t)plan->n_ops;
  return ZR_OK;
}

static void close_all(sim_t *sim) {
  for (int s = 0; s < ZR_N_STREAMS; s++) zr_alloc_free(sim->plan->alloc, sim->list[s]);
  for (int i = 0; i < 2; i++) {
    zr_alloc_free(sim->plan->alloc, sim->op_begin_ns[i]);
    zr_alloc_free(sim->plan->alloc, sim->op_end_ns[i]);
  }
  zr_alloc_free(sim->plan->alloc, sim->exec_end_ns);
  zr_alloc_free(sim->plan->alloc, sim->exec_left);
}

static void sum_up(sim_t *sim) {
  int n = sim->options->n_executions, half = n / 2;
  double steps = n - half;
  zr_sim_result_t *r = &sim->result;
  r->step_ns = llround((sim->exec_end_ns[n - 1] - sim->exec_end_ns[half - 1]) / steps);
  r->first_ns = llround(sim->exec_end_ns[0]);
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    r->busy_ns[s] = llround(sim->busy_ns[s] / steps);
    r->exposed_ns[s] = llround(sim->exposed_ns[s] / steps);
  }
  r->idle_ns = llround(sim->idle_ns / steps);
  r->crowded_ns = llround(sim->crowded_ns / steps);
}

zr_status_t zr_sim_run(const zr_plan_t *plan, const zr_sim_options_t *options,
                       zr_sim_result_t *out_result) {
  if (options->n_executions < 4 || !(options->n_cores > 0) || !(options->crowded_cores > 0) ||
      !(options->mixed_drive > 0)) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT,
                   "simulation of '%s': %d executions (at least 4) on %g cores x %g, drive %g",
                   plan->name, options->n_executions, options->n_cores, options->crowded_cores,
                   options->mixed_drive);
  }
  sim_t sim = {.plan = plan, .options = options};
  zr_status_t status = plan->n_ops == 0 ? ZR_OK : open(&sim);
  if (status == ZR_OK && plan->n_ops > 0) {
    status = run(&sim);
    if (status == ZR_OK) sum_up(&sim);
  }
  if (status == ZR_OK) *out_result = sim.result;
  close_all(&sim);
  return status;
}

void zr_sim_options(const zr_profile_t *profile, int n_cores, zr_sim_options_t *out_options) {
  *out_options =
      (zr_sim_options_t){.n_cores = n_cores,
                         .crowded_cores = profile->crowded_cores,
                         .memory_bytes_per_ns = profile->memory_bytes_per_ns[ZR_PROFILE_ALL],
                         .mixed_drive = profile->mixed_drive,
                         .n_executions = 8,
                         .ahead = 1};
}

zr_status_t zr_sim_plan(const zr_plan_t *plan, const zr_profile_t *profile, int n_workers,
                        int n_cores, zr_sim_result_t *out_result) {
  zr_sim_options_t options;
  zr_cost_demand_t *demand = NULL;
  ZR_TRY(zr_alloc_get(plan->alloc, plan->n_ops, sizeof *demand, &demand));
  zr_cost_demands(plan, profile, n_workers, demand);
  zr_sim_options(profile, n_cores > n_workers ? n_cores : n_workers, &options);
  options.demand = demand;
  zr_status_t status = zr_sim_run(plan, &options, out_result);
  zr_alloc_free(plan->alloc, demand);
  return status;
}
