/* What the passes of one compilation share. Private to runtime/zero.
 *
 * A step's list, stage 3, depth order, two micro-batches (G), units E(mbed) B(lock) H(ead):
 *
 *   prologue   fetch
 *   micro 0    E> B> H<> B< E<     ">" forward, "<" backward; the head turns round: both in one
 *   micro 1    E> B> H<> B< E<     segment. Gathers stand before each segment's use, reductions
 *                                  behind a group's last leaf; count and all_reduce(count) two
 *                                  units before the first micro-batch's head
 *   update     block_norm of every shard, all_reduce(norm), control_update, optimizer in forward
 * order
 *
 * Streams are queues: what a collective stands behind decides what waits for it. control_end runs
 * on the comm stream, so that compute does not wait for the digests' all_reduce:
 *
 *   compute  update 0 1 .. n |  E>        B> ..    count H<>
 *   comm       gather 0 .. n-4 | digests, end | gather n-3 .. n-1 | count
 */
#ifndef ZR_ZERO_BUILD_H
#define ZR_ZERO_BUILD_H

#include "runtime/comm/comm.h"
#include "runtime/zero/chunk.h"
#include "runtime/zero/tree.h"
#include "runtime/zero/zero.h"

typedef enum {
  ZR_SEGMENT_FORWARD = 1,
  ZR_SEGMENT_BACKWARD = 2,
  ZR_SEGMENT_TURN = 3
} zr_segment_kind_t;

/* A run of one unit's tape operations over micro-batches [micro_begin, micro_end). */
typedef struct {
  int32_t unit, kind;
  int64_t micro_begin, micro_end;
} zr_segment_t;

/* The gradient of one unit's flat from its use in one unit: its own, or a tied use. */
typedef struct {
  int32_t unit, use_unit;
  bool tied;
  zr_tree_t leaves; /* of the current group, on this rank; slots are flats */
  zr_tree_t groups; /* sums over ranks; slots are shards */
  int32_t flat[ZR_TREE_SLOTS], shard[ZR_TREE_SLOTS];           /* buffers of the slots */
  int32_t away_flat[ZR_TREE_SLOTS], away_shard[ZR_TREE_SLOTS]; /* where they are away; -1 */
  int64_t n_flats_made, n_shards_made, n_moves;                /* for names */
  int32_t result;                                              /* buffer of the finished sum */
  size_t first_gap, n_gaps; /* into zr_build_t.gap: what no operation of this use writes */
} zr_grad_tree_t;

/* Elements [begin, end) of a flat, or operations of the tape. */
typedef struct {
  int64_t begin, end;
} zr_range_t;

/* Staging slots on the host: persistent buffers of bytes, used in turn. */
enum { ZR_MAX_SLOTS = 256 };
typedef struct {
  int32_t buffer[ZR_MAX_SLOTS];
  int64_t bytes; /* of one; 0: there are none */
  int64_t next;  /* how often one has been taken */
} zr_slots_t;

/* A value of one micro-batch, away from the device between two of its uses (boundary.c). */
typedef struct {
  int32_t buffer; /* where it is away; -1 */
  bool dropped;   /* not on the device */
  bool valid;     /* what is away is what it is */
} zr_away_value_t;

typedef struct {
  zr_zero_t *zero;
  const zr_zero_options_t *options; /* zero->options */
  const zr_tape_t *tape;
  zr_plan_t *plan;
  int32_t phase;
  int32_t control, rope; /* buffers */
  zr_dtype_t param_dtype, grad_dtype;
  int64_t param_bytes, grad_bytes; /* of one element */
  int32_t *grad_flat;              /* [n_units] persistent gradient flats (stages 0, 1), else -1 */
  int32_t *value_buffer;           /* [n_micro][n_values]; -1 until made */
  bool *again;                     /* [n_values] made once more in the backward */
  bool *replayed;                  /* [n_ops] of the tape's forward: so are these operations run */
  bool replaying;                  /* buffers made now are of a replay */
  int64_t n_micro;
  size_t n_trees;
  zr_grad_tree_t *tree;
  int32_t *tree_of_value; /* [n_values] of parameter gradients */
  int64_t *tensor_begin;  /* [n_tensors] place in the flat */
  zr_range_t *gap;
  size_t n_gaps;
  zr_range_t *forward, *backward; /* [n_units] operations of the tape */
  int32_t *gathered;              /* [n_units] buffer with the parameters for use now; -1 */
  int32_t *gathered_phase;        /* [n_units] last phase that uses it */
  zr_segment_t *segment;
  size_t n_segments;
  bool training;
  /* Slots: of an update's states, parameters and gradients, which go together; of parameters on
   * their way to their use; of gradients and activations on their way to the disk and back. */
  zr_slots_t states, params, grads, loads, spills, values;
  bool *touched;         /* [n_values][2 n_units]: by a unit's forward, by its backward */
  zr_away_value_t *away; /* [n_micro][n_values] */
  int32_t norm_unit;     /* its gradient is away, its norm still to be taken; -1 */
  int32_t *grad; /* [n_units] buffer with the unit's finished gradient, as its update reads it */
} zr_build_t;

