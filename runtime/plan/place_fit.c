/* Fitting by weight (large or long-lived first, each at the lowest place that is free for its whole
 * life), and the choice between all orders. */
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/place_internal.h"

/* Every buffer looks at every other: only for this many. */
enum { BY_WEIGHT_MAX_ITEMS = 1500 };

typedef struct {
  double weight;
  int64_t bytes;
  size_t item;
} heavy_t;

static int by_weight(const void *left, const void *right) {
  const heavy_t *a = left, *b = right;
  if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->item < b->item ? -1 : a->item > b->item;
}

/* placed[0 .. n_placed): items by rising offset. The lowest gap between those that live at once. */
static int64_t lowest_gap(const zr_fit_item_t *item, const int64_t *offset, const size_t *placed,
                          size_t n_placed, const zr_fit_item_t *wanted, int64_t n_ops) {
  int64_t at = 0;
  for (size_t i = 0; i < n_placed; i++) {
    const zr_fit_item_t *other = &item[placed[i]];
    if (!zr_life_overlap(other->life, wanted->life, n_ops)) continue;
    if (offset[placed[i]] - at >= wanted->bytes) return at;
    if (offset[placed[i]] + other->bytes > at) at = offset[placed[i]] + other->bytes;
  }
  return at;
}

zr_status_t zr_fit_by_weight(zr_alloc_t *alloc, const zr_fit_item_t *item, size_t n_items,
                             int64_t n_ops, bool by_area, int64_t *offset, int64_t *out_top) {
  heavy_t *heavy = NULL;
  size_t *placed = NULL;
  zr_status_t status = zr_alloc_get(alloc, n_items, sizeof *heavy, &heavy);
  if (status == ZR_OK) status = zr_alloc_get(alloc, n_items, sizeof *placed, &placed);
  if (status != ZR_OK) {
    zr_alloc_free(alloc, heavy);
    return status;
  }
  for (size_t i = 0; i < n_items; i++) {
    double duration = (double)(item[i].life.end - item[i].life.begin);
    double bytes = (double)item[i].bytes;
    heavy[i] = (heavy_t){by_area ? bytes * duration : bytes, item[i].bytes, i};
  }
  qsort(heavy, n_items, sizeof *heavy, by_weight);
  int64_t top = 0;
  for (size_t i = 0; i < n_items; i++) {
    size_t which = heavy[i].item, at = i;
    offset[which] = lowest_gap(item, offset, placed, i, &item[which], n_ops);
    for (; at > 0 && offset[placed[at - 1]] > offset[which]; at--) placed[at] = placed[at - 1];
    placed[at] = which;
    if (offset[which] + item[which].bytes > top) top = offset[which] + item[which].bytes;
  }
  zr_alloc_free(alloc, heavy);
  zr_alloc_free(alloc, placed);
  *out_top = top;
  return ZR_OK;
}

zr_status_t zr_fit_bound(zr_alloc_t *alloc, const zr_fit_item_t *item, size_t n_items,
                         int64_t n_ops, int64_t *out_bytes, int64_t *out_at) {
  int64_t *change = NULL, sum = 0, most = 0, where = 0;
  ZR_TRY(zr_alloc_get(alloc, (size_t)n_ops + 1, sizeof *change, &change));
  for (size_t i = 0; i < n_items; i++) {
    int64_t begin = item[i].life.begin, end = item[i].life.end;
    if (begin == end) continue;
    begin %= n_ops;
    if (begin < 0) begin += n_ops;
    end = begin + (item[i].life.end - item[i].life.begin);
    change[begin] += item[i].bytes;
    if (end > n_ops) {
      sum += item[i].bytes;
      end -= n_ops;
    }
    change[end] -= item[i].bytes;
  }
  for (int64_t at = 0; at < n_ops; at++) {
    sum += change[at];
    if (sum > most) {
      most = sum;
      where = at;
    }
  }
  zr_alloc_free(alloc, change);
  *out_bytes = most;
  *out_at = where;
  return ZR_OK;
}

typedef struct {
  zr_alloc_t *alloc;
  zr_fit_item_t *item;
  size_t n_items;
  int64_t n_ops, bound, best_top;
  int64_t *offset; /* of the trial */
} search_t;

static void keep_if_better(search_t *search, int64_t top) {
  if (top >= search->best_top) return;
  search->best_top = top;
  for (size_t i = 0; i < search->n_items; i++) search->item[i].offset = search->offset[i];
}

static zr_status_t search_orders(search_t *s) {
  static const zr_sweep_options_t sweeps[] = {{false, false, false}, {true, false, false},
                                              {false, true, false},  {true, true, false},
                                              {false, false, true},  {true, false, true}};
  int64_t top = 0;
  for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps && s->best_top > s->bound; i++) {
    ZR_TRY(zr_fit_sweep(s->alloc, s->item, s->n_items, s->n_ops, &sweeps[i], s->offset, &top));
    keep_if_better(s, top);
  }
  for (int by_area = 0; by_area < 2; by_area++) {
    if (s->best_top <= s->bound || s->n_items > BY_WEIGHT_MAX_ITEMS) break;
    ZR_TRY(zr_fit_by_weight(s->alloc, s->item, s->n_items, s->n_ops, by_area, s->offset, &top));
    keep_if_better(s, top);
  }
  return ZR_OK;
}

zr_status_t zr_fit(zr_alloc_t *alloc, zr_fit_item_t *item, size_t n_items, int64_t n_ops,
                   int64_t *out_top) {
  search_t search = {alloc, item, n_items, n_ops, 0, INT64_MAX, NULL};
  int64_t where = 0;
  if (n_items == 0) {
    *out_top = 0;
    return ZR_OK;
  }
  ZR_TRY(zr_fit_bound(alloc, item, n_items, n_ops, &search.bound, &where));
  ZR_TRY(zr_alloc_get(alloc, n_items, sizeof *search.offset, &search.offset));
  zr_status_t status = search_orders(&search);
  zr_alloc_free(alloc, search.offset);
  if (status == ZR_OK) *out_top = search.best_top;
  return status;
}
