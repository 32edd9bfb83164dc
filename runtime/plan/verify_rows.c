/* The verifier, first part: each buffer and each operation by itself. After it, every index, range
 * and offset of the plan may be used without a check. */
#include <stdlib.h>

#include "runtime/plan/verify_internal.h"

static zr_status_t check_arenas(const zr_verify_t *v, const int64_t *budget_bytes) {
  const zr_plan_t *plan = v->plan;
  if (!plan->finished) return zr_verify_fail(v, -1, -1, "not finished");
  if (plan->n_ranks < 1) return zr_verify_fail(v, -1, -1, "for %d ranks", plan->n_ranks);
  if (plan->n_ops > INT32_MAX / 32 || plan->n_buffers > INT32_MAX / 32) {
    return zr_verify_fail(v, -1, -1, "too many operations or buffers");
  }
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    const char *name = zr_tier_name((zr_tier_t)tier);
    int64_t arena = plan->arena_bytes[tier], peak = plan->peak_bytes[tier];
    /* An eighth of the range: sums of three arenas and a rank's distance can not overflow. */
    if (arena < 0 || arena > INT64_MAX / 8 || peak < 0 || peak > arena) {
      return zr_verify_fail(v, -1, -1, "%s arena of %lld bytes, peak %lld", name, (long long)arena,
                            (long long)peak);
    }
    if (budget_bytes != NULL && budget_bytes[tier] > 0 && arena > budget_bytes[tier]) {
      return zr_verify_fail(v, -1, -1, "%s arena of %lld bytes, budget %lld", name,
                            (long long)arena, (long long)budget_bytes[tier]);
    }
  }
  return ZR_OK;
}

static zr_status_t check_buffers(const zr_verify_t *v) {
  const zr_plan_t *plan = v->plan;
  for (int32_t i = 0; i < (int32_t)plan->n_buffers; i++) {
    const zr_buffer_t *b = &plan->buffer[i];
    const char *wrong = NULL;
    if (b->tier >= ZR_N_TIERS || b->category >= ZR_N_CATEGORIES || b->dtype >= ZR_N_DTYPES) {
      wrong = "unknown tier, category or type";
    } else if (b->bytes <= 0) {
      wrong = "no bytes";
    } else if (b->offset < 0 || b->offset % ZR_PLAN_ALIGN_BYTES != 0) {
      wrong = "not placed, or not at a multiple of the alignment";
    } else if (b->bytes > plan->peak_bytes[b->tier] ||
               b->offset > plan->peak_bytes[b->tier] - b->bytes) {
      wrong = "past the plan's peak";
    }
    if (wrong != NULL) {
      int32_t first = zr_verify_user(plan, i, 0xff, 0);
      int32_t second = first < 0 ? -1 : zr_verify_user(plan, i, 0xff, first + 1);
      return zr_verify_fail(v, first, second, "buffer %s, %lld bytes at %lld: %s", b->name,
                            (long long)b->bytes, (long long)b->offset, wrong);
    }
  }
  return ZR_OK;
}

static int by_place(const void *left, const void *right) {
  const zr_buffer_t *a = *(const zr_buffer_t *const *)left;
  const zr_buffer_t *b = *(const zr_buffer_t *const *)right;
  if (a->tier != b->tier) return a->tier < b->tier ? -1 : 1;
  if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
  return a < b ? -1 : a > b;
}

/* Persistent buffers share bytes with no other buffer: what they hold outlives the plan. */
static zr_status_t check_persistent(const zr_verify_t *v, const zr_buffer_t **sorted) {
  const zr_plan_t *plan = v->plan;
  for (size_t i = 0; i < plan->n_buffers; i++) sorted[i] = &plan->buffer[i];
  qsort(sorted, plan->n_buffers, sizeof *sorted, by_place);
  /* Of all buffers so far and of the persistent ones: the one that ends last. */
  const zr_buffer_t *any = NULL, *persistent = NULL;
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const zr_buffer_t *b = sorted[i];
    if (any != NULL && any->tier != b->tier) any = persistent = NULL;
    const zr_buffer_t *before = b->persistent ? any : persistent;
    if (before != NULL && before->offset + before->bytes > b->offset) {
      int32_t index = (int32_t)(b - plan->buffer), other = (int32_t)(before - plan->buffer);
      return zr_verify_fail(v, zr_verify_user(plan, index, 0xff, 0),
                            zr_verify_user(plan, other, 0xff, 0),
                            "buffers %s and %s share bytes from %lld on, and one is persistent",
                            before->name, b->name, (long long)b->offset);
    }
    if (any == NULL || b->offset + b->bytes > any->offset + any->bytes) any = b;
    if (b->persistent &&
        (persistent == NULL || b->offset + b->bytes > persistent->offset + persistent->bytes)) {
      persistent = b;
    }
  }
  return ZR_OK;
}

