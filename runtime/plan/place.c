#include "runtime/plan/place.h"

#include <string.h>

#include "runtime/plan/place_internal.h"
#include "runtime/plan/plan_internal.h"

typedef struct {
  zr_life_t *touched, *life; /* as the list has it; as it is placed */
  zr_fit_item_t *item;
} work_t;

static zr_status_t work_init(work_t *work, const zr_plan_t *plan) {
  size_t n = plan->n_buffers;
  ZR_TRY(zr_alloc_get(plan->alloc, n, sizeof *work->touched, &work->touched));
  ZR_TRY(zr_alloc_get(plan->alloc, n, sizeof *work->life, &work->life));
  return zr_alloc_get(plan->alloc, n, sizeof *work->item, &work->item);
}

static void work_fini(work_t *work, const zr_plan_t *plan) {
  zr_alloc_free(plan->alloc, work->touched);
  zr_alloc_free(plan->alloc, work->life);
  zr_alloc_free(plan->alloc, work->item);
}

/* Collects the transient buffers of a tier; quiet NULL: whatever stream uses them first. */
static size_t collect(const zr_plan_t *plan, int tier, const zr_life_t *life,
                      const zr_quiet_t *quiet, int stream, zr_fit_item_t *item) {
  size_t n_items = 0;
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const zr_buffer_t *buffer = &plan->buffer[i];
    if (buffer->tier != tier || buffer->persistent || life[i].begin == life[i].end) continue;
    if (quiet != NULL && quiet->first_stream[i] != stream) continue;
    item[n_items++] =
        (zr_fit_item_t){.life = life[i], .bytes = zr_align_up(buffer->bytes), .buffer = (int32_t)i};
  }
  return n_items;
}

static zr_status_t bound_of(const zr_plan_t *plan, const zr_fit_item_t *item, size_t n_items,
                            int64_t *out_bytes) {
  int64_t where = 0;
  *out_bytes = 0;
  if (n_items == 0) return ZR_OK;
  return zr_fit_bound(plan->alloc, item, n_items, (int64_t)plan->n_ops, out_bytes, &where);
}

/* On top of what is placed already; offsets false: only the bytes that the lives need at least. */
static zr_status_t fit_on_top(zr_plan_t *plan, int tier, size_t n_items, bool offsets,
                              const work_t *work) {
  int64_t top = 0;
  if (!offsets) {
    ZR_TRY(bound_of(plan, work->item, n_items, &top));
  } else {
    ZR_TRY(zr_fit(plan->alloc, work->item, n_items, (int64_t)plan->n_ops, &top));
    for (size_t i = 0; i < n_items; i++)
      plan->buffer[work->item[i].buffer].offset = plan->peak_bytes[tier] + work->item[i].offset;
  }
  plan->peak_bytes[tier] += top;
  return ZR_OK;
}

/* Each first stream's buffers above those of the streams before it; or all together. */
static zr_status_t fit_tier(zr_plan_t *plan, int tier, const zr_place_mode_t *mode, bool offsets,
                            const work_t *work) {
  int n_streams = mode->quiet != NULL ? ZR_N_STREAMS : 1;
  for (int stream = 0; stream < n_streams; stream++) {
    size_t n_items = collect(plan, tier, work->life, mode->quiet, stream, work->item);
    ZR_TRY(fit_on_top(plan, tier, n_items, offsets, work));
  }
  return ZR_OK;
}

static zr_status_t place_tier(zr_plan_t *plan, int tier, const zr_place_mode_t *mode,
                              const work_t *work) {
  int64_t bound = 0, persistent_bytes = plan->peak_bytes[tier];
  int64_t budget = mode->budget_bytes != NULL ? mode->budget_bytes[tier] : 0;
  size_t n_items = collect(plan, tier, work->touched, NULL, 0, work->item);
  ZR_TRY(bound_of(plan, work->item, n_items, &bound));
  plan->lower_bound_bytes[tier] = persistent_bytes + bound;
  if (budget > 0) {
    ZR_TRY(fit_tier(plan, tier, mode, false, work));
    if (plan->peak_bytes[tier] > budget) return ZR_OK;
    plan->peak_bytes[tier] = persistent_bytes;
  }
  return fit_tier(plan, tier, mode, true, work);
}

/* life: with lags; grows to where the buffer is quiet, at most to where `capped` ends. */
static void grow_to_quiet(const zr_plan_t *plan, const zr_quiet_t *quiet, const zr_life_t *touched,
                          const zr_life_t *capped, zr_life_t *life) {
  int64_t n_ops = (int64_t)plan->n_ops;
  for (size_t i = 0; i < plan->n_buffers; i++) {
    bool whole = life[i].end - life[i].begin >= n_ops;
    if (whole || life[i].begin == life[i].end) continue;
    /* A whole circle has no end of its own. */
    int64_t end = quiet->from[i] - touched[i].begin >= n_ops ? INT64_MAX : quiet->from[i];
    if (capped != NULL && capped[i].end - capped[i].begin < n_ops && capped[i].end < end)
      end = capped[i].end;
    if (end == INT64_MAX || end - life[i].begin >= n_ops)
      life[i] = (zr_life_t){0, n_ops};
    else if (end > life[i].end)
      life[i].end = end;
  }
}

