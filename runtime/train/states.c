#include "runtime/train/states.h"

#include <math.h>
#include <string.h>

#include "runtime/base/half.h"

/* Values in their window's floats, and beside them the 16-bit halves as buffers hold them. */
typedef struct {
  float *value;
  uint16_t *high;
  int16_t *low;
} window_t;

/* Elements [begin, end) of a unit's flat that are somewhere on this rank. */
typedef struct {
  const zr_zero_unit_t *unit;
  size_t index;   /* of the unit */
  int kind, held; /* held: zr_held_t */
  int64_t begin, end;
  int64_t held_from; /* the first flat element that this rank holds */
  zr_dtype_t dtype;  /* as it is held */
  /* 16-bit parameters: what this rank has of the rest of their masters. */
  int64_t low_begin, low_end;
} span_t;

int zr_states_n_kinds(const zr_zero_t *zero) {
  return 1 + zr_zero_n_states(&zero->options);
}

void zr_state_name(const zr_zero_t *zero, const zr_piece_t *piece, char *out_name,
                   size_t name_bytes) {
  const char *name = piece->tensor->name;
  if (piece->kind == ZR_STATE_PARAM) {
    (void)snprintf(out_name, name_bytes, "%s", name);
  } else {
    (void)snprintf(out_name, name_bytes, "%s.%s", name,
                   zr_zero_state_name(&zero->options, piece->kind - 1));
  }
}

static int64_t min_i64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* share: this rank's shard alone; else all that it holds. */
static span_t span_of(const zr_states_t *states, size_t unit_index, int kind, bool share) {
  const zr_zero_unit_t *unit = &states->zero->unit[unit_index];
  int held = kind == ZR_STATE_PARAM ? ZR_HELD_PARAM : ZR_HELD_STATE + kind - 1;
  bool sharded = kind == ZR_STATE_PARAM ? unit->param_sharded : unit->optimizer_sharded;
  int64_t shard_begin = unit->shard_elems * states->rank;
  span_t span = {.unit = unit, .index = unit_index, .kind = kind, .held = held};
  span.end = unit->flat_elems;
  span.held_from = sharded ? shard_begin : 0;
  if (sharded || share) {
    span.begin = shard_begin;
    span.end = shard_begin + unit->shard_elems;
  }
  zr_dtype_t dtype = states->zero->options.run.dtype;
  if (kind != ZR_STATE_PARAM) dtype = states->zero->options.state_dtype;
  span.dtype = dtype == ZR_BF16 || dtype == ZR_F16 ? dtype : ZR_F32;
  span.low_begin = unit->optimizer_sharded ? shard_begin : 0;
  span.low_end = span.low_begin + (unit->optimizer_sharded ? unit->shard_elems : unit->flat_elems);
  return span;
}

/* Calls fn for each tensor's part of flat elements [begin, end); window: their values, or NULL. */
static zr_status_t visit(const zr_states_t *states, const span_t *span, int64_t begin, int64_t end,
                         float *window, zr_piece_fn_t fn, void *context) {
  const zr_zero_t *zero = states->zero;
  for (int32_t i = 0; i < span->unit->n_tensors; ++i) {
    const zr_flat_tensor_t *place = &zero->flat_tensor[span->unit->first_tensor + i];
    int64_t from = max_i64(begin, place->begin);
    int64_t to = min_i64(end, place->begin + place->elems);
    if (from >= to) continue;
    zr_piece_t piece = {.tensor = &zero->tape->tensor[place->tensor],
                        .kind = span->kind,
                        .begin = from - place->begin,
                        .end = to - place->begin};
    ZR_TRY(fn(context, &piece, window == NULL ? NULL : window + (from - begin)));
  }
  return ZR_OK;
}

/* --- windows --------------------------------------------------------------------------------- */

