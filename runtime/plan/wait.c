/* The list is run twice in a row. Each operation must come after the last writer of the bytes it
 * touches and, if it writes, after their readers; what its own stream, or a wait it has anyway,
 * already guarantees (vector clocks) needs no wait. Every path between two operations of a step
 * stays inside that step, so the waits of the second run hold for all later ones.
 *
 * A second set of clocks knows only the waits between uses of the same buffer. A wait that those do
 * not imply exists because space is reused. */
#include "runtime/plan/wait.h"

#include <string.h>

#include "runtime/plan/wait_internal.h"

typedef struct {
  int32_t op[ZR_N_STREAMS];       /* the latest that must be done before; -1: none */
  int32_t op_value[ZR_N_STREAMS]; /* the latest of them that touches the same buffer */
  zr_apart_t pair[ZR_N_STREAMS];  /* the buffers behind op */
} need_t;

typedef struct {
  const zr_plan_t *plan;
  zr_plan_t *out_plan; /* the same, to take the waits; NULL: only clocks are wanted */
  zr_touch_map_t map;
  zr_clock_t *clock, *clock_value; /* [2 n_ops] */
  zr_apart_list_t *pairs;
} derive_t;

static const zr_op_t *op_of(const derive_t *d, int32_t at) {
  int32_t n_ops = (int32_t)d->plan->n_ops;
  return &d->plan->op[at < n_ops ? at : at - n_ops];
}

/* Position in its stream over the unrolled steps, from 1. */
static int32_t position_of(const derive_t *d, int32_t at) {
  const zr_op_t *op = op_of(d, at);
  bool second = at >= (int32_t)d->plan->n_ops;
  return (second ? d->plan->stream_ops[op->stream] : 0) + op->stream_index + 1;
}

static void need_after(const derive_t *d, need_t *need, uint8_t own_stream, int32_t at,
                       int32_t buffer, int32_t own_buffer) {
  if (at < 0) return;
  uint8_t stream = op_of(d, at)->stream;
  if (stream == own_stream) return;
  if (at > need->op[stream]) {
    need->op[stream] = at;
    need->pair[stream] = (zr_apart_t){own_buffer, buffer};
  }
  if (buffer == own_buffer && at > need->op_value[stream]) need->op_value[stream] = at;
}

static void collect_operand(derive_t *d, const zr_op_t *op, const zr_operand_t *operand,
                            need_t *need) {
  zr_places_t places = zr_touch_places(&d->map, d->plan, operand);
  for (int i = 0; i < places.count; i++) {
    int64_t begin = places.begin + i * places.stride;
    int32_t at, end;
    zr_touch_range(&d->map, begin, begin + places.bytes, &at, &end);
    for (; at < end; at = d->map.next[at]) {
      const zr_touch_t *touch = &d->map.touch[at];
      need_after(d, need, op->stream, touch->writer, touch->writer_buffer, operand->buffer);
      if (operand->access == ZR_READ) continue;
      for (int s = 0; s < ZR_N_STREAMS; s++)
        need_after(d, need, op->stream, touch->reader[s], touch->reader_buffer[s], operand->buffer);
    }
  }
}

static void apply_operand(derive_t *d, int32_t unrolled, const zr_op_t *op,
                          const zr_operand_t *operand) {
  zr_places_t places = zr_touch_places(&d->map, d->plan, operand);
  for (int i = 0; i < places.count; i++) {
    int64_t begin = places.begin + i * places.stride;
    int32_t at, end;
    zr_touch_range(&d->map, begin, begin + places.bytes, &at, &end);
    if (operand->access != ZR_READ) {
      zr_touch_write(&d->map, at, end, unrolled, operand->buffer);
      continue;
    }
    for (; at < end; at = d->map.next[at]) {
      d->map.touch[at].reader[op->stream] = unrolled;
      d->map.touch[at].reader_buffer[op->stream] = operand->buffer;
    }
  }
}

/* All operands are looked at before any is entered: an operation does not wait for itself. */
static void touch_operands(derive_t *d, int32_t unrolled, const zr_op_t *op, need_t *need) {
  memset(need->op, 0xff, sizeof need->op);
  memset(need->op_value, 0xff, sizeof need->op_value);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (op->operand[i].buffer >= 0) collect_operand(d, op, &op->operand[i], need);
  }
  for (int writes = 0; writes < 2; writes++) {
    for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
      const zr_operand_t *operand = &op->operand[i];
      if (operand->buffer >= 0 && (operand->access != ZR_READ) == writes)
        apply_operand(d, unrolled, op, operand);
    }
  }
}

static void join(zr_clock_t *clock, const zr_clock_t *other) {
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (other->done[s] > clock->done[s]) clock->done[s] = other->done[s];
  }
}

/* Known without waiting for need->op[stream]: from the own stream or from another wait. */
static bool implied(const derive_t *d, const need_t *need, const zr_clock_t *before, int stream) {
  int32_t position = position_of(d, need->op[stream]);
  if (before->done[stream] >= position) return true;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (s != stream && need->op[s] >= 0 && d->clock[need->op[s]].done[stream] >= position)
      return true;
  }
  return false;
}

