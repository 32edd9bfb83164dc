#include "tests/plan/verify_random.h"

#include <stdlib.h>

#include "runtime/base/rng.h"
#include "runtime/plan/place.h"
#include "runtime/plan/wait.h"

/* Everything is cut at grains of 64 bytes. */
enum { GRAIN = 64, GRAIN_ELEMS = GRAIN / 4, MAX_VALUES = 4096 };

uint64_t verify_draw(verify_rng_t *rng, uint64_t n) {
  rng->state += 0x9e3779b97f4a7c15ull;
  return zr_mix64(rng->state) % n;
}

/* A buffer whose bytes are all written. */
typedef struct {
  int32_t buffer;
  int64_t grains;
  bool persistent, is_read;
} value_t;

typedef struct {
  verify_rng_t rng;
  verify_random_options_t options;
  zr_plan_t *plan;
  value_t value[MAX_VALUES];
  int n_values;
  int32_t phase;
  int n_buffers, n_tags;
} maker_t;

static void must(zr_status_t status) {
  if (status == ZR_OK) return;
  fprintf(stderr, "generator: %s\n", zr_detail());
  abort();
}

static int64_t draw(maker_t *maker, int64_t n) {
  return (int64_t)verify_draw(&maker->rng, (uint64_t)n);
}

/* Any stream but compute may hold any tier; compute is the device's. */
static uint8_t draw_stream(maker_t *maker) {
  static const uint8_t stream[] = {ZR_STREAM_H2D, ZR_STREAM_D2H, ZR_STREAM_COMM, ZR_STREAM_HOST};
  return stream[draw(maker, 4)];
}

static int32_t add_buffer(maker_t *maker, int64_t grains, bool persistent, bool is_scratch) {
  char name[ZR_PLAN_NAME_BYTES];
  snprintf(name, sizeof name, "%s%d", persistent ? "state" : "t", maker->n_buffers++);
  zr_tier_t tier = maker->options.any_stream && draw(maker, 3) == 0 ? ZR_TIER_HOST : ZR_TIER_DEVICE;
  zr_category_t category = is_scratch   ? ZR_CATEGORY_WORKSPACE
                           : persistent ? ZR_CATEGORY_PARAM
                                        : ZR_CATEGORY_ACTIVATION;
  int32_t buffer;
  must(zr_plan_add_buffer(maker->plan, name, tier, category, ZR_F32, grains * GRAIN, persistent,
                          &buffer));
  return buffer;
}

static void add_op(maker_t *maker, int32_t kind, int64_t attr0, int n_operands,
                   const zr_operand_t *operand) {
  zr_op_desc_t desc = {.kind = kind, .unit = -1, .micro = maker->n_tags++, .phase = maker->phase};
  desc.attr[0] = attr0;
  if (kind == ZR_OP_LINEAR_GRAD_B) {
    desc.attr[ZR_LINEAR_ROWS] = desc.attr[ZR_LINEAR_IN] = desc.attr[ZR_LINEAR_LDX] = 1;
    desc.attr[ZR_LINEAR_OUT] = desc.attr[ZR_LINEAR_LDY] = attr0;
  }
  if (kind == ZR_OP_FETCH) {
    desc.attr[ZR_FETCH_MICRO] = 0;
    desc.attr[ZR_FETCH_ROWS] = attr0;
  }
  desc.n_operands = n_operands;
  for (int i = 0; i < n_operands; i++) desc.operand[i] = operand[i];
  int32_t op;
  must(zr_plan_add_op(maker->plan, &desc, &op));
  if (maker->options.any_stream && !zr_op_row(kind)->collective) {
    maker->plan->op[op].stream = draw_stream(maker);
  }
  if (draw(maker, 3) == 0) maker->phase++;
}

static void add_value(maker_t *maker, int32_t buffer, int64_t grains, bool persistent) {
  if (maker->n_values == MAX_VALUES) abort();
  maker->value[maker->n_values++] = (value_t){buffer, grains, persistent, false};
}

/* Mostly a recent one, so that lifetimes end. */
static value_t *draw_value(maker_t *maker) {
  int64_t back = draw(maker, 4) == 0 ? draw(maker, maker->n_values) : draw(maker, 8);
  if (back >= maker->n_values) back = draw(maker, maker->n_values);
  return &maker->value[maker->n_values - 1 - back];
}

static zr_operand_t part_of(maker_t *maker, const value_t *value, int64_t grains,
                            zr_access_t access) {
  int64_t at = draw(maker, value->grains - grains + 1);
  return zr_operand_part(value->buffer, at * GRAIN, grains * GRAIN, access);
}

