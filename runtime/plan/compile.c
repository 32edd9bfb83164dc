/* finish -> place -> wait -> verify. Placing and waiting repeat while waits exist only because
 * space is reused and the budget has room: first the two buffers of such a wait are kept apart (the
 * reuse moves to space that was free for longer, whose wait other waits may imply), then one of
 * them gets bytes of its own. */
#include <string.h>

#include "runtime/plan/place.h"
#include "runtime/plan/program.h"
#include "runtime/plan/verify.h"
#include "runtime/plan/wait.h"

enum { PAIR_ROUNDS = 2, MAX_ROUNDS = 8 };

typedef struct {
  zr_program_t *program;
  zr_place_options_t options; /* with the lags that fit */
  zr_apart_list_t apart[ZR_PROGRAM_MAX_PLANS];
  zr_apart_list_t found[ZR_PROGRAM_MAX_PLANS]; /* by the last derivation */
  size_t best_apart[ZR_PROGRAM_MAX_PLANS];     /* how many of `apart` gave the best so far */
  int64_t best_waits, now_waits;
} compile_t;

static bool fits(const compile_t *c) {
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    int64_t budget = c->options.budget_bytes[tier];
    if (budget > 0 && c->program->plan[0]->arena_bytes[tier] > budget) return false;
  }
  return true;
}

static zr_status_t place(compile_t *c, const size_t n_apart[ZR_PROGRAM_MAX_PLANS]) {
  const zr_apart_t *pair[ZR_PROGRAM_MAX_PLANS];
  for (int i = 0; i < ZR_PROGRAM_MAX_PLANS; i++) pair[i] = c->apart[i].pair;
  return zr_place_program(c->program, &c->options, pair, n_apart);
}

static zr_status_t derive(compile_t *c) {
  c->now_waits = 0;
  for (int i = 0; i < c->program->n_plans; i++) {
    c->found[i].n_pairs = 0;
    ZR_TRY(zr_wait_derive(c->program->plan[i], &c->found[i]));
    c->now_waits += c->program->plan[i]->n_placement_waits;
  }
  return ZR_OK;
}

static void format_categories(const int64_t bytes[ZR_N_CATEGORIES], char *text, size_t n_text) {
  bool said[ZR_N_CATEGORIES] = {false};
  size_t at = 0;
  text[0] = 0;
  for (int n = 0; n < 3; n++) {
    int most = -1;
    for (int i = 0; i < ZR_N_CATEGORIES; i++) {
      if (!said[i] && bytes[i] > 0 && (most < 0 || bytes[i] > bytes[most])) most = i;
    }
    if (most < 0 || at >= n_text) return;
    said[most] = true;
    at += (size_t)snprintf(text + at, n_text - at, "%s%s %lld", n > 0 ? ", " : "",
                           zr_category_name((zr_category_t)most), (long long)bytes[most]);
  }
}

static zr_status_t too_large(const compile_t *c) {
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    int64_t budget = c->options.budget_bytes[tier];
    if (budget <= 0) continue;
    for (int i = 0; i < c->program->n_plans; i++) {
      const zr_plan_t *plan = c->program->plan[i];
      if (plan->peak_bytes[tier] <= budget) continue;
      int64_t bytes[ZR_N_CATEGORIES];
      int32_t op = -1;
      char name[2 * ZR_PLAN_NAME_BYTES], largest[160];
      zr_place_peak(plan, (zr_tier_t)tier, &op, bytes);
      zr_plan_op_name(plan, op, name, sizeof name);
      format_categories(bytes, largest, sizeof largest);
      return zr_fail(ZR_ERR_OUT_OF_MEMORY,
                     "plan %s does not fit: %s needs %lld bytes, the budget is %lld, %lld are "
                     "missing; most are live at %s: %s",
                     plan->name, zr_tier_name((zr_tier_t)tier), (long long)plan->peak_bytes[tier],
                     (long long)budget, (long long)(plan->peak_bytes[tier] - budget), name,
                     largest);
    }
  }
  return zr_fail(ZR_ERR_INTERNAL, "program: no plan is over its budget");
}

/* The first placement: with the lags, or without them where they do not fit. */
static zr_status_t place_first(compile_t *c) {
  const size_t none[ZR_PROGRAM_MAX_PLANS] = {0};
  ZR_TRY(place(c, none));
  if (fits(c)) return ZR_OK;
  memset(c->options.lag_phases, 0, sizeof c->options.lag_phases);
  ZR_TRY(place(c, none));
  return fits(c) ? ZR_OK : too_large(c);
}

