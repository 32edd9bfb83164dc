#include "tests/plan/verify_mutate.h"

#include <stdlib.h>
#include <string.h>

const char *verify_mutation_name(int mutation) {
  static const char *const name[N_MUTATIONS] = {"wait dropped", "wait earlier",   "offset moved",
                                                "ops swapped",  "stream changed", "lifetime cut"};
  return name[mutation];
}

static void *copy_of(const void *from, size_t bytes) {
  void *to = malloc(bytes + 1);
  if (to == NULL) abort();
  memcpy(to, from, bytes);
  return to;
}

zr_plan_t *verify_plan_copy(const zr_plan_t *plan) {
  zr_plan_t *copy = copy_of(plan, sizeof *plan);
  copy->buffer = copy_of(plan->buffer, plan->n_buffers * sizeof *plan->buffer);
  copy->op = copy_of(plan->op, plan->n_ops * sizeof *plan->op);
  return copy;
}

void verify_plan_free(zr_plan_t *copy) {
  free(copy->buffer);
  free(copy->op);
  free(copy);
}

static int32_t draw(verify_rng_t *rng, size_t n) {
  return (int32_t)verify_draw(rng, n);
}

/* An operation with waits; -1: none. */
static int32_t draw_waiter(const zr_plan_t *plan, verify_rng_t *rng) {
  for (int tries = 0; tries < 200; tries++) {
    int32_t op = draw(rng, plan->n_ops);
    if (plan->op[op].n_waits > 0) return op;
  }
  return -1;
}

static bool drop_wait(zr_plan_t *plan, verify_rng_t *rng) {
  int32_t index = draw_waiter(plan, rng);
  if (index < 0) return false;
  zr_op_t *op = &plan->op[index];
  zr_wait_t *wait = &op->wait[draw(rng, op->n_waits)];
  plan->n_placement_waits -= wait->placement_only;
  *wait = op->wait[op->n_waits - 1];
  op->n_waits--;
  plan->n_waits--;
  return true;
}

static bool wait_earlier(zr_plan_t *plan, verify_rng_t *rng) {
  int32_t index = draw_waiter(plan, rng);
  if (index < 0) return false;
  zr_wait_t *wait = &plan->op[index].wait[draw(rng, plan->op[index].n_waits)];
  if (wait->back == 0 && draw(rng, 2) == 0) {
    wait->back = 1;
    return true;
  }
  int32_t before = wait->op - 1;
  while (before >= 0 && plan->op[before].stream != plan->op[wait->op].stream) before--;
  if (before < 0) return false;
  wait->op = before;
  return true;
}

static bool move_offset(zr_plan_t *plan, verify_rng_t *rng) {
  zr_buffer_t *b = &plan->buffer[draw(rng, plan->n_buffers)];
  int64_t room = plan->peak_bytes[b->tier] - b->bytes, offset = b->offset;
  switch (draw(rng, 3)) {
    case 0:
      offset = (int64_t)verify_draw(rng, (uint64_t)(room / ZR_PLAN_ALIGN_BYTES + 1)) *
               ZR_PLAN_ALIGN_BYTES;
      break;
    case 1:
      offset += draw(rng, 2) == 0 ? ZR_PLAN_ALIGN_BYTES : -ZR_PLAN_ALIGN_BYTES;
      break;
    default:
      offset = plan->buffer[draw(rng, plan->n_buffers)].offset;
  }
  if (offset < 0 || offset > room || offset == b->offset) return false;
  b->offset = offset;
  return true;
}

static void number_streams(zr_plan_t *plan) {
  memset(plan->stream_ops, 0, sizeof plan->stream_ops);
  for (size_t i = 0; i < plan->n_ops; i++) {
    plan->op[i].stream_index = plan->stream_ops[plan->op[i].stream]++;
  }
}

static bool swap_ops(zr_plan_t *plan, verify_rng_t *rng) {
  if (plan->n_ops < 2) return false;
  int32_t a = draw(rng, plan->n_ops - 1), b = a + 1;
  if (draw(rng, 2) == 0) b += draw(rng, plan->n_ops - (size_t)b);
  zr_op_t op = plan->op[a];
  plan->op[a] = plan->op[b];
  plan->op[b] = op;
  if (draw(rng, 2) == 0) { /* waits follow their operation */
    for (size_t i = 0; i < plan->n_ops; i++) {
      for (int w = 0; w < plan->op[i].n_waits; w++) {
        int32_t *on = &plan->op[i].wait[w].op;
        *on = *on == a ? b : *on == b ? a : *on;
      }
    }
  }
  number_streams(plan);
  return true;
}

static bool change_stream(zr_plan_t *plan, verify_rng_t *rng) {
  zr_op_t *op = &plan->op[draw(rng, plan->n_ops)];
  if (zr_op_row(op->shape.kind)->collective) return false;
  uint8_t stream = (uint8_t)(1 + draw(rng, ZR_N_STREAMS - 1)); /* compute can not reach host */
  if (stream == op->stream) return false;
  op->stream = stream;
  number_streams(plan);
  return true;
}

static bool uses(const zr_plan_t *plan, int32_t op, int32_t buffer) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (plan->op[op].operand[i].buffer == buffer) return true;
  }
  return false;
}

/* A buffer first used before another's last use takes the other's place. */
static bool cut_lifetime(zr_plan_t *plan, verify_rng_t *rng) {
  for (int tries = 0; tries < 100; tries++) {
    int32_t cut = draw(rng, plan->n_buffers), next = draw(rng, plan->n_buffers);
    zr_buffer_t *b = &plan->buffer[next];
    if (cut == next || plan->buffer[cut].persistent || b->persistent) continue;
    if (plan->buffer[cut].tier != b->tier) continue;
    int32_t first = 0, last = (int32_t)plan->n_ops - 1, begin = 0;
    while (!uses(plan, first, cut)) first++;
    while (!uses(plan, last, cut)) last--;
    while (!uses(plan, begin, next)) begin++;
    if (begin <= first || begin > last || b->offset == plan->buffer[cut].offset) continue;
    if (plan->buffer[cut].offset + b->bytes > plan->peak_bytes[b->tier]) continue;
    b->offset = plan->buffer[cut].offset;
    return true;
  }
  return false;
}

bool verify_mutate(zr_plan_t *plan, int mutation, verify_rng_t *rng) {
  switch (mutation) {
    case MUTATION_WAIT_DROPPED:
      return drop_wait(plan, rng);
    case MUTATION_WAIT_EARLIER:
      return wait_earlier(plan, rng);
    case MUTATION_OFFSET_MOVED:
      return move_offset(plan, rng);
    case MUTATION_OPS_SWAPPED:
      return swap_ops(plan, rng);
    case MUTATION_STREAM_CHANGED:
      return change_stream(plan, rng);
    default:
      return cut_lifetime(plan, rng);
  }
}