/* Of a value with at least that many grains; on every rank the same part, or each its own. */
static zr_operand_t input(maker_t *maker, int64_t grains) {
  int n_ranks = maker->plan->n_ranks;
  for (int tries = 0;; tries++) {
    value_t *value = tries < 20 ? draw_value(maker) : &maker->value[0];
    if (value->grains < grains) continue;
    value->is_read = true;
    if (value->grains == grains * n_ranks && draw(maker, 2) == 0) {
      return zr_operand_shard(value->buffer, grains * GRAIN, ZR_READ);
    }
    return part_of(maker, value, grains, ZR_READ);
  }
}

/* Not a buffer that this operation uses already: kernels want their outputs apart. */
static bool is_used(const zr_operand_t *operand, int n_operands, int32_t buffer) {
  for (int i = 0; i < n_operands; i++) {
    if (operand[i].buffer == buffer) return true;
  }
  return false;
}

/* A new transient buffer, or bytes of an old value (then it may be added to). */
static zr_operand_t output(maker_t *maker, int64_t grains, const zr_operand_t *operand,
                           int n_operands, bool may_accumulate) {
  if (draw(maker, 10) < 6) {
    int32_t buffer = add_buffer(maker, grains, false, false);
    add_value(maker, buffer, grains, false);
    return zr_operand_all(maker->plan, buffer, ZR_WRITE);
  }
  zr_access_t access = may_accumulate && draw(maker, 2) == 0 ? ZR_ACCUMULATE : ZR_WRITE;
  for (int tries = 0; tries < 20; tries++) {
    value_t *value = draw_value(maker);
    if (value->grains < grains || is_used(operand, n_operands, value->buffer)) continue;
    if (value->grains == grains * maker->plan->n_ranks && draw(maker, 2) == 0) {
      return zr_operand_shard(value->buffer, grains * GRAIN, access);
    }
    return part_of(maker, value, grains, access);
  }
  int32_t buffer = add_buffer(maker, grains, false, false);
  add_value(maker, buffer, grains, false);
  return zr_operand_all(maker->plan, buffer, ZR_WRITE);
}

static zr_operand_t scratch(maker_t *maker) {
  int64_t grains = 1 + draw(maker, 6);
  return zr_operand_all(maker->plan, add_buffer(maker, grains, false, true), ZR_SCRATCH);
}

static int64_t draw_grains(maker_t *maker) {
  return maker->plan->n_ranks * (1ll << draw(maker, 3));
}

static void add_compute(maker_t *maker) {
  static const struct {
    int32_t kind;
    int n_in, n_out;
  } form[] = {{ZR_OP_FILL, 0, 1},       {ZR_OP_ADD, 2, 1},       {ZR_OP_GELU, 1, 1},
              {ZR_OP_SWIGLU, 2, 1},     {ZR_OP_GELU_GRAD, 2, 1}, {ZR_OP_SWIGLU_GRAD, 3, 2},
              {ZR_OP_ACCUMULATE, 1, 0}, {ZR_OP_SHARD_ADD, 1, 0}, {ZR_OP_LINEAR_GRAD_B, 1, 1},
              {ZR_OP_FETCH, 0, 2}};
  int64_t which = draw(maker, sizeof form / sizeof form[0]);
  int32_t kind = form[which].kind;
  if (zr_op_row(kind) == NULL) return;
  int64_t grains =
      draw(maker, 2) == 0 ? draw_grains(maker) / maker->plan->n_ranks : draw_grains(maker);
  zr_operand_t operand[ZR_MAX_OPERANDS];
  int n = 0;
  while (n < form[which].n_in) operand[n++] = input(maker, grains);
  if (kind == ZR_OP_ACCUMULATE || kind == ZR_OP_SHARD_ADD) {
    value_t *value = draw_value(maker);
    for (int tries = 0; tries < 50; tries++) {
      if (value->grains >= grains && !is_used(operand, n, value->buffer)) break;
      value = draw_value(maker);
    }
    if (value->grains < grains || is_used(operand, n, value->buffer)) return;
    operand[n++] = part_of(maker, value, grains, ZR_ACCUMULATE);
  }
  for (int i = 0; i < form[which].n_out; i++, n++) {
    operand[n] = output(maker, grains, operand, n, kind == ZR_OP_LINEAR_GRAD_B);
  }
  if (kind == ZR_OP_LINEAR_GRAD_B) operand[n++] = scratch(maker);
  add_op(maker, kind, grains * GRAIN_ELEMS, n, operand);
}

/* A new transient flat of which each rank writes its shard, then gathered where it stands. */
static void add_gather_in_place(maker_t *maker, int64_t shard) {
  int n_ranks = maker->plan->n_ranks;
  int32_t flat = add_buffer(maker, shard * n_ranks, false, false);
  zr_operand_t operand[3] = {input(maker, shard), zr_operand_shard(flat, shard * GRAIN, ZR_WRITE)};
  add_op(maker, ZR_OP_GELU, shard * GRAIN_ELEMS, 2, operand);
  operand[0] = zr_operand_shard(flat, shard * GRAIN, ZR_READ);
  operand[1] = zr_operand_all(maker->plan, flat, ZR_WRITE);
  add_op(maker, ZR_OP_ALL_GATHER, shard * GRAIN, 2, operand);
  add_value(maker, flat, shard * n_ranks, false);
}

