#include "runtime/plan/place.h"

#include <string.h>

#include "runtime/plan/place_internal.h"
#include "runtime/plan/plan_internal.h"

/* Collects the transient buffers of a tier. */
static size_t collect(const zr_plan_t *plan, int tier, const zr_life_t *life, zr_fit_item_t *item) {
  size_t n_items = 0;
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const zr_buffer_t *buffer = &plan->buffer[i];
    if (buffer->tier != tier || buffer->persistent || life[i].begin == life[i].end) continue;
    item[n_items++] =
        (zr_fit_item_t){.life = life[i], .bytes = zr_align_up(buffer->bytes), .buffer = (int32_t)i};
  }
  return n_items;
}

typedef struct {
  zr_life_t *touched, *life; /* as the list has it; stretched by lags and pairs */
  zr_fit_item_t *item;
} work_t;

static zr_status_t place_tier(zr_plan_t *plan, int tier, int64_t persistent_bytes,
                              const work_t *work) {
  int64_t n_ops = (int64_t)plan->n_ops, bound = 0, top = 0, where = 0;
  size_t n_items = collect(plan, tier, work->touched, work->item);
  if (n_items > 0) ZR_TRY(zr_fit_bound(plan->alloc, work->item, n_items, n_ops, &bound, &where));
  n_items = collect(plan, tier, work->life, work->item);
  ZR_TRY(zr_fit(plan->alloc, work->item, n_items, n_ops, &top));
  for (size_t i = 0; i < n_items; i++)
    plan->buffer[work->item[i].buffer].offset = persistent_bytes + work->item[i].offset;
  plan->peak_bytes[tier] = persistent_bytes + top;
  plan->lower_bound_bytes[tier] = persistent_bytes + bound;
  return ZR_OK;
}

static zr_status_t place_transient(zr_plan_t *plan, const int64_t *persistent_bytes,
                                   const zr_place_options_t *options, const zr_apart_t *apart,
                                   size_t n_apart, const work_t *work) {
  ZR_TRY(zr_life_compute(plan, NULL, work->touched));
  ZR_TRY(zr_life_compute(plan, options->lag_phases, work->life));
  zr_life_apart(plan, apart, n_apart, work->life);
  for (int tier = 0; tier < ZR_N_TIERS; tier++)
    ZR_TRY(place_tier(plan, tier, persistent_bytes[tier], work));
  return ZR_OK;
}

static zr_status_t place_plan(zr_plan_t *plan, const int64_t *persistent_bytes,
                              const zr_place_options_t *options, const zr_apart_t *apart,
                              size_t n_apart) {
  work_t work = {0};
  size_t n = plan->n_buffers;
  zr_status_t status = zr_alloc_get(plan->alloc, n, sizeof *work.touched, &work.touched);
  if (status == ZR_OK) status = zr_alloc_get(plan->alloc, n, sizeof *work.life, &work.life);
  if (status == ZR_OK) status = zr_alloc_get(plan->alloc, n, sizeof *work.item, &work.item);
  if (status == ZR_OK)
    status = place_transient(plan, persistent_bytes, options, apart, n_apart, &work);
  zr_alloc_free(plan->alloc, work.touched);
  zr_alloc_free(plan->alloc, work.life);
  zr_alloc_free(plan->alloc, work.item);
  return status;
}

/* At the bottom, in the order of the list: the same in every plan. */
static void place_persistent(zr_plan_t *plan, int64_t out_bytes[ZR_N_TIERS]) {
  for (int tier = 0; tier < ZR_N_TIERS; tier++) out_bytes[tier] = 0;
  for (size_t i = 0; i < plan->n_buffers; i++) {
    zr_buffer_t *buffer = &plan->buffer[i];
    if (!buffer->persistent) continue;
    buffer->offset = out_bytes[buffer->tier];
    out_bytes[buffer->tier] += zr_align_up(buffer->bytes);
  }
}

zr_status_t zr_place_program(zr_program_t *program, const zr_place_options_t *options,
                             const zr_apart_t *const apart[ZR_PROGRAM_MAX_PLANS],
                             const size_t n_apart[ZR_PROGRAM_MAX_PLANS]) {
  int64_t arena_bytes[ZR_N_TIERS] = {0};
  for (int i = 0; i < program->n_plans; i++) {
    zr_plan_t *plan = program->plan[i];
    int64_t persistent_bytes[ZR_N_TIERS];
    size_t n = apart != NULL && apart[i] != NULL ? n_apart[i] : 0;
    place_persistent(plan, persistent_bytes);
    ZR_TRY(place_plan(plan, persistent_bytes, options, n > 0 ? apart[i] : NULL, n));
    for (int tier = 0; tier < ZR_N_TIERS; tier++) {
      if (plan->peak_bytes[tier] > arena_bytes[tier]) arena_bytes[tier] = plan->peak_bytes[tier];
    }
  }
  for (int i = 0; i < program->n_plans; i++)
    memcpy(program->plan[i]->arena_bytes, arena_bytes, sizeof arena_bytes);
  return ZR_OK;
}

static zr_status_t find_peak(const zr_plan_t *plan, zr_tier_t tier, const work_t *work,
                             int32_t *out_op, int64_t out_bytes[ZR_N_CATEGORIES]) {
  int64_t n_ops = (int64_t)plan->n_ops, most = 0, where = 0;
  ZR_TRY(zr_life_compute(plan, NULL, work->touched));
  size_t n_items = collect(plan, tier, work->touched, work->item);
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
  zr_status_t status =
      zr_alloc_get(plan->alloc, plan->n_buffers, sizeof *work.touched, &work.touched);
  if (status == ZR_OK)
    status = zr_alloc_get(plan->alloc, plan->n_buffers, sizeof *work.item, &work.item);
  if (status == ZR_OK) status = find_peak(plan, tier, &work, out_op, out_bytes);
  /* Without memory for the question there is no answer: op -1 and no bytes. */
  if (status != ZR_OK) memset(out_bytes, 0, ZR_N_CATEGORIES * sizeof *out_bytes);
  zr_alloc_free(plan->alloc, work.touched);
  zr_alloc_free(plan->alloc, work.item);
}
