#include "runtime/zero/zero.h"

#include <stddef.h>
#include <string.h>

#include "runtime/plan/text.h"
#include "runtime/zero/build.h"

void zr_zero_defaults(zr_zero_options_t *out_options) {
  *out_options = (zr_zero_options_t){.n_ranks = 1,
                                     .n_micro = 1,
                                     .group = ZR_GROUP_AUTO,
                                     .prefetch = ZR_PREFETCH_AUTO,
                                     .n_workers = 1};
  zr_place_defaults(&out_options->place);
}

int64_t zr_zero_leaf(const zr_zero_options_t *resolved, int rank, int64_t micro) {
  int64_t group = (int64_t)1 << resolved->group, j = micro / group, i = micro % group;
  return (j * resolved->n_ranks + rank) * group + i;
}

bool zr_zero_split_is_exact(const zr_zero_options_t *resolved) {
  int64_t n = resolved->n_ranks;
  return (n & (n - 1)) == 0 || resolved->n_micro == (int64_t)1 << resolved->group;
}

/* The largest a with 2^a dividing n. */
static int64_t twos(int64_t n) {
  int64_t a = 0;
  for (; n % 2 == 0; n /= 2) a++;
  return a;
}

/* Stages 0 and 1 keep a whole gradient anyway and `breadth` one unit's: there large groups only
 * save traffic. Stages 2 and 3 in `depth` would keep the whole model's: there a = 0, unless only
 * the full group is a node of the one tree. */
static int64_t default_group(const zr_zero_options_t *o) {
  bool power_of_two = (o->n_ranks & (o->n_ranks - 1)) == 0;
  if (o->stage <= 1 || o->order == ZR_ORDER_BREADTH || !power_of_two) return twos(o->n_micro);
  return 0;
}

static zr_status_t resolve(zr_zero_options_t *o) {
  if (o->stage < 0 || o->stage > 3)
    return zr_fail(ZR_ERR_CONFIG, "zero_optimization.stage: %d is not 0, 1, 2 or 3", o->stage);
  if (o->n_ranks < 1 || o->n_micro < 1)
    return zr_fail(ZR_ERR_CONFIG, "a step needs at least one rank and one micro-batch each");
  if (o->group == ZR_GROUP_AUTO) o->group = default_group(o);
  if (o->group < 0 || o->group > twos(o->n_micro))
    return zr_fail(
        ZR_ERR_CONFIG,
        "plan.group: 2^%lld does not divide the %lld micro-batches of a rank; at most %lld",
        (long long)o->group, (long long)o->n_micro, (long long)twos(o->n_micro));
  if (o->recompute < ZR_RECOMPUTE_NONE || o->recompute > ZR_RECOMPUTE_AUTO)
    return zr_fail(ZR_ERR_CONFIG, "plan.recompute: no such choice");
  if (o->recompute_every == 0) o->recompute_every = 1;
  if (o->recompute_every < 1)
    return zr_fail(ZR_ERR_CONFIG, "plan.recompute_every: %lld is below 1",
                   (long long)o->recompute_every);
  if (o->run.logits_chunk <= 0) o->run.logits_chunk = 1024;
  if (o->run.dtype == ZR_U8) o->run.dtype = ZR_F32;
  if (o->grad_dtype == ZR_U8) o->grad_dtype = ZR_F32;
  if (o->optimizer == ZR_OP_NOP) o->optimizer = ZR_OP_ADAMW;
  if (o->state_dtype == ZR_U8) o->state_dtype = ZR_F32;
  ZR_TRY(zr_home_resolve(o));
  return zr_model_resolve(&o->model);
}

static zr_status_t dump(const zr_zero_t *zero, const char *pass, const zr_plan_t *plan) {
  const zr_zero_options_t *o = &zero->options;
  if (o->dump == NULL || o->dump_after == NULL || strcmp(o->dump_after, pass) != 0) return ZR_OK;
  if (plan == NULL) {
    zr_tape_print(zero->tape, o->dump);
    return ZR_OK;
  }
  return zr_text_write(plan, o->dump);
}

/* --- the plans ------------------------------------------------------------------------------ */

static zr_status_t emit_load(zr_build_t *build) {
  const zr_zero_t *zero = build->zero;
  const zr_model_config_t *model = &zero->options.model;
  if (build->rope >= 0) {
    int64_t attr[ZR_MAX_ATTRS];
    zr_model_rope_table(model, zero->options.run.seq_len, attr);
    zr_operand_t table = zr_build_all(build, build->rope, ZR_WRITE);
    ZR_TRY(zr_build_op(build, ZR_OP_ROPE_TABLE, -1, -1, attr, model->rope_theta, 1, &table));
  }
  return zr_home_fill(build);
}

static zr_status_t emit_step(zr_build_t *build) {
  const zr_zero_t *zero = build->zero;
  ZR_TRY(zr_shard_trees(build));
  ZR_TRY(zr_steps_segments(build, true));
  for (int64_t g = 0; g < build->n_micro; g++) ZR_TRY(zr_steps_fetch(build, g));
  ZR_TRY(zr_steps_emit(build));
  ZR_TRY(zr_update_emit(build));
  ZR_TRY(dump(zero, "shard", build->plan));
  ZR_TRY(zr_hoist(build));
  return dump(zero, "hoist", build->plan);
}

