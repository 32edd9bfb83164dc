/* The verifier, third part: every two conflicting accesses are ordered as the list orders them.
 *
 * Happens-before comes from stream order and waits alone. Each operation has a vector clock: for
 * each stream, how many of its operations are done before this one ends (itself counted). a happens
 * before b if b's clock on a's stream has reached a.
 *
 * Why it suffices to look, for every byte, at the last write and at each stream's latest read
 * since: if each read comes after the last write, and each write after the last write and the reads
 * since, then by transitivity all conflicting pairs are ordered: older writes through the chain of
 * writes, older reads through the write that follows them; of one stream the latest read stands for
 * those before it.
 *
 * Why two executions of the loop suffice: edges lead to the same or to the previous execution and
 * are the same in each, so whether (execution k, a) precedes (execution k + d, b) depends on d
 * only and shows within d + 1 executions. d = 0 and d = 1 are checked here. For d > 1 and a
 * conflict of a and b, one of them writes: if a does, (k, a) -> (k + 1, a) -> (k + d, b), else
 * (k, a) -> (k + d - 1, b) -> (k + d, b), where an operation follows itself by stream order.
 *
 * An operand that moves with the rank counts as all from its first place to its last, so that one
 * look is enough, unless its places leave gaps between them: then each rank is looked at. */
#include "runtime/plan/verify_internal.h"

/* Positions count a stream's operations over the executions, from 1; 0: none. */
typedef struct {
  int32_t write_stream, write_position;
  int32_t since[ZR_VERIFY_LANES]; /* of each stream: the latest access since, that write included */
} access_state_t;

typedef struct {
  int32_t lane[ZR_VERIFY_LANES];
} clock_row_t;

typedef struct {
  const zr_verify_t *v;
  zr_verify_map_t map;
  clock_row_t *clock; /* [2 executions][n_ops] */
} order_t;

static void clock_join(clock_row_t *clock, const clock_row_t *other) {
  for (int s = 0; s < ZR_VERIFY_LANES; s++) {
    if (other->lane[s] > clock->lane[s]) clock->lane[s] = other->lane[s];
  }
}

static void make_clocks(order_t *order) {
  const zr_plan_t *plan = order->v->plan;
  int32_t n_ops = (int32_t)plan->n_ops;
  clock_row_t last[ZR_N_STREAMS] = {0};
  for (int32_t i = 0; i < 2 * n_ops; i++) {
    int32_t execution = i / n_ops;
    const zr_op_t *op = &plan->op[i % n_ops];
    clock_row_t *clock = &order->clock[i];
    *clock = last[op->stream];
    for (int w = 0; w < op->n_waits; w++) {
      int32_t from = execution - op->wait[w].back;
      if (from < 0) continue; /* before the first execution everything is done */
      clock_join(clock, &order->clock[from * n_ops + op->wait[w].op]);
    }
    clock->lane[op->stream] = execution * plan->stream_ops[op->stream] + op->stream_index + 1;
    last[op->stream] = *clock;
  }
}

/* The operand of `op` that touches [begin, end), for messages; one that writes before one that
 * reads. */
static const zr_operand_t *operand_at(const zr_verify_t *v, int32_t op, zr_verify_range_t bytes,
                                      bool must_write) {
  const zr_operand_t *found = NULL;
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    const zr_operand_t *o = &v->plan->op[op].operand[i];
    if (o->buffer < 0 || (must_write && o->access == ZR_READ)) continue;
    zr_verify_range_t range = zr_verify_range(v, o, ZR_VERIFY_ALL_RANKS);
    if (range.begin >= bytes.end || bytes.begin >= range.end) continue;
    if (found == NULL || found->access == ZR_READ) found = o;
  }
  return found;
}

static const char *access_text(const zr_operand_t *operand) {
  if ((operand->access & ZR_SCRATCH) != 0) return "scratch";
  return operand->access == ZR_READ ? "read" : operand->access == ZR_WRITE ? "write" : "accumulate";
}

