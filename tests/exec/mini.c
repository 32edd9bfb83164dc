#include "mini.h"

#include <stdlib.h>
#include <string.h>

const mini_shape_t mini_shape = {.n_units = 3, .shard_elems = 1024, .n_micro = 2, .value = 0.25};

/* --- the plans --- */

typedef struct {
  mini_t *mini;
  const mini_shape_t *shape;
  zr_plan_t *plan;
  int n_ranks;
  int64_t shard_bytes, flat_bytes;
  int32_t phase;
  int32_t flat[MINI_MAX_UNITS], y[MINI_MAX_UNITS];
} build_t;

static int32_t add_buffer(build_t *b, const char *stem, int index, zr_category_t category,
                          zr_dtype_t dtype, int64_t bytes, bool persistent) {
  char name[ZR_PLAN_NAME_BYTES];
  snprintf(name, sizeof name, "%s%d", stem, index);
  int32_t buffer;
  assert_ok(zr_plan_add_buffer(b->plan, name, ZR_TIER_DEVICE, category, dtype, bytes, persistent,
                               &buffer));
  return buffer;
}

static int32_t add_flat(build_t *b, const char *stem, int index) {
  return add_buffer(b, stem, index, ZR_CATEGORY_ACTIVATION, ZR_F32, b->flat_bytes, false);
}

static int32_t add_scratch(build_t *b, const char *stem, int index, int64_t bytes) {
  int64_t need = zr_comm_exchange_scratch_bytes(b->n_ranks, bytes);
  if (need < 64) need = 64;
  return add_buffer(b, stem, index, ZR_CATEGORY_WORKSPACE, ZR_U8, need, false);
}

static void add_op(build_t *b, int32_t kind, int unit, int64_t attr0, int64_t attr1, double real,
                   int n_operands, const zr_operand_t *operand) {
  zr_op_desc_t desc = {.kind = kind,
                       .unit = (int16_t)unit,
                       .micro = kind == ZR_OP_FETCH ? (int32_t)attr0 : -1,
                       .phase = b->phase,
                       .attr = {attr0, attr1},
                       .real = real,
                       .n_operands = n_operands};
  memcpy(desc.operand, operand, (size_t)n_operands * sizeof *operand);
  assert_ok(zr_plan_add_op(b->plan, &desc, NULL));
}

static zr_operand_t all(build_t *b, int32_t buffer, zr_access_t access) {
  return zr_operand_all(b->plan, buffer, access);
}

#define OP(b, kind, unit, attr0, attr1, real, ...)                            \
  add_op(b, kind, unit, attr0, attr1, real,                                   \
         (int)(sizeof((zr_operand_t[]){__VA_ARGS__}) / sizeof(zr_operand_t)), \
         (zr_operand_t[]){__VA_ARGS__})

static void begin_plan(build_t *b, const char *name) {
  assert_ok(zr_plan_create(&b->mini->alloc, name, b->n_ranks, &b->plan));
  b->phase = 0;
  b->mini->control =
      add_buffer(b, "control", 0, ZR_CATEGORY_DATA, ZR_I64, (int64_t)sizeof(zr_control_t), true);
  b->mini->probe = add_buffer(b, "probe", 0, ZR_CATEGORY_DATA, ZR_F32, b->flat_bytes, true);
  for (int u = 0; u < b->shape->n_units; u++) {
    b->mini->state[u] = add_buffer(b, "state", u, ZR_CATEGORY_PARAM, ZR_F32, b->shard_bytes, true);
    char unit[24];
    snprintf(unit, sizeof unit, "layers.%d", u);
    int16_t index;
    assert_ok(zr_plan_add_unit(b->plan, unit, &index));
  }
}

static void add_gather(build_t *b, int u) {
  b->phase++;
  b->flat[u] = add_flat(b, "flat", u);
  OP(b, ZR_OP_ALL_GATHER, u, b->shard_bytes, 0, 0, all(b, b->mini->state[u], ZR_READ),
     all(b, b->flat[u], ZR_WRITE));
}