/* In the buffer on rank 0 and on the last rank, so on every rank between. */
static bool is_inside(const zr_plan_t *plan, const zr_operand_t *o) {
  int64_t bytes = plan->buffer[o->buffer].bytes, moved;
  if (o->bytes < 0 || o->bytes > bytes || o->offset < 0 || o->offset > bytes - o->bytes) {
    return false;
  }
  if (__builtin_mul_overflow(o->rank_stride, (int64_t)(plan->n_ranks - 1), &moved)) return false;
  return moved >= -o->offset && moved <= bytes - o->bytes - o->offset;
}

static bool is_of_disk(const zr_op_t *op) {
  return op->shape.kind == ZR_OP_DISK_READ || op->shape.kind == ZR_OP_DISK_WRITE;
}

/* Which tiers an operation can address: a copy its two, a disk nobody else, and the device's
 * kernels see the device alone. */
static bool may_touch(const zr_op_t *op, int i, uint8_t tier) {
  switch (op->shape.kind) {
    case ZR_OP_H2D:
      return tier == (i == 0 ? ZR_TIER_HOST : ZR_TIER_DEVICE);
    case ZR_OP_D2H:
      return tier == (i == 0 ? ZR_TIER_DEVICE : ZR_TIER_HOST);
    case ZR_OP_DISK_READ:
      return tier == (i == 0 ? ZR_TIER_DISK : ZR_TIER_HOST);
    case ZR_OP_DISK_WRITE:
      return tier == (i == 0 ? ZR_TIER_HOST : ZR_TIER_DISK);
    default:
      break;
  }
  if (tier == ZR_TIER_DISK) return false;
  return op->stream != ZR_STREAM_COMPUTE || tier == ZR_TIER_DEVICE;
}

static const char *operand_wrong(const zr_plan_t *plan, const zr_op_t *op, int i, int64_t need) {
  const zr_op_operand_row_t *row = &zr_op_row(op->shape.kind)->operand[i];
  const zr_operand_t *o = &op->operand[i];
  bool is_present = (op->shape.present >> i & 1) != 0;
  if (o->buffer < -1 || o->buffer >= (int32_t)plan->n_buffers) return "unknown buffer";
  /* Not `is_present != (o->buffer >= 0)`: GCC 12 compiles that wrongly here from -O1 on. */
  if (o->buffer == -1 ? is_present : !is_present) return "the shape disagrees on its presence";
  if (o->buffer == -1) return row->optional ? NULL : "absent";
  const zr_buffer_t *b = &plan->buffer[o->buffer];
  bool accumulates = o->access == ZR_ACCUMULATE;
  if (o->access != row->access && !(row->may_accumulate && accumulates)) return "access";
  if (row->may_accumulate && (op->shape.accumulate >> i & 1) != accumulates) {
    return "the shape disagrees on accumulation";
  }
  if (o->dtype >= ZR_N_DTYPES || (o->dtype != ZR_U8 && b->dtype != ZR_U8)) return "its type";
  uint8_t dtype = o->dtype != ZR_U8 ? o->dtype : b->dtype;
  if (op->shape.dtype[i] != dtype) return "the shape disagrees on the type";
  if (!is_inside(plan, o)) return "outside its buffer";
  if (need >= 0 && o->bytes != need) return "size";
  int64_t grain = zr_dtype_bytes((zr_dtype_t)dtype);
  if (o->offset % grain != 0 || o->rank_stride % grain != 0) return "alignment";
  int64_t place = b->offset + o->offset;
  if (is_of_disk(op) && (place | o->bytes | o->rank_stride) % ZR_PLAN_DISK_ALIGN_BYTES != 0)
    return "not where a disk can move it";
  if (!may_touch(op, i, b->tier)) return "a tier its stream can not address";
  return NULL;
}

/* What the row says, and what it can not know: the flat side of a collective is a shard of each
 * rank. */