/* A run of elements may lie in several places: chunks of a disk, a share that lives elsewhere. */
static zr_status_t next_place(const zr_states_t *states, const span_t *span, int held, int64_t elem,
                              int64_t elems, zr_zero_place_t *out_place) {
  zr_zero_place_t place = zr_zero_place(states->zero, span->index, held, elem);
  if (place.elems < 1 || place.buffer < 0) {
    return zr_fail(ZR_ERR_INTERNAL, "unit %s: element %lld of state %d has no place",
                   span->unit->name, (long long)elem, held);
  }
  place.elems = min_i64(place.elems, elems);
  *out_place = place;
  return ZR_OK;
}

/* `elems` elements of `item` bytes from the begin-th on that this rank holds. */
static zr_status_t get_run(const zr_states_t *states, const span_t *span, int held, int64_t begin,
                           int64_t elems, int64_t item, void *out_data) {
  char *data = out_data;
  while (elems > 0) {
    zr_zero_place_t place = {0};
    ZR_TRY(next_place(states, span, held, begin, elems, &place));
    ZR_TRY(states->get(states->context, place.buffer, place.offset, data, place.elems * item));
    data += place.elems * item;
    begin += place.elems;
    elems -= place.elems;
  }
  return ZR_OK;
}

static zr_status_t put_run(const zr_states_t *states, const span_t *span, int held, int64_t begin,
                           int64_t elems, int64_t item, const void *source) {
  const char *data = source;
  while (elems > 0) {
    zr_zero_place_t place = {0};
    ZR_TRY(next_place(states, span, held, begin, elems, &place));
    ZR_TRY(states->put(states->context, place.buffer, place.offset, data, place.elems * item));
    data += place.elems * item;
    begin += place.elems;
    elems -= place.elems;
  }
  return ZR_OK;
}

/* Elements [begin, end) lie within what the rank has of the masters: shares always do. */
static zr_status_t get_masters(const zr_states_t *states, const span_t *span, int64_t begin,
                               int64_t end, window_t *window) {
  int64_t elems = end - begin, at = begin - span->low_begin;
  if (span->dtype == ZR_F16) {
    return get_run(states, span, ZR_HELD_LOW, at, elems, 4, window->value);
  }
  ZR_TRY(get_run(states, span, span->held, begin - span->held_from, elems, 2, window->high));
  ZR_TRY(get_run(states, span, ZR_HELD_LOW, at, elems, 2, window->low));
  for (int64_t i = 0; i < elems; ++i) {
    window->value[i] = zr_master_join(window->high[i], window->low[i]);
  }
  return ZR_OK;
}

/* Parameters everywhere, the rest of the masters where it is this rank's. */
static zr_status_t put_masters(const zr_states_t *states, const span_t *span, int64_t begin,
                               int64_t end, const window_t *window) {
  bool is_bf16 = span->dtype == ZR_BF16;
  for (int64_t i = 0; i < end - begin; ++i) {
    if (is_bf16) {
      zr_master_split(window->value[i], &window->high[i], &window->low[i]);
    } else {
      window->high[i] = zr_f16_from_f32(window->value[i]);
    }
  }
  ZR_TRY(put_run(states, span, span->held, begin - span->held_from, end - begin, 2, window->high));
  int64_t from = max_i64(begin, span->low_begin), to = min_i64(end, span->low_end);
  if (from >= to) return ZR_OK;
  int64_t bytes = is_bf16 ? 2 : 4;
  const void *data = window->value + (from - begin);
  if (is_bf16) data = window->low + (from - begin);
  return put_run(states, span, ZR_HELD_LOW, from - span->low_begin, to - from, bytes, data);
}

static zr_status_t get_bf16(const zr_states_t *states, const span_t *span, int64_t begin,
                            int64_t end, window_t *window) {
  ZR_TRY(get_run(states, span, span->held, begin - span->held_from, end - begin, 2, window->high));
  for (int64_t i = 0; i < end - begin; ++i) window->value[i] = zr_bf16_to_f32(window->high[i]);
  return ZR_OK;
}

