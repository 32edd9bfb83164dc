#include "tests/plan/verify_run.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"

enum { MAX_RANKS = 4, MAX_LANES = MAX_RANKS * ZR_N_STREAMS };

/* One stream of one rank. */
typedef struct {
  int32_t next; /* position over all steps: the one that runs or would begin */
  bool running, has_read;
  uint64_t value;       /* what the running operation's inputs hash to, once read */
  uint64_t scratch_key; /* what it put into its scratch */
} lane_t;

struct verify_run_t {
  const zr_plan_t *plan;
  uint8_t *memory[MAX_RANKS][ZR_N_TIERS];
  int64_t capacity[ZR_N_TIERS];
  int32_t *stream_op[ZR_N_STREAMS]; /* list position of the n-th operation of a stream */
  lane_t lane[MAX_LANES];           /* [rank][stream] */
  int n_steps;
  uint64_t random, digest;
};

static uint64_t draw(verify_run_t *run) {
  run->random += 0x9e3779b97f4a7c15ull;
  return zr_mix64(run->random);
}

verify_run_t *verify_run_create(const zr_plan_t *plan) {
  verify_run_t *run = calloc(1, sizeof *run);
  if (run == NULL || plan->n_ranks > MAX_RANKS) abort();
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    run->capacity[tier] = plan->arena_bytes[tier];
    for (int rank = 0; rank < plan->n_ranks; rank++) {
      run->memory[rank][tier] = malloc((size_t)plan->arena_bytes[tier] + 8);
      if (run->memory[rank][tier] == NULL) abort();
    }
  }
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    run->stream_op[s] = calloc(plan->n_ops + 1, sizeof(int32_t));
    if (run->stream_op[s] == NULL) abort();
  }
  return run;
}

void verify_run_destroy(verify_run_t *run) {
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    for (int rank = 0; rank < MAX_RANKS; rank++) free(run->memory[rank][tier]);
  }
  for (int s = 0; s < ZR_N_STREAMS; s++) free(run->stream_op[s]);
  free(run);
}

static uint64_t *words(verify_run_t *run, const zr_operand_t *o, int rank) {
  const zr_buffer_t *b = &run->plan->buffer[o->buffer];
  int64_t at = b->offset + o->offset + rank * o->rank_stride;
  if (at < 0 || at + o->bytes > run->capacity[b->tier]) abort();
  return (uint64_t *)(void *)(run->memory[rank][b->tier] + at);
}

static uint64_t name_key(const char *name) {
  uint64_t key = 1;
  for (; *name != '\0'; name++) key = zr_mix64(key + (unsigned char)*name);
  return key;
}

/* Garbage everywhere; then what persistent buffers hold before the first step. */
static void fill_memory(verify_run_t *run) {
  const zr_plan_t *plan = run->plan;
  for (int rank = 0; rank < plan->n_ranks; rank++) {
    for (int tier = 0; tier < ZR_N_TIERS; tier++) {
      uint64_t *word = (uint64_t *)(void *)run->memory[rank][tier];
      for (int64_t i = 0; i < plan->arena_bytes[tier] / 8; i++) word[i] = draw(run);
    }
    for (size_t i = 0; i < plan->n_buffers; i++) {
      const zr_buffer_t *b = &plan->buffer[i];
      if (!b->persistent) continue;
      zr_operand_t all = {.buffer = (int32_t)i, .bytes = b->bytes};
      uint64_t key = zr_mix64(name_key(b->name) + (uint64_t)rank), *word = words(run, &all, rank);
      for (int64_t j = 0; j < b->bytes / 8; j++) word[j] = zr_mix64(key + (uint64_t)j);
    }
  }
}

static void start(verify_run_t *run, const zr_plan_t *plan, int n_steps, uint64_t seed) {
  run->plan = plan;
  run->n_steps = n_steps;
  run->random = zr_mix64(seed);
  run->digest = 0;
  int32_t count[ZR_N_STREAMS] = {0};
  for (int32_t op = 0; op < (int32_t)plan->n_ops; op++) {
    run->stream_op[plan->op[op].stream][count[plan->op[op].stream]++] = op;
  }
  memset(run->lane, 0, sizeof run->lane);
  fill_memory(run);
}

static uint64_t finish(verify_run_t *run) {
  const zr_plan_t *plan = run->plan;
  for (int rank = 0; rank < plan->n_ranks; rank++) {
    for (size_t i = 0; i < plan->n_buffers; i++) {
      const zr_buffer_t *b = &plan->buffer[i];
      if (!b->persistent) continue;
      zr_operand_t all = {.buffer = (int32_t)i, .bytes = b->bytes};
      uint64_t value = zr_mix64(name_key(b->name) + (uint64_t)rank), *word = words(run, &all, rank);
      for (int64_t j = 0; j < b->bytes / 8; j++) value = zr_mix64(value ^ word[j]);
      run->digest += value;
    }
  }
  return run->digest;
}