static void add_collective(maker_t *maker) {
  int64_t shard = 1ll << draw(maker, 3), flat = shard * maker->plan->n_ranks;
  zr_operand_t operand[3];
  switch (draw(maker, 6)) {
    case 0:
      add_gather_in_place(maker, shard);
      return;
    case 1:
    case 2:
      operand[0] = input(maker, shard);
      operand[1] = output(maker, flat, operand, 1, false);
      if (operand[1].bytes != flat * GRAIN) return;
      operand[2] = scratch(maker);
      add_op(maker, ZR_OP_ALL_GATHER, shard * GRAIN, 3, operand);
      return;
    case 3:
    case 4:
      operand[0] = input(maker, flat);
      operand[1] = output(maker, shard, operand, 1, true);
      operand[2] = scratch(maker);
      add_op(maker, ZR_OP_REDUCE_SCATTER, shard * GRAIN, 3, operand);
      return;
    default: {
      value_t *value = draw_value(maker);
      operand[0] = part_of(maker, value, value->grains, ZR_ACCUMULATE);
      operand[1] = scratch(maker);
      add_op(maker, ZR_OP_ALL_REDUCE, value->grains * GRAIN, 2, operand);
    }
  }
}

/* What nobody read flows into a state. */
static void add_sinks(maker_t *maker, int n_states) {
  int n_values = maker->n_values;
  for (int i = 0; i < n_values; i++) {
    const value_t *value = &maker->value[i];
    if (value->persistent || value->is_read) continue;
    const value_t *state = &maker->value[draw(maker, n_states)];
    int64_t grains = value->grains < state->grains ? value->grains : state->grains;
    zr_operand_t operand[2] = {part_of(maker, value, grains, ZR_READ),
                               part_of(maker, state, grains, ZR_ACCUMULATE)};
    add_op(maker, ZR_OP_ACCUMULATE, grains * GRAIN_ELEMS, 2, operand);
  }
  for (int i = 0; i < n_states; i++) {
    zr_operand_t operand = zr_operand_all(maker->plan, maker->value[i].buffer, ZR_ACCUMULATE);
    add_op(maker, ZR_OP_BROADCAST, operand.bytes, 1, &operand);
  }
}

zr_program_t *verify_random_program(uint64_t seed, const verify_random_options_t *options) {
  maker_t *maker = calloc(1, sizeof *maker);
  if (maker == NULL) abort();
  maker->rng.state = zr_mix64(seed);
  maker->options = *options;
  static const int ranks[] = {1, 1, 2, 2, 3};
  zr_program_t *program;
  must(zr_program_create(zr_alloc_default(), &program));
  must(zr_plan_create(zr_alloc_default(), "step", ranks[draw(maker, 5)], &maker->plan));
  int n_states = (int)(1 + draw(maker, 4));
  for (int i = 0; i < n_states; i++) {
    /* The first one is large enough for any input. */
    int64_t grains = i == 0 ? maker->plan->n_ranks * 4 : draw_grains(maker);
    add_value(maker, add_buffer(maker, grains, true, false), grains, true);
  }
  while ((int)maker->plan->n_ops < options->n_ops) {
    if (draw(maker, 3) == 0) {
      add_collective(maker);
    } else {
      add_compute(maker);
    }
  }
  add_sinks(maker, n_states);
  must(zr_program_add(program, maker->plan));
  free(maker);
  return program;
}

zr_status_t verify_random_compile(zr_program_t *program, uint64_t seed,
                                  const verify_random_options_t *options) {
  verify_rng_t rng = {zr_mix64(seed ^ 0x5eed)};
  zr_place_options_t place;
  zr_place_defaults(&place);
  for (int s = 0; s < ZR_N_STREAMS; s++) place.lag_phases[s] = (int32_t)verify_draw(&rng, 3);
  place.keep_placement_waits = verify_draw(&rng, 2) == 0;
  if (!options->any_stream) return zr_program_compile(program, &place);
  static const zr_apart_t *const apart[ZR_PROGRAM_MAX_PLANS];
  static const size_t n_apart[ZR_PROGRAM_MAX_PLANS];
  for (int i = 0; i < program->n_plans; i++) ZR_TRY(zr_plan_finish(program->plan[i]));
  ZR_TRY(zr_place_program(program, &place, apart, n_apart));
  for (int i = 0; i < program->n_plans; i++) ZR_TRY(zr_wait_derive(program->plan[i], NULL));
  return ZR_OK;
}
