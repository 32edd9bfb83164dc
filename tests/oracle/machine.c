#include "tests/oracle/machine.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "tests/kernels/check.h"

static void check(zr_status_t status) {
  if (status != ZR_OK) fail_msg("%s: %s", zr_status_name(status), zr_detail());
}

static zr_status_t fetch(void *context, int plan, int64_t iteration, int64_t micro,
                         int32_t *out_tokens, int32_t *out_targets, int32_t *out_starts,
                         int64_t rows) {
  const machine_t *m = context;
  const golden_t *g = m->golden;
  (void)plan;
  int64_t leaf = zr_zero_leaf(&m->zero->options, m->info.rank, micro);
  int64_t first = ((iteration - 1) * g->samples + leaf * m->setting.micro_batch) * g->seq;
  if (rows != m->setting.micro_batch * g->seq || iteration > g->steps)
    return zr_fail(ZR_ERR_INTERNAL, "not a golden micro-batch");
  memcpy(out_tokens, g->tokens + first, (size_t)rows * sizeof *out_tokens);
  memcpy(out_targets, g->targets + first, (size_t)rows * sizeof *out_targets);
  if (out_starts != NULL) memcpy(out_starts, g->starts + first, (size_t)rows * sizeof *out_starts);
  return ZR_OK;
}

static void compile_step(machine_t *m) {
  const machine_setting_t *s = &m->setting;
  zr_zero_options_t o;
  zr_zero_defaults(&o);
  o.stage = s->stage;
  o.n_ranks = m->info.n_ranks;
  o.n_micro = m->golden->samples / (s->micro_batch * o.n_ranks);
  assert_int_equal(o.n_micro * s->micro_batch * o.n_ranks, m->golden->samples);
  o.group = s->group;
  o.order = s->order;
  o.prefetch = s->prefetch;
  o.decay_matrices = m->golden->decay_matrices;
  o.digest = true;
  o.model = m->golden->config;
  o.run = (zr_model_run_t){.micro_batch = s->micro_batch,
                           .seq_len = m->golden->seq,
                           .logits_chunk = 16,
                           .separate = m->golden->starts != NULL,
                           .dtype = s->dtype};
  o.grad_dtype = s->grad_dtype;
  o.kern_ops = m->kern_ops;
  o.kern = m->kern;
  o.n_workers = s->n_threads;
  check(zr_zero_compile(NULL, &o, &m->zero));
}

static int find_plan(const machine_t *m, const char *name) {
  for (int i = 0; i < m->zero->program->n_plans; i++)
    if (strcmp(m->zero->program->plan[i]->name, name) == 0) return i;
  fail_msg("no plan %s", name);
  return -1;
}

static void create_exec(machine_t *m) {
  zr_exec_options_t o;
  zr_exec_defaults(&o);
  o.program = m->zero->program;
  o.control_buffer[m->plan_step] = m->zero->control;
  o.hal_ops = m->hal_ops;
  o.hal = m->hal;
  o.comm_ops = m->comm_ops;
  o.comm = m->comm;
  o.kern_ops = m->kern_ops;
  o.kern = m->kern;
  o.pool = m->pool;
  o.fetch = fetch;
  o.fetch_context = m;
  o.serial = m->setting.serial;
  o.poison = 0xff;
  check(zr_exec_create(NULL, &o, &m->exec));
}

static void part_of_flat(const machine_t *m, size_t unit, int64_t *out_begin, int64_t *out_end) {
  const zr_zero_unit_t *u = &m->zero->unit[unit];
  *out_begin = u->param_sharded ? m->info.rank * u->shard_elems : 0;
  *out_end = u->param_sharded ? *out_begin + u->shard_elems : u->flat_elems;
}