static uint64_t read_inputs(verify_run_t *run, const zr_op_t *op, int rank) {
  uint64_t value = zr_mix64((uint64_t)op->micro * 977 + (uint64_t)op->shape.kind);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    const zr_operand_t *o = &op->operand[i];
    if (o->buffer < 0 || (o->access & ZR_READ) == 0) continue;
    const uint64_t *word = words(run, o, rank);
    for (int64_t j = 0; j < o->bytes / 8; j++) value = zr_mix64(value ^ word[j]) + (uint64_t)i;
  }
  return value;
}

static uint64_t output_word(uint64_t key, int operand, int64_t word) {
  return zr_mix64(key + (uint64_t)(operand * 4096 + word));
}

/* Fills the operands that have a bit of `access`, in either order. */
static void write_operands(verify_run_t *run, const zr_op_t *op, int rank, uint8_t access,
                           uint64_t key) {
  bool backward = (draw(run) & 1) != 0;
  for (int n = 0; n < ZR_MAX_OPERANDS; n++) {
    int i = backward ? ZR_MAX_OPERANDS - 1 - n : n;
    const zr_operand_t *o = &op->operand[i];
    if (o->buffer < 0 || (o->access & access) == 0) continue;
    uint64_t *word = words(run, o, rank);
    for (int64_t j = 0; j < o->bytes / 8; j++) word[j] = output_word(key, i, j);
  }
}

/* Garbage where the operation will write without having read. A gather in place keeps its shard. */
static void spoil_outputs(verify_run_t *run, const zr_op_t *op, int rank) {
  if (op->shape.kind == ZR_OP_ALL_GATHER && op->operand[0].buffer == op->operand[1].buffer) return;
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    const zr_operand_t *o = &op->operand[i];
    if (o->buffer < 0 || o->access != ZR_WRITE) continue;
    uint64_t *word = words(run, o, rank);
    for (int64_t j = 0; j < o->bytes / 8; j++) word[j] = draw(run);
  }
}

/* What it put there is still there. */
static bool scratch_is_intact(verify_run_t *run, const zr_op_t *op, int rank, uint64_t key) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    const zr_operand_t *o = &op->operand[i];
    if (o->buffer < 0 || (o->access & ZR_SCRATCH) == 0) continue;
    const uint64_t *word = words(run, o, rank);
    for (int64_t j = 0; j < o->bytes / 8; j++) {
      if (word[j] != output_word(key, i, j)) return false;
    }
  }
  return true;
}

static bool is_collective(const zr_op_t *op) {
  return zr_op_row(op->shape.kind)->collective;
}

static lane_t *lane_of(verify_run_t *run, int rank, int stream) {
  return &run->lane[rank * ZR_N_STREAMS + stream];
}

static const zr_op_t *lane_op(const verify_run_t *run, int stream, int32_t position) {
  return &run->plan->op[run->stream_op[stream][position % run->plan->stream_ops[stream]]];
}

static void begin(verify_run_t *run, int rank, int stream) {
  lane_t *lane = lane_of(run, rank, stream);
  const zr_op_t *op = lane_op(run, stream, lane->next);
  lane->running = true;
  lane->has_read = (draw(run) & 1) != 0;
  if (lane->has_read) {
    lane->value = read_inputs(run, op, rank);
    write_operands(run, op, rank, ZR_WRITE, draw(run));
  } else {
    spoil_outputs(run, op, rank);
  }
  lane->scratch_key = draw(run);
  write_operands(run, op, rank, ZR_SCRATCH, lane->scratch_key);
}

/* The value of a collective is made of all ranks' inputs; those not read yet are read when the last
 * rank has come. */
static void meet(verify_run_t *run, int stream) {
  for (int rank = 0; rank < run->plan->n_ranks; rank++) {
    lane_t *lane = lane_of(run, rank, stream);
    if (!lane->has_read) {
      lane->value = read_inputs(run, lane_op(run, stream, lane->next), rank);
    }
    lane->has_read = true;
  }
  uint64_t value = 0;
  for (int rank = 0; rank < run->plan->n_ranks; rank++) {
    value = zr_mix64(value + lane_of(run, rank, stream)->value);
  }
  for (int rank = 0; rank < run->plan->n_ranks; rank++) lane_of(run, rank, stream)->value = value;
}