static void add_micro(build_t *b, int64_t m) {
  const int64_t bytes = MINI_ROWS * 4;
  const int32_t tokens = add_buffer(b, "tokens", (int)m, ZR_CATEGORY_DATA, ZR_I32, bytes, false);
  const int32_t targets = add_buffer(b, "targets", (int)m, ZR_CATEGORY_DATA, ZR_I32, bytes, false);
  b->phase++;
  OP(b, ZR_OP_FETCH, -1, m, MINI_ROWS, 0, all(b, tokens, ZR_WRITE), all(b, targets, ZR_WRITE));
  OP(b, ZR_OP_COUNT, -1, MINI_ROWS, 0, 0, all(b, targets, ZR_READ),
     all(b, b->mini->control, ZR_ACCUMULATE));
}

/* g = 2 flat + y[u - 1]; its reduced shard is added on the comm stream to an accumulator that
 * compute has filled, and ends in the state and in the norm. */
static void add_backward(build_t *b, int u) {
  const int64_t n = b->flat_bytes / 4, shard = b->shape->shard_elems;
  const int32_t g = add_flat(b, "g", u);
  const int32_t sum = add_buffer(b, "sum", u, ZR_CATEGORY_GRAD, ZR_F32, b->shard_bytes, false);
  const int32_t acc = add_buffer(b, "acc", u, ZR_CATEGORY_GRAD, ZR_F32, b->shard_bytes, false);
  const int32_t scratch = add_scratch(b, "rs", u, b->shard_bytes);
  b->phase++;
  OP(b, ZR_OP_ADD, u, n, 0, 0, all(b, b->flat[u], ZR_READ), all(b, b->y[u], ZR_READ),
     all(b, g, ZR_WRITE));
  OP(b, ZR_OP_FILL, u, shard, 0, b->shape->value, all(b, acc, ZR_WRITE));
  OP(b, ZR_OP_REDUCE_SCATTER, u, b->shard_bytes, 0, 0, all(b, g, ZR_READ), all(b, sum, ZR_WRITE),
     all(b, scratch, ZR_SCRATCH));
  OP(b, ZR_OP_SHARD_ADD, u, shard, 0, 0, all(b, sum, ZR_READ), all(b, acc, ZR_ACCUMULATE));
  OP(b, ZR_OP_BLOCK_NORM, u, shard, 0, 0, all(b, acc, ZR_READ),
     all(b, b->mini->control, ZR_ACCUMULATE));
  OP(b, ZR_OP_ACCUMULATE, u, shard, 0, 0, all(b, acc, ZR_READ),
     all(b, b->mini->state[u], ZR_ACCUMULATE));
}

static void build_step(build_t *b) {
  const int n_units = b->shape->n_units;
  const int64_t n = b->flat_bytes / 4;
  begin_plan(b, "step");
  OP(b, ZR_OP_CONTROL_BEGIN, -1, 0, 0, 0, all(b, b->mini->control, ZR_ACCUMULATE));
  for (int64_t m = 0; m < b->shape->n_micro; m++) add_micro(b, m);
  add_gather(b, 0);
  for (int u = 0; u < n_units; u++) {
    if (u + 1 < n_units) add_gather(b, u + 1);
    b->y[u] = add_flat(b, "y", u);
    OP(b, ZR_OP_ADD, u, n, 0, 0, all(b, b->flat[u], ZR_READ),
       all(b, u ? b->y[u - 1] : b->flat[u], ZR_READ), all(b, b->y[u], ZR_WRITE));
  }
  for (int u = n_units - 1; u >= 0; u--) add_backward(b, u);
  const int32_t scratch = add_scratch(b, "ar", 0, 8);
  const zr_operand_t count = zr_operand_part(
      b->mini->control, (int64_t)offsetof(zr_control_t, count_local), 8, ZR_ACCUMULATE);
  b->phase++;
  OP(b, ZR_OP_ALL_REDUCE, -1, 8, 0, 0, count, all(b, scratch, ZR_SCRATCH));
  OP(b, ZR_OP_CONTROL_COUNT, -1, 0, 0, 0, all(b, b->mini->control, ZR_ACCUMULATE));
  OP(b, ZR_OP_CONTROL_UPDATE, -1, 0, 0, 0, all(b, b->mini->control, ZR_ACCUMULATE));
  OP(b, ZR_OP_CONTROL_END, -1, 0, 0, 0, all(b, b->mini->control, ZR_ACCUMULATE));
}

