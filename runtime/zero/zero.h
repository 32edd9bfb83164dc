/* ZeRO: from a tape to a program. Flats and shards, stages 0 to 3, the one tree of gradient sums,
 * both loop orders, prefetch. Floor 5; knows no backend; one thread. Deterministic: every rank
 * compiles the same program. */
#ifndef ZR_ZERO_ZERO_H
#define ZR_ZERO_ZERO_H

#include "kernels/control.h"
#include "runtime/model/model.h"
#include "runtime/plan/program.h"

typedef enum { ZR_ORDER_DEPTH = 0, ZR_ORDER_BREADTH } zr_order_t;

/* Activations that are made again in the backward; auto: as little as the budget asks for. */
typedef enum {
  ZR_RECOMPUTE_NONE = 0,
  ZR_RECOMPUTE_ATTENTION, /* queries, keys, values, and what attention makes */
  ZR_RECOMPUTE_FULL,      /* all but what enters a unit */
  ZR_RECOMPUTE_AUTO
} zr_recompute_t;

enum { ZR_GROUP_AUTO = -1, ZR_PREFETCH_AUTO = -1 };

/* Where states live between uses (zr_tier_t). The update runs where its states' home is: on the
 * device, or on the host, also for states on disk. */
typedef struct {
  uint8_t param;      /* away from the device: one rank, or stage 3 */
  uint8_t grad;       /* sums, finished ones from the backward to the update, partial ones between
                         micro-batches; away: optimizer away too */
  uint8_t optimizer;  /* moments, and the rest of the master */
  uint8_t activation; /* what one segment leaves for a later one: with recompute full, the inputs
                         of the units */
} zr_homes_t;

typedef struct {
  int stage; /* 0..3 */
  int n_ranks;
  int64_t n_micro;         /* G: micro-batches of one rank in a step */
  int64_t group;           /* a: 2^a micro-batches are summed on the rank before they are reduced;
                              ZR_GROUP_AUTO */
  int order;               /* zr_order_t */
  int64_t prefetch;        /* units ahead; ZR_PREFETCH_AUTO: 1, or 0 where the budget asks for it */
  int recompute;           /* zr_recompute_t: of the blocks ... */
  int64_t recompute_every; /* ... 0, n, 2 n, ...: every n-th; 0: 1 */
  bool digest;             /* a third small all-reduce */
  zr_dtype_t grad_dtype;   /* grad_accum_dtype: every sum of parameter gradients; 0: fp32 */
  int32_t optimizer;       /* zr_op_kind_t of the update; 0: ZR_OP_ADAMW */
  bool no_momentum;        /* SGD keeps no state */
  zr_dtype_t state_dtype;  /* optimizer.state_dtype: fp32 or bf16; 0: fp32 */
  double state_fill;       /* what states begin with */
  bool decay_matrices;     /* optimizer.decay: only tensors of two dimensions decay */
  zr_homes_t home;         /* all zero: everything on the device */
  double ratio;            /* share of the optimizer's elements that live away, exact to the chunk;
                              0: all */
  int64_t chunk_elems;     /* what moves at once between disk and host, and of parameters and
                              gradients between device and host: a multiple of 1,024; 0: 1 Mi */
  int64_t n_slots;         /* staging slots of chunk_elems each; 0: 8 */
  bool eval;               /* also the plans "eval" and "eval_end" */
  zr_model_config_t model;
  zr_model_run_t run;
  /* what backends say about scratch */
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  int n_workers;
  zr_place_options_t place;
  FILE *dump;             /* --dump-after: the plan's text after the pass `dump_after`, or NULL */
  const char *dump_after; /* "model", "shard", "hoist", "place", "wait" */
} zr_zero_options_t;

/* A tensor in its flat. */
typedef struct {
  int32_t tensor; /* index into the tape's tensors */
  int64_t begin;  /* element of the flat, a multiple of 64 */
  int64_t elems;  /* logical: rows x cols, contiguous from begin */
} zr_flat_tensor_t;

