#include "mini_tiers.h"

#include <stdlib.h>
#include <string.h>

enum { PART = TIERS_PART_BYTES };

const int64_t tiers_step_bytes[ZR_N_LINKS] = {
    [ZR_LINK_H2D] = TIERS_UNITS * 3 * PART,
    [ZR_LINK_D2H] = TIERS_UNITS * 2 * PART,
    [ZR_LINK_DISK_READ] = TIERS_UNITS * (2 * TIERS_STATE_BYTES + PART),
    [ZR_LINK_DISK_WRITE] = TIERS_UNITS * (TIERS_STATE_BYTES + PART)};
const int64_t tiers_eval_bytes[ZR_N_LINKS] = {
    [ZR_LINK_H2D] = TIERS_UNITS * PART, [ZR_LINK_DISK_READ] = TIERS_UNITS * PART};

typedef struct {
  mini_t *mini;
  zr_plan_t *plan;
  int32_t phase, layout;
  int32_t flat[TIERS_UNITS], noise[TIERS_UNITS], y[TIERS_UNITS], on_disk[TIERS_UNITS],
      g[TIERS_UNITS];
} build_t;

static int32_t add_buffer(build_t *b, const char *stem, int index, zr_tier_t tier, zr_dtype_t dtype,
                          int64_t bytes, bool persistent) {
  char name[ZR_PLAN_NAME_BYTES];
  snprintf(name, sizeof name, "%s%d", stem, index);
  int32_t buffer;
  assert_ok(
      zr_plan_add_buffer(b->plan, name, tier, ZR_CATEGORY_DATA, dtype, bytes, persistent, &buffer));
  return buffer;
}

static int32_t add_part(build_t *b, const char *stem, int u, zr_tier_t tier) {
  return add_buffer(b, stem, u, tier, ZR_F32, PART, false);
}

static void add_op(build_t *b, int32_t kind, bool on_host, int unit, int64_t attr0, double real,
                   int n_operands, const zr_operand_t *operand) {
  zr_op_desc_t desc = {.kind = kind,
                       .on = on_host ? ZR_ON(ZR_STREAM_HOST) : 0,
                       .unit = (int16_t)unit,
                       .micro = -1,
                       .phase = b->phase,
                       .attr = {attr0},
                       .real = real,
                       .n_operands = n_operands};
  if (zr_kern_is_update(kind)) desc.attr[ZR_ADAMW_SHARD] = attr0;
  memcpy(desc.operand, operand, (size_t)n_operands * sizeof *operand);
  assert_ok(zr_plan_add_op(b->plan, &desc, NULL));
}

#define OP(b, kind, on_host, unit, attr0, real, ...)                          \
  add_op(b, kind, on_host, unit, attr0, real,                                 \
         (int)(sizeof((zr_operand_t[]){__VA_ARGS__}) / sizeof(zr_operand_t)), \
         (zr_operand_t[]){__VA_ARGS__})

static zr_operand_t all(build_t *b, int32_t buffer, zr_access_t access) {
  return zr_operand_all(b->plan, buffer, access);
}

/* The i-th part of a state's bytes, as floats. */
static zr_operand_t floats(int32_t buffer, int i, zr_access_t access) {
  zr_operand_t operand = zr_operand_part(buffer, (int64_t)i * PART, PART, access);
  operand.dtype = ZR_F32;
  return operand;
}

static zr_operand_t control(build_t *b) {
  zr_operand_t operand =
      zr_operand_part(b->mini->control, 0, (int64_t)sizeof(zr_control_t), ZR_ACCUMULATE);
  operand.dtype = ZR_I64;
  return operand;
}

static void begin_plan(build_t *b, const char *name) {
  const int64_t grain = ZR_PLAN_DISK_ALIGN_BYTES;
  const int64_t control_bytes = ((int64_t)sizeof(zr_control_t) + grain - 1) / grain * grain;
  mini_t *mini = b->mini;
  assert_ok(zr_plan_create(&mini->alloc, name, 1, &b->plan));
  b->phase = 0;
  mini->control = add_buffer(b, "control", 0, ZR_TIER_HOST, ZR_U8, control_bytes, true);
  mini->layout = add_buffer(b, "layout", 0, ZR_TIER_HOST, ZR_U8, grain, true);
  mini->probe = add_buffer(b, "probe", 0, ZR_TIER_DEVICE, ZR_F32, PART, true);
  for (int u = 0; u < TIERS_UNITS; u++) {
    mini->state[u] = add_buffer(b, "state", u, ZR_TIER_DISK, ZR_U8, TIERS_STATE_BYTES, true);
    char unit[24];
    snprintf(unit, sizeof unit, "layers.%d", u);
    int16_t index;
    assert_ok(zr_plan_add_unit(b->plan, unit, &index));
  }
}

