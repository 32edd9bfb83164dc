#include "tests/proof/machine.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/half.h"
#include "runtime/base/rng.h"
#include "tests/support/memdisk.h"

void machine_world_open(machine_world_t *world) {
  memset(world, 0, sizeof *world);
  zr_alloc_init(&world->alloc);
  if (zr_comm_mpi_launched()) {
    assert_ok(zr_comm_mpi_open(&world->alloc, &world->ops, &world->comm));
  } else {
    assert_ok(zr_comm_self_open(&world->alloc, &world->ops, &world->comm));
  }
  const zr_comm_info_t info = world->ops->info(world->comm);
  world->rank = info.rank;
  world->n_ranks = info.n_ranks;
}

void machine_world_close(machine_world_t *world) {
  world->ops->close(world->comm);
  memset(world, 0, sizeof *world);
}

void machine_defaults(machine_options_t *out_options) {
  *out_options = (machine_options_t){.arch = ZR_ARCH_GPT2,
                                     .n_leaves = 4,
                                     .group = ZR_GROUP_AUTO,
                                     .prefetch = ZR_PREFETCH_AUTO,
                                     .n_layers = 2,
                                     .n_threads = 1,
                                     .delay_max_ns = 60000,
                                     .poison = -1,
                                     .max_grad_norm = 1.0,
                                     .chunk_elems = 1024};
}

/* --- the model and its data ------------------------------------------------------------------ */

/* Sizes that divide nothing: rows of 24, heads of 10, a vocabulary of 65, sequences of 11. */
static void tiny_model(const machine_options_t *o, zr_model_config_t *out_model) {
  zr_model_defaults(o->arch, out_model);
  const bool llama = o->arch != ZR_ARCH_GPT2; /* and its family */
  out_model->vocab_size = 65;
  out_model->hidden_size = 24;
  out_model->n_layers = o->n_layers;
  out_model->n_heads = 3;
  out_model->head_dim = llama ? 10 : 0;
  out_model->n_kv_heads = llama ? 1 : 0;
  out_model->intermediate_size = 50;
  out_model->max_positions = 20;
  if (!o->regular) return;
  out_model->vocab_size = 128;
  out_model->hidden_size = 64;
  out_model->n_heads = 4;
  out_model->head_dim = llama ? 16 : 0;
  out_model->n_kv_heads = llama ? 2 : 0;
  out_model->intermediate_size = 128;
}

void machine_zero_options(const machine_options_t *o, int n_ranks, const zr_kern_ops_t *kern_ops,
                          zr_kern_t *kern, zr_zero_options_t *out_zero) {
  zr_zero_defaults(out_zero);
  tiny_model(o, &out_zero->model);
  out_zero->run = (zr_model_run_t){.micro_batch = 2,
                                   .seq_len = 11,
                                   .logits_chunk = 8,
                                   .separate = o->documents,
                                   .dtype = o->dtype};
  out_zero->grad_dtype = o->grad_dtype;
  out_zero->stage = o->stage;
  out_zero->n_ranks = n_ranks;
  out_zero->n_micro = o->n_leaves / n_ranks;
  out_zero->group = n_ranks == 1 ? ZR_GROUP_AUTO : o->group;
  out_zero->order = o->order;
  out_zero->prefetch = o->prefetch;
  out_zero->recompute = o->recompute;
  out_zero->digest = true;
  out_zero->decay_matrices = true;
  out_zero->optimizer = o->optimizer;
  out_zero->no_momentum = o->momentum == 0;
  out_zero->state_dtype = o->state_dtype;
  out_zero->home = o->home;
  out_zero->ratio = o->ratio;
  out_zero->chunk_elems = o->chunk_elems;
  out_zero->n_slots = o->n_slots;
  out_zero->kern_ops = kern_ops;
  out_zero->kern = kern;
  out_zero->n_workers = o->n_threads;
  out_zero->place.budget_bytes[ZR_TIER_DEVICE] = o->budget_bytes;
}

