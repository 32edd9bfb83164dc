/* The verifier, second part: the list run one operation at a time.
 *
 * Versions: an operand reads the version that the list's last write of its buffer made, and a write
 * makes the next one. Together they pin which value flows where, so a list in another order that
 * passes still means the same.
 *
 * Bytes: every transient byte has one owner, the buffer through which it was written last in this
 * step. A read must own all its bytes: they were written in this step, and their space was not used
 * by another buffer since. Persistent bytes share with nobody (first part) and always hold what
 * their buffer's last write put there. One step suffices: no transient byte outlives it. */
#include "runtime/plan/verify_internal.h"

typedef struct {
  int32_t owner;  /* buffer + 1; 0: undefined */
  int32_t writer; /* op + 1: who made it so; 0: nobody in this step */
} byte_state_t;

/* Who wrote a buffer last. */
typedef struct {
  uint32_t version;
  int32_t writer; /* -1: nobody in this step */
} version_state_t;

static zr_status_t fail_version(const zr_verify_t *v, int32_t op, const zr_operand_t *o,
                                const version_state_t *state) {
  char text[ZR_VERIFY_NAME_BYTES], other_text[ZR_VERIFY_NAME_BYTES] = "nobody";
  int32_t other = state->writer;
  /* A reader before the first writer: that writer is the one to blame. */
  if (other < 0) other = zr_verify_user(v->plan, o->buffer, ZR_WRITE, op + 1);
  if (other >= 0) zr_verify_op_text(v, other, other_text);
  return zr_verify_fail(v, op, other, "%s %s version %u of buffer %s, which is at %u there; see %s",
                        zr_verify_op_text(v, op, text), o->access == ZR_READ ? "reads" : "makes",
                        o->version, v->plan->buffer[o->buffer].name, state->version, other_text);
}

/* An operation reads what stood before it; its writes of one buffer make one version after another
 * in operand order. Scratch makes none: whether it destroyed a value is the replay's question. */
static zr_status_t check_op_versions(const zr_verify_t *v, int32_t index, version_state_t *state) {
  const zr_op_t *op = &v->plan->op[index];
  int n_operands = zr_op_row(op->shape.kind)->n_operands;
  for (int i = 0; i < n_operands; i++) {
    const zr_operand_t *o = &op->operand[i];
    if (o->buffer < 0 || o->access != ZR_READ) continue;
    if (o->version != state[o->buffer].version) {
      return fail_version(v, index, o, &state[o->buffer]);
    }
  }
  for (int i = 0; i < n_operands; i++) {
    const zr_operand_t *o = &op->operand[i];
    if (o->buffer < 0 || (o->access & ZR_WRITE) == 0) continue;
    if (o->version != state[o->buffer].version + 1) {
      return fail_version(v, index, o, &state[o->buffer]);
    }
    state[o->buffer] = (version_state_t){o->version, index};
  }
  return ZR_OK;
}

static zr_status_t check_versions(const zr_verify_t *v) {
  const zr_plan_t *plan = v->plan;
  version_state_t *state = NULL;
  ZR_TRY(zr_alloc_get(v->alloc, plan->n_buffers, sizeof *state, &state));
  for (size_t i = 0; i < plan->n_buffers; i++) state[i].writer = -1;
  zr_status_t status = ZR_OK;
  for (int32_t op = 0; status == ZR_OK && op < (int32_t)plan->n_ops; op++) {
    status = check_op_versions(v, op, state);
  }
  zr_alloc_free(v->alloc, state);
  return status;
}

/* What a persistent buffer holds must be defined at every place of every plan. */
static zr_status_t check_persistent_scratch(const zr_verify_t *v) {
  const zr_plan_t *plan = v->plan;
  for (int32_t op = 0; op < (int32_t)plan->n_ops; op++) {
    for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
      const zr_operand_t *o = &plan->op[op].operand[i];
      if (o->buffer < 0 || (o->access & ZR_SCRATCH) == 0) continue;
      if (!plan->buffer[o->buffer].persistent) continue;
      char text[ZR_VERIFY_NAME_BYTES];
      return zr_verify_fail(v, op, zr_verify_user(plan, o->buffer, ZR_READ, 0),
                            "%s uses the persistent buffer %s as scratch",
                            zr_verify_op_text(v, op, text), plan->buffer[o->buffer].name);
    }
  }
  return ZR_OK;
}

/* The one kind whose operands may overlap: a shard gathered from its own place in the flat. */
static bool is_gather_in_place(const zr_op_t *op, int rank, zr_verify_range_t shard,
                               zr_verify_range_t flat) {
  return op->shape.kind == ZR_OP_ALL_GATHER &&
         shard.begin == flat.begin + rank * op->shape.attr[ZR_COMM_SHARD_BYTES];
}

/* Within an operation what is written overlaps nothing: a kernel's pieces run in any order. */
static zr_status_t check_overlap(const zr_verify_t *v, int32_t index, int rank) {
  const zr_op_t *op = &v->plan->op[index];
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  zr_verify_range_t range[ZR_MAX_OPERANDS];
  for (int i = 0; i < row->n_operands; i++) {
    const zr_operand_t *o = &op->operand[i];
    if (o->buffer < 0) continue;
    range[i] = zr_verify_range(v, o, rank);
    for (int j = 0; j < i; j++) {
      const zr_operand_t *p = &op->operand[j];
      if (p->buffer < 0 || (o->access | p->access) == ZR_READ) continue;
      if (range[i].begin >= range[j].end || range[j].begin >= range[i].end) continue;
      if (o->buffer == p->buffer && is_gather_in_place(op, rank, range[j], range[i])) continue;
      char text[ZR_VERIFY_NAME_BYTES];
      return zr_verify_fail(v, index, index, "%s: its operands %s (%s) and %s (%s) overlap",
                            zr_verify_op_text(v, index, text), row->operand[j].name,
                            v->plan->buffer[p->buffer].name, row->operand[i].name,
                            v->plan->buffer[o->buffer].name);
    }
  }
  return ZR_OK;
}