static void build_eval(build_t *b) {
  begin_plan(b, "eval");
  OP(b, ZR_OP_FILL, -1, b->flat_bytes / 4, 0, 1.0, all(b, b->mini->probe, ZR_WRITE));
  for (int u = 0; u < b->shape->n_units; u++) {
    add_gather(b, u);
    OP(b, ZR_OP_ACCUMULATE, u, b->flat_bytes / 4, 0, 0, all(b, b->flat[u], ZR_READ),
       all(b, b->mini->probe, ZR_ACCUMULATE));
  }
}

static void build_program(mini_t *mini, const mini_shape_t *shape, int n_ranks) {
  build_t b = {.mini = mini, .shape = shape, .n_ranks = n_ranks};
  b.shard_bytes = shape->shard_elems * 4;
  b.flat_bytes = b.shard_bytes * n_ranks;
  mini->n_units = shape->n_units;
  assert_ok(zr_program_create(&mini->alloc, &mini->program));
  build_step(&b);
  assert_ok(zr_program_add(mini->program, b.plan));
  build_eval(&b);
  assert_ok(zr_program_add(mini->program, b.plan));
  zr_place_options_t place;
  zr_place_defaults(&place);
  assert_ok(zr_program_compile(mini->program, &place));
}

/* --- backends --- */

static zr_status_t fetch(void *context, int plan, int64_t iteration, int64_t micro,
                         int32_t *out_tokens, int32_t *out_targets, int32_t *out_starts,
                         int64_t rows) {
  mini_t *mini = context;
  (void)out_starts;
  if (iteration == mini->fetch_fails_at) return zr_fail(ZR_ERR_DATA, "data.bin: it ends early");
  for (int64_t t = 0; t < rows; t++) {
    out_tokens[t] = (int32_t)(plan + micro + t);
    out_targets[t] = t < iteration % rows ? -1 : (int32_t)t;
  }
  return ZR_OK;
}

static struct {
  zr_kern_ops_t ops;
  const zr_kern_ops_t *inner;
  int32_t kind;
  int64_t at, n_runs;
} faulty;

static zr_status_t faulty_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  if (call->shape->kind == faulty.kind && ++faulty.n_runs == faulty.at) {
    return zr_fail(ZR_ERR_DEVICE, "the kernel fails as asked");
  }
  return faulty.inner->run(kern, call);
}

void mini_fault_kern(mini_t *mini, int32_t kind, int64_t at) {
  faulty.inner = mini->kern_ops;
  faulty.ops = *mini->kern_ops;
  faulty.ops.run = faulty_run;
  faulty.kind = kind;
  faulty.at = at;
  faulty.n_runs = 0;
  mini->options.kern_ops = &faulty.ops;
}

void mini_use_cpu_kernels(mini_t *mini) {
  mini->kern_ops->close(mini->kern);
  assert_ok(zr_kern_cpu_open(&mini->alloc, "auto", &mini->kern_ops, &mini->kern));
  mini->options.kern_ops = mini->kern_ops;
  mini->options.kern = mini->kern;
}

void mini_fault_hal(mini_t *mini, zr_fault_kind_t kind, int64_t at) {
  const zr_fault_t fault = {.kind = kind, .at = at};
  assert_ok(zr_hal_fault_open(&mini->alloc, &fault, mini->hal_ops, mini->hal, &mini->hal_ops,
                              &mini->hal));
  mini->options.hal_ops = mini->hal_ops;
  mini->options.hal = mini->hal;
}

void mini_fault_comm(mini_t *mini, zr_fault_kind_t kind, int64_t at) {
  const zr_fault_t fault = {.kind = kind, .at = at};
  assert_ok(zr_comm_fault_open(&mini->alloc, &fault, mini->comm_ops, mini->comm, &mini->comm_ops,
                               &mini->comm));
  mini->options.comm_ops = mini->comm_ops;
  mini->options.comm = mini->comm;
}