static zr_status_t put_bf16(const zr_states_t *states, const span_t *span, int64_t begin,
                            int64_t end, const window_t *window) {
  for (int64_t i = 0; i < end - begin; ++i) window->high[i] = zr_bf16_from_f32(window->value[i]);
  return put_run(states, span, span->held, begin - span->held_from, end - begin, 2, window->high);
}

static zr_status_t get_window(const zr_states_t *states, const span_t *span, int64_t begin,
                              int64_t end, window_t *window) {
  if (span->dtype != ZR_F32) {
    return span->kind == ZR_STATE_PARAM ? get_masters(states, span, begin, end, window)
                                        : get_bf16(states, span, begin, end, window);
  }
  return get_run(states, span, span->held, begin - span->held_from, end - begin, 4, window->value);
}

static zr_status_t put_window(const zr_states_t *states, const span_t *span, int64_t begin,
                              int64_t end, const window_t *window) {
  if (span->dtype != ZR_F32) {
    return span->kind == ZR_STATE_PARAM ? put_masters(states, span, begin, end, window)
                                        : put_bf16(states, span, begin, end, window);
  }
  return put_run(states, span, span->held, begin - span->held_from, end - begin, 4, window->value);
}

static zr_status_t read_span(const zr_states_t *states, const span_t *span, window_t *window,
                             zr_piece_fn_t fn, void *context) {
  for (int64_t begin = span->begin; begin < span->end; begin += ZR_STATES_WINDOW_ELEMS) {
    int64_t end = min_i64(begin + ZR_STATES_WINDOW_ELEMS, span->end);
    ZR_TRY(get_window(states, span, begin, end, window));
    ZR_TRY(visit(states, span, begin, end, window->value, fn, context));
  }
  return ZR_OK;
}

static zr_status_t fill_span(const zr_states_t *states, const span_t *span, window_t *window,
                             zr_piece_fn_t fn, void *context) {
  for (int64_t begin = span->begin; begin < span->end; begin += ZR_STATES_WINDOW_ELEMS) {
    int64_t end = min_i64(begin + ZR_STATES_WINDOW_ELEMS, span->end);
    memset(window->value, 0, (size_t)(end - begin) * sizeof *window->value);
    ZR_TRY(visit(states, span, begin, end, window->value, fn, context));
    ZR_TRY(put_window(states, span, begin, end, window));
  }
  return ZR_OK;
}

static void free_window(const zr_states_t *states, window_t *window) {
  zr_alloc_free(states->alloc, window->value);
  zr_alloc_free(states->alloc, window->high);
  zr_alloc_free(states->alloc, window->low);
}

/* No window is larger than the largest span. */
static zr_status_t make_window(const zr_states_t *states, window_t *out_window) {
  *out_window = (window_t){0};
  int64_t most = 1;
  for (size_t u = 0; u < states->zero->n_units; ++u) {
    most = max_i64(most, states->zero->unit[u].flat_elems);
  }
  size_t elems = (size_t)min_i64(most, ZR_STATES_WINDOW_ELEMS);
  zr_status_t status = zr_alloc_get(states->alloc, elems, sizeof(float), &out_window->value);
  if (status == ZR_OK) {
    status = zr_alloc_get(states->alloc, elems, sizeof(uint16_t), &out_window->high);
  }
  if (status == ZR_OK) {
    status = zr_alloc_get(states->alloc, elems, sizeof(int16_t), &out_window->low);
  }
  if (status != ZR_OK) free_window(states, out_window);
  return status;
}

/* --- shares and fills ------------------------------------------------------------------------ */

zr_status_t zr_states_list_share(const zr_states_t *states, zr_piece_fn_t fn, void *context) {
  for (size_t u = 0; u < states->zero->n_units; ++u) {
    for (int kind = 0; kind < zr_states_n_kinds(states->zero); ++kind) {
      span_t span = span_of(states, u, kind, true);
      ZR_TRY(visit(states, &span, span.begin, span.end, NULL, fn, context));
    }
  }
  return ZR_OK;
}