static zr_status_t fail_read(const zr_verify_t *v, const zr_verify_map_t *map, int32_t op,
                             const zr_operand_t *o, int32_t place, int rank) {
  const zr_plan_t *plan = v->plan;
  const byte_state_t *state = (const byte_state_t *)(void *)map->state + place;
  const zr_buffer_t *b = &plan->buffer[o->buffer];
  long long at = map->place[place] - v->tier_base[b->tier] - b->offset;
  if (at < 0) at = 0; /* the segment may begin before the buffer */
  char text[ZR_VERIFY_NAME_BYTES], other_text[ZR_VERIFY_NAME_BYTES] = "no operation";
  int32_t other = state->writer - 1;
  if (other >= 0) {
    const char *whose = state->owner == 0 ? "scratch" : plan->buffer[state->owner - 1].name;
    return zr_verify_fail(v, op, other,
                          "%s reads buffer %s from byte %lld, whose space %s used "
                          "since for %s (rank %d)",
                          zr_verify_op_text(v, op, text), b->name, at,
                          zr_verify_op_text(v, other, other_text), whose, rank);
  }
  other = zr_verify_user(plan, o->buffer, ZR_WRITE, op + 1);
  if (other >= 0) zr_verify_op_text(v, other, other_text);
  return zr_verify_fail(v, op, other,
                        "%s reads buffer %s from byte %lld, which nobody wrote before; "
                        "%s writes it later (rank %d)",
                        zr_verify_op_text(v, op, text), b->name, at, other_text, rank);
}

static zr_status_t replay_op(const zr_verify_t *v, zr_verify_map_t *map, int32_t index, int rank) {
  const zr_op_t *op = &v->plan->op[index];
  int n_operands = zr_op_row(op->shape.kind)->n_operands;
  byte_state_t *state = (byte_state_t *)(void *)map->state;
  const zr_verify_span_t *span = &map->span[index * ZR_MAX_OPERANDS];
  for (int i = 0; i < n_operands; i++) {
    const zr_operand_t *o = &op->operand[i];
    if (span[i].begin == span[i].end) continue; /* absent, empty or persistent */
    zr_verify_map_cut(map, span[i].begin);
    zr_verify_map_cut(map, span[i].end);
    if ((o->access & ZR_READ) == 0) continue;
    for (int32_t p = span[i].begin; p < span[i].end; p = zr_verify_map_next(map, p)) {
      if (state[p].owner != o->buffer + 1) return fail_read(v, map, index, o, p, rank);
    }
  }
  for (int i = 0; i < n_operands; i++) {
    const zr_operand_t *o = &op->operand[i];
    if (span[i].begin == span[i].end || o->access == ZR_READ) continue;
    zr_verify_map_join(map, span[i]);
    int32_t owner = (o->access & ZR_SCRATCH) != 0 ? 0 : o->buffer + 1;
    state[span[i].begin] = (byte_state_t){owner, index + 1};
  }
  return ZR_OK;
}

static zr_status_t replay(const zr_verify_t *v, int rank) {
  zr_verify_map_t map;
  ZR_TRY(zr_verify_map_init(v, rank, false, sizeof(byte_state_t), &map));
  zr_status_t status = ZR_OK;
  for (int32_t op = 0; status == ZR_OK && op < (int32_t)v->plan->n_ops; op++) {
    status = check_overlap(v, op, rank);
    if (status == ZR_OK) status = replay_op(v, &map, op, rank);
  }
  zr_verify_map_fini(&map);
  return status;
}

static bool has_strides(const zr_plan_t *plan) {
  for (size_t op = 0; op < plan->n_ops; op++) {
    for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
      const zr_operand_t *o = &plan->op[op].operand[i];
      if (o->buffer >= 0 && o->rank_stride != 0) return true;
    }
  }
  return false;
}

zr_status_t zr_verify_ranks(const zr_verify_t *v, zr_verify_rank_fn_t fn) {
  int n_ranks = v->plan->n_ranks;
  int64_t n_replays = ZR_VERIFY_REPLAY_OPS / (int64_t)(v->plan->n_ops + 1);
  if (n_replays < 3) n_replays = 3;
  if (n_replays >= n_ranks) {
    for (int rank = 0; rank < n_ranks; rank++) ZR_TRY(fn(v, rank));
    return ZR_OK;
  }
  ZR_TRY(fn(v, 0));
  /* 1 first, n - 1 last, evenly between. */
  for (int64_t i = 0; i < n_replays - 1; i++) {
    ZR_TRY(fn(v, (int)(1 + i * (n_ranks - 2) / (n_replays - 2))));
  }
  return ZR_OK;
}

zr_status_t zr_verify_list(const zr_verify_t *v) {
  ZR_TRY(check_versions(v));
  ZR_TRY(check_persistent_scratch(v));
  return has_strides(v->plan) ? zr_verify_ranks(v, replay) : replay(v, 0);
}
