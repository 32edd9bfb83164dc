/* Private to the placer: lifetimes, and fitting them into an arena. */
#ifndef ZR_PLAN_PLACE_INTERNAL_H
#define ZR_PLAN_PLACE_INTERNAL_H

#include "runtime/plan/place.h"

/* Live at list positions [begin, end) of a circle of n_ops: begin may be negative and end past
 * n_ops, end - begin <= n_ops. begin == end: never (no operation touches it). */
typedef struct {
  int64_t begin, end;
} zr_life_t;

/* life[n_buffers]. lag_phases may be NULL: none. Persistent buffers live for the whole circle. */
zr_status_t zr_life_compute(const zr_plan_t *plan, const int32_t *lag_phases,
                            zr_life_t *life) ZR_MUST_CHECK;
/* Stretches lives until the two buffers of each pair overlap; a == b: the buffer lives for the
 * whole circle, so that nothing shares its bytes. */
void zr_life_apart(const zr_plan_t *plan, const zr_apart_t *apart, size_t n_apart, zr_life_t *life);
bool zr_life_overlap(zr_life_t a, zr_life_t b, int64_t n_ops);

/* Where each buffer of a plan is quiet (place_quiet.c). */
typedef struct {
  zr_alloc_t *alloc;
  int64_t *from;         /* position, over two steps, of the first operation of the buffer's first
                            stream that comes after all its uses by values alone; 2 n_ops: none */
  uint8_t *first_stream; /* of the buffer's first use; ZR_N_STREAMS: never used */
} zr_quiet_t;
zr_status_t zr_quiet_init(zr_quiet_t *quiet, const zr_plan_t *plan) ZR_MUST_CHECK;
void zr_quiet_fini(zr_quiet_t *quiet);

/* How one plan is placed. */
typedef struct {
  const int32_t *lag_phases; /* NULL: none */
  const zr_quiet_t *quiet;   /* buffers whose first use is on different streams share nothing, and
                                bytes are reused when their buffer is quiet; NULL: when dead */
  int32_t cap_phases;        /* but at most so many phases after its last use; 0: no cap */
  /* Offsets are not looked for where the lives alone are over it; the peak is then what they need.
   * NULL or 0: unlimited. */
  const int64_t *budget_bytes;
} zr_place_mode_t;

/* Offsets, peak and lower bound of one plan. */
zr_status_t zr_place_plan(zr_plan_t *plan, const zr_place_mode_t *mode, const zr_apart_t *apart,
                          size_t n_apart) ZR_MUST_CHECK;
/* Each plan's arena: the largest peak of all. */
void zr_place_arenas(zr_program_t *program);

/* One buffer to be fitted. */
typedef struct {
  zr_life_t life;
  int64_t bytes; /* aligned */
  int64_t offset;
  int32_t buffer;
} zr_fit_item_t;

/* Gives every item an offset >= 0, a multiple of the alignment, so that no two that live at once
 * share a byte; *out_top: the highest byte. Tries several orders and keeps the lowest. */
zr_status_t zr_fit(zr_alloc_t *alloc, zr_fit_item_t *item, size_t n_items, int64_t n_ops,
                   int64_t *out_top) ZR_MUST_CHECK;
/* Most bytes live at one position, and where. */
zr_status_t zr_fit_bound(zr_alloc_t *alloc, const zr_fit_item_t *item, size_t n_items,
                         int64_t n_ops, int64_t *out_bytes, int64_t *out_at) ZR_MUST_CHECK;

/* The two families of orders. offset[n_items] is written. */
typedef struct {
  bool reverse;    /* time runs backwards */
  bool first_fit;  /* the lowest hole that is large enough; else the smallest one */
  bool list_order; /* buffers that begin together: in list order; else the largest first */
} zr_sweep_options_t;
zr_status_t zr_fit_sweep(zr_alloc_t *alloc, const zr_fit_item_t *item, size_t n_items,
                         int64_t n_ops, const zr_sweep_options_t *options, int64_t *offset,
                         int64_t *out_top) ZR_MUST_CHECK;
zr_status_t zr_fit_by_weight(zr_alloc_t *alloc, const zr_fit_item_t *item, size_t n_items,
                             int64_t n_ops, bool by_area, int64_t *offset,
                             int64_t *out_top) ZR_MUST_CHECK;

#endif