static zr_status_t emit_eval(zr_build_t *build) {
  build->control = build->zero->control_eval;
  ZR_TRY(zr_steps_segments(build, false));
  ZR_TRY(zr_steps_fetch(build, 0));
  ZR_TRY(zr_steps_count(build, 0));
  ZR_TRY(zr_steps_emit(build));
  return zr_hoist(build);
}

/* Sums over the ranks what the eval executions counted, leaves the record, clears for the next
 * evaluation. */
static zr_status_t emit_eval_end(zr_build_t *build) {
  build->control = build->zero->control_eval;
  ZR_TRY(zr_shard_all_reduce(build, offsetof(zr_control_t, count_local), 8));
  ZR_TRY(zr_steps_control(build, ZR_OP_CONTROL_COUNT));
  int64_t norm = offsetof(zr_control_t, norm);
  ZR_TRY(zr_shard_all_reduce(build, norm, (int64_t)offsetof(zr_control_t, flags) + 8 - norm));
  ZR_TRY(zr_steps_control(build, ZR_OP_CONTROL_UPDATE));
  ZR_TRY(zr_steps_control(build, ZR_OP_CONTROL_END));
  return zr_steps_control(build, ZR_OP_CONTROL_BEGIN);
}

typedef zr_status_t (*emit_fn_t)(zr_build_t *build);

static zr_status_t add_plan(zr_zero_t *zero, const zr_tape_t *tape, const char *name,
                            int64_t n_micro, emit_fn_t emit) {
  zr_build_t *build = NULL;
  ZR_TRY(zr_build_create(zero, tape, name, n_micro, &build));
  return zr_build_finish(build, emit(build));
}

static zr_status_t add_eval_plans(zr_zero_t *zero) {
  zr_tape_t *tape = NULL;
  zr_model_run_t run = zero->options.run;
  run.training = false;
  ZR_TRY(zr_model_record(zero->alloc, &zero->options.model, &run, &tape));
  zr_status_t status = add_plan(zero, tape, "eval", 1, emit_eval);
  if (status == ZR_OK) status = add_plan(zero, tape, "eval_end", 1, emit_eval_end);
  zr_tape_destroy(tape);
  return status;
}

static zr_status_t add_plans(zr_zero_t *zero) {
  ZR_TRY(zr_program_create(zero->alloc, &zero->program));
  ZR_TRY(add_plan(zero, zero->tape, "load", 1, emit_load));
  ZR_TRY(add_plan(zero, zero->tape, "step", zero->options.n_micro, emit_step));
  if (zero->options.eval) ZR_TRY(add_eval_plans(zero));
  return zr_program_compile(zero->program, &zero->options.place);
}

/* --- compile -------------------------------------------------------------------------------- */

static zr_status_t compile_with(zr_zero_t *zero, int64_t prefetch, int recompute) {
  zr_program_destroy(zero->program);
  zero->program = NULL;
  zero->options.prefetch = prefetch;
  zero->options.recompute = recompute;
  ZR_TRY(add_plans(zero));
  ZR_TRY(dump(zero, "place", zr_program_find(zero->program, "step")));
  return dump(zero, "wait", zr_program_find(zero->program, "step"));
}

/* What is left to the planner: first as fast as it goes, then what costs time and saves memory. */
static zr_status_t compile_to_fit(zr_zero_t *zero) {
  const zr_zero_options_t asked = zero->options;
  bool any_prefetch = asked.prefetch == ZR_PREFETCH_AUTO,
       any = asked.recompute == ZR_RECOMPUTE_AUTO;
  int64_t prefetch = any_prefetch ? 1 : asked.prefetch;
  int recompute = any ? ZR_RECOMPUTE_NONE : asked.recompute;
  zr_status_t status = compile_with(zero, prefetch, recompute);
  if (status == ZR_ERR_OUT_OF_MEMORY && any_prefetch && asked.stage == 3 && asked.n_ranks > 1)
    status = compile_with(zero, prefetch = 0, recompute);
  while (status == ZR_ERR_OUT_OF_MEMORY && any && recompute < ZR_RECOMPUTE_FULL)
    status = compile_with(zero, prefetch, ++recompute);
  return status;
}

static zr_status_t compile(zr_zero_t *zero) {
  zr_zero_options_t *o = &zero->options;
  ZR_TRY(resolve(o));
  zr_model_run_t run = o->run;
  run.training = true;
  ZR_TRY(zr_model_record(zero->alloc, &o->model, &run, &zero->tape));
  ZR_TRY(dump(zero, "model", NULL));
  ZR_TRY(zr_flat_layout(zero));
  zero->n_reductions = o->n_ranks == 1 ? 0 : o->n_micro >> o->group;
  return compile_to_fit(zero);
}

zr_status_t zr_zero_compile(zr_alloc_t *alloc, const zr_zero_options_t *options,
                            zr_zero_t **out_zero) {
  zr_zero_t *zero = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *zero, &zero));
  zero->alloc = alloc;
  zero->options = *options;
  zr_status_t status = compile(zero);
  if (status != ZR_OK) {
    zr_zero_destroy(zero);
    return status;
  }
  *out_zero = zero;
  return ZR_OK;
}

void zr_zero_destroy(zr_zero_t *zero) {
  if (zero == NULL) return;
  zr_program_destroy(zero->program);
  zr_tape_destroy(zero->tape);
  zr_alloc_free(zero->alloc, zero->unit);
  zr_alloc_free(zero->alloc, zero->flat_tensor);
  zr_alloc_free(zero->alloc, zero);
}
