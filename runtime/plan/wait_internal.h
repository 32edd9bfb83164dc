/* Private to the wait derivation: who wrote and who read each byte of the arenas last. */
#ifndef ZR_PLAN_WAIT_INTERNAL_H
#define ZR_PLAN_WAIT_INTERNAL_H

#include "runtime/plan/wait.h"

/* Operations are numbered over the two unrolled steps; -1: none. The buffers tell waits for a value
 * from waits for space. */
typedef struct {
  int32_t writer, writer_buffer;
  int32_t reader[ZR_N_STREAMS], reader_buffer[ZR_N_STREAMS]; /* since that write */
} zr_touch_t;

/* All arenas end to end, cut at every place where an operand begins or ends. A segment is a run of
 * intervals that share one state: it starts where `start` has a bit and ends before `next`. */
typedef struct {
  zr_alloc_t *alloc;
  int64_t *base; /* [n_buffers]: first byte of each buffer */
  int64_t *key;  /* hash table: place -> index of the cut */
  int32_t *index;
  size_t n_slots, n_used;
  int64_t *cut; /* sorted */
  uint64_t *start;
  int32_t *next;
  zr_touch_t *touch; /* by the index of a segment's first cut */
} zr_touch_map_t;

/* spread: every buffer has bytes of its own, wherever it is placed; else as placed. */
zr_status_t zr_touch_map_init(zr_touch_map_t *map, const zr_plan_t *plan,
                              bool spread) ZR_MUST_CHECK;
void zr_touch_map_fini(zr_touch_map_t *map);

/* The places of an operand on all ranks: one range where they touch each other, else one a rank. */
typedef struct {
  int64_t begin, bytes, stride;
  int count;
} zr_places_t;
zr_places_t zr_touch_places(const zr_touch_map_t *map, const zr_plan_t *plan,
                            const zr_operand_t *operand);

/* The segments of [begin, end), both ends of operands: walk from *out_first by `next` to *out_end.
 */
void zr_touch_range(zr_touch_map_t *map, int64_t begin, int64_t end, int32_t *out_first,
                    int32_t *out_end);
/* Joins the segments of the range into one with this writer and no readers. */
void zr_touch_write(zr_touch_map_t *map, int32_t first, int32_t end, int32_t op, int32_t buffer);

/* How many operations of each stream, over the unrolled steps, are known to be done. */
typedef struct {
  int32_t done[ZR_N_STREAMS];
} zr_clock_t;

/* What each operation knows when it is done if only values are waited for, on two unrolled steps:
 * clock[2 n_ops]. The plan need not be placed; it is not changed. */
zr_status_t zr_wait_value_clocks(const zr_plan_t *plan, zr_clock_t *clock) ZR_MUST_CHECK;

#endif