static zr_status_t quiet_lives(const zr_plan_t *plan, const zr_place_mode_t *mode,
                               const work_t *work) {
  int32_t lag[ZR_N_STREAMS];
  zr_life_t *capped = NULL;
  if (mode->cap_phases <= 0) {
    grow_to_quiet(plan, mode->quiet, work->touched, NULL, work->life);
    return ZR_OK;
  }
  for (int s = 0; s < ZR_N_STREAMS; s++) lag[s] = mode->cap_phases;
  ZR_TRY(zr_alloc_get(plan->alloc, plan->n_buffers, sizeof *capped, &capped));
  zr_status_t status = zr_life_compute(plan, lag, capped);
  if (status == ZR_OK) grow_to_quiet(plan, mode->quiet, work->touched, capped, work->life);
  zr_alloc_free(plan->alloc, capped);
  return status;
}

static zr_status_t place_transient(zr_plan_t *plan, const zr_place_mode_t *mode,
                                   const zr_apart_t *apart, size_t n_apart, const work_t *work) {
  ZR_TRY(zr_life_compute(plan, NULL, work->touched));
  ZR_TRY(zr_life_compute(plan, mode->lag_phases, work->life));
  if (mode->quiet != NULL) ZR_TRY(quiet_lives(plan, mode, work));
  zr_life_apart(plan, apart, n_apart, work->life);
  for (int tier = 0; tier < ZR_N_TIERS; tier++) ZR_TRY(place_tier(plan, tier, mode, work));
  return ZR_OK;
}

/* At the bottom, in the order of the list: the same in every plan. */
static void place_persistent(zr_plan_t *plan) {
  for (int tier = 0; tier < ZR_N_TIERS; tier++) plan->peak_bytes[tier] = 0;
  for (size_t i = 0; i < plan->n_buffers; i++) {
    zr_buffer_t *buffer = &plan->buffer[i];
    if (!buffer->persistent) continue;
    buffer->offset = plan->peak_bytes[buffer->tier];
    plan->peak_bytes[buffer->tier] += zr_align_up(buffer->bytes);
  }
}

zr_status_t zr_place_plan(zr_plan_t *plan, const zr_place_mode_t *mode, const zr_apart_t *apart,
                          size_t n_apart) {
  work_t work = {0};
  place_persistent(plan);
  zr_status_t status = work_init(&work, plan);
  if (status == ZR_OK) status = place_transient(plan, mode, apart, n_apart, &work);
  work_fini(&work, plan);
  return status;
}

void zr_place_arenas(zr_program_t *program) {
  int64_t arena_bytes[ZR_N_TIERS] = {0};
  for (int i = 0; i < program->n_plans; i++) {
    for (int tier = 0; tier < ZR_N_TIERS; tier++) {
      if (program->plan[i]->peak_bytes[tier] > arena_bytes[tier])
        arena_bytes[tier] = program->plan[i]->peak_bytes[tier];
    }
  }
  for (int i = 0; i < program->n_plans; i++)
    memcpy(program->plan[i]->arena_bytes, arena_bytes, sizeof arena_bytes);
}

zr_status_t zr_place_program(zr_program_t *program, const zr_place_options_t *options,
                             const zr_apart_t *const apart[ZR_PROGRAM_MAX_PLANS],
                             const size_t n_apart[ZR_PROGRAM_MAX_PLANS]) {
  zr_place_mode_t mode = {.lag_phases = options->lag_phases};
  for (int i = 0; i < program->n_plans; i++) {
    size_t n = apart != NULL && apart[i] != NULL ? n_apart[i] : 0;
    ZR_TRY(zr_place_plan(program->plan[i], &mode, n > 0 ? apart[i] : NULL, n));
  }
  zr_place_arenas(program);
  return ZR_OK;
}

static zr_status_t find_peak(const zr_plan_t *plan, zr_tier_t tier, const work_t *work,
                             int32_t *out_op, int64_t out_bytes[ZR_N_CATEGORIES]) {
  int64_t n_ops = (int64_t)plan->n_ops, most = 0, where = 0;
  ZR_TRY(zr_life_compute(plan, NULL, work->touched));
  size_t n_items = collect(plan, tier, work->touched, NULL, 0, work->item);
  if (n_items > 0) ZR_TRY(zr_fit_bound(plan->alloc, work->item, n_items, n_ops, &most, &where));
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const zr_buffer_t *buffer = &plan->buffer[i];
    zr_life_t life = work->touched[i];
    if (buffer->tier != tier) continue;
    if (buffer->persistent || (life.begin <= where && where < life.end))
      out_bytes[buffer->category] += zr_align_up(buffer->bytes);
  }
  *out_op = n_ops > 0 ? (int32_t)where : -1;
  return ZR_OK;
}

void zr_place_peak(const zr_plan_t *plan, zr_tier_t tier, int32_t *out_op,
                   int64_t out_bytes[ZR_N_CATEGORIES]) {
  work_t work = {0};
  memset(out_bytes, 0, ZR_N_CATEGORIES * sizeof *out_bytes);
  *out_op = -1;
  zr_status_t status = work_init(&work, plan);
  if (status == ZR_OK) status = find_peak(plan, tier, &work, out_op, out_bytes);
  /* Without memory for the question there is no answer: op -1 and no bytes. */
  if (status != ZR_OK) memset(out_bytes, 0, ZR_N_CATEGORIES * sizeof *out_bytes);
  work_fini(&work, plan);
}