static zr_status_t fetch(void *context, int plan, int64_t iteration, int64_t micro,
                         int32_t *out_tokens, int32_t *out_targets, int32_t *out_starts,
                         int64_t rows) {
  const machine_t *machine = context;
  (void)plan;
  const zr_zero_options_t *o = &machine->zero->options;
  const int64_t leaf = zr_zero_leaf(o, machine->rank, micro);
  const uint64_t key = zr_mix64((uint64_t)(iteration * 4096 + leaf) + 1);
  for (int64_t t = 0, start = 0; t < rows; t++) {
    const int64_t at = t % o->run.seq_len;
    if (at == 0 || zr_rng_u64(key, (uint64_t)(t + 2 * rows)) % 5 == 0) start = at;
    if (out_starts != NULL) out_starts[t] = (int32_t)start;
    out_tokens[t] = (int32_t)(zr_rng_u64(key, (uint64_t)t) % (uint64_t)o->model.vocab_size);
    const uint64_t draw = zr_rng_u64(key, (uint64_t)(t + rows));
    out_targets[t] = draw % 7 == 0 ? -1 : (int32_t)(draw % (uint64_t)o->model.vocab_size);
  }
  return ZR_OK;
}

/* --- first contents -------------------------------------------------------------------------- */

/* `elems` elements from the first that this rank holds, wherever they live. */
static void upload_held(machine_t *m, size_t index, int held, const void *source, int64_t elems,
                        int64_t item) {
  const char *at = source;
  for (int64_t elem = 0; elem < elems;) {
    const zr_zero_place_t place = zr_zero_place(m->zero, index, held, elem);
    const int64_t n = place.elems < elems - elem ? place.elems : elems - elem;
    assert_ok(zr_exec_upload(m->exec, place.buffer, place.offset, at + elem * item, n * item));
    elem += n;
  }
}

/* Parameters in the plan's type, and what they leave of their fp32 masters. */
static void upload_masters(machine_t *m, size_t index, const float *flat) {
  const zr_zero_unit_t *unit = &m->zero->unit[index];
  const int64_t n = unit->flat_elems, shard = unit->shard_elems;
  const int64_t first = unit->param_sharded ? m->rank * shard : 0;
  const int64_t elems = unit->param_sharded ? shard : n;
  const zr_dtype_t dtype = m->zero->options.run.dtype;
  if (dtype == ZR_F32) {
    upload_held(m, index, ZR_HELD_PARAM, flat + first, elems, 4);
    return;
  }
  uint16_t *high = calloc((size_t)n, sizeof *high);
  int16_t *low = calloc((size_t)n, sizeof *low);
  assert_true(high != NULL && low != NULL);
  for (int64_t i = 0; i < n; i++) {
    if (dtype == ZR_BF16) zr_master_split(flat[i], &high[i], &low[i]);
    if (dtype == ZR_F16) high[i] = zr_f16_from_f32(flat[i]);
  }
  const int64_t own = unit->optimizer_sharded ? m->rank * shard : 0;
  const int64_t n_own = unit->optimizer_sharded ? shard : n;
  const void *rest = dtype == ZR_BF16 ? (const void *)(low + own) : (const void *)(flat + own);
  upload_held(m, index, ZR_HELD_PARAM, high + first, elems, 2);
  upload_held(m, index, ZR_HELD_LOW, rest, n_own, dtype == ZR_BF16 ? 2 : 4);
  free(high);
  free(low);
}

