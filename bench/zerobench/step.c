/* A training step as it runs, by kinds of operation, and how far it is from
 *
 *   products as cut + attention at the products' rate + all other bytes at the rate of a copy
 *
 * The run, the products alone and the copies alternate, and each counts with its best. */
#include "bench/zerobench/step.h"

#include <string.h>
#include <unistd.h>

#include "runtime/plan/cost.h"
#include "runtime/plan/program.h"
#include "runtime/train/loop.h"
#include "runtime/train/setup.h"

typedef struct {
  zr_step_run_t run;
  zr_zero_t *zero; /* compiled as the run's own: its plan's operations are those of the trace */
  const zr_plan_t *plan;
  zr_step_products_t products;
  zr_step_times_t times;
} step_t;

/* --- the plan ----------------------------------------------------------------------------------
 */

/* memory.device of every rank, in bytes, so that each run has the same plan. */
static zr_status_t fix_budget(step_t *s, const zr_config_file_t *config) {
  zr_bench_t *b = s->run.bench;
  int64_t budget[ZR_N_TIERS], *all = NULL;
  zr_setup_budgets(&config->values, zr_job_info(s->run.job).n_local_ranks, budget);
  int64_t least = budget[ZR_TIER_DEVICE];
  ZR_TRY(zr_alloc_get(b->alloc, (size_t)b->n_ranks, sizeof least, &all));
  zr_status_t status = zr_job_gather(s->run.job, &least, all, sizeof least);
  for (int r = 0; r < b->n_ranks; r++) {
    if (all[r] < least) least = all[r];
  }
  zr_alloc_free(b->alloc, all);
  s->run.budget_bytes = least;
  return status;
}

static zr_status_t compile(step_t *s, const zr_config_file_t *config) {
  zr_bench_t *b = s->run.bench;
  zr_setup_place_t place = {.n_ranks = b->n_ranks,
                            .n_workers = b->n_threads,
                            .budget_bytes = {s->run.budget_bytes},
                            .kern_ops = b->kern_ops,
                            .kern = b->kern};
  zr_zero_options_t options;
  zr_setup_zero_options(config, &place, &options);
  ZR_TRY(zr_zero_compile(b->alloc, &options, &s->zero));
  s->plan = zr_program_find(s->zero->program, "step");
  s->times.n_ops = (int64_t)s->plan->n_ops;
  return zr_alloc_get(b->alloc, s->plan->n_ops, sizeof(double), &s->times.op_seconds);
}

static zr_status_t prepare(step_t *s) {
  zr_config_file_t *config = NULL;
  ZR_TRY(zr_step_config(&s->run, &config));
  zr_status_t status = fix_budget(s, config);
  if (status == ZR_OK) status = compile(s, config);
  zr_config_destroy(config);
  return status == ZR_OK ? zr_step_products_make(s->run.bench, s->plan, &s->products) : status;
}

/* --- a run -------------------------------------------------------------------------------------
 */

/* The loop's progress line goes where this program's does. */
static zr_status_t loop(step_t *s, zr_config_file_t *config, const zr_hal_ops_t *hal_ops,
                        zr_hal_t *hal) {
  zr_bench_t *b = s->run.bench;
  zr_loop_options_t options = {.config = config,
                               .job = s->run.job,
                               .hal_ops = hal_ops,
                               .hal = hal,
                               .kern_ops = b->kern_ops,
                               .kern = b->kern,
                               .open_disk = zr_disk_open,
                               .n_threads = b->n_threads,
                               .piped = true,
                               .version = "zerobench"};
  (void)fflush(stdout);
  int kept = dup(STDOUT_FILENO);
  if (kept < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    return zr_fail(ZR_ERR_IO, "standard output can not be turned aside");
  }
  zr_status_t status = zr_loop_run(b->alloc, &options);
  (void)fflush(stdout);
  (void)dup2(kept, STDOUT_FILENO);
  (void)close(kept);
  return status;
}

/* On a device of its own: the timelines of an executor begin at 0. */
static zr_status_t run_once(step_t *s) {
  char path[ZR_STEP_PATH_BYTES + 32];
  zr_config_file_t *config = NULL;
  const zr_hal_ops_t *hal_ops = NULL;
  zr_hal_t *hal = NULL;
  ZR_TRY(zr_step_config(&s->run, &config));
  zr_status_t status = zr_hal_cpu_open(s->run.bench->alloc, &hal_ops, &hal);
  if (status == ZR_OK) status = loop(s, config, hal_ops, hal);
  if (hal_ops != NULL) hal_ops->close(hal);
  zr_config_destroy(config);
  if (status != ZR_OK || s->run.bench->rank != 0) return status;
  (void)snprintf(path, sizeof path, "%s/run/trace.json", s->run.folder);
  return zr_step_trace_read(path, s->plan, &s->times);
}

/* --- the report --------------------------------------------------------------------------------
 */

static int is_attention(int32_t kind) {
  return kind == ZR_OP_ATTENTION || kind == ZR_OP_ATTENTION_GRAD;
}

/* Bytes that an operation must read and write; of the embedding's table, the rows that it uses. */
static double bytes_of(const zr_plan_t *plan, const zr_op_t *op) {
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  double bytes = 0;
  if (row->collective) return (double)zr_cost_sent_bytes(plan, op);
  if (op->shape.kind == ZR_OP_EMBEDDING) return 2 * (double)op->operand[3].bytes;
  for (int i = 0; i < row->n_operands; i++) {
    const zr_operand_t *x = &op->operand[i];
    if (x->buffer < 0) continue;
    int times = ((x->access & ZR_READ) != 0) + ((x->access & ZR_WRITE) != 0);
    bytes += (double)times * (double)x->bytes;
  }
  return bytes;
}

