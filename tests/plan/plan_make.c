#include "tests/plan/plan_make.h"

#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/plan/place.h"

int32_t make_buffer(zr_plan_t *plan, const char *name, int64_t elems, bool persistent) {
  int32_t buffer = -1;
  assert_ok(zr_plan_add_buffer(plan, name, ZR_TIER_DEVICE,
                               persistent ? ZR_CATEGORY_PARAM : ZR_CATEGORY_ACTIVATION, ZR_F32,
                               elems * 4, persistent, &buffer));
  return buffer;
}

int32_t make_op(zr_plan_t *plan, int32_t kind, zr_stream_id_t stream, int32_t phase, int64_t elems,
                int n_operands, ...) {
  zr_op_desc_t desc = {.kind = kind,
                       .unit = -1,
                       .micro = -1,
                       .phase = phase,
                       .attr = {elems},
                       .n_operands = n_operands};
  va_list buffers;
  va_start(buffers, n_operands);
  for (int i = 0; i < n_operands; i++) {
    int32_t buffer = va_arg(buffers, int32_t);
    zr_access_t access = (zr_access_t)zr_op_row(kind)->operand[i].access;
    desc.operand[i] = zr_operand_all(plan, buffer, access);
  }
  va_end(buffers);
  int32_t op = -1;
  assert_ok(zr_plan_add_op(plan, &desc, &op));
  plan->op[op].stream = (uint8_t)stream;
  return op;
}

int32_t make_fill(zr_plan_t *plan, zr_stream_id_t stream, int32_t phase, int32_t dst) {
  return make_op(plan, ZR_OP_FILL, stream, phase, plan->buffer[dst].bytes / 4, 1, dst);
}

int32_t make_accumulate(zr_plan_t *plan, zr_stream_id_t stream, int32_t phase, int32_t src,
                        int32_t dst) {
  return make_op(plan, ZR_OP_ACCUMULATE, stream, phase, plan->buffer[dst].bytes / 4, 2, src, dst);
}

static void make_gather(zr_plan_t *plan, int32_t phase, int32_t shard, int32_t flat) {
  int64_t shard_bytes = plan->buffer[flat].bytes / plan->n_ranks;
  zr_op_desc_t desc = {.kind = ZR_OP_ALL_GATHER,
                       .unit = -1,
                       .micro = -1,
                       .phase = phase,
                       .attr = {shard_bytes},
                       .n_operands = 2};
  desc.operand[0] = zr_operand_all(plan, shard, ZR_READ);
  desc.operand[1] = zr_operand_all(plan, flat, ZR_WRITE);
  assert_ok(zr_plan_add_op(plan, &desc, NULL));
}

zr_plan_t *make_gathers(zr_alloc_t *alloc, int n_ranks, int n_units, int64_t shard_elems) {
  zr_plan_t *plan = NULL;
  char name[32];
  int32_t shard[64], sum;
  assert_true(n_units <= 64);
  assert_ok(zr_plan_create(alloc, "step", n_ranks, &plan));
  for (int i = 0; i < n_units; i++) {
    snprintf(name, sizeof name, "shard.%d", i);
    shard[i] = make_buffer(plan, name, shard_elems, true);
  }
  sum = make_buffer(plan, "sum", shard_elems * n_ranks, true);
  for (int i = 0; i < n_units; i++) {
    snprintf(name, sizeof name, "flat.%d", i);
    int32_t flat = make_buffer(plan, name, shard_elems * n_ranks, false);
    make_gather(plan, i, shard[i], flat);
    make_accumulate(plan, ZR_STREAM_COMPUTE, i, flat, sum);
  }
  return plan;
}

typedef struct {
  uint64_t seed, counter;
} dice_t;

static int64_t roll(dice_t *dice, int64_t sides) {
  return (int64_t)(zr_rng_u64(dice->seed, dice->counter++) % (uint64_t)sides);
}

zr_plan_t *make_random(uint64_t seed, int max_ops, int max_buffers) {
  dice_t dice = {seed, 0};
  zr_plan_t *plan = NULL;
  int n_buffers = 2 + (int)roll(&dice, max_buffers - 1), n_ops = 2 + (int)roll(&dice, max_ops - 1);
  int n_streams = 1 + (int)roll(&dice, ZR_N_STREAMS), phase = 0;
  bool written[64] = {false};
  assert_true(n_buffers <= 64);
  assert_ok(zr_plan_create(NULL, "random", 1, &plan));
  for (int i = 0; i < n_buffers; i++) {
    char name[16];
    snprintf(name, sizeof name, "b%d", i);
    bool persistent = i < n_buffers / 4;
    make_buffer(plan, name, 16 * (1 + roll(&dice, 8)), persistent);
    written[i] = persistent;
  }
  for (int i = 0; i < n_ops || i < n_buffers; i++) {
    zr_stream_id_t stream = (zr_stream_id_t)roll(&dice, n_streams);
    phase += roll(&dice, 4) == 0;
    /* Every buffer is written once before anything else; then parts are added to each other. */
    int32_t dst = (int32_t)(i < n_buffers ? i : roll(&dice, n_buffers));
    int32_t src = (int32_t)roll(&dice, n_buffers);
    if (!written[dst] || !written[src] || src == dst) {
      make_fill(plan, stream, phase, dst);
      written[dst] = true;
      continue;
    }
    int64_t bytes = plan->buffer[src].bytes < plan->buffer[dst].bytes ? plan->buffer[src].bytes
                                                                      : plan->buffer[dst].bytes;
    zr_op_desc_t desc = {.kind = ZR_OP_ACCUMULATE,
                         .unit = -1,
                         .micro = -1,
                         .phase = phase,
                         .attr = {bytes / 4},
                         .n_operands = 2};
    desc.operand[0] = zr_operand_part(src, plan->buffer[src].bytes - bytes, bytes, ZR_READ);
    desc.operand[1] = zr_operand_part(dst, 0, bytes, ZR_ACCUMULATE);
    int32_t op;
    assert_ok(zr_plan_add_op(plan, &desc, &op));
    plan->op[op].stream = (uint8_t)stream;
  }
  assert_ok(zr_plan_finish(plan));
  return plan;
}

void place_alone(zr_plan_t *plan, const zr_place_options_t *options, const zr_apart_t *apart,
                 size_t n_apart) {
  zr_program_t program = {.alloc = plan->alloc, .n_plans = 1, .plan = {plan}};
  const zr_apart_t *pairs[ZR_PROGRAM_MAX_PLANS] = {apart};
  const size_t n_pairs[ZR_PROGRAM_MAX_PLANS] = {n_apart};
  assert_ok(zr_place_program(&program, options, pairs, n_pairs));
}