/* Parameters in the plan's type, and what they leave of their fp32 masters. */
static void upload_masters(machine_t *m, const zr_zero_unit_t *u, const float *flat, int64_t begin,
                           int64_t end) {
  zr_dtype_t dtype = m->zero->options.run.dtype;
  if (dtype == ZR_F32) {
    check(zr_exec_upload(m->exec, u->param, 0, flat + begin, (end - begin) * 4));
    return;
  }
  uint16_t *high = calloc((size_t)u->flat_elems, sizeof *high);
  int16_t *low = calloc((size_t)u->flat_elems, sizeof *low);
  assert_true(high != NULL && low != NULL);
  for (int64_t i = 0; i < u->flat_elems; i++) {
    if (dtype == ZR_BF16) zr_master_split(flat[i], &high[i], &low[i]);
    if (dtype == ZR_F16) high[i] = zr_f16_from_f32(flat[i]);
  }
  int64_t own = u->optimizer_sharded ? m->info.rank * u->shard_elems : 0;
  int64_t n_own = u->optimizer_sharded ? u->shard_elems : u->flat_elems;
  const void *rest = dtype == ZR_BF16 ? (const void *)(low + own) : (const void *)(flat + own);
  check(zr_exec_upload(m->exec, u->param, 0, high + begin, (end - begin) * 2));
  check(zr_exec_upload(m->exec, u->low, 0, rest, n_own * (dtype == ZR_BF16 ? 2 : 4)));
  free(high);
  free(low);
}

static void upload_unit(machine_t *m, size_t unit) {
  const zr_zero_unit_t *u = &m->zero->unit[unit];
  float *flat = calloc((size_t)u->flat_elems, sizeof *flat);
  assert_non_null(flat);
  for (int32_t t = u->first_tensor; t < u->first_tensor + u->n_tensors; t++) {
    const zr_flat_tensor_t *place = &m->zero->flat_tensor[t];
    const char *name = m->zero->tape->tensor[place->tensor].name;
    double *values = golden_tensor(m->golden, "param", name, place->elems);
    for (int64_t i = 0; i < place->elems; i++) flat[place->begin + i] = (float)values[i];
    free(values);
  }
  int64_t begin, end, bytes;
  part_of_flat(m, unit, &begin, &end);
  upload_masters(m, u, flat, begin, end);
  free(flat);
  zr_kern_layout_t *layout = NULL;
  check(zr_zero_layout(m->zero, unit, &layout, &bytes));
  check(zr_exec_upload(m->exec, u->layout, 0, layout, bytes));
  zr_alloc_free(m->zero->alloc, layout);
}

void machine_open(machine_t *m, const golden_t *golden, const machine_setting_t *setting,
                  const zr_comm_ops_t *comm_ops, zr_comm_t *comm) {
  *m = (machine_t){.golden = golden, .setting = *setting, .comm_ops = comm_ops, .comm = comm};
  m->info = comm_ops->info(comm);
  const char *isa = setting->isa == NULL ? "auto" : setting->isa;
  check(zr_hal_cpu_open(NULL, &m->hal_ops, &m->hal));
  check(setting->ref ? zr_kern_ref_open(NULL, ZR_F32, &m->kern_ops, &m->kern)
                     : zr_kern_cpu_open(NULL, isa, &m->kern_ops, &m->kern));
  check(zr_pool_create(NULL, setting->n_threads, &m->pool));
  compile_step(m);
  m->plan_step = find_plan(m, "step");
  create_exec(m);
  zr_control_t control = golden->control;
  control.rank = m->info.rank;
  control.n_ranks = m->info.n_ranks;
  control.digest = 2;
  check(zr_exec_upload(m->exec, m->zero->control, 0, &control, (int64_t)sizeof control));
  for (size_t u = 0; u < m->zero->n_units; u++) upload_unit(m, u);
  check(zr_exec_start(m->exec, find_plan(m, "load"), 1));
  check(zr_exec_wait(m->exec));
}

zr_step_record_t machine_step(machine_t *m, int64_t step) {
  zr_step_record_t record = {0};
  check(zr_exec_start(m->exec, m->plan_step, step));
  check(zr_exec_record(m->exec, step, &record));
  assert_int_equal(record.step, step);
  assert_int_equal(record.skipped, 0);
  return record;
}

float *machine_params(machine_t *m, size_t unit, int64_t *out_begin, int64_t *out_end) {
  check(zr_exec_wait(m->exec));
  part_of_flat(m, unit, out_begin, out_end);
  int64_t bytes = (*out_end - *out_begin) * 4;
  float *values = malloc((size_t)bytes);
  assert_non_null(values);
  check(zr_exec_download(m->exec, m->zero->unit[unit].param, 0, values, bytes));
  return values;
}

void machine_close(machine_t *m) {
  zr_exec_destroy(m->exec);
  m->hal_ops->close(m->hal);
  m->kern_ops->close(m->kern);
  zr_pool_destroy(m->pool);
  zr_zero_destroy(m->zero);
}
