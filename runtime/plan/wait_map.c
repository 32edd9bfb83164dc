#include <stdlib.h>
#include <string.h>

#include "runtime/plan/wait_internal.h"

static size_t slot_of(const zr_touch_map_t *map, int64_t place) {
  size_t at = ((uint64_t)place * 0x9e3779b97f4a7c15ull >> 20) & (map->n_slots - 1);
  while (map->key[at] != -1 && map->key[at] != place) at = (at + 1) & (map->n_slots - 1);
  return at;
}

static zr_status_t resize(zr_touch_map_t *map, size_t n_slots) {
  int64_t *old = map->key, *key = NULL;
  size_t n_old = map->n_slots;
  ZR_TRY(zr_alloc_get(map->alloc, n_slots, sizeof *key, &key));
  memset(key, 0xff, n_slots * sizeof *key);
  map->key = key;
  map->n_slots = n_slots;
  for (size_t i = 0; i < n_old; i++) {
    if (old[i] != -1) map->key[slot_of(map, old[i])] = old[i];
  }
  zr_alloc_free(map->alloc, old);
  return ZR_OK;
}

static zr_status_t add_cut(zr_touch_map_t *map, int64_t place) {
  size_t at = slot_of(map, place);
  if (map->key[at] == place) return ZR_OK;
  map->key[at] = place;
  if (++map->n_used * 2 > map->n_slots) return resize(map, map->n_slots * 2);
  return ZR_OK;
}

zr_places_t zr_touch_places(const zr_touch_map_t *map, const zr_plan_t *plan,
                            const zr_operand_t *operand) {
  int64_t begin = map->base[operand->buffer] + operand->offset;
  int64_t stride = operand->rank_stride, others = plan->n_ranks - 1;
  if (stride < 0) {
    begin += stride * others;
    stride = -stride;
  }
  if (stride <= operand->bytes) return (zr_places_t){begin, operand->bytes + stride * others, 0, 1};
  return (zr_places_t){begin, operand->bytes, stride, plan->n_ranks};
}

static zr_status_t add_cuts(zr_touch_map_t *map, const zr_plan_t *plan) {
  for (size_t i = 0; i < plan->n_ops; i++) {
    for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
      const zr_operand_t *operand = &plan->op[i].operand[j];
      if (operand->buffer < 0) continue;
      zr_places_t places = zr_touch_places(map, plan, operand);
      for (int k = 0; k < places.count; k++) {
        ZR_TRY(add_cut(map, places.begin + k * places.stride));
        ZR_TRY(add_cut(map, places.begin + k * places.stride + places.bytes));
      }
    }
  }
  return ZR_OK;
}

static int by_value(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return a < b ? -1 : a > b;
}

static const zr_touch_t untouched = {-1, -1, {-1, -1, -1, -1, -1, -1, -1}, {0}};

/* One segment from the first cut to the last. */
static zr_status_t number_cuts(zr_touch_map_t *map) {
  size_t n = 0;
  ZR_TRY(zr_alloc_get(map->alloc, map->n_used, sizeof *map->cut, &map->cut));
  ZR_TRY(zr_alloc_get(map->alloc, map->n_slots, sizeof *map->index, &map->index));
  ZR_TRY(zr_alloc_get(map->alloc, map->n_used / 64 + 1, sizeof *map->start, &map->start));
  ZR_TRY(zr_alloc_get(map->alloc, map->n_used, sizeof *map->next, &map->next));
  ZR_TRY(zr_alloc_get(map->alloc, map->n_used, sizeof *map->touch, &map->touch));
  for (size_t i = 0; i < map->n_slots; i++) {
    if (map->key[i] != -1) map->cut[n++] = map->key[i];
  }
  if (n == 0) return ZR_OK;
  qsort(map->cut, n, sizeof *map->cut, by_value);
  for (size_t i = 0; i < n; i++) map->index[slot_of(map, map->cut[i])] = (int32_t)i;
  map->start[0] |= 1;
  map->next[0] = (int32_t)n - 1;
  map->touch[0] = untouched;
  return ZR_OK;
}

static zr_status_t set_bases(zr_touch_map_t *map, const zr_plan_t *plan, bool spread) {
  int64_t tier_base[ZR_N_TIERS] = {0}, end = 0;
  ZR_TRY(zr_alloc_get(map->alloc, plan->n_buffers, sizeof *map->base, &map->base));
  for (int tier = 1; tier < ZR_N_TIERS; tier++)
    tier_base[tier] = tier_base[tier - 1] + plan->arena_bytes[tier - 1];
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const zr_buffer_t *buffer = &plan->buffer[i];
    map->base[i] = spread ? end : tier_base[buffer->tier] + buffer->offset;
    end += buffer->bytes;
  }
  return ZR_OK;
}

zr_status_t zr_touch_map_init(zr_touch_map_t *map, const zr_plan_t *plan, bool spread) {
  *map = (zr_touch_map_t){.alloc = plan->alloc};
  zr_status_t status = set_bases(map, plan, spread);
  if (status == ZR_OK) status = resize(map, 1024);
  if (status == ZR_OK) status = add_cuts(map, plan);
  if (status == ZR_OK) status = number_cuts(map);
  if (status != ZR_OK) zr_touch_map_fini(map);
  return status;
}

void zr_touch_map_fini(zr_touch_map_t *map) {
  zr_alloc_free(map->alloc, map->base);
  zr_alloc_free(map->alloc, map->key);
  zr_alloc_free(map->alloc, map->index);
  zr_alloc_free(map->alloc, map->cut);
  zr_alloc_free(map->alloc, map->start);
  zr_alloc_free(map->alloc, map->next);
  zr_alloc_free(map->alloc, map->touch);
  *map = (zr_touch_map_t){0};
}

/* The segment that holds the interval at `cut`. */
static int32_t segment_of(const zr_touch_map_t *map, int32_t cut) {
  int32_t word = cut / 64;
  uint64_t bits = map->start[word] & (~0ull >> (63 - cut % 64));
  while (bits == 0) bits = map->start[--word];
  return word * 64 + 63 - __builtin_clzll(bits);
}

static void split(zr_touch_map_t *map, int32_t cut) {
  int32_t segment = segment_of(map, cut);
  if (segment == cut || map->next[segment] <= cut) return;
  map->touch[cut] = map->touch[segment];
  map->next[cut] = map->next[segment];
  map->next[segment] = cut;
  map->start[cut / 64] |= 1ull << (cut % 64);
}

void zr_touch_range(zr_touch_map_t *map, int64_t begin, int64_t end, int32_t *out_first,
                    int32_t *out_end) {
  *out_first = map->index[slot_of(map, begin)];
  *out_end = map->index[slot_of(map, end)];
  split(map, *out_first);
  split(map, *out_end);
}

void zr_touch_write(zr_touch_map_t *map, int32_t first, int32_t end, int32_t op, int32_t buffer) {
  for (int32_t at = map->next[first]; at < end; at = map->next[at])
    map->start[at / 64] &= ~(1ull << (at % 64));
  map->next[first] = end;
  map->touch[first] = untouched;
  map->touch[first].writer = op;
  map->touch[first].writer_buffer = buffer;
}