/* One unit's states. Buffer indices are the program's persistent buffers. */
typedef struct {
  char name[ZR_PLAN_NAME_BYTES];
  int32_t first_tensor, n_tensors; /* into zr_zero_t.flat_tensor */
  int64_t flat_elems, shard_elems; /* flat = n_ranks x shard */
  /* [0 .. flat_elems) or this rank's [rank shard_elems, (rank + 1) shard_elems) */
  int32_t param, layout;        /* layout: on the device, -1 if nothing is updated there */
  int32_t state[ZR_MAX_STATES]; /* of the optimizer; -1 where it has fewer */
  int32_t low; /* with 16-bit parameters the rest of the master, held as the states are; else -1 */
  bool param_sharded, optimizer_sharded;
  /* Of the optimizer's states, the first away_elems live on the host or disk, the rest as above.
   * Where nothing of them is, buffers are -1. */
  int64_t away_elems;
  int32_t away_layout;
  int32_t away_state[ZR_MAX_STATES], away_low; /* on the host: [away_elems) each */
  int32_t away_packed; /* on disk: chunks of [low | state 0 | state 1], each padded to 4 KiB */
  int32_t away_grad;   /* on the host, or on disk in padded chunks */
} zr_zero_unit_t;

/* What a unit holds for each element. */
typedef enum {
  ZR_HELD_PARAM = 0,
  ZR_HELD_LOW,
  ZR_HELD_STATE /* + k */
} zr_held_t;

/* Where element `elem` of what this rank holds lies, and how many from it on follow each other
 * there. */
typedef struct {
  int32_t buffer;
  int64_t offset; /* bytes */
  int64_t elems;
} zr_zero_place_t;

typedef struct {
  zr_alloc_t *alloc;
  zr_zero_options_t options; /* resolved */
  zr_tape_t *tape;           /* owned: training */
  zr_program_t *program;     /* owned: "load", "step", and with eval "eval", "eval_end" */
  zr_zero_unit_t *unit;
  size_t n_units;
  zr_flat_tensor_t *flat_tensor;
  int32_t control, control_eval; /* buffers */
  /* On the host, for updates there; -1: none. Filled as `control` is before the first step; the
   * step's record is in it, and what a checkpoint keeps of the control block. */
  int32_t control_away;
  int64_t n_params;        /* logical */
  int64_t n_params_padded; /* P */
  int64_t n_reductions;    /* R: reductions of a unit per step */
} zr_zero_t;

void zr_zero_defaults(zr_zero_options_t *out_options);
/* ZR_ERR_CONFIG for settings that do not fit together (group does not divide, ...),
 * ZR_ERR_OUT_OF_MEMORY as the placer says. */
zr_status_t zr_zero_compile(zr_alloc_t *alloc, const zr_zero_options_t *options,
                            zr_zero_t **out_zero) ZR_MUST_CHECK;
void zr_zero_destroy(zr_zero_t *zero);

/* How many states the optimizer of `options` keeps, and PyTorch's name of each ("exp_avg"). */
int zr_zero_n_states(const zr_zero_options_t *options);
const char *zr_zero_state_name(const zr_zero_options_t *options, int state);

/* Contents of a unit's layout buffer (zr_kern_layout_t); *out_bytes = the buffer's size. */
zr_status_t zr_zero_layout(const zr_zero_t *zero, size_t unit, zr_kern_layout_t **out_layout,
                           int64_t *out_bytes) ZR_MUST_CHECK;

/* `held`: zr_held_t; elem counts from the first one that this rank holds of that state. */
zr_zero_place_t zr_zero_place(const zr_zero_t *zero, size_t unit, int held, int64_t elem);

/* The leaf (0 .. n_micro * n_ranks - 1) that rank `rank` computes as its micro-batch `micro`: (j N
 * + r) 2^a + i. */
int64_t zr_zero_leaf(const zr_zero_options_t *resolved, int rank, int64_t micro);
/* true if this split's sums are nodes of the one tree (then bits do not depend on it). */
bool zr_zero_split_is_exact(const zr_zero_options_t *resolved);

#endif