zr_status_t zr_states_read_share(const zr_states_t *states, zr_piece_fn_t fn, void *context) {
  window_t window;
  ZR_TRY(make_window(states, &window));
  zr_status_t status = ZR_OK;
  for (size_t u = 0; status == ZR_OK && u < states->zero->n_units; ++u) {
    for (int kind = 0; status == ZR_OK && kind < zr_states_n_kinds(states->zero); ++kind) {
      span_t span = span_of(states, u, kind, true);
      status = read_span(states, &span, &window, fn, context);
    }
  }
  free_window(states, &window);
  return status;
}

zr_status_t zr_states_fill(const zr_states_t *states, int kind, zr_piece_fn_t fn, void *context) {
  window_t window;
  ZR_TRY(make_window(states, &window));
  zr_status_t status = ZR_OK;
  for (size_t u = 0; status == ZR_OK && u < states->zero->n_units; ++u) {
    span_t span = span_of(states, u, kind, false);
    status = fill_span(states, &span, &window, fn, context);
  }
  free_window(states, &window);
  return status;
}

/* --- initial values -------------------------------------------------------------------------- */

enum { INITIAL_TASK_ELEMS = 1 << 14 };

typedef struct {
  const zr_states_t *states;
  uint64_t seed;
  const zr_piece_t *piece;
  float *data;
} initial_t;

static void initial_task(void *context, int64_t task, int worker) {
  (void)worker;
  const initial_t *initial = context;
  const zr_model_config_t *model = &initial->states->zero->options.model;
  int64_t first = task * INITIAL_TASK_ELEMS;
  int64_t last = min_i64(first + INITIAL_TASK_ELEMS, initial->piece->end - initial->piece->begin);
  for (int64_t i = first; i < last; ++i) {
    initial->data[i] =
        zr_model_initial(model, initial->seed, initial->piece->tensor, initial->piece->begin + i);
  }
}

static zr_status_t initial_piece(void *context, const zr_piece_t *piece, float *data) {
  initial_t *initial = context;
  initial->piece = piece;
  initial->data = data;
  int64_t elems = piece->end - piece->begin;
  zr_parallel_for(initial->states->pool, (elems + INITIAL_TASK_ELEMS - 1) / INITIAL_TASK_ELEMS,
                  initial_task, initial);
  return ZR_OK;
}

zr_status_t zr_states_initialise(const zr_states_t *states, uint64_t seed) {
  initial_t initial = {.states = states, .seed = seed};
  return zr_states_fill(states, ZR_STATE_PARAM, initial_piece, &initial);
}

/* --- looking for what is not a number -------------------------------------------------------- */

/* A master may be a number of fp32 that its 16-bit parameter can not hold. */
static float as_parameter(zr_dtype_t dtype, float master) {
  uint16_t high;
  int16_t low;
  if (dtype == ZR_F16) return zr_f16_to_f32(zr_f16_from_f32(master));
  if (dtype != ZR_BF16) return master;
  zr_master_split(master, &high, &low);
  return zr_bf16_to_f32(high);
}

static zr_status_t check_piece(void *context, const zr_piece_t *piece, float *data) {
  const zr_states_t *states = context;
  if (piece->kind != ZR_STATE_PARAM) return ZR_OK;
  zr_dtype_t dtype = states->zero->options.run.dtype;
  for (int64_t i = 0; i < piece->end - piece->begin; ++i) {
    if (isfinite(as_parameter(dtype, data[i]))) continue;
    const char *what = isnan(data[i]) ? "NaN" : isinf(data[i]) ? "infinite" : "too large for ";
    return zr_fail(ZR_ERR_NUMERIC, "parameter %s, element %lld, became %s%s", piece->tensor->name,
                   (long long)(piece->begin + i), what,
                   isfinite(data[i]) ? zr_dtype_name(dtype) : "");
  }
  return ZR_OK;
}

zr_status_t zr_states_check_finite(const zr_states_t *states) {
  return zr_states_read_share(states, check_piece, (void *)(uintptr_t)states);
}
