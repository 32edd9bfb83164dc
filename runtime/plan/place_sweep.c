/* Fitting in time order: a sweep over the list with an address-ordered list of holes that coalesce.
 * The circle is cut where the fewest bytes cross; what crosses the cut stays for the whole sweep.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/place_internal.h"

typedef struct {
  int64_t offset, bytes;
} hole_t;

typedef struct {
  hole_t *hole; /* by offset; space above `top` is free without being listed */
  size_t n_holes, capacity;
  int64_t top, peak;
  zr_alloc_t *alloc;
} space_t;

static int64_t take(space_t *space, int64_t bytes, bool first_fit) {
  size_t best = space->n_holes;
  for (size_t i = 0; i < space->n_holes; i++) {
    int64_t have = space->hole[i].bytes;
    if (have < bytes || (best < space->n_holes && have >= space->hole[best].bytes)) continue;
    best = i;
    if (first_fit || have == bytes) break;
  }
  if (best == space->n_holes) {
    int64_t offset = space->top;
    space->top += bytes;
    if (space->top > space->peak) space->peak = space->top;
    return offset;
  }
  hole_t *hole = &space->hole[best];
  int64_t offset = hole->offset;
  hole->offset += bytes;
  hole->bytes -= bytes;
  if (hole->bytes == 0) memmove(hole, hole + 1, (--space->n_holes - best) * sizeof *hole);
  return offset;
}

static zr_status_t give(space_t *space, int64_t offset, int64_t bytes) {
  size_t low = 0, high = space->n_holes; /* first hole above offset */
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (space->hole[middle].offset < offset)
      low = middle + 1;
    else
      high = middle;
  }
  hole_t *before = low > 0 ? &space->hole[low - 1] : NULL;
  if (before != NULL && before->offset + before->bytes == offset) {
    before->bytes += bytes;
    hole_t *after = low < space->n_holes ? &space->hole[low] : NULL;
    if (after != NULL && before->offset + before->bytes == after->offset) {
      before->bytes += after->bytes;
      memmove(after, after + 1, (--space->n_holes - low) * sizeof *after);
    }
  } else if (low < space->n_holes && offset + bytes == space->hole[low].offset) {
    space->hole[low].offset = offset;
    space->hole[low].bytes += bytes;
  } else {
    ZR_TRY(zr_alloc_grow(space->alloc, &space->hole, &space->capacity, space->n_holes + 1,
                         sizeof *space->hole));
    memmove(&space->hole[low + 1], &space->hole[low], (space->n_holes - low) * sizeof(hole_t));
    space->hole[low] = (hole_t){offset, bytes};
    space->n_holes++;
  }
  hole_t *last = &space->hole[space->n_holes - 1];
  if (last->offset + last->bytes == space->top) {
    space->top = last->offset;
    space->n_holes--;
  }
  return ZR_OK;
}

/* An item as the sweep sees it: [begin, end) within [0, n_ops). */
typedef struct {
  int64_t begin, end, bytes;
  size_t item;
} span_t;

static int64_t modulo(int64_t value, int64_t n) {
  value %= n;
  return value < 0 ? value + n : value;
}

/* The position before which the fewest bytes are live on both sides. crossing[n_ops] is zero. */
static int64_t find_cut(const zr_fit_item_t *item, size_t n_items, int64_t n_ops,
                        int64_t *crossing) {
  int64_t sum = 0, best = 0, least = INT64_MAX;
  for (size_t i = 0; i < n_items; i++) {
    int64_t from = item[i].life.begin, to = item[i].life.end;
    if (to - from >= n_ops || to - from < 2) continue;
    /* crosses the cuts from + 1 .. to - 1 */
    int64_t first = modulo(from + 1, n_ops), end = first + (to - from - 1);
    crossing[first] += item[i].bytes;
    if (end < n_ops)
      crossing[end] -= item[i].bytes;
    else
      sum += item[i].bytes, crossing[end - n_ops] -= item[i].bytes;
  }
  for (int64_t at = 0; at < n_ops; at++) {
    sum += crossing[at];
    if (sum < least) {
      least = sum;
      best = at;
    }
  }
  return best;
}

static int by_bytes(const void *left, const void *right) {
  const span_t *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->item < b->item ? -1 : a->item > b->item;
}