static void operand_needs(const zr_plan_t *plan, const zr_op_t *op, int64_t need[ZR_MAX_OPERANDS]) {
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) need[i] = -1;
  if (row->operand_bytes != NULL) row->operand_bytes(&op->shape, need);
  int flat = op->shape.kind == ZR_OP_ALL_GATHER       ? 1
             : op->shape.kind == ZR_OP_REDUCE_SCATTER ? 0
                                                      : -1;
  if (flat < 0) return;
  if (__builtin_mul_overflow(op->shape.attr[ZR_COMM_SHARD_BYTES], (int64_t)plan->n_ranks,
                             &need[flat])) {
    need[flat] = INT64_MAX;
  }
}

static zr_status_t check_operands(const zr_verify_t *v, int32_t index) {
  const zr_plan_t *plan = v->plan;
  const zr_op_t *op = &plan->op[index];
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  int64_t need[ZR_MAX_OPERANDS];
  operand_needs(plan, op, need);
  for (int i = 0; i < row->n_operands; i++) {
    const char *wrong = operand_wrong(plan, op, i, need[i]);
    if (wrong == NULL) continue;
    char text[ZR_VERIFY_NAME_BYTES];
    int32_t buffer = op->operand[i].buffer;
    bool is_known = buffer >= 0 && buffer < (int32_t)plan->n_buffers;
    return zr_verify_fail(v, index, -1, "%s, operand %s (%lld bytes at %lld of %s): %s",
                          zr_verify_op_text(v, index, text), row->operand[i].name,
                          (long long)op->operand[i].bytes, (long long)op->operand[i].offset,
                          is_known ? plan->buffer[buffer].name : "no buffer", wrong);
  }
  for (int i = row->n_operands; i < ZR_MAX_OPERANDS; i++) {
    if (op->operand[i].buffer < 0) continue;
    char text[ZR_VERIFY_NAME_BYTES];
    return zr_verify_fail(v, index, -1, "%s has more operands than its kind",
                          zr_verify_op_text(v, index, text));
  }
  return ZR_OK;
}

/* Waits look back in the list or to the previous execution, so following them ends: no deadlock. */
static zr_status_t check_waits(const zr_verify_t *v, int32_t index) {
  const zr_op_t *op = &v->plan->op[index];
  char text[ZR_VERIFY_NAME_BYTES], other_text[ZR_VERIFY_NAME_BYTES];
  if (op->n_waits > ZR_N_STREAMS) {
    return zr_verify_fail(v, index, -1, "%s has %d waits", zr_verify_op_text(v, index, text),
                          op->n_waits);
  }
  for (int i = 0; i < op->n_waits; i++) {
    const zr_wait_t *wait = &op->wait[i];
    bool is_known = wait->op >= 0 && wait->op < (int32_t)v->plan->n_ops;
    if (is_known && (wait->back == 1 || (wait->back == 0 && wait->op < index))) continue;
    return zr_verify_fail(v, index, is_known ? wait->op : -1,
                          "%s waits for %s, which does not come before it",
                          zr_verify_op_text(v, index, text),
                          is_known ? zr_verify_op_text(v, wait->op, other_text) : "nothing");
  }
  return ZR_OK;
}

static zr_status_t check_ops(const zr_verify_t *v) {
  const zr_plan_t *plan = v->plan;
  int32_t stream_ops[ZR_N_STREAMS] = {0}, last_collective = -1;
  char text[ZR_VERIFY_NAME_BYTES], other_text[ZR_VERIFY_NAME_BYTES];
  for (int32_t i = 0; i < (int32_t)plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    const zr_op_row_t *row = zr_op_row(op->shape.kind);
    if (row == NULL || op->stream >= ZR_N_STREAMS) {
      return zr_verify_fail(v, i, -1, "op %d: unknown kind %d or stream %d", i, op->shape.kind,
                            op->stream);
    }
    if (op->stream_index != stream_ops[op->stream]++) {
      return zr_verify_fail(v, i, -1, "%s: its position in its stream is not the list's",
                            zr_verify_op_text(v, i, text));
    }
    ZR_TRY(check_operands(v, i));
    ZR_TRY(check_waits(v, i));
    if (!row->collective) continue;
    if (last_collective >= 0 && plan->op[last_collective].stream != op->stream) {
      return zr_verify_fail(v, i, last_collective, "%s and %s: collectives on two streams",
                            zr_verify_op_text(v, i, text),
                            zr_verify_op_text(v, last_collective, other_text));
    }
    last_collective = i;
  }
  return ZR_OK;
}