static void end(verify_run_t *run, int rank, int stream) {
  lane_t *lane = lane_of(run, rank, stream);
  const zr_op_t *op = lane_op(run, stream, lane->next);
  if (!lane->has_read) lane->value = read_inputs(run, op, rank);
  int step = lane->next / run->plan->stream_ops[stream];
  uint64_t value = zr_mix64(lane->value + (uint64_t)rank);
  bool is_last = (draw(run) & 1) != 0; /* scratch is used to the end */
  if (!scratch_is_intact(run, op, rank, lane->scratch_key)) value = draw(run);
  if (!is_last) write_operands(run, op, rank, ZR_SCRATCH, draw(run));
  write_operands(run, op, rank, ZR_WRITE, value);
  if (is_last) write_operands(run, op, rank, ZR_SCRATCH, draw(run));
  run->digest += zr_mix64(value ^ zr_mix64((uint64_t)(op->micro * 64 + step)));
  lane->running = false;
  lane->next++;
}

/* All ranks stand in the same collective: the last one's arrival was the meeting. */
static bool all_running(verify_run_t *run, int stream, int32_t position) {
  for (int rank = 0; rank < run->plan->n_ranks; rank++) {
    const lane_t *lane = lane_of(run, rank, stream);
    if (lane->next < position || (lane->next == position && !lane->running)) return false;
  }
  return true;
}

static void begin_and_meet(verify_run_t *run, int rank, int stream) {
  begin(run, rank, stream);
  int32_t position = lane_of(run, rank, stream)->next;
  if (is_collective(lane_op(run, stream, position)) && all_running(run, stream, position)) {
    meet(run, stream);
  }
}

uint64_t verify_run_serial(verify_run_t *run, const zr_plan_t *plan, int n_steps, uint64_t seed) {
  start(run, plan, n_steps, seed);
  for (int step = 0; step < n_steps; step++) {
    for (size_t op = 0; op < plan->n_ops; op++) {
      int stream = plan->op[op].stream;
      for (int rank = 0; rank < plan->n_ranks; rank++) begin_and_meet(run, rank, stream);
      for (int rank = 0; rank < plan->n_ranks; rank++) end(run, rank, stream);
    }
  }
  return finish(run);
}

static bool waits_are_over(verify_run_t *run, int rank, int stream) {
  const lane_t *lane = lane_of(run, rank, stream);
  const zr_op_t *op = lane_op(run, stream, lane->next);
  int step = lane->next / run->plan->stream_ops[stream];
  for (int i = 0; i < op->n_waits; i++) {
    const zr_op_t *on = &run->plan->op[op->wait[i].op];
    int from = step - op->wait[i].back;
    if (from < 0) continue;
    int32_t position = from * run->plan->stream_ops[on->stream] + on->stream_index;
    if (lane_of(run, rank, on->stream)->next <= position) return false;
  }
  return true;
}

static bool can_go(verify_run_t *run, int rank, int stream) {
  const lane_t *lane = lane_of(run, rank, stream);
  if (lane->next >= run->n_steps * run->plan->stream_ops[stream]) return false;
  if (!lane->running) return waits_are_over(run, rank, stream);
  return !is_collective(lane_op(run, stream, lane->next)) || all_running(run, stream, lane->next);
}

/* How lanes are chosen. Priorities starve some lanes for long, which finds what chance does not. */
typedef struct {
  bool by_priority;
  uint64_t weight[MAX_LANES];
  uint64_t change_one_in; /* weights change after an action with this chance */
} manner_t;

static void draw_weights(verify_run_t *run, manner_t *manner) {
  for (int i = 0; i < MAX_LANES; i++) manner->weight[i] = 1 + (draw(run) >> (20 + draw(run) % 40));
}

static int choose(verify_run_t *run, const manner_t *manner) {
  int chosen = -1;
  uint64_t best = 0;
  int n_lanes = run->plan->n_ranks * ZR_N_STREAMS;
  for (int i = 0; i < n_lanes; i++) {
    if (!can_go(run, i / ZR_N_STREAMS, i % ZR_N_STREAMS)) continue;
    uint64_t score = manner->by_priority ? manner->weight[i] : draw(run) >> 1;
    if (chosen < 0 || score > best) {
      chosen = i;
      best = score;
    }
  }
  return chosen;
}

bool verify_run_random(verify_run_t *run, const zr_plan_t *plan, int n_steps, uint64_t seed,
                       uint64_t *out_digest) {
  start(run, plan, n_steps, seed);
  manner_t manner = {.by_priority = draw(run) % 4 != 0, .change_one_in = 2ull << draw(run) % 7};
  draw_weights(run, &manner);
  int64_t n_left = 2ll * n_steps * (int64_t)plan->n_ops * plan->n_ranks;
  for (; n_left > 0; n_left--) {
    int lane = choose(run, &manner);
    if (lane < 0) return false;
    int rank = lane / ZR_N_STREAMS, stream = lane % ZR_N_STREAMS;
    if (run->lane[lane].running) {
      end(run, rank, stream);
    } else {
      begin_and_meet(run, rank, stream);
    }
    if (draw(run) % manner.change_one_in == 0) draw_weights(run, &manner);
  }
  *out_digest = finish(run);
  return true;
}
