/* finish -> place -> wait -> verify.
 *
 * A plan takes the first way of placing that fits its budget:
 *   1. quiet      bytes are reused only when values alone order the reuse: no wait exists for space
 *   2. capped     the same, but bytes are free at most so many phases after their last use
 *   3. lags       one space for all, lives stretched by the lags
 *   4. tight      lives as the list has them
 * What waits for space remain after 1 (a buffer whose parts are first written by several streams)
 * are taken away by giving one of the two buffers bytes of its own. */
#include <string.h>

#include "runtime/plan/place_internal.h"
#include "runtime/plan/verify.h"
#include "runtime/plan/wait.h"

enum { ISOLATE_ROUNDS = 3, QUIET = 0, LAGS = 4 };

typedef struct {
  zr_program_t *program;
  const zr_place_options_t *options;
  zr_quiet_t quiet[ZR_PROGRAM_MAX_PLANS];
  zr_place_mode_t mode[ZR_PROGRAM_MAX_PLANS];
  zr_apart_list_t apart[ZR_PROGRAM_MAX_PLANS];
} compile_t;

static bool fits(const compile_t *c, const zr_plan_t *plan) {
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    int64_t budget = c->options->budget_bytes[tier];
    if (budget > 0 && plan->peak_bytes[tier] > budget) return false;
  }
  return true;
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

static zr_status_t too_large(const compile_t *c, const zr_plan_t *plan) {
  int tier = 0;
  while (tier < ZR_N_TIERS - 1 && (c->options->budget_bytes[tier] <= 0 ||
                                   plan->peak_bytes[tier] <= c->options->budget_bytes[tier]))
    tier++;
  int64_t bytes[ZR_N_CATEGORIES], budget = c->options->budget_bytes[tier];
  int32_t op = -1;
  char name[2 * ZR_PLAN_NAME_BYTES], largest[160];
  zr_place_peak(plan, (zr_tier_t)tier, &op, bytes);
  zr_plan_op_name(plan, op, name, sizeof name);
  format_categories(bytes, largest, sizeof largest);
  return zr_fail(ZR_ERR_OUT_OF_MEMORY,
                 "plan %s does not fit: %s needs %lld bytes, the budget is %lld, %lld are missing; "
                 "most are live at %s: %s",
                 plan->name, zr_tier_name((zr_tier_t)tier), (long long)plan->peak_bytes[tier],
                 (long long)budget, (long long)(plan->peak_bytes[tier] - budget), name, largest);
}

/* Whether several streams are there at all: else every way is the tight one. */
static bool has_streams(const zr_plan_t *plan) {
  int n_streams = 0;
  for (int s = 0; s < ZR_N_STREAMS; s++) n_streams += plan->stream_ops[s] > 0;
  return n_streams > 1;
}

static zr_status_t place_first_that_fits(compile_t *c, int index) {
  zr_plan_t *plan = c->program->plan[index];
  const int32_t *lags = c->options->lag_phases;
  const int64_t *budget = c->options->budget_bytes;
  const zr_quiet_t *quiet = &c->quiet[index];
  const zr_place_mode_t modes[] = {{NULL, quiet, 0, budget},  {lags, quiet, 64, budget},
                                   {lags, quiet, 16, budget}, {lags, quiet, 4, budget},
                                   {lags, NULL, 0, budget},   {NULL, NULL, 0, NULL}};
  size_t n_modes = sizeof modes / sizeof *modes, at = QUIET;
  if (c->options->keep_placement_waits) at = LAGS;
  if (!has_streams(plan)) at = n_modes - 1;
  if (at < LAGS) ZR_TRY(zr_quiet_init(&c->quiet[index], plan));
  for (; at < n_modes; at++) {
    c->mode[index] = modes[at];
    ZR_TRY(zr_place_plan(plan, &modes[at], NULL, 0));
    if (fits(c, plan)) return ZR_OK;
  }
  return too_large(c, plan);
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

static void isolate(zr_apart_list_t *list, size_t from, const zr_plan_t *plan,
                    const uint8_t *streams) {
  for (size_t i = from; i < list->n_pairs; i++) {
    int32_t alone = to_isolate(plan, streams, list->pair[i]);
    list->pair[i] = (zr_apart_t){alone, alone};
  }
}

/* The pairs of the last derivation, from `from` on, become isolated buffers; undone if they do not
 * fit. */
static zr_status_t isolate_found(compile_t *c, int index, size_t from, bool *out_changed) {
  zr_plan_t *plan = c->program->plan[index];
  zr_apart_list_t *list = &c->apart[index];
  uint8_t *streams = NULL;
  ZR_TRY(streams_of(plan, &streams));
  isolate(list, from, plan, streams);
  zr_alloc_free(plan->alloc, streams);
  ZR_TRY(zr_place_plan(plan, &c->mode[index], list->pair, list->n_pairs));
  *out_changed = fits(c, plan);
  if (*out_changed) return ZR_OK;
  list->n_pairs = from;
  return zr_place_plan(plan, &c->mode[index], list->pair, list->n_pairs);
}

static zr_status_t derive_plan(compile_t *c, int index) {
  zr_plan_t *plan = c->program->plan[index];
  zr_apart_list_t *list = &c->apart[index];
  bool changed = true;
  for (int round = 0; changed; round++) {
    size_t from = list->n_pairs;
    ZR_TRY(zr_wait_derive(plan, list));
    if (list->n_pairs == from || c->mode[index].quiet == NULL || c->mode[index].cap_phases > 0 ||
        round == ISOLATE_ROUNDS)
      return ZR_OK;
    ZR_TRY(isolate_found(c, index, from, &changed));
    /* Waits need offsets inside the arenas. */
    zr_place_arenas(c->program);
  }
  return zr_wait_derive(plan, NULL);
}

static zr_status_t compile(compile_t *c) {
  int n_plans = c->program->n_plans;
  for (int i = 0; i < n_plans; i++) ZR_TRY(zr_plan_finish(c->program->plan[i]));
  for (int i = 0; i < n_plans; i++) ZR_TRY(place_first_that_fits(c, i));
  zr_place_arenas(c->program);
  for (int i = 0; i < n_plans; i++) ZR_TRY(derive_plan(c, i));
  zr_place_arenas(c->program);
  for (int i = 0; i < n_plans; i++)
    ZR_TRY(zr_verify(c->program->plan[i], c->options->budget_bytes, NULL));
  return ZR_OK;
}

zr_status_t zr_program_compile(zr_program_t *program, const zr_place_options_t *options) {
  compile_t c = {.program = program, .options = options};
  if (program->n_plans == 0) return zr_fail(ZR_ERR_INTERNAL, "program: no plans");
  zr_status_t status = compile(&c);
  for (int i = 0; i < program->n_plans; i++) {
    zr_quiet_fini(&c.quiet[i]);
    zr_alloc_free(program->plan[i]->alloc, c.apart[i].pair);
  }
  return status;
}