static zr_status_t fail_order(const order_t *order, int32_t i, const zr_operand_t *operand,
                              int32_t stream, int32_t position, int32_t place, bool other_writes) {
  const zr_verify_t *v = order->v;
  const zr_plan_t *plan = v->plan;
  int32_t n_ops = (int32_t)plan->n_ops, op = i % n_ops, other = 0;
  int32_t execution = (position - 1) / plan->stream_ops[stream];
  int32_t stream_index = (position - 1) % plan->stream_ops[stream];
  while (plan->op[other].stream != stream || plan->op[other].stream_index != stream_index) other++;
  const zr_buffer_t *b = &plan->buffer[operand->buffer];
  zr_verify_range_t bytes = {order->map.place[place],
                             order->map.place[zr_verify_map_next(&order->map, place)]};
  const zr_operand_t *other_operand = operand_at(v, other, bytes, other_writes);
  if (other_operand == NULL) other_operand = operand;
  bool is_same = other_operand->buffer == operand->buffer;
  char text[ZR_VERIFY_NAME_BYTES], other_text[ZR_VERIFY_NAME_BYTES];
  long long base = v->tier_base[b->tier];
  return zr_verify_fail(
      v, op, other, "%s%s and %s: %s%s%s and %s of %s are not ordered (%s bytes %lld to %lld)",
      zr_verify_op_text(v, other, other_text),
      execution < i / n_ops ? " (of the execution before)" : "", zr_verify_op_text(v, op, text),
      access_text(other_operand), is_same ? "" : " of ",
      is_same ? "" : plan->buffer[other_operand->buffer].name, access_text(operand), b->name,
      zr_tier_name((zr_tier_t)b->tier), (long long)bytes.begin - base, (long long)bytes.end - base);
}

static zr_status_t check_read(order_t *order, int32_t i, const zr_operand_t *operand,
                              zr_verify_span_t span, int32_t stream) {
  const clock_row_t *clock = &order->clock[i];
  access_state_t *state = (access_state_t *)(void *)order->map.state;
  for (int32_t p = span.begin; p < span.end; p = zr_verify_map_next(&order->map, p)) {
    if (clock->lane[state[p].write_stream] < state[p].write_position) {
      return fail_order(order, i, operand, state[p].write_stream, state[p].write_position, p, true);
    }
    state[p].since[stream] = clock->lane[stream];
  }
  return ZR_OK;
}

static zr_status_t check_write(order_t *order, int32_t i, const zr_operand_t *operand,
                               zr_verify_span_t span, int32_t stream) {
  const clock_row_t *clock = &order->clock[i];
  access_state_t *state = (access_state_t *)(void *)order->map.state;
  for (int32_t p = span.begin; p < span.end; p = zr_verify_map_next(&order->map, p)) {
    int late = 0;
    for (int s = 0; s < ZR_VERIFY_LANES; s++) late |= clock->lane[s] < state[p].since[s];
    if (late == 0) continue;
    int s = 0;
    while (clock->lane[s] >= state[p].since[s]) s++;
    return fail_order(order, i, operand, s, state[p].since[s], p,
                      s == state[p].write_stream && state[p].since[s] == state[p].write_position);
  }
  zr_verify_map_join(&order->map, span);
  access_state_t *first = &state[span.begin];
  *first = (access_state_t){.write_stream = stream, .write_position = clock->lane[stream]};
  first->since[stream] = clock->lane[stream];
  return ZR_OK;
}

/* An operation's own accesses never conflict: its clock counts itself. */
static zr_status_t check_op(order_t *order, int32_t i) {
  int32_t op_index = i % (int32_t)order->v->plan->n_ops;
  const zr_op_t *op = &order->v->plan->op[op_index];
  int n_operands = zr_op_row(op->shape.kind)->n_operands;
  for (int k = 0; k < n_operands; k++) {
    zr_verify_span_t span = order->map.span[op_index * ZR_MAX_OPERANDS + k];
    if (span.begin == span.end) continue;
    zr_verify_map_cut(&order->map, span.begin);
    zr_verify_map_cut(&order->map, span.end);
    const zr_operand_t *o = &op->operand[k];
    ZR_TRY(o->access == ZR_READ ? check_read(order, i, o, span, op->stream)
                                : check_write(order, i, o, span, op->stream));
  }
  return ZR_OK;
}

static zr_status_t check_rank(const zr_verify_t *v, int rank) {
  order_t order = {.v = v};
  int32_t n_ops = (int32_t)v->plan->n_ops;
  ZR_TRY(zr_verify_map_init(v, rank, true, sizeof(access_state_t), &order.map));
  zr_status_t status = zr_alloc_get(v->alloc, 2 * (size_t)n_ops, sizeof *order.clock, &order.clock);
  if (status == ZR_OK) make_clocks(&order);
  for (int32_t i = 0; status == ZR_OK && i < 2 * n_ops; i++) status = check_op(&order, i);
  zr_alloc_free(v->alloc, order.clock);
  zr_verify_map_fini(&order.map);
  return status;
}

static bool has_gaps(const zr_plan_t *plan) {
  for (size_t op = 0; op < plan->n_ops; op++) {
    for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
      const zr_operand_t *o = &plan->op[op].operand[i];
      if (o->buffer >= 0 && (o->rank_stride > o->bytes || o->rank_stride < -o->bytes)) return true;
    }
  }
  return false;
}

zr_status_t zr_verify_order(const zr_verify_t *v) {
  if (has_gaps(v->plan)) return zr_verify_ranks(v, check_rank);
  return check_rank(v, ZR_VERIFY_ALL_RANKS);
}