/* What the executor and the reports take from the plan without counting. */
static zr_status_t check_counts(const zr_verify_t *v) {
  const zr_plan_t *plan = v->plan;
  int32_t stream_ops[ZR_N_STREAMS] = {0}, n_waits = 0, n_placement_waits = 0;
  for (size_t i = 0; i < plan->n_ops; i++) {
    stream_ops[plan->op[i].stream]++;
    n_waits += plan->op[i].n_waits;
    for (int w = 0; w < plan->op[i].n_waits; w++) {
      n_placement_waits += plan->op[i].wait[w].placement_only;
    }
  }
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (plan->stream_ops[s] == stream_ops[s]) continue;
    return zr_verify_fail(v, -1, -1, "%d operations on %s, counted as %d", stream_ops[s],
                          zr_stream_name((zr_stream_id_t)s), plan->stream_ops[s]);
  }
  if (plan->n_waits == n_waits && plan->n_placement_waits == n_placement_waits) return ZR_OK;
  return zr_verify_fail(v, -1, -1, "%d waits, %d of them for space; counted as %d and %d", n_waits,
                        n_placement_waits, plan->n_waits, plan->n_placement_waits);
}

zr_status_t zr_verify_rows(const zr_verify_t *v, const int64_t *budget_bytes) {
  ZR_TRY(check_arenas(v, budget_bytes));
  ZR_TRY(check_buffers(v));
  const zr_buffer_t **sorted = NULL;
  ZR_TRY(zr_alloc_get(v->alloc, v->plan->n_buffers, sizeof(void *), &sorted));
  zr_status_t status = check_persistent(v, sorted);
  zr_alloc_free(v->alloc, sorted);
  ZR_TRY(status);
  ZR_TRY(check_ops(v));
  return check_counts(v);
}

/* A stream's timeline is waited for once: the executor has one value a stream. */
static zr_status_t check_one_wait_a_stream(const zr_verify_t *v, int32_t index) {
  const zr_op_t *op = &v->plan->op[index];
  int32_t waited[ZR_N_STREAMS];
  for (int s = 0; s < ZR_N_STREAMS; s++) waited[s] = -1;
  for (int i = 0; i < op->n_waits; i++) {
    int32_t *on = &waited[v->plan->op[op->wait[i].op].stream];
    if (*on >= 0) {
      char text[ZR_VERIFY_NAME_BYTES], other_text[ZR_VERIFY_NAME_BYTES];
      return zr_verify_fail(
          v, index, op->wait[i].op, "%s waits twice for one stream, for op %d and %s",
          zr_verify_op_text(v, index, text), *on, zr_verify_op_text(v, op->wait[i].op, other_text));
    }
    *on = op->wait[i].op;
  }
  return ZR_OK;
}

/* The host's kernels see the host alone. */
static zr_status_t check_on_host(const zr_verify_t *v, int32_t index) {
  const zr_op_t *op = &v->plan->op[index];
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (op->operand[i].buffer < 0) continue;
    const zr_buffer_t *b = &v->plan->buffer[op->operand[i].buffer];
    if (b->tier == ZR_TIER_HOST) continue;
    char text[ZR_VERIFY_NAME_BYTES];
    return zr_verify_fail(v, index, -1, "%s: operand %s is on %s, its stream can not address it",
                          zr_verify_op_text(v, index, text), b->name,
                          zr_tier_name((zr_tier_t)b->tier));
  }
  return ZR_OK;
}

zr_status_t zr_verify_streams(const zr_verify_t *v) {
  const zr_plan_t *plan = v->plan;
  for (int32_t i = 0; i < (int32_t)plan->n_ops; i++) {
    ZR_TRY(check_one_wait_a_stream(v, i));
    const zr_op_row_t *row = zr_op_row(plan->op[i].shape.kind);
    if (plan->op[i].stream == row->stream) continue;
    if ((row->also >> plan->op[i].stream & 1) != 0) {
      if (plan->op[i].stream == ZR_STREAM_HOST) ZR_TRY(check_on_host(v, i));
      continue;
    }
    /* Every conflict is ordered all the same: nothing to name but its neighbour in the stream. */
    int32_t neighbour = i - 1;
    while (neighbour >= 0 && plan->op[neighbour].stream != plan->op[i].stream) neighbour--;
    char text[ZR_VERIFY_NAME_BYTES];
    return zr_verify_fail(v, i, neighbour, "%s: operations of its kind run on %s",
                          zr_verify_op_text(v, i, text),
                          zr_stream_name((zr_stream_id_t)row->stream));
  }
  return ZR_OK;
}
