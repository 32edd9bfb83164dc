/* A training step in outline: sizes and traffic of a transformer at stage 3. */
#include "tests/plan/plan_make.h"

enum { ELEMS = 4096, N_ACTIVATIONS = 8 };

typedef struct {
  zr_plan_t *plan;
  int32_t phase;
} step_t;

static zr_status_t buffer(step_t *s, const char *what, int layer, int micro, int64_t elems,
                          bool persistent, int32_t *out) {
  char name[ZR_PLAN_NAME_BYTES];
  snprintf(name, sizeof name, "layers.%d/%s#%d", layer, what, micro);
  return zr_plan_add_buffer(s->plan, name, ZR_TIER_DEVICE,
                            persistent ? ZR_CATEGORY_PARAM : ZR_CATEGORY_ACTIVATION, ZR_F32,
                            elems * 4, persistent, out);
}

static zr_status_t op(step_t *s, int32_t kind, int64_t attr, int32_t a, int32_t b, int32_t c) {
  const zr_op_row_t *row = zr_op_row(kind);
  int32_t of[3] = {a, b, c};
  zr_op_desc_t desc = {.kind = kind, .unit = -1, .micro = -1, .phase = s->phase, .attr = {attr}};
  for (int i = 0; i < 3 && i < row->n_operands; i++) {
    desc.operand[i] = of[i] < 0
                          ? zr_operand_none()
                          : zr_operand_all(s->plan, of[i], (zr_access_t)row->operand[i].access);
  }
  desc.n_operands = row->n_operands < 3 ? row->n_operands : 3;
  return zr_plan_add_op(s->plan, &desc, NULL);
}

/* x -> x + ..., leaving N_ACTIVATIONS buffers for the backward. */
static zr_status_t forward(step_t *s, int layer, int micro, int32_t shard, int32_t x,
                           int32_t *keep) {
  int32_t flat, used;
  s->phase++;
  ZR_TRY(buffer(s, "flat", layer, micro, 2 * ELEMS, false, &flat));
  ZR_TRY(op(s, ZR_OP_ALL_GATHER, ELEMS * 4, shard, flat, -1));
  ZR_TRY(buffer(s, "used", layer, micro, 2 * ELEMS, false, &used));
  ZR_TRY(op(s, ZR_OP_ADD, 2 * ELEMS, flat, flat, used));
  for (int i = 0; i < N_ACTIVATIONS; i++) {
    char what[16];
    snprintf(what, sizeof what, "h%d", i);
    int32_t temporary;
    ZR_TRY(buffer(s, what, layer, micro, ELEMS * (1 + i % 3), false, &keep[i]));
    snprintf(what, sizeof what, "t%d", i);
    ZR_TRY(buffer(s, what, layer, micro, ELEMS * (1 + i % 2), false, &temporary));
    ZR_TRY(op(s, ZR_OP_FILL, ELEMS * (1 + i % 2), temporary, -1, -1));
    ZR_TRY(op(s, ZR_OP_FILL, ELEMS * (1 + i % 3), keep[i], -1, -1));
  }
  return op(s, ZR_OP_ACCUMULATE, ELEMS, x, keep[0], -1);
}

static zr_status_t backward(step_t *s, int layer, int micro, int32_t shard, int32_t dx,
                            const int32_t *keep) {
  int32_t flat, grad, sum;
  s->phase++;
  ZR_TRY(buffer(s, "flat_b", layer, micro, 2 * ELEMS, false, &flat));
  ZR_TRY(op(s, ZR_OP_ALL_GATHER, ELEMS * 4, shard, flat, -1));
  ZR_TRY(buffer(s, "grad", layer, micro, 2 * ELEMS, false, &grad));
  ZR_TRY(op(s, ZR_OP_ADD, 2 * ELEMS, flat, flat, grad));
  for (int i = N_ACTIVATIONS; i-- > 0;) {
    char what[16];
    int32_t d;
    int64_t elems = ELEMS * (1 + i % 3);
    snprintf(what, sizeof what, "d%d", i);
    ZR_TRY(buffer(s, what, layer, micro, elems, false, &d));
    ZR_TRY(op(s, ZR_OP_ADD, elems, keep[i], keep[i], d));
    if (elems == ELEMS) ZR_TRY(op(s, ZR_OP_ACCUMULATE, ELEMS, d, dx, -1));
  }
  ZR_TRY(buffer(s, "sum", layer, micro, ELEMS, false, &sum));
  ZR_TRY(op(s, ZR_OP_REDUCE_SCATTER, ELEMS * 4, grad, sum, -1));
  return op(s, ZR_OP_ACCUMULATE, ELEMS, sum, shard, -1);
}

static zr_status_t fill_step(step_t *s, int n_layers, int n_micro, int32_t *shard, int32_t *keep) {
  for (int i = 0; i < n_layers; i++) ZR_TRY(buffer(s, "shard", i, 0, ELEMS, true, &shard[i]));
  for (int m = 0; m < n_micro; m++) {
    int32_t x;
    ZR_TRY(buffer(s, "x", n_layers, m, ELEMS, false, &x));
    ZR_TRY(op(s, ZR_OP_FILL, ELEMS, x, -1, -1));
    for (int i = 0; i < n_layers; i++)
      ZR_TRY(forward(s, i, m, shard[i], x, &keep[i * N_ACTIVATIONS]));
    for (int i = n_layers; i-- > 0;)
      ZR_TRY(backward(s, i, m, shard[i], x, &keep[i * N_ACTIVATIONS]));
  }
  return ZR_OK;
}

zr_status_t make_step(zr_alloc_t *alloc, int n_layers, int n_micro, zr_plan_t **out_plan) {
  step_t s = {0};
  int32_t *shard = NULL, *keep = NULL;
  ZR_TRY(zr_plan_create(alloc, "step", 2, &s.plan));
  zr_status_t status = zr_alloc_get(alloc, (size_t)n_layers, sizeof *shard, &shard);
  if (status == ZR_OK)
    status = zr_alloc_get(alloc, (size_t)n_layers * N_ACTIVATIONS, sizeof *keep, &keep);
  if (status == ZR_OK) status = fill_step(&s, n_layers, n_micro, shard, keep);
  zr_alloc_free(alloc, shard);
  zr_alloc_free(alloc, keep);
  if (status == ZR_OK)
    *out_plan = s.plan;
  else
    zr_plan_destroy(s.plan);
  return status;
}
