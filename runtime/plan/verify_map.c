/* The verifier's map from bytes to states. Building it sorts the ends of all accesses once; after
 * that each cut, join and step to the next segment is a few bit operations. */
#include <string.h>

#include "runtime/plan/verify_internal.h"

enum { DIGIT_BITS = 11, N_DIGITS = 1 << DIGIT_BITS };

/* One end of one access; `slot` = 2 * (op * ZR_MAX_OPERANDS + operand) + (1 for the end). */
typedef struct {
  int64_t address;
  uint64_t slot;
} edge_t;

/* Radix sort by address, lowest digit first; the result is in the returned one of the two. */
static edge_t *sort_edges(edge_t *edge, edge_t *spare, size_t n_edges, int64_t max_address) {
  for (int shift = 0; shift < 63 && (max_address >> shift) != 0; shift += DIGIT_BITS) {
    size_t begin[N_DIGITS] = {0};
    for (size_t i = 0; i < n_edges; i++) begin[(edge[i].address >> shift) & (N_DIGITS - 1)]++;
    size_t sum = 0;
    for (int digit = 0; digit < N_DIGITS; digit++) {
      size_t count = begin[digit];
      begin[digit] = sum;
      sum += count;
    }
    for (size_t i = 0; i < n_edges; i++) {
      spare[begin[(edge[i].address >> shift) & (N_DIGITS - 1)]++] = edge[i];
    }
    edge_t *sorted = spare;
    spare = edge;
    edge = sorted;
  }
  return edge;
}

static size_t collect_edges(const zr_verify_t *v, int rank, bool with_persistent, edge_t *out_edge,
                            int64_t *out_max) {
  const zr_plan_t *plan = v->plan;
  size_t n_edges = 0;
  *out_max = 0;
  for (size_t op = 0; op < plan->n_ops; op++) {
    int n_operands = zr_op_row(plan->op[op].shape.kind)->n_operands;
    for (int i = 0; i < n_operands; i++) {
      const zr_operand_t *operand = &plan->op[op].operand[i];
      if (operand->buffer < 0 || operand->bytes == 0) continue;
      if (plan->buffer[operand->buffer].persistent && !with_persistent) continue;
      if (out_edge != NULL) {
        zr_verify_range_t range = zr_verify_range(v, operand, rank);
        uint64_t slot = 2 * (op * ZR_MAX_OPERANDS + (size_t)i);
        out_edge[n_edges] = (edge_t){range.begin, slot};
        out_edge[n_edges + 1] = (edge_t){range.end, slot + 1};
        if (range.end > *out_max) *out_max = range.end;
      }
      n_edges += 2;
    }
  }
  return n_edges;
}

static void number_places(zr_verify_map_t *map, const edge_t *edge, size_t n_edges) {
  int32_t place = -1;
  for (size_t i = 0; i < n_edges; i++) {
    if (place < 0 || edge[i].address != map->place[place]) map->place[++place] = edge[i].address;
    zr_verify_span_t *span = &map->span[edge[i].slot / 2];
    if ((edge[i].slot & 1) != 0) {
      span->end = place;
    } else {
      span->begin = place;
    }
  }
  map->n_places = (size_t)(place + 1);
}