static void upload_unit(machine_t *m, size_t index) {
  const zr_zero_t *zero = m->zero;
  const zr_zero_unit_t *unit = &zero->unit[index];
  float *flat = calloc((size_t)unit->flat_elems, sizeof *flat);
  assert_non_null(flat);
  for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->n_tensors; t++) {
    const zr_flat_tensor_t *place = &zero->flat_tensor[t];
    const zr_tape_tensor_t *tensor = &zero->tape->tensor[place->tensor];
    for (int64_t i = 0; i < place->elems; i++)
      flat[place->begin + i] = zr_model_initial(&zero->options.model, 5, tensor, i);
  }
  upload_masters(m, index, flat);
  free(flat);
  zr_kern_layout_t *layout = NULL;
  int64_t bytes = 0;
  assert_ok(zr_zero_layout(zero, index, &layout, &bytes));
  if (unit->layout >= 0) assert_ok(zr_exec_upload(m->exec, unit->layout, 0, layout, bytes));
  if (unit->away_layout >= 0)
    assert_ok(zr_exec_upload(m->exec, unit->away_layout, 0, layout, bytes));
  zr_alloc_free(&m->alloc, layout);
}

static void optimizer_control(const machine_options_t *o, zr_control_t *control) {
  const bool adamw = o->optimizer == 0 || o->optimizer == ZR_OP_ADAMW;
  control->bias_correction = adamw;
  control->l2 = !adamw && o->optimizer != ZR_OP_LION;
  control->momentum = o->momentum;
  control->dampening = o->momentum > 0 && !o->nesterov ? 0.25 : 0;
  control->nesterov = o->nesterov;
  control->lr_decay = o->optimizer == ZR_OP_ADAGRAD ? 0.1 : 0;
  control->seed = 5;
}

static void upload_control(machine_t *m) {
  zr_control_t control = {.rank = m->rank,
                          .n_ranks = m->n_ranks,
                          .digest = 2,
                          .schedule = {.kind = ZR_SCHEDULE_WARMUP_LINEAR,
                                       .lr = 1e-2,
                                       .warmup_steps = 2,
                                       .total_steps = 20},
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .max_grad_norm = m->options.max_grad_norm,
                          .scale_params = m->options.scaling};
  optimizer_control(&m->options, &control);
  if (m->options.scaling.initial > 0) zr_control_scale_init(&control);
  assert_ok(zr_exec_upload(m->exec, m->zero->control, 0, &control, sizeof control));
  if (m->zero->control_away >= 0)
    assert_ok(zr_exec_upload(m->exec, m->zero->control_away, 0, &control, sizeof control));
  assert_ok(zr_exec_upload(m->exec, m->zero->control_eval, 0, &control, sizeof control));
}

static void upload_all(machine_t *m) {
  assert_ok(zr_exec_start(m->exec, MACHINE_LOAD, 0));
  assert_ok(zr_exec_wait(m->exec));
  for (size_t u = 0; u < m->zero->n_units; u++) upload_unit(m, u);
  upload_control(m);
}

/* --- life ------------------------------------------------------------------------------------ */

static void open_kern(machine_t *m) {
  if (m->options.plain) {
    assert_ok(zr_kern_ref_open(&m->alloc, ZR_F32, &m->kern_ops, &m->kern));
  } else {
    assert_ok(zr_kern_cpu_open(&m->alloc, "auto", &m->kern_ops, &m->kern));
  }
}

static void begin_machine(machine_t *m, const machine_options_t *options) {
  memset(m, 0, sizeof *m);
  m->options = *options;
  zr_alloc_init(&m->alloc);
  open_kern(m);
}

static void compile(machine_t *m) {
  zr_zero_options_t zero;
  machine_zero_options(&m->options, m->n_ranks, m->kern_ops, m->kern, &zero);
  assert_ok(zr_zero_compile(&m->alloc, &zero, &m->zero));
  m->step = zr_program_find(m->zero->program, "step");
  assert_ptr_equal(m->step, m->zero->program->plan[MACHINE_STEP]);
}

