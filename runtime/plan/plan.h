/* The plan: a training step as plain data. Buffers, streams, and a list of operations in one total
 * order.
 *
 * The list is the meaning: a plan means what running its operations one at a time in that order
 * means. Each operation names a stream; the waits make every concurrent execution equal to the
 * sequential one, bit for bit. A plan is looped: its last operation is followed by its first.
 *
 * Life of a plan: zr_plan_create, zr_plan_add_buffer, zr_plan_add_op ... (one thread);
 * zr_plan_finish (versions, checks); zr_place (offsets); zr_wait_derive; zr_verify; then it is
 * frozen: read by any thread. All ranks hold the same plan; only where an operand has a rank stride
 * do their addresses differ. */
#ifndef ZR_PLAN_PLAN_H
#define ZR_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/alloc.h"
#include "runtime/plan/op.h"

typedef enum {
  ZR_CATEGORY_PARAM = 0,
  ZR_CATEGORY_GRAD,
  ZR_CATEGORY_OPTIMIZER,
  ZR_CATEGORY_ACTIVATION,
  ZR_CATEGORY_GATHERED,  /* parameters gathered for use */
  ZR_CATEGORY_PARTIAL,   /* partial sums of gradients */
  ZR_CATEGORY_WORKSPACE, /* scratch */
  ZR_CATEGORY_DATA,      /* tokens, tables, layouts, control blocks */
  ZR_N_CATEGORIES
} zr_category_t;

const char *zr_category_name(zr_category_t category);

/* Disks move multiples of 4,096 bytes from and to multiples of it: where every buffer of a tier has
 * such a size, every one has such a place. */
enum { ZR_PLAN_NAME_BYTES = 56, ZR_PLAN_ALIGN_BYTES = 64, ZR_PLAN_DISK_ALIGN_BYTES = 4096 };

typedef struct {
  char name[ZR_PLAN_NAME_BYTES]; /* "layers.3/h#2": unit / value # micro-batch; unique */
  uint8_t tier;                  /* zr_tier_t */
  uint8_t category;
  uint8_t dtype;
  bool persistent; /* lives across steps and plans; others live from their first write to their last
                      use */
  int64_t bytes;   /* > 0 */
  int64_t offset;  /* in the tier's arena; -1 until placed */
} zr_buffer_t;

/* Bytes [offset, offset + bytes) of a buffer, moved by rank x rank_stride on rank `rank`. */
typedef struct {
  int32_t buffer;   /* -1: absent */
  uint32_t version; /* read: the version it must see; write: the version it makes. Every write of
                       any part of a buffer makes the next version; a persistent buffer enters the
                       step at version 0 = its last one */
  int64_t offset;
  int64_t bytes;
  int64_t rank_stride;
  uint8_t access; /* zr_access_t */
  uint8_t dtype;  /* zr_dtype_t of a part of a buffer of bytes (ZR_U8); else ZR_U8: the buffer's */
} zr_operand_t;

/* Wait until operation `op` is done; `back` = 1: of the previous execution of the plan. */
typedef struct {
  int32_t op;
  uint8_t back;
  bool placement_only; /* no value flows: it exists because space is reused */
} zr_wait_t;

typedef struct {
  zr_kern_shape_t shape;
  uint8_t stream;
  uint8_t n_waits;
  int16_t unit;  /* index into zr_plan_t.unit_name; -1: none */
  int32_t micro; /* micro-batch of this rank; -1: none */
  int32_t phase; /* grows along the list at each (unit, micro-batch, direction): the unit of lags
                    and prefetch */
  int32_t stream_index; /* position in its stream (from 0): its timeline value is index + 1 within a
                           step */
  zr_operand_t operand[ZR_MAX_OPERANDS];
  zr_wait_t wait[ZR_N_STREAMS];
} zr_op_t;

