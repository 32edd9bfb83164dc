#include "runtime/train/states.h"

#include <math.h>
#include <string.h>

/* Elements [begin, end) of a unit's flat that are somewhere on this rank: element begin is the
 * first of the buffer if the state is sharded. */
typedef struct {
  const zr_zero_unit_t *unit;
  int kind;
  int32_t buffer;
  int64_t begin, end;
  int64_t held_from; /* flat element at the buffer's start */
} span_t;

const char *zr_state_suffix(int kind) {
  static const char *const suffixes[] = {"", ".exp_avg", ".exp_avg_sq"};
  return suffixes[kind];
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
  const int32_t buffers[] = {unit->param, unit->exp_avg, unit->exp_avg_sq};
  bool sharded = kind == ZR_STATE_PARAM ? unit->param_sharded : unit->optimizer_sharded;
  int64_t shard_begin = unit->shard_elems * states->rank;
  span_t span = {.unit = unit, .kind = kind, .buffer = buffers[kind], .end = unit->flat_elems};
  span.held_from = sharded ? shard_begin : 0;
  if (sharded || share) {
    span.begin = shard_begin;
    span.end = shard_begin + unit->shard_elems;
  }
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

static zr_status_t get_window(const zr_states_t *states, const span_t *span, int64_t begin,
                              int64_t end, float *window) {
  return states->get(states->context, span->buffer, (begin - span->held_from) * 4, window,
                     (end - begin) * 4);
}

static zr_status_t read_span(const zr_states_t *states, const span_t *span, float *window,
                             zr_piece_fn_t fn, void *context) {
  for (int64_t begin = span->begin; begin < span->end; begin += ZR_STATES_WINDOW_ELEMS) {
    int64_t end = min_i64(begin + ZR_STATES_WINDOW_ELEMS, span->end);
    ZR_TRY(get_window(states, span, begin, end, window));
    ZR_TRY(visit(states, span, begin, end, window, fn, context));
  }
  return ZR_OK;
}

static zr_status_t fill_span(const zr_states_t *states, const span_t *span, float *window,
                             zr_piece_fn_t fn, void *context) {
  for (int64_t begin = span->begin; begin < span->end; begin += ZR_STATES_WINDOW_ELEMS) {
    int64_t end = min_i64(begin + ZR_STATES_WINDOW_ELEMS, span->end);
    memset(window, 0, (size_t)(end - begin) * sizeof *window);
    ZR_TRY(visit(states, span, begin, end, window, fn, context));
    ZR_TRY(states->put(states->context, span->buffer, (begin - span->held_from) * 4, window,
                       (end - begin) * 4));
  }
  return ZR_OK;
}

/* No window is larger than the largest span. */
static zr_status_t make_window(const zr_states_t *states, float **out_window) {
  int64_t most = 1;
  for (size_t u = 0; u < states->zero->n_units; ++u) {
    most = max_i64(most, states->zero->unit[u].flat_elems);
  }
  most = min_i64(most, ZR_STATES_WINDOW_ELEMS);
  return zr_alloc_get(states->alloc, (size_t)most, sizeof(float), out_window);
}

zr_status_t zr_states_list_share(const zr_states_t *states, zr_piece_fn_t fn, void *context) {
  for (size_t u = 0; u < states->zero->n_units; ++u) {
    for (int kind = 0; kind < ZR_N_STATE_KINDS; ++kind) {
      span_t span = span_of(states, u, kind, true);
      ZR_TRY(visit(states, &span, span.begin, span.end, NULL, fn, context));
    }
  }
  return ZR_OK;
}

zr_status_t zr_states_read_share(const zr_states_t *states, zr_piece_fn_t fn, void *context) {
  float *window = NULL;
  ZR_TRY(make_window(states, &window));
  zr_status_t status = ZR_OK;
  for (size_t u = 0; status == ZR_OK && u < states->zero->n_units; ++u) {
    for (int kind = 0; status == ZR_OK && kind < ZR_N_STATE_KINDS; ++kind) {
      span_t span = span_of(states, u, kind, true);
      status = read_span(states, &span, window, fn, context);
    }
  }
  zr_alloc_free(states->alloc, window);
  return status;
}

zr_status_t zr_states_fill(const zr_states_t *states, int kind, zr_piece_fn_t fn, void *context) {
  float *window = NULL;
  ZR_TRY(make_window(states, &window));
  zr_status_t status = ZR_OK;
  for (size_t u = 0; status == ZR_OK && u < states->zero->n_units; ++u) {
    span_t span = span_of(states, u, kind, false);
    status = fill_span(states, &span, window, fn, context);
  }
  zr_alloc_free(states->alloc, window);
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

static zr_status_t check_piece(void *context, const zr_piece_t *piece, float *data) {
  (void)context;
  if (piece->kind != ZR_STATE_PARAM) return ZR_OK;
  for (int64_t i = 0; i < piece->end - piece->begin; ++i) {
    if (isfinite(data[i])) continue;
    return zr_fail(ZR_ERR_NUMERIC, "parameter %s, element %lld, became %s", piece->tensor->name,
                   (long long)(piece->begin + i), isnan(data[i]) ? "NaN" : "infinite");
  }
  return ZR_OK;
}

zr_status_t zr_states_check_finite(const zr_states_t *states) {
  return zr_states_read_share(states, check_piece, NULL);
}