/* Bit s: stream s touches the buffer. */
static zr_status_t streams_of(const zr_plan_t *plan, uint8_t **out_streams) {
  uint8_t *streams = NULL;
  ZR_TRY(zr_alloc_get(plan->alloc, plan->n_buffers, sizeof *streams, &streams));
  for (size_t i = 0; i < plan->n_ops; i++) {
    for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
      int32_t buffer = plan->op[i].operand[j].buffer;
      if (buffer >= 0) streams[buffer] |= (uint8_t)(1u << plan->op[i].stream);
    }
  }
  *out_streams = streams;
  return ZR_OK;
}

/* The one that two streams hand to each other is the one to keep to itself; of two such, the
 * smaller. */
static int32_t to_isolate(const zr_plan_t *plan, const uint8_t *streams, zr_apart_t pair) {
  bool shared_a = (streams[pair.a] & (streams[pair.a] - 1)) != 0;
  bool shared_b = (streams[pair.b] & (streams[pair.b] - 1)) != 0;
  if (shared_a != shared_b) return shared_a ? pair.a : pair.b;
  return plan->buffer[pair.a].bytes <= plan->buffer[pair.b].bytes ? pair.a : pair.b;
}

static zr_status_t add_apart(compile_t *c, int index, bool isolate, const uint8_t *streams) {
  zr_apart_list_t *apart = &c->apart[index];
  const zr_apart_list_t *found = &c->found[index];
  zr_plan_t *plan = c->program->plan[index];
  ZR_TRY(zr_alloc_grow(plan->alloc, &apart->pair, &apart->capacity, apart->n_pairs + found->n_pairs,
                       sizeof *apart->pair));
  for (size_t i = 0; i < found->n_pairs; i++) {
    zr_apart_t pair = found->pair[i];
    if (isolate) pair.a = pair.b = to_isolate(plan, streams, pair);
    apart->pair[apart->n_pairs++] = pair;
  }
  return ZR_OK;
}

static zr_status_t add_all_apart(compile_t *c, bool isolate) {
  for (int i = 0; i < c->program->n_plans; i++) {
    uint8_t *streams = NULL;
    if (isolate) ZR_TRY(streams_of(c->program->plan[i], &streams));
    zr_status_t status = add_apart(c, i, isolate, streams);
    zr_alloc_free(c->program->plan[i]->alloc, streams);
    ZR_TRY(status);
  }
  return ZR_OK;
}

static void remember(compile_t *c) {
  for (int i = 0; i < c->program->n_plans; i++) c->best_apart[i] = c->apart[i].n_pairs;
  c->best_waits = c->now_waits;
}

/* Over the budget: keeps half of the pairs added since the best placement. */
static bool halve(compile_t *c) {
  bool any = false;
  for (int i = 0; i < c->program->n_plans; i++) {
    size_t added = c->apart[i].n_pairs - c->best_apart[i];
    c->apart[i].n_pairs = c->best_apart[i] + added / 2;
    any = any || added / 2 > 0;
  }
  return any;
}

static zr_status_t improve(compile_t *c) {
  bool over = false;
  for (int round = 0; round < MAX_ROUNDS && c->now_waits > 0; round++) {
    size_t n_apart[ZR_PROGRAM_MAX_PLANS] = {0};
    if (!over) ZR_TRY(add_all_apart(c, round >= PAIR_ROUNDS));
    for (int i = 0; i < c->program->n_plans; i++) n_apart[i] = c->apart[i].n_pairs;
    ZR_TRY(place(c, n_apart));
    over = !fits(c);
    if (over) {
      if (!halve(c)) break;
      continue;
    }
    ZR_TRY(derive(c));
    if (c->now_waits < c->best_waits) remember(c);
  }
  for (int i = 0; i < c->program->n_plans; i++) c->apart[i].n_pairs = c->best_apart[i];
  ZR_TRY(place(c, c->best_apart));
  return derive(c);
}

static zr_status_t compile(compile_t *c) {
  for (int i = 0; i < c->program->n_plans; i++) ZR_TRY(zr_plan_finish(c->program->plan[i]));
  ZR_TRY(place_first(c));
  ZR_TRY(derive(c));
  remember(c);
  if (c->now_waits > 0 && !c->options.keep_placement_waits) ZR_TRY(improve(c));
  for (int i = 0; i < c->program->n_plans; i++)
    ZR_TRY(zr_verify(c->program->plan[i], c->options.budget_bytes, NULL));
  return ZR_OK;
}

zr_status_t zr_program_compile(zr_program_t *program, const zr_place_options_t *options) {
  compile_t c = {.program = program, .options = *options};
  if (program->n_plans == 0) return zr_fail(ZR_ERR_INTERNAL, "program: no plans");
  zr_status_t status = compile(&c);
  for (int i = 0; i < program->n_plans; i++) {
    zr_alloc_free(program->plan[i]->alloc, c.apart[i].pair);
    zr_alloc_free(program->plan[i]->alloc, c.found[i].pair);
  }
  return status;
}