static void exec_options(machine_t *m, zr_exec_options_t *out_options) {
  zr_exec_defaults(out_options);
  out_options->program = m->zero->program;
  out_options->control_buffer[MACHINE_STEP] =
      m->zero->control_away >= 0 ? m->zero->control_away : m->zero->control;
  out_options->disk_ops = m->disk_ops;
  out_options->disk = m->disk;
  out_options->host_map = zr_host_map;
  out_options->host_unmap = zr_host_unmap;
  out_options->hal_ops = m->hal_ops;
  out_options->hal = m->hal;
  out_options->comm_ops = m->comm_ops;
  out_options->comm = m->comm;
  out_options->kern_ops = m->kern_ops;
  out_options->kern = m->kern;
  out_options->pool = m->pool;
  out_options->fetch = fetch;
  out_options->fetch_context = m;
  out_options->serial = m->options.serial;
  out_options->delay_seed = m->options.delay_seed;
  out_options->delay_max_ns = m->options.delay_max_ns;
  out_options->poison = m->options.poison;
}

static void open_device(machine_t *m) {
  assert_ok(zr_hal_cpu_open(&m->alloc, &m->hal_ops, &m->hal));
  if (m->options.hal_delay_seed == 0) return;
  const zr_fault_t fault = {.kind = ZR_FAULT_DELAY,
                            .delay_ns = m->options.delay_max_ns,
                            .random_seed = m->options.hal_delay_seed + (uint64_t)m->rank};
  assert_ok(zr_hal_fault_open(&m->alloc, &fault, m->hal_ops, m->hal, &m->hal_ops, &m->hal));
}

static void open_disk(machine_t *m) {
  const int64_t bytes = m->step->arena_bytes[ZR_TIER_DISK];
  if (bytes == 0) return;
  if (m->options.disk == MACHINE_MEMORY) {
    const memdisk_options_t late = {.delay_seed = m->options.delay_seed,
                                    .delay_max_ns = m->options.delay_max_ns};
    assert_ok(memdisk_open(&m->alloc, bytes, &late, &m->disk_ops, &m->disk));
    return;
  }
  const char *path[] = {"."};
  const zr_disk_options_t disk = {
      .kind = m->options.disk == MACHINE_URING ? ZR_DISK_AUTO : ZR_DISK_POSIX,
      .path = path,
      .n_paths = 1,
      .bytes = bytes,
      .node_bytes = bytes,
      .block_bytes = 16384,
      .queue_depth = m->options.queue_depth,
      .checksums = true,
      .rank = m->rank};
  assert_ok(zr_disk_open(&m->alloc, &disk, &m->disk_ops, &m->disk));
}

void machine_open(machine_t *m, const machine_options_t *options, const machine_world_t *world) {
  begin_machine(m, options);
  m->owns_comm = world == NULL;
  if (world == NULL) {
    assert_ok(zr_comm_self_open(&m->alloc, &m->comm_ops, &m->comm));
  } else {
    m->comm_ops = world->ops;
    m->comm = world->comm;
  }
  const zr_comm_info_t info = m->comm_ops->info(m->comm);
  m->rank = info.rank;
  m->n_ranks = info.n_ranks;
  open_device(m);
  assert_ok(zr_pool_create(&m->alloc, options->n_threads, &m->pool));
  compile(m);
  open_disk(m);
  zr_exec_options_t exec;
  exec_options(m, &exec);
  assert_ok(zr_exec_create(&m->alloc, &exec, &m->exec));
  upload_all(m);
}

void machine_open_virtual(machine_t *m, const machine_options_t *options, int n_ranks) {
  begin_machine(m, options);
  m->n_ranks = n_ranks;
  m->owns_comm = true;
  assert_ok(zr_comm_null_open(&m->alloc, 0, n_ranks, &m->comm_ops, &m->comm));
  compile(m);
}

void machine_start_virtual(machine_t *m, const int64_t *duration_ns) {
  zr_exec_destroy(m->exec);
  m->exec = NULL;
  if (m->hal != NULL) m->hal_ops->close(m->hal);
  assert_ok(zr_hal_null_open(&m->alloc, false, &m->hal_ops, &m->hal));
  zr_exec_options_t exec;
  exec_options(m, &exec);
  exec.duration_ns[MACHINE_STEP] = duration_ns;
  exec.virtual_times = zr_hal_null_times;
  assert_ok(zr_exec_create(&m->alloc, &exec, &m->exec));
  m->iteration = 0;
}