static int32_t add_read(build_t *b, const char *stem, int u) {
  const int32_t slot = add_buffer(b, stem, u, ZR_TIER_HOST, ZR_U8, TIERS_STATE_BYTES, false);
  OP(b, ZR_OP_DISK_READ, false, u, TIERS_STATE_BYTES, 0, all(b, b->mini->state[u], ZR_READ),
     all(b, slot, ZR_WRITE));
  return slot;
}

static void add_forward(build_t *b, int u) {
  b->phase++;
  const int32_t slot = add_read(b, "slot", u);
  b->flat[u] = add_part(b, "flat", u, ZR_TIER_DEVICE);
  OP(b, ZR_OP_H2D, false, u, PART, 0, zr_operand_part(slot, 0, PART, ZR_READ),
     all(b, b->flat[u], ZR_WRITE));
  const int32_t fill = add_part(b, "fill", u, ZR_TIER_HOST);
  b->noise[u] = add_part(b, "noise", u, ZR_TIER_DEVICE);
  OP(b, ZR_OP_FILL, true, u, TIERS_ELEMS, 0.125 * (u + 1), all(b, fill, ZR_WRITE));
  OP(b, ZR_OP_H2D, false, u, PART, 0, all(b, fill, ZR_READ), all(b, b->noise[u], ZR_WRITE));
  b->y[u] = add_part(b, "y", u, ZR_TIER_DEVICE);
  OP(b, ZR_OP_ADD, false, u, TIERS_ELEMS, 0, all(b, b->flat[u], ZR_READ),
     all(b, u ? b->y[u - 1] : b->flat[u], ZR_READ), all(b, b->y[u], ZR_WRITE));
  const int32_t down = add_part(b, "down", u, ZR_TIER_HOST);
  OP(b, ZR_OP_D2H, false, u, PART, 0, all(b, b->y[u], ZR_READ), all(b, down, ZR_WRITE));
  b->on_disk[u] = add_part(b, "kept", u, ZR_TIER_DISK);
  OP(b, ZR_OP_DISK_WRITE, false, u, PART, 0, all(b, down, ZR_READ),
     all(b, b->on_disk[u], ZR_WRITE));
}

static void add_backward(build_t *b, int u) {
  b->phase++;
  const int32_t back = add_part(b, "back", u, ZR_TIER_HOST);
  const int32_t again = add_part(b, "again", u, ZR_TIER_DEVICE);
  const int32_t grad = add_part(b, "grad", u, ZR_TIER_DEVICE);
  b->g[u] = add_part(b, "g", u, ZR_TIER_HOST);
  OP(b, ZR_OP_DISK_READ, false, u, PART, 0, all(b, b->on_disk[u], ZR_READ), all(b, back, ZR_WRITE));
  OP(b, ZR_OP_H2D, false, u, PART, 0, all(b, back, ZR_READ), all(b, again, ZR_WRITE));
  OP(b, ZR_OP_ADD, false, u, TIERS_ELEMS, 0, all(b, again, ZR_READ), all(b, b->noise[u], ZR_READ),
     all(b, grad, ZR_WRITE));
  OP(b, ZR_OP_D2H, false, u, PART, 0, all(b, grad, ZR_READ), all(b, b->g[u], ZR_WRITE));
}

static void add_update(build_t *b, int u) {
  b->phase++;
  const int32_t slot = add_read(b, "update", u);
  OP(b, ZR_OP_ADAMW, true, u, TIERS_ELEMS, 0, floats(slot, 0, ZR_ACCUMULATE),
     all(b, b->g[u], ZR_READ), floats(slot, 1, ZR_ACCUMULATE), floats(slot, 2, ZR_ACCUMULATE),
     all(b, b->mini->layout, ZR_READ), control(b));
  OP(b, ZR_OP_DISK_WRITE, false, u, TIERS_STATE_BYTES, 0, all(b, slot, ZR_READ),
     all(b, b->mini->state[u], ZR_WRITE));
}

static void build_step(build_t *b) {
  begin_plan(b, "step");
  OP(b, ZR_OP_CONTROL_BEGIN, true, -1, 0, 0, control(b));
  for (int u = 0; u < TIERS_UNITS; u++) add_forward(b, u);
  for (int u = TIERS_UNITS - 1; u >= 0; u--) add_backward(b, u);
  OP(b, ZR_OP_CONTROL_UPDATE, true, -1, 0, 0, control(b));
  for (int u = 0; u < TIERS_UNITS; u++) add_update(b, u);
  OP(b, ZR_OP_CONTROL_END, true, -1, 0, 0, control(b));
}