typedef struct {
  int64_t count;
  double seconds, flops, bytes;
} kind_t;

static kind_t sum_kind(const step_t *s, int32_t kind) {
  kind_t sum = {0};
  for (size_t i = 0; i < s->plan->n_ops; i++) {
    const zr_op_t *op = &s->plan->op[i];
    const zr_op_row_t *row = zr_op_row(op->shape.kind);
    if (op->shape.kind != kind) continue;
    sum.count += 1;
    sum.seconds += s->times.op_seconds[i];
    sum.bytes += bytes_of(s->plan, op);
    if (row->flops != NULL) sum.flops += (double)row->flops(&op->shape);
  }
  return sum;
}

typedef struct {
  double products_s, products_rate, copy_rate, attention_s, bytes_s;
} bound_t;

static bound_t ceilings(const step_t *s) {
  double flops;
  bound_t bound = {.products_s = zr_step_products_seconds(&s->products, -1, &flops)};
  bound.products_rate = flops / bound.products_s;
  bound.copy_rate = 2 * (double)s->products.copy.bytes / s->products.copy_seconds;
  return bound;
}

static zr_status_t report_kind(step_t *s, int32_t kind, bound_t *bound) {
  kind_t k = sum_kind(s, kind);
  if (k.count == 0 || (k.flops <= 0 && k.bytes <= 0 && k.seconds < 1e-6)) return ZR_OK;
  double flops, alone = zr_step_products_seconds(&s->products, kind, &flops);
  bool product = zr_step_is_product(kind), attention = is_attention(kind);
  if (attention) bound->attention_s += k.flops / bound->products_rate;
  if (!product && !attention) bound->bytes_s += k.bytes / bound->copy_rate;
  double work = product || attention ? k.flops : k.bytes;
  double rate = product ? flops / alone : attention ? bound->products_rate : bound->copy_rate;
  zr_bench_row_t row = {.what = zr_op_row(kind)->name,
                        .count = k.count,
                        .seconds = k.seconds,
                        .share = k.seconds / s->times.step_seconds,
                        .value = k.seconds > 0 ? 1e-9 * work / k.seconds : 0,
                        .unit = product || attention ? "GF/s" : "GB/s",
                        .ceiling = 1e-9 * rate};
  row.ceiling_of = product ? "its products alone" : attention ? "all products" : "copy";
  return zr_bench_row(s->run.bench, &row);
}

static double compute_seconds(const step_t *s) {
  double seconds = 0;
  for (size_t i = 0; i < s->plan->n_ops; i++) {
    if (s->plan->op[i].stream == ZR_STREAM_COMPUTE) seconds += s->times.op_seconds[i];
  }
  return seconds;
}

static zr_status_t report(step_t *s) {
  zr_bench_t *b = s->run.bench;
  bound_t bound = ceilings(s);
  for (int32_t kind = 1; kind < ZR_N_OP_KINDS; kind++) ZR_TRY(report_kind(s, kind, &bound));
  double bound_s = bound.products_s + bound.attention_s + bound.bytes_s;
  double step_s = s->times.step_seconds;
  ZR_TRY(zr_bench_fact(b, "step_s", step_s));
  ZR_TRY(zr_bench_fact(b, "compute_idle_s", step_s - compute_seconds(s)));
  ZR_TRY(zr_bench_fact(b, "products_s", bound.products_s));
  ZR_TRY(zr_bench_fact(b, "products_gflops", 1e-9 * bound.products_rate));
  ZR_TRY(zr_bench_fact(b, "copy_gbps", 1e-9 * bound.copy_rate));
  ZR_TRY(zr_bench_fact(b, "attention_bound_s", bound.attention_s));
  ZR_TRY(zr_bench_fact(b, "bytes_bound_s", bound.bytes_s));
  ZR_TRY(zr_bench_fact(b, "bound_s", bound_s));
  ZR_TRY(zr_bench_fact(b, "step_over_bound", step_s / bound_s));
  return zr_bench_note(b,
                       "bound: products as cut + attention at the products' rate + other bytes at "
                       "the copy's rate; fastest of %lld steps",
                       (long long)(s->run.steps - 1));
}

static zr_status_t measure(step_t *s) {
  zr_bench_t *b = s->run.bench;
  int64_t rounds = b->options.rounds > 0 ? b->options.rounds : b->options.quick ? 1 : 2;
  ZR_TRY(zr_job_create(b->alloc, b->comm_ops, b->comm, &s->run.job));
  ZR_TRY(zr_step_folder_make(b, s->run.folder));
  ZR_TRY(prepare(s));
  for (int64_t round = 0; round < rounds; round++) {
    zr_bench_say(b, "round %lld of %lld: %lld steps", (long long)round + 1, (long long)rounds,
                 (long long)s->run.steps);
    ZR_TRY(run_once(s));
    zr_bench_say(b, "its products alone, and copies");
    ZR_TRY(zr_step_products_time(b, &s->products));
  }
  return b->rank == 0 ? report(s) : ZR_OK;
}

zr_status_t zr_bench_step(zr_bench_t *b) {
  enum { STEPS = 4 };
  static step_t step; /* too large for a stack */
  step = (step_t){.run = {.bench = b, .steps = STEPS}};
  zr_status_t status = measure(&step);
  char detail[ZR_DETAIL_BYTES];
  (void)snprintf(detail, sizeof detail, "%s", zr_detail());
  zr_step_products_free(b, &step.products);
  zr_alloc_free(b->alloc, step.times.op_seconds);
  zr_zero_destroy(step.zero);
  zr_job_destroy(step.run.job);
  zr_step_folder_remove(b, step.run.folder);
  zr_detail_set(detail);
  return status;
}