void mini_open_backends(mini_t *mini, const zr_comm_ops_t *comm_ops, zr_comm_t *comm) {
  memset(mini, 0, sizeof *mini);
  zr_alloc_init(&mini->alloc);
  mini->comm_ops = comm_ops;
  mini->comm = comm;
  if (!comm) assert_ok(zr_comm_self_open(&mini->alloc, &mini->comm_ops, &mini->comm));
  assert_ok(zr_hal_cpu_open(&mini->alloc, &mini->hal_ops, &mini->hal));
  assert_ok(zr_kern_ref_open(&mini->alloc, ZR_F32, &mini->kern_ops, &mini->kern));
}

void mini_fill_options(mini_t *mini) {
  zr_exec_options_t *o = &mini->options;
  zr_exec_defaults(o);
  o->program = mini->program;
  o->control_buffer[MINI_STEP] = mini->control;
  o->hal_ops = mini->hal_ops;
  o->hal = mini->hal;
  o->comm_ops = mini->comm_ops;
  o->comm = mini->comm;
  o->kern_ops = mini->kern_ops;
  o->kern = mini->kern;
  o->fetch = fetch;
  o->fetch_context = mini;
  o->disk_ops = mini->disk_ops;
  o->disk = mini->disk;
}

void mini_open_comm(mini_t *mini, const mini_shape_t *shape, const zr_comm_ops_t *comm_ops,
                    zr_comm_t *comm) {
  mini_open_backends(mini, comm_ops, comm);
  build_program(mini, shape, mini->comm_ops->info(mini->comm).n_ranks);
  mini_fill_options(mini);
}

void mini_open(mini_t *mini, const mini_shape_t *shape) {
  mini_open_comm(mini, shape, NULL, NULL);
}

void mini_start(mini_t *mini) {
  assert_ok(zr_exec_create(&mini->alloc, &mini->options, &mini->exec));
  const zr_comm_info_t info = mini->comm_ops->info(mini->comm);
  const zr_control_t control = {.rank = info.rank, .n_ranks = info.n_ranks};
  assert_ok(zr_exec_upload(mini->exec, mini->control, 0, &control, (int64_t)sizeof control));
  for (int u = 0; u < mini->n_units; u++) {
    const int64_t bytes = mini->program->plan[0]->buffer[mini->state[u]].bytes;
    float *values = malloc((size_t)bytes);
    assert_non_null(values);
    for (int64_t i = 0; i < bytes / 4; i++) {
      values[i] = 0.001f * (float)(i % 97) + 0.1f * (float)u + (float)info.rank;
    }
    assert_ok(zr_exec_upload(mini->exec, mini->state[u], 0, values, bytes));
    free(values);
  }
}

void mini_close(mini_t *mini) {
  zr_exec_destroy(mini->exec);
  if (mini->disk_ops) mini->disk_ops->close(mini->disk);
  mini->hal_ops->close(mini->hal);
  mini->comm_ops->close(mini->comm);
  mini->kern_ops->close(mini->kern);
  zr_pool_destroy(mini->pool);
  zr_program_destroy(mini->program);
  assert_int_equal(mini->alloc.live_count, 0);
}

int32_t mini_find_op(const mini_t *mini, int plan, int32_t kind, int n) {
  const zr_plan_t *p = mini->program->plan[plan];
  for (size_t i = 0; i < p->n_ops; i++) {
    if (p->op[i].shape.kind == kind && n-- == 0) return (int32_t)i;
  }
  fail_msg("no such operation");
  return -1;
}

void *mini_contents(mini_t *mini, int64_t *out_bytes) {
  const zr_plan_t *plan = mini->program->plan[0];
  int64_t bytes = 0;
  for (int32_t i = 0; i < mini->program->n_persistent; i++) bytes += plan->buffer[i].bytes;
  char *contents = malloc((size_t)bytes);
  assert_non_null(contents);
  *out_bytes = bytes;
  bytes = 0;
  for (int32_t i = 0; i < mini->program->n_persistent; i++) {
    assert_ok(zr_exec_download(mini->exec, i, 0, contents + bytes, plan->buffer[i].bytes));
    bytes += plan->buffer[i].bytes;
  }
  return contents;
}