static void make_spans(const zr_fit_item_t *item, size_t n_items, int64_t n_ops, int64_t cut,
                       const zr_sweep_options_t *options, span_t *span) {
  for (size_t i = 0; i < n_items; i++) {
    int64_t duration = item[i].life.end - item[i].life.begin;
    int64_t begin = modulo(item[i].life.begin - cut, n_ops), end = begin + duration;
    if (end > n_ops) begin = 0, end = n_ops;
    if (options->reverse) {
      int64_t mirrored = n_ops - end;
      end = n_ops - begin;
      begin = mirrored;
    }
    /* What stays for good begins before all others: it lies at the bottom. */
    if (end - begin >= n_ops) begin = -1;
    span[i] = (span_t){begin, end, item[i].bytes, i};
  }
}

/* By begin, in list order or the largest first; count[n_ops + 2] is zero. */
static void sort_spans(const span_t *span, size_t n_items, int64_t n_ops, bool list_order,
                       size_t *count, span_t *out_sorted) {
  for (size_t i = 0; i < n_items; i++) count[span[i].begin + 2]++;
  for (int64_t at = 1; at <= n_ops + 1; at++) count[at] += count[at - 1];
  for (size_t i = 0; i < n_items; i++) out_sorted[count[span[i].begin + 1]++] = span[i];
  for (size_t from = 0, to; !list_order && from < n_items; from = to) {
    for (to = from + 1; to < n_items && out_sorted[to].begin == out_sorted[from].begin;) to++;
    if (to - from > 1) qsort(out_sorted + from, to - from, sizeof *out_sorted, by_bytes);
  }
}

/* next[i], head[position]: the spans that end at a position, as chains of index + 1. */
static zr_status_t sweep(space_t *space, const span_t *span, size_t n_items, int64_t n_ops,
                         bool first_fit, int32_t *head, int32_t *next, int64_t *offset) {
  size_t at = 0;
  for (int64_t position = -1; position < n_ops && at < n_items; position++) {
    if (position >= 0) {
      for (int32_t i = head[position]; i != 0; i = next[i - 1])
        ZR_TRY(give(space, offset[span[i - 1].item], span[i - 1].bytes));
    }
    for (; at < n_items && span[at].begin == position; at++) {
      offset[span[at].item] = take(space, span[at].bytes, first_fit);
      if (span[at].end >= n_ops) continue;
      next[at] = head[span[at].end];
      head[span[at].end] = (int32_t)at + 1;
    }
  }
  return ZR_OK;
}

typedef struct {
  span_t *span, *sorted;
  int64_t *crossing;
  size_t *count;
  int32_t *head, *next;
} work_t;

static zr_status_t work_init(zr_alloc_t *alloc, size_t n_items, size_t n_ops, work_t *work) {
  ZR_TRY(zr_alloc_get(alloc, n_items, sizeof *work->span, &work->span));
  ZR_TRY(zr_alloc_get(alloc, n_items, sizeof *work->sorted, &work->sorted));
  ZR_TRY(zr_alloc_get(alloc, n_items, sizeof *work->next, &work->next));
  ZR_TRY(zr_alloc_get(alloc, n_ops, sizeof *work->head, &work->head));
  ZR_TRY(zr_alloc_get(alloc, n_ops + 2, sizeof *work->count, &work->count));
  return zr_alloc_get(alloc, n_ops, sizeof *work->crossing, &work->crossing);
}

static void work_fini(zr_alloc_t *alloc, work_t *work) {
  zr_alloc_free(alloc, work->span);
  zr_alloc_free(alloc, work->sorted);
  zr_alloc_free(alloc, work->next);
  zr_alloc_free(alloc, work->head);
  zr_alloc_free(alloc, work->count);
  zr_alloc_free(alloc, work->crossing);
}

zr_status_t zr_fit_sweep(zr_alloc_t *alloc, const zr_fit_item_t *item, size_t n_items,
                         int64_t n_ops, const zr_sweep_options_t *options, int64_t *offset,
                         int64_t *out_top) {
  space_t space = {.alloc = alloc};
  work_t work = {0};
  zr_status_t status = work_init(alloc, n_items, (size_t)n_ops, &work);
  if (status == ZR_OK) {
    int64_t cut = find_cut(item, n_items, n_ops, work.crossing);
    make_spans(item, n_items, n_ops, cut, options, work.span);
    sort_spans(work.span, n_items, n_ops, options->list_order, work.count, work.sorted);
    status = sweep(&space, work.sorted, n_items, n_ops, options->first_fit, work.head, work.next,
                   offset);
  }
  if (status == ZR_OK) *out_top = space.peak;
  work_fini(alloc, &work);
  zr_alloc_free(alloc, space.hole);
  return status;
}