typedef struct {
  char name[24]; /* "step", "eval" */
  int n_ranks;   /* the plan is for any rank of these */
  zr_alloc_t *alloc;
  zr_buffer_t *buffer;
  size_t n_buffers, buffer_capacity;
  zr_op_t *op;
  size_t n_ops, op_capacity;
  char (*unit_name)[ZR_PLAN_NAME_BYTES];
  size_t n_units, unit_capacity;
  int64_t arena_bytes[ZR_N_TIERS]; /* set by placement: the whole program's arena, equal in all its
                                      plans */
  int64_t peak_bytes[ZR_N_TIERS];  /* highest byte this plan uses */
  int64_t lower_bound_bytes[ZR_N_TIERS]; /* most bytes live at one place of the list */
  int32_t stream_ops[ZR_N_STREAMS];
  int32_t n_waits, n_placement_waits;
  bool finished;
} zr_plan_t;

zr_status_t zr_plan_create(zr_alloc_t *alloc, const char *name, int n_ranks,
                           zr_plan_t **out_plan) ZR_MUST_CHECK;
void zr_plan_destroy(zr_plan_t *plan);

zr_status_t zr_plan_add_unit(zr_plan_t *plan, const char *name, int16_t *out_unit) ZR_MUST_CHECK;
zr_status_t zr_plan_add_buffer(zr_plan_t *plan, const char *name, zr_tier_t tier,
                               zr_category_t category, zr_dtype_t dtype, int64_t bytes,
                               bool persistent, int32_t *out_buffer) ZR_MUST_CHECK;

/* Whole-buffer and part operands, for zr_plan_add_op. `write` operands become ZR_WRITE or
 * ZR_ACCUMULATE. */
zr_operand_t zr_operand_none(void);
zr_operand_t zr_operand_all(const zr_plan_t *plan, int32_t buffer, zr_access_t access);
zr_operand_t zr_operand_part(int32_t buffer, int64_t offset, int64_t bytes, zr_access_t access);
zr_operand_t zr_operand_shard(int32_t buffer, int64_t shard_bytes,
                              zr_access_t access); /* part `rank` of equal parts */

/* Appends an operation. The row gives stream and allowed accesses; shape.accumulate, dtype and
 * present are filled in here from operands and buffers. Sizes are checked against the row:
 * ZR_ERR_INTERNAL names operation and operand. */
#define ZR_ON(stream) ((uint8_t)((stream) + 1))
typedef struct {
  int32_t kind;
  uint8_t on; /* ZR_ON(stream): on that one instead, where the row allows it; 0: the row's */
  int16_t unit;
  int32_t micro, phase;
  int64_t attr[ZR_MAX_ATTRS];
  double real;
  int n_operands;
  zr_operand_t operand[ZR_MAX_OPERANDS];
} zr_op_desc_t;
zr_status_t zr_plan_add_op(zr_plan_t *plan, const zr_op_desc_t *desc,
                           int32_t *out_op) ZR_MUST_CHECK;

/* Moves operation `from` up to position `to` < from; those between slide down by one. Before
 * zr_plan_finish. */
void zr_plan_move_op(zr_plan_t *plan, int32_t from, int32_t to);

/* Gives versions, stream positions; checks that transient buffers are written before they are read
 * and used at all. */
zr_status_t zr_plan_finish(zr_plan_t *plan) ZR_MUST_CHECK;

/* First byte of an operand in its tier's arena, on `rank`. */
int64_t zr_plan_operand_begin(const zr_plan_t *plan, const zr_operand_t *operand, int rank);
/* "layers.3/linear_grad_w#2": for messages and traces; cut to `bytes`. */
void zr_plan_op_name(const zr_plan_t *plan, int32_t op, char *out_name, size_t bytes);
/* XXH64 of everything that decides an execution: ranks compare it before the first step. */
uint64_t zr_plan_hash(const zr_plan_t *plan);
/* Hash of the sequence of collectives (kind, sizes, order): equal on all ranks or nobody starts. */
uint64_t zr_plan_collective_hash(const zr_plan_t *plan);

#endif