/* The buffer of a value of one micro-batch, -1 while it is not on the device. */
static inline int32_t *zr_build_value(const zr_build_t *build, int32_t value, int64_t micro) {
  return &build->value_buffer[micro * (int64_t)build->tape->n_values + value];
}

/* flat.c */
zr_status_t zr_flat_layout(zr_zero_t *zero) ZR_MUST_CHECK;

/* build.c: a build of one plan, with the program's persistent buffers in it. */
zr_status_t zr_build_create(zr_zero_t *zero, const zr_tape_t *tape, const char *name,
                            int64_t n_micro, zr_build_t **out_build) ZR_MUST_CHECK;
/* Gives the plan to the program on success; destroys it otherwise. */
zr_status_t zr_build_finish(zr_build_t *build, zr_status_t status) ZR_MUST_CHECK;
/* Appends an operation; adds the scratch the backends ask for. `unit` -1: none. */
zr_status_t zr_build_op(zr_build_t *build, int32_t kind, int32_t unit, int64_t micro,
                        const int64_t *attr, double real, int n_operands,
                        const zr_operand_t *operand) ZR_MUST_CHECK;
/* A transient buffer named unit/value[.number][#micro]; number, micro -1: left out. */
zr_status_t zr_build_buffer(zr_build_t *build, int32_t unit, const char *value, int64_t number,
                            int64_t micro, zr_category_t category, zr_dtype_t dtype, int64_t bytes,
                            int32_t *out_buffer) ZR_MUST_CHECK;
zr_status_t zr_build_buffer_in(zr_build_t *build, zr_tier_t tier, int32_t unit, const char *value,
                               int64_t number, int64_t micro, zr_category_t category,
                               zr_dtype_t dtype, int64_t bytes, int32_t *out_buffer) ZR_MUST_CHECK;
/* On the host stream. */
zr_status_t zr_build_op_on_host(zr_build_t *build, int32_t kind, int32_t unit, const int64_t *attr,
                                double real, int n_operands,
                                const zr_operand_t *operand) ZR_MUST_CHECK;
/* On another stream that the kind allows: ZR_ON(stream). */
zr_status_t zr_build_op_on(zr_build_t *build, uint8_t on, int32_t kind, int32_t unit, int64_t micro,
                           const int64_t *attr, double real, int n_operands,
                           const zr_operand_t *operand) ZR_MUST_CHECK;
zr_operand_t zr_build_all(const zr_build_t *build, int32_t buffer, zr_access_t access);

/* homes.c: what persists, by home */
zr_status_t zr_home_resolve(zr_zero_options_t *options) ZR_MUST_CHECK;
zr_status_t zr_home_buffer(zr_build_t *build, const char *unit, const char *what, zr_tier_t tier,
                           zr_category_t category, zr_dtype_t dtype, int64_t bytes,
                           int32_t *out_buffer) ZR_MUST_CHECK;
/* States of one unit; *out_grad: its gradient flat on the device, or -1. */
zr_status_t zr_home_unit(zr_build_t *build, zr_zero_unit_t *unit, int32_t *out_grad) ZR_MUST_CHECK;
zr_status_t zr_home_slots(zr_build_t *build) ZR_MUST_CHECK;
/* What the load plan fills. */
zr_status_t zr_home_fill(zr_build_t *build) ZR_MUST_CHECK;

/* move.c: copies between tiers */
int32_t zr_slot_take(const zr_build_t *build, zr_slots_t *slots);
zr_status_t zr_move(zr_build_t *build, int32_t kind, int32_t unit, int64_t micro,
                    zr_operand_t source, zr_operand_t destination) ZR_MUST_CHECK;
/* `bytes` of a value on the device, from and to a buffer on the host or disk. */
zr_status_t zr_move_out(zr_build_t *build, int32_t unit, int64_t micro, int32_t value,
                        int32_t away) ZR_MUST_CHECK;