static zr_status_t keep_wait(derive_t *d, int32_t unrolled, const need_t *need, int stream,
                             bool placement_only) {
  int32_t n_ops = (int32_t)d->plan->n_ops, at = need->op[stream];
  zr_op_t *op = &d->out_plan->op[unrolled - n_ops];
  op->wait[op->n_waits++] = (zr_wait_t){
      .op = at < n_ops ? at : at - n_ops, .back = at < n_ops, .placement_only = placement_only};
  d->out_plan->n_waits++;
  d->out_plan->n_placement_waits += placement_only;
  if (!placement_only || d->pairs == NULL) return ZR_OK;
  zr_apart_list_t *list = d->pairs;
  ZR_TRY(zr_alloc_grow(d->plan->alloc, &list->pair, &list->capacity, list->n_pairs + 1,
                       sizeof *list->pair));
  list->pair[list->n_pairs++] = need->pair[stream];
  return ZR_OK;
}

/* `last` and `last_value`: the clocks of the operation before it on its stream; become its own. */
static zr_status_t derive_op(derive_t *d, int32_t unrolled, zr_clock_t *last,
                             zr_clock_t *last_value) {
  bool keep = d->out_plan != NULL && unrolled >= (int32_t)d->plan->n_ops;
  const zr_op_t *op = op_of(d, unrolled);
  need_t need;
  touch_operands(d, unrolled, op, &need);
  zr_clock_t before = *last;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (need.op_value[s] >= 0) join(last_value, &d->clock_value[need.op_value[s]]);
  }
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (need.op[s] < 0 || implied(d, &need, &before, s)) continue;
    join(last, &d->clock[need.op[s]]);
    if (!keep) continue;
    bool placement_only = last_value->done[s] < position_of(d, need.op[s]);
    ZR_TRY(keep_wait(d, unrolled, &need, s, placement_only));
  }
  last->done[op->stream] = position_of(d, unrolled);
  last_value->done[op->stream] = position_of(d, unrolled);
  d->clock[unrolled] = *last;
  d->clock_value[unrolled] = *last_value;
  return ZR_OK;
}

static zr_status_t derive_all(derive_t *d) {
  zr_clock_t last[ZR_N_STREAMS] = {0}, last_value[ZR_N_STREAMS] = {0};
  for (int32_t i = 0; i < 2 * (int32_t)d->plan->n_ops; i++) {
    uint8_t stream = op_of(d, i)->stream;
    ZR_TRY(derive_op(d, i, &last[stream], &last_value[stream]));
  }
  return ZR_OK;
}

static zr_status_t check_placed(const zr_plan_t *plan) {
  if (!plan->finished)
    return zr_fail(ZR_ERR_INTERNAL, "plan %s: waits before it is finished", plan->name);
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const zr_buffer_t *buffer = &plan->buffer[i];
    if (buffer->offset < 0 || buffer->offset + buffer->bytes > plan->arena_bytes[buffer->tier])
      return zr_fail(ZR_ERR_INTERNAL, "plan %s: waits before buffer %s is placed", plan->name,
                     buffer->name);
  }
  return ZR_OK;
}

/* clock, if the caller wants it; the rest is freed. */
static zr_status_t derive(derive_t *d, bool spread, zr_clock_t *clock) {
  zr_alloc_t *alloc = d->plan->alloc;
  size_t n = 2 * d->plan->n_ops;
  ZR_TRY(zr_touch_map_init(&d->map, d->plan, spread));
  d->clock = clock;
  zr_status_t status = ZR_OK;
  if (clock == NULL) status = zr_alloc_get(alloc, n, sizeof *d->clock, &d->clock);
  if (status == ZR_OK) status = zr_alloc_get(alloc, n, sizeof *d->clock_value, &d->clock_value);
  if (status == ZR_OK) status = derive_all(d);
  if (clock == NULL) zr_alloc_free(alloc, d->clock);
  zr_alloc_free(alloc, d->clock_value);
  zr_touch_map_fini(&d->map);
  return status;
}

zr_status_t zr_wait_derive(zr_plan_t *plan, zr_apart_list_t *out_pairs) {
  derive_t d = {.plan = plan, .out_plan = plan, .pairs = out_pairs};
  ZR_TRY(check_placed(plan));
  plan->n_waits = 0;
  plan->n_placement_waits = 0;
  for (size_t i = 0; i < plan->n_ops; i++) {
    plan->op[i].n_waits = 0;
    memset(plan->op[i].wait, 0, sizeof plan->op[i].wait);
  }
  return derive(&d, false, NULL);
}

zr_status_t zr_wait_value_clocks(const zr_plan_t *plan, zr_clock_t *clock) {
  derive_t d = {.plan = plan};
  return derive(&d, true, clock);
}
