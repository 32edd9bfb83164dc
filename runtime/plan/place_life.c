/* Lifetimes on the circle of list positions.
 *
 *   phase      0    | 1      | 2   | 0 ...
 *   position   0 1 2  3 4 5 6  7 8   9 = 0 of the next step
 *   touched            x--x            [4, 6)
 *   lag 1      ------------------      [0, 9): one phase more on either side */
#include "runtime/plan/place_internal.h"

/* Phases of the positions, made monotone: an operation that was hoisted keeps its own, later phase
 * number, but stands where the list is. Numbered 0 .. n_phases - 1. */
typedef struct {
  int32_t *of;    /* [n_ops] */
  int32_t *first; /* [n_phases + 1]: first position; the last one is n_ops */
  int32_t n_phases;
} phases_t;

static void phases_fini(zr_alloc_t *alloc, phases_t *phases) {
  zr_alloc_free(alloc, phases->of);
  zr_alloc_free(alloc, phases->first);
}

static zr_status_t phases_init(const zr_plan_t *plan, phases_t *phases) {
  int32_t n = (int32_t)plan->n_ops;
  zr_status_t status = zr_alloc_get(plan->alloc, plan->n_ops, sizeof *phases->of, &phases->of);
  if (status == ZR_OK)
    status = zr_alloc_get(plan->alloc, plan->n_ops + 1, sizeof *phases->first, &phases->first);
  if (status != ZR_OK) {
    phases_fini(plan->alloc, phases);
    return status;
  }
  int32_t least = INT32_MAX;
  for (int32_t i = n - 1; i >= 0; i--) {
    if (plan->op[i].phase < least) least = plan->op[i].phase;
    phases->of[i] = least;
  }
  for (int32_t i = 0, last = 0; i < n; i++) {
    int32_t phase = phases->of[i];
    if (i == 0 || phase != last) phases->first[phases->n_phases++] = i;
    last = phase;
    phases->of[i] = phases->n_phases - 1;
  }
  phases->first[phases->n_phases] = n;
  return ZR_OK;
}

/* What one touch at position `at` keeps alive. */
static zr_life_t touch(const phases_t *phases, int64_t n_ops, int32_t at, int32_t lag) {
  if (lag <= 0) return (zr_life_t){at, at + 1};
  if (lag >= phases->n_phases) return (zr_life_t){at + 1 - n_ops, at + n_ops};
  int32_t n = phases->n_phases, from = phases->of[at] - lag, to = phases->of[at] + lag + 1;
  int64_t begin = from < 0 ? phases->first[from + n] - n_ops : phases->first[from];
  int64_t end = to > n ? phases->first[to - n] + n_ops : phases->first[to];
  return (zr_life_t){begin, end};
}

zr_status_t zr_life_compute(const zr_plan_t *plan, const int32_t *lag_phases, zr_life_t *life) {
  int64_t n_ops = (int64_t)plan->n_ops;
  phases_t phases = {0};
  ZR_TRY(phases_init(plan, &phases));
  for (size_t i = 0; i < plan->n_buffers; i++) life[i] = (zr_life_t){INT64_MAX, INT64_MIN};
  for (int32_t at = 0; at < (int32_t)n_ops; at++) {
    const zr_op_t *op = &plan->op[at];
    zr_life_t kept = touch(&phases, n_ops, at, lag_phases != NULL ? lag_phases[op->stream] : 0);
    for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
      if (op->operand[i].buffer < 0) continue;
      zr_life_t *of = &life[op->operand[i].buffer];
      if (kept.begin < of->begin) of->begin = kept.begin;
      if (kept.end > of->end) of->end = kept.end;
    }
  }
  for (size_t i = 0; i < plan->n_buffers; i++) {
    bool touched = life[i].begin < life[i].end;
    if (plan->buffer[i].persistent || (touched && life[i].end - life[i].begin >= n_ops))
      life[i] = (zr_life_t){0, n_ops};
    else if (!touched)
      life[i] = (zr_life_t){0, 0};
  }
  phases_fini(plan->alloc, &phases);
  return ZR_OK;
}

bool zr_life_overlap(zr_life_t a, zr_life_t b, int64_t n_ops) {
  for (int64_t shift = -2 * n_ops; shift <= 2 * n_ops; shift += n_ops) {
    if (a.begin < b.end + shift && b.begin + shift < a.end) return true;
    if (n_ops == 0) break;
  }
  return false;
}

static int64_t around(int64_t distance, int64_t n_ops) {
  distance %= n_ops;
  return distance < 0 ? distance + n_ops : distance;
}

static void overlap_by(zr_life_t *grown, zr_life_t other, int64_t n_ops) {
  int64_t after = around(other.begin - grown->end, n_ops) + 1;
  int64_t before = around(grown->begin - other.end, n_ops) + 1;
  if (after <= before)
    grown->end += after;
  else
    grown->begin -= before;
  if (grown->end - grown->begin >= n_ops) *grown = (zr_life_t){0, n_ops};
}

void zr_life_apart(const zr_plan_t *plan, const zr_apart_t *apart, size_t n_apart,
                   zr_life_t *life) {
  int64_t n_ops = (int64_t)plan->n_ops;
  for (size_t i = 0; i < n_apart; i++) {
    int32_t a = apart[i].a, b = apart[i].b;
    if (plan->buffer[a].persistent || plan->buffer[b].persistent) continue;
    if (a == b) {
      life[a] = (zr_life_t){0, n_ops};
    } else if (!zr_life_overlap(life[a], life[b], n_ops)) {
      bool grow_a = plan->buffer[a].bytes <= plan->buffer[b].bytes;
      overlap_by(grow_a ? &life[a] : &life[b], grow_a ? life[b] : life[a], n_ops);
    }
  }
}