zr_status_t zr_move_in(zr_build_t *build, int32_t unit, int64_t micro, int32_t away,
                       int32_t value) ZR_MUST_CHECK;
/* A unit's parameters from their home into a buffer on the device. */
zr_status_t zr_move_param(zr_build_t *build, int32_t unit, int32_t into) ZR_MUST_CHECK;
/* What is away of a unit's finished gradient, from buffer `from` to its home. */
zr_status_t zr_move_grad(zr_build_t *build, int32_t unit, int32_t from) ZR_MUST_CHECK;

/* partial.c: partial sums that live away between micro-batches; after: of a sum that goes on */
void zr_partial_init(zr_grad_tree_t *tree);
zr_status_t zr_partial_before_leaf(zr_build_t *build, zr_grad_tree_t *tree) ZR_MUST_CHECK;
zr_status_t zr_partial_after_leaf(zr_build_t *build, zr_grad_tree_t *tree) ZR_MUST_CHECK;
zr_status_t zr_partial_before_group(zr_build_t *build, zr_grad_tree_t *tree) ZR_MUST_CHECK;
zr_status_t zr_partial_after_group(zr_build_t *build, zr_grad_tree_t *tree) ZR_MUST_CHECK;

/* boundary.c: values that live away between two of their uses. A visit is one segment's work on one
 * micro-batch. */
zr_status_t zr_boundary_init(zr_build_t *build) ZR_MUST_CHECK;
void zr_boundary_fini(zr_build_t *build);
zr_status_t zr_boundary_before(zr_build_t *build, size_t segment, int64_t micro) ZR_MUST_CHECK;
zr_status_t zr_boundary_after(zr_build_t *build, size_t segment, int64_t micro) ZR_MUST_CHECK;

/* update_away.c: the update of what is away, on the host */
bool zr_away_has(const zr_build_t *build);                    /* anything is */
zr_status_t zr_away_control(zr_build_t *build) ZR_MUST_CHECK; /* the host's control block */
zr_status_t zr_away_update(zr_build_t *build, int32_t unit) ZR_MUST_CHECK;

/* The segment's operations on the tape: part 0 forward, part 1 backward; empty where it has none.
 */
zr_range_t zr_build_ops(const zr_build_t *build, const zr_segment_t *segment, int part);

/* steps.c: segments in loop order, tape operations as plan operations */
zr_status_t zr_steps_segments(zr_build_t *build, bool training) ZR_MUST_CHECK;
zr_status_t zr_steps_emit(zr_build_t *build) ZR_MUST_CHECK;
zr_status_t zr_steps_fetch(zr_build_t *build, int64_t micro) ZR_MUST_CHECK;
/* The unit whose first forward counts tokens and begins the control block's step. */
int32_t zr_steps_count_unit(const zr_build_t *build);
zr_status_t zr_steps_count(zr_build_t *build, int64_t micro) ZR_MUST_CHECK;
zr_status_t zr_steps_control(zr_build_t *build, int32_t kind) ZR_MUST_CHECK;

/* recompute.c: what is replayed before each unit's backward */
zr_status_t zr_recompute_mark(zr_build_t *build) ZR_MUST_CHECK;

/* shard.c: parameters before use, gradients after it */
zr_status_t zr_shard_trees(zr_build_t *build) ZR_MUST_CHECK;
zr_status_t zr_shard_gather(zr_build_t *build, const zr_segment_t *segment) ZR_MUST_CHECK;
zr_status_t zr_shard_begin_leaf(zr_build_t *build, const zr_segment_t *segment) ZR_MUST_CHECK;
zr_status_t zr_shard_end_leaf(zr_build_t *build, const zr_segment_t *segment) ZR_MUST_CHECK;
zr_status_t zr_shard_all_reduce(zr_build_t *build, int64_t offset, int64_t bytes) ZR_MUST_CHECK;

/* hoist.c */
zr_status_t zr_hoist(zr_build_t *build) ZR_MUST_CHECK;

/* update.c. The first: behind the last reduction of each unit's gradient, tied uses included. */
zr_status_t zr_update_gradient(zr_build_t *build, int32_t unit) ZR_MUST_CHECK;
/* The buffer on the device with the gradient that the unit's update reads. */
int32_t zr_update_gradient_of(const zr_build_t *build, int32_t unit);
zr_status_t zr_update_emit(zr_build_t *build) ZR_MUST_CHECK;

#endif