static zr_status_t build(zr_verify_map_t *map, const zr_verify_t *v, int rank, bool with_persistent,
                         edge_t **edge, edge_t **spare) {
  int64_t max_address;
  size_t n_edges = collect_edges(v, rank, with_persistent, NULL, &max_address);
  ZR_TRY(zr_alloc_get(map->alloc, n_edges, sizeof **edge, edge));
  ZR_TRY(zr_alloc_get(map->alloc, n_edges, sizeof **spare, spare));
  ZR_TRY(zr_alloc_get(map->alloc, n_edges + 1, sizeof *map->place, &map->place));
  ZR_TRY(zr_alloc_get(map->alloc, v->plan->n_ops * ZR_MAX_OPERANDS, sizeof *map->span, &map->span));
  collect_edges(v, rank, with_persistent, *edge, &max_address);
  number_places(map, sort_edges(*edge, *spare, n_edges, max_address), n_edges);
  ZR_TRY(zr_alloc_get(map->alloc, map->n_places + 1, map->state_bytes, &map->state));
  size_t n_words = map->n_places / 64 + 1;
  ZR_TRY(zr_alloc_get(map->alloc, n_words, sizeof *map->cut, &map->cut));
  ZR_TRY(zr_alloc_get(map->alloc, n_words / 64 + 1, sizeof *map->some, &map->some));
  map->cut[0] = map->some[0] = 1; /* place 0 always begins a segment: each place has one before */
  return ZR_OK;
}

zr_status_t zr_verify_map_init(const zr_verify_t *v, int rank, bool with_persistent,
                               size_t state_bytes, zr_verify_map_t *out_map) {
  *out_map = (zr_verify_map_t){.alloc = v->alloc, .state_bytes = state_bytes};
  edge_t *edge = NULL, *spare = NULL;
  zr_status_t status = build(out_map, v, rank, with_persistent, &edge, &spare);
  zr_alloc_free(v->alloc, edge);
  zr_alloc_free(v->alloc, spare);
  if (status != ZR_OK) zr_verify_map_fini(out_map);
  return status;
}

void zr_verify_map_fini(zr_verify_map_t *map) {
  zr_alloc_free(map->alloc, map->place);
  zr_alloc_free(map->alloc, map->span);
  zr_alloc_free(map->alloc, map->state);
  zr_alloc_free(map->alloc, map->cut);
  zr_alloc_free(map->alloc, map->some);
  *map = (zr_verify_map_t){.alloc = map->alloc};
}

static size_t cut_before(const zr_verify_map_t *map, size_t place) {
  size_t word = place / 64;
  uint64_t bits = map->cut[word] & ((1ull << (place % 64)) - 1);
  if (bits == 0) {
    size_t block = word / 64;
    uint64_t words = map->some[block] & ((1ull << (word % 64)) - 1);
    while (words == 0) words = map->some[--block];
    word = block * 64 + 63 - (size_t)__builtin_clzll(words);
    bits = map->cut[word];
  }
  return word * 64 + 63 - (size_t)__builtin_clzll(bits);
}

void zr_verify_map_cut(zr_verify_map_t *map, int32_t place) {
  size_t at = (size_t)place, word = at / 64;
  if ((map->cut[word] >> (at % 64) & 1) != 0) return;
  memcpy(map->state + at * map->state_bytes, map->state + cut_before(map, at) * map->state_bytes,
         map->state_bytes);
  map->cut[word] |= 1ull << (at % 64);
  map->some[word / 64] |= 1ull << (word % 64);
}

int32_t zr_verify_map_next(const zr_verify_map_t *map, int32_t place) {
  size_t at = (size_t)place + 1, word = at / 64;
  uint64_t bits = map->cut[word] >> (at % 64);
  if (bits != 0) return (int32_t)(at + (size_t)__builtin_ctzll(bits));
  word++;
  size_t block = word / 64;
  uint64_t words = map->some[block] >> (word % 64) << (word % 64);
  while (words == 0) words = map->some[++block];
  word = block * 64 + (size_t)__builtin_ctzll(words);
  return (int32_t)(word * 64 + (size_t)__builtin_ctzll(map->cut[word]));
}

void zr_verify_map_join(zr_verify_map_t *map, zr_verify_span_t span) {
  int32_t place = zr_verify_map_next(map, span.begin);
  while (place < span.end) {
    size_t word = (size_t)place / 64;
    int32_t next = zr_verify_map_next(map, place);
    map->cut[word] &= ~(1ull << ((size_t)place % 64));
    if (map->cut[word] == 0) map->some[word / 64] &= ~(1ull << (word % 64));
    place = next;
  }
}
