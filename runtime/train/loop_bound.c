/* What a step was predicted to take, what it must take at least, and what it took.
 *
 * The bound of a run is that of its own operations: each one's shortest time so far in this run,
 * put together by zr_cost_bound_on from the list's values, the cores and the drive. It says how
 * much of a step is order and overlap, not how fast the operations are: the profile's bound, in the
 * `start` event, says what this machine should do. An operation that always ran beside others
 * carries what they cost it; so that this does not raise the bound, runs whose states travel make
 * their second step one operation at a time (the same bits), and from then on know each
 * operation's time alone. That step is marked "alone" in the log and is no part of the summary. The
 * bound can only fall as a run goes on. */
#include <sched.h>
#include <stdlib.h>

#include "runtime/train/loop_state.h"
#include "runtime/train/profile_file.h"

static const zr_plan_t *step_plan(const zr_loop_t *loop) {
  return loop->zero->program->plan[loop->plan_step];
}

/* After widening, the rank's own; never fewer than its workers. */
static int n_cores(const zr_loop_t *loop) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return n > loop->n_workers ? n : loop->n_workers;
}

zr_status_t zr_loop_bound_open(zr_loop_t *loop) {
  zr_loop_bound_t *b = &loop->bound;
  const zr_plan_t *plan = step_plan(loop);
  zr_account_t account;
  b->alone_iteration = -1;
  zr_cost_account(plan, &account);
  b->travels =
      account.h2d_bytes + account.d2h_bytes + account.disk_read_bytes + account.disk_write_bytes >
      0;
  if (loop->events == NULL) return ZR_OK;
  ZR_TRY(zr_alloc_get(loop->alloc, plan->n_ops, sizeof *b->op_ns, &b->op_ns));
  ZR_TRY(zr_profile_find(loop->alloc, loop->v->profile, &b->profile));
  return zr_predict(plan, b->profile, loop->n_workers, n_cores(loop), &b->prediction);
}

void zr_loop_bound_close(zr_loop_t *loop) {
  zr_alloc_free(loop->alloc, loop->bound.op_ns);
  zr_alloc_free(loop->alloc, loop->bound.profile);
}

/* The second step, if enough come after it; all ranks decide the same. */
static bool runs_alone(const zr_loop_t *loop) {
  const zr_config_t *v = loop->v;
  return loop->bound.travels && !v->serial && loop->next_iteration == loop->start.iteration + 1 &&
         v->steps - loop->start.step >= ZR_LOOP_ALONE_OF;
}

/* A step of one operation at a time is over when its start returns: the steps before it are logged
 * first, or it would be in their time. */
int64_t zr_loop_ahead(const zr_loop_t *loop) {
  return runs_alone(loop) || loop->v->serial ? 0 : 1;
}

zr_status_t zr_loop_start_step(zr_loop_t *loop) {
  bool alone = runs_alone(loop);
  if (alone) {
    ZR_TRY(zr_exec_set_serial(loop->exec, true));
    loop->bound.alone_iteration = loop->next_iteration;
  }
  ZR_TRY(zr_exec_start(loop->exec, loop->plan_step, loop->next_iteration));
  loop->next_iteration += 1;
  return alone ? zr_exec_set_serial(loop->exec, false) : ZR_OK;
}

/* --- while it runs --------------------------------------------------------------------------- */

/* The first ones count most: later the shortest times seldom change. */
static bool is_due(int64_t n_steps) {
  return n_steps < 8 || n_steps % 16 == 0;
}

static zr_status_t renew(zr_loop_t *loop) {
  zr_loop_bound_t *b = &loop->bound;
  zr_bound_machine_t machine = {
      .n_workers = loop->n_workers,
      .n_cores = n_cores(loop),
      .mixed_drive = b->profile->is_measured ? b->profile->mixed_drive : 2};
  zr_exec_op_times(loop->exec, loop->plan_step, b->op_ns);
  return zr_cost_bound_on(step_plan(loop), b->op_ns, &machine, &b->bound);
}

bool zr_loop_bound_is_alone(const zr_loop_t *loop, const zr_step_record_t *record) {
  return record->iteration - 1 == loop->bound.alone_iteration;
}

zr_status_t zr_loop_bound_step(zr_loop_t *loop, const zr_step_record_t *record, double step_s,
                               const zr_exec_stats_t *stats) {
  zr_loop_bound_t *b = &loop->bound;
  if (loop->events == NULL) return ZR_OK;
  if (is_due(b->n_steps)) ZR_TRY(renew(loop));
  bool is_first = b->n_steps++ == 0;
  if (is_first || zr_loop_bound_is_alone(loop, record)) return ZR_OK;
  b->step_s[b->n_taken++ % ZR_LOOP_TAKEN] = step_s;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    b->exposed_s[s] += (double)(stats->exposed_ns[s] - loop->last_stats.exposed_ns[s]) * 1e-9;
  }
  return ZR_OK;
}

/* --- what came of it ------------------------------------------------------------------------- */

static int by_value(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

static double middle_s(zr_loop_bound_t *b) {
  size_t n = (size_t)(b->n_taken < ZR_LOOP_TAKEN ? b->n_taken : ZR_LOOP_TAKEN);
  if (n == 0) return 0;
  qsort(b->step_s, n, sizeof b->step_s[0], by_value);
  return b->step_s[n / 2];
}

static json_t *exposed(const zr_loop_bound_t *b) {
  json_t *object = json_object();
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (s == ZR_STREAM_COMPUTE) continue;
    (void)json_object_set_new(object, zr_stream_name((zr_stream_id_t)s),
                              json_real(b->exposed_s[s] / (double)b->n_taken));
  }
  return object;
}

static void say_exposed(const zr_loop_t *loop, char *out_text, size_t bytes) {
  const zr_loop_bound_t *b = &loop->bound;
  size_t used = 0;
  out_text[0] = 0;
  for (int s = 0; s < ZR_N_STREAMS && used < bytes; s++) {
    double seconds = b->exposed_s[s] / (double)b->n_taken;
    if (s == ZR_STREAM_COMPUTE || seconds < 1e-4) continue;
    used += (size_t)snprintf(out_text + used, bytes - used, "%s %s %.3g s",
                             used == 0 ? "; compute waited for" : ",",
                             zr_stream_name((zr_stream_id_t)s), seconds);
  }
}

json_t *zr_loop_bound_end(zr_loop_t *loop) {
  zr_loop_bound_t *b = &loop->bound;
  if (b->n_taken == 0) return json_null();
  double step_s = middle_s(b), bound_s = (double)b->bound.bound_ns * 1e-9;
  double predicted_s = (double)b->prediction.sim.step_ns * 1e-9;
  char waited[256];
  say_exposed(loop, waited, sizeof waited);
  zr_events_say(loop->events,
                "a step took %.4g s (the middle one); its operations need %.4g s at least (%s); "
                "predicted were %.4g s%s",
                step_s, bound_s, zr_predict_bound_name(&b->bound), predicted_s, waited);
  return json_pack("{s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:o}", "median_s", step_s, "bound_s",
                   bound_s, "bound_by", zr_predict_bound_name(&b->bound), "chain_s",
                   (double)b->bound.chain_ns * 1e-9, "cores_s", (double)b->bound.cores_ns * 1e-9,
                   "drive_s", (double)b->bound.drive_ns * 1e-9, "predicted_s", predicted_s,
                   "exposed_s", exposed(b));
}