/* A layer's first weight, where this rank keeps it, becomes not a number or what it was. */
static void break_parameter(machine_t *m, uint32_t *kept, bool broken) {
  const zr_zero_unit_t *unit = &m->zero->unit[1];
  if (unit->param_sharded && m->rank != 0) return;
  assert_ok(zr_exec_wait(m->exec));
  const uint32_t bad = 0x7fc07fc0u; /* not a number in fp32, nor in each half in bf16 and fp16 */
  const zr_zero_place_t place = zr_zero_place(m->zero, 1, ZR_HELD_PARAM, 0);
  if (broken) assert_ok(zr_exec_download(m->exec, place.buffer, place.offset, kept, sizeof *kept));
  assert_ok(
      zr_exec_upload(m->exec, place.buffer, place.offset, broken ? &bad : kept, sizeof *kept));
}

/* The record of a step is read when the next one has been started. */
void machine_run(machine_t *m, int n_steps, zr_step_record_t *out_record) {
  const int64_t first = m->iteration + 1;
  uint32_t kept = 0;
  for (int k = 0; k < n_steps; k++) {
    const int64_t i = ++m->iteration;
    const bool breaks = i == m->options.skipped_step;
    if (breaks) break_parameter(m, &kept, true);
    assert_ok(zr_exec_start(m->exec, MACHINE_STEP, i));
    if (breaks) break_parameter(m, &kept, false);
    if (i > first) assert_ok(zr_exec_record(m->exec, i - 1, &out_record[k - 1]));
  }
  assert_ok(zr_exec_record(m->exec, m->iteration, &out_record[n_steps - 1]));
  assert_ok(zr_exec_wait(m->exec));
}

void machine_close(machine_t *m) {
  zr_exec_destroy(m->exec);
  if (m->disk != NULL) m->disk_ops->close(m->disk);
  zr_zero_destroy(m->zero);
  zr_pool_destroy(m->pool);
  if (m->hal != NULL) m->hal_ops->close(m->hal);
  if (m->owns_comm) m->comm_ops->close(m->comm);
  m->kern_ops->close(m->kern);
  assert_int_equal(m->alloc.live_count, 0);
}

/* --- results --------------------------------------------------------------------------------- */

void machine_records(const machine_options_t *options, const machine_world_t *world, int n_steps,
                     zr_step_record_t *out_record, int64_t *out_sent_bytes) {
  machine_t machine;
  machine_open(&machine, options, world);
  machine_run(&machine, n_steps, out_record);
  zr_exec_stats_t stats;
  zr_exec_stats(machine.exec, &stats);
  if (out_sent_bytes != NULL) *out_sent_bytes = stats.sent_bytes;
  machine_close(&machine);
}

/* Bits, not values: a skipped step's norm is not a number. */
bool machine_records_equal(const zr_step_record_t *a, const zr_step_record_t *b, int n_steps) {
  return memcmp(a, b, (size_t)n_steps * sizeof *a) == 0;
}

void machine_print_options(const machine_options_t *o, int n_ranks) {
  const zr_dtype_t dtype = o->dtype == 0 ? ZR_F32 : o->dtype;
  const zr_dtype_t grad_dtype = o->grad_dtype == 0 ? ZR_F32 : o->grad_dtype;
  print_message(
      "%s %s gradients %s stage %d, %d ranks, %d leaves, %s, group %d, prefetch %d, recompute %d, "
      "%d threads, "
      "%s%s%s\n",
      zr_model_arch_name((int32_t)o->arch), zr_dtype_name(dtype), zr_dtype_name(grad_dtype),
      o->stage, n_ranks, (int)o->n_leaves, o->order == ZR_ORDER_DEPTH ? "depth" : "breadth",
      (int)o->group, (int)o->prefetch, o->recompute, o->n_threads,
      o->serial ? "serial" : "concurrent", o->delay_seed ? ", delayed operations" : "",
      o->hal_delay_seed ? ", delayed streams" : "");
}