static void build_eval(build_t *b) {
  begin_plan(b, "eval");
  OP(b, ZR_OP_FILL, false, -1, TIERS_ELEMS, 1.0, all(b, b->mini->probe, ZR_WRITE));
  for (int u = 0; u < TIERS_UNITS; u++) {
    b->phase++;
    const int32_t slot = add_part(b, "slot", u, ZR_TIER_HOST);
    const int32_t flat = add_part(b, "flat", u, ZR_TIER_DEVICE);
    OP(b, ZR_OP_DISK_READ, false, u, PART, 0, zr_operand_part(b->mini->state[u], 0, PART, ZR_READ),
       all(b, slot, ZR_WRITE));
    OP(b, ZR_OP_H2D, false, u, PART, 0, all(b, slot, ZR_READ), all(b, flat, ZR_WRITE));
    OP(b, ZR_OP_ACCUMULATE, false, u, TIERS_ELEMS, 0, all(b, flat, ZR_READ),
       all(b, b->mini->probe, ZR_ACCUMULATE));
  }
}

/* The least memory: slots are reused, and operations wait for them. */
static void build_program(mini_t *mini) {
  build_t b = {.mini = mini};
  mini->n_units = TIERS_UNITS;
  assert_ok(zr_program_create(&mini->alloc, &mini->program));
  build_step(&b);
  assert_ok(zr_program_add(mini->program, b.plan));
  build_eval(&b);
  assert_ok(zr_program_add(mini->program, b.plan));
  zr_place_options_t place;
  zr_place_defaults(&place);
  place.keep_placement_waits = true;
  assert_ok(zr_program_compile(mini->program, &place));
}

int64_t tiers_disk_bytes(const mini_t *mini) {
  return mini->program->plan[0]->arena_bytes[ZR_TIER_DISK];
}

void tiers_open(mini_t *mini, const memdisk_options_t *disk_options) {
  mini_open_backends(mini, NULL, NULL);
  build_program(mini);
  assert_ok(memdisk_open(&mini->alloc, tiers_disk_bytes(mini), disk_options, &mini->disk_ops,
                         &mini->disk));
  mini_fill_options(mini);
}

void tiers_open_virtual(mini_t *mini) {
  mini_open_backends(mini, NULL, NULL);
  build_program(mini);
  mini->hal_ops->close(mini->hal);
  assert_ok(zr_hal_null_open(&mini->alloc, false, &mini->hal_ops, &mini->hal));
  mini_fill_options(mini);
}

/* The bytes and, so that nothing of the poison is left, zeros to the buffer's end. */
static void upload_padded(mini_t *mini, int32_t buffer, const void *source, size_t bytes) {
  const int64_t all_bytes = mini->program->plan[0]->buffer[buffer].bytes;
  char *padded = calloc(1, (size_t)all_bytes);
  assert_non_null(padded);
  memcpy(padded, source, bytes);
  assert_ok(zr_exec_upload(mini->exec, buffer, 0, padded, all_bytes));
  free(padded);
}

static void upload_control(mini_t *mini) {
  const zr_control_t first = {.n_ranks = 1,
                              .digest = 2,
                              .schedule = {.lr = 0.01},
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .bias_correction = 1};
  upload_padded(mini, mini->control, &first, sizeof first);
  struct {
    zr_kern_layout_t head;
    zr_kern_tensor_t tensor;
  } layout = {.head = {.n_tensors = 1},
              .tensor = {.end = TIERS_ELEMS, .digest_key = {1, 2, 3}, .decays = 1}};
  upload_padded(mini, mini->layout, &layout, sizeof layout);
}

void tiers_start(mini_t *mini, const memdisk_options_t *disk_options) {
  assert_ok(zr_exec_create(&mini->alloc, &mini->options, &mini->exec));
  upload_control(mini);
  float *state = calloc(1, TIERS_STATE_BYTES);
  assert_non_null(state);
  for (int u = 0; u < TIERS_UNITS; u++) {
    for (int i = 0; i < TIERS_ELEMS; i++) state[i] = 0.001f * (float)(i % 97) + 0.1f * (float)u;
    assert_ok(zr_exec_upload(mini->exec, mini->state[u], 0, state, TIERS_STATE_BYTES));
  }
  free(state);
  if (disk_options) memdisk_set(mini->disk, disk_options);
}
