/* Between the files of the verifier (verify*.c) and its tests; nobody else includes it. */
#ifndef ZR_PLAN_VERIFY_INTERNAL_H
#define ZR_PLAN_VERIFY_INTERNAL_H

#include "runtime/plan/verify.h"

enum {
  ZR_VERIFY_LANES = 8,      /* streams, rounded up so that clocks compare as one vector */
  ZR_VERIFY_ALL_RANKS = -1, /* as a rank: an operand with a stride covers all from its first place
                               to its last */
  /* Operations replayed over ranks, at most about this many: all ranks of small plans, a sample
   * of at least three (first, second, last) of large ones. */
  ZR_VERIFY_REPLAY_OPS = 200000
};

typedef struct {
  const zr_plan_t *plan;
  zr_alloc_t *alloc;
  zr_violation_t *violation;
  int64_t tier_base[ZR_N_TIERS]; /* the arenas one after the other: one address space */
} zr_verify_t;

/* Names the two operations (-1: none) and says why; returns ZR_ERR_VERIFY. */
zr_status_t zr_verify_fail(const zr_verify_t *v, int32_t op, int32_t other_op, const char *format,
                           ...) __attribute__((format(printf, 4, 5)));
/* "op 12 layers.3/linear on compute". */
enum { ZR_VERIFY_NAME_BYTES = 120 };
const char *zr_verify_op_text(const zr_verify_t *v, int32_t op, char text[ZR_VERIFY_NAME_BYTES]);
/* First operation from `from` on with a present operand in `buffer` whose access has a bit of
 * `access`; -1: none. */
int32_t zr_verify_user(const zr_plan_t *plan, int32_t buffer, uint8_t access, int32_t from);

/* Bytes [begin, end) of the one address space that an operand touches on `rank`. */
typedef struct {
  int64_t begin, end;
} zr_verify_range_t;
zr_verify_range_t zr_verify_range(const zr_verify_t *v, const zr_operand_t *operand, int rank);

/* A map from bytes to a state: segments of equal state, cut where accesses begin and end. All
 * places where a cut can ever be are known beforehand (`place`, sorted), so a segment is the index
 * of the place it begins at, and a bit says whether there is a cut. */
typedef struct {
  int32_t begin, end; /* indices of places; begin = end: nothing */
} zr_verify_span_t;

typedef struct {
  zr_alloc_t *alloc;
  size_t n_places;
  int64_t *place;         /* [n_places + 1] addresses, growing */
  zr_verify_span_t *span; /* [n_ops * ZR_MAX_OPERANDS] */
  size_t state_bytes;
  char *state;    /* [n_places + 1][state_bytes]; zero: never touched */
  uint64_t *cut;  /* a bit a place */
  uint64_t *some; /* a bit a word of `cut`: not zero */
} zr_verify_map_t;

/* The map of all operands on `rank` (or ZR_VERIFY_ALL_RANKS); persistent buffers only if asked. */
zr_status_t zr_verify_map_init(const zr_verify_t *v, int rank, bool with_persistent,
                               size_t state_bytes, zr_verify_map_t *out_map) ZR_MUST_CHECK;
void zr_verify_map_fini(zr_verify_map_t *map);
void zr_verify_map_cut(zr_verify_map_t *map, int32_t place);
int32_t zr_verify_map_next(const zr_verify_map_t *map, int32_t place); /* first cut after it */
/* One segment of the span remains, with the state of its first. The span's ends are cut. */
void zr_verify_map_join(zr_verify_map_t *map, zr_verify_span_t span);

/* fn on every rank, or on a sample. */
typedef zr_status_t (*zr_verify_rank_fn_t)(const zr_verify_t *v, int rank);
zr_status_t zr_verify_ranks(const zr_verify_t *v, zr_verify_rank_fn_t fn) ZR_MUST_CHECK;

/* The parts, in the order they run. Each may rely on those before it. */
zr_status_t zr_verify_rows(const zr_verify_t *v, const int64_t *budget_bytes) ZR_MUST_CHECK;
zr_status_t zr_verify_list(const zr_verify_t *v) ZR_MUST_CHECK;  /* what the list means */
zr_status_t zr_verify_order(const zr_verify_t *v) ZR_MUST_CHECK; /* that streams keep to it */
/* Streams are the rows', and each is waited for once. */
zr_status_t zr_verify_streams(const zr_verify_t *v) ZR_MUST_CHECK;

/* zr_verify without the last part: for tests that put operations on any stream. */
zr_status_t zr_verify_any_stream(const zr_plan_t *plan, const int64_t *budget_bytes,
                                 zr_violation_t *out_violation) ZR_MUST_CHECK;

#endif
