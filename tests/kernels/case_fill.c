/* Seeded inputs of a kernel call. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/rng.h"
#include "tests/kernels/case_call.h"
#include "tests/kernels/check.h"

/* Uniform in (-1, 1), a float. */
static double uniform(uint64_t key, int64_t i) {
  uint64_t bits = zr_mix64(key + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15ull);
  return (double)(float)((double)(int64_t)bits * 0x1p-63);
}

/* Value i of real operand `operand`: magnitudes that suit the kind. */
static double real_value(const kern_call_t *call, int operand, uint64_t key, int64_t i) {
  double u = uniform(key, i);
  switch (call->shape.kind) {
    case ZR_OP_LAYERNORM:
    case ZR_OP_RMSNORM:
    case ZR_OP_LAYERNORM_GRAD:
    case ZR_OP_RMSNORM_GRAD:
    case ZR_OP_HEAD_NORM:
    case ZR_OP_HEAD_NORM_GRAD:
      return operand == 1 ? 1 + 0.5 * u : operand == 0 ? 2 * u + 0.25 : u;
    case ZR_OP_GELU:
    case ZR_OP_GELU_GRAD:
    case ZR_OP_SWIGLU:
    case ZR_OP_SWIGLU_GRAD:
      return operand == 0 ? 6 * u : u;
    case ZR_OP_BLOCK_NORM: /* spread over many exponents, so that an order of adding shows */
      return ldexp(u, (int)(zr_mix64(key ^ (uint64_t)i) % 41) - 30);
    case ZR_OP_ADAMW:
      return operand == 3 ? 1e-2 * u * u : operand == 2 ? 0.1 * u : u;
    case ZR_OP_ADAGRAD:
      return operand == 2 ? 1e-2 * u * u : u;
    default:
      return u;
  }
}

static void fill_i32(kern_call_t *call, int operand, uint64_t key) {
  int64_t bound = INT32_MAX;
  bool targets = true;
  if (call->shape.kind == ZR_OP_EMBEDDING || call->shape.kind == ZR_OP_EMBEDDING_GRAD) {
    bound = call->shape.attr[ZR_EMBEDDING_VOCAB];
    targets = false;
  } else if (call->shape.kind == ZR_OP_HEAD_LOSS || call->shape.kind == ZR_OP_HEAD_EVAL) {
    bound = call->shape.attr[ZR_HEAD_VOCAB];
  }
  for (int64_t i = 0; i < kern_call_n_elems(call, operand); i++) {
    uint64_t bits = zr_mix64(key + (uint64_t)i);
    double value = (double)(bits % (uint64_t)bound);
    kern_call_set(call, operand, i, targets && bits >> 60 < 3 ? -1 : value);
  }
}

/* Documents of 1 to 4 rows, or of about a third of a sample, after each other. */
static void fill_starts(kern_call_t *call, int operand, uint64_t key) {
  bool attention = call->shape.kind == ZR_OP_ATTENTION || call->shape.kind == ZR_OP_ATTENTION_GRAD;
  int64_t seq = call->shape.attr[attention ? (int)ZR_ATTENTION_SEQ : (int)ZR_EMBEDDING_SEQ];
  int64_t start = 0, end = 0;
  for (int64_t i = 0; i < kern_call_n_elems(call, operand); i++) {
    if (i % seq == 0) end = 0;
    if (i % seq == end) {
      uint64_t bits = zr_mix64(key + (uint64_t)i);
      start = end;
      end += 1 + (int64_t)(bits % (bits >> 63 ? 4 : (uint64_t)seq / 2 + 1));
    }
    kern_call_set(call, operand, i, (double)start);
  }
}

void kern_control_fill(zr_control_t *ctl, uint32_t control) {
  memset(ctl, 0, sizeof *ctl);
  bool l2 = control & KERN_CTL_L2;
  ctl->rank = KERN_CASE_RANK;
  ctl->n_ranks = KERN_CASE_N_RANKS;
  ctl->digest = control & KERN_CTL_NO_DIGEST ? 0 : control & KERN_CTL_PARAM_DIGEST ? 1 : 2;
  ctl->schedule = (zr_schedule_params_t){.kind = ZR_SCHEDULE_CONSTANT, .lr = 3e-3};
  ctl->beta1 = 0.9, ctl->beta2 = 0.95, ctl->eps = 1e-8, ctl->weight_decay = 0.1;
  ctl->max_grad_norm = 1;
  ctl->bias_correction = 1;
  ctl->l2 = l2;
  ctl->nesterov = (control & KERN_CTL_NESTEROV) != 0;
  ctl->momentum = 0.9, ctl->dampening = ctl->nesterov ? 0 : 0.25;
  ctl->momentum_f32 = 0.9f, ctl->gain = (float)(1 - ctl->dampening);
  ctl->seed = 99;
  ctl->iteration = 7, ctl->step = 7, ctl->tokens = 1234;
  ctl->count_local = 37;
  ctl->inv_tokens = 1.0f / 37;
  ctl->lr_now = ctl->schedule.lr;
  ctl->clip = 0.7, ctl->clip_coef = 0.7f;
  ctl->lr_f32 = (float)ctl->lr_now;
  ctl->decay_mul = l2 ? 1.0f : (float)(1 - ctl->lr_now * ctl->weight_decay);
  ctl->step_size = (float)(ctl->lr_now / (1 - pow(ctl->beta1, 7)));
  ctl->inv_sqrt_bias2 = (float)(1 / sqrt(1 - pow(ctl->beta2, 7)));
  ctl->beta1_f32 = 0.9f, ctl->beta2_f32 = 0.95f, ctl->eps_f32 = 1e-8f;
  ctl->one_minus_beta1 = (float)(1 - ctl->beta1);
  ctl->one_minus_beta2 = (float)(1 - ctl->beta2);
  ctl->skip = (control & KERN_CTL_SKIP) != 0;
}

/* Parameters of 16 bits are the rounded masters, of which the last operand has the rest. */
static void split_masters(kern_call_t *call, uint64_t key) {
  for (int64_t i = 0; i < kern_call_n_elems(call, 0); i++) {
    double master = real_value(call, 0, key, i);
    kern_call_set(call, 0, i, master);
    if (call->block[6] != NULL && call->compute == ZR_F16) kern_call_set(call, 6, i, master);
    if (call->block[6] == NULL || call->compute != ZR_BF16) continue;
    zr_master_split((float)master, &((uint16_t *)call->call.operand[0])[i],
                    &((int16_t *)call->call.operand[6])[i]);
  }
}

/* Padding of a flat is zero in parameters, gradients and moments. */
static void zero_padding(kern_call_t *call) {
  const zr_kern_layout_t *layout = call->call.operand[4];
  const int64_t *a = call->shape.attr;
  for (int64_t i = 0; i < a[ZR_ADAMW_ELEMS]; i++) {
    int64_t flat = a[ZR_ADAMW_FIRST] + KERN_CASE_RANK * a[ZR_ADAMW_FIRST_PER_RANK] + i;
    bool logical = false;
    for (int64_t n = 0; n < layout->n_tensors; n++)
      logical = logical || (layout->tensor[n].begin <= flat && flat < layout->tensor[n].end);
    double bad = i % 2 ? (double)INFINITY : (double)NAN;
    bool is_bad = call->control & KERN_CTL_BAD_PARAMS && i % 97 == 0;
    if (is_bad) kern_call_set(call, 0, i, bad);
    if (is_bad && call->block[6] != NULL)
      kern_call_set(call, 6, i, call->compute == ZR_F16 ? bad : 0);
    for (int operand = 0; operand <= 6 && !logical; operand++)
      if ((operand < 4 || operand == 6) && call->block[operand] != NULL)
        kern_call_set(call, operand, i, 0);
  }
}

/* What a 16-bit case's double call reads is what its own call reads. */
static double rounded(const kern_call_t *call, int operand, double value) {
  bool is_half = call->compute != 0;
  return is_half ? kern_round((zr_dtype_t)call->stored[operand], value) : value;
}

/* Runs the oracle's forward kernel `one` and copies its outputs into operands of `call`. from[i]:
 * the operand of `call` that input i is copied from, or -1; to[i]: where output i goes, or -1. */
static void derive(kern_call_t *call, const kern_case_t *one, const int *from, const int *to) {
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  kern_call_t forward;
  zr_dtype_t real = call->shape.dtype[0] == ZR_F64 ? ZR_F64 : ZR_F32;
  assert_int_equal(zr_kern_ref_open(NULL, real, &ops, &kern), ZR_OK);
  kern_call_init(&forward, one, real, KERN_POISON_NAN);
  kern_call_fill(&forward, 1);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++)
    for (int64_t n = 0; from[i] >= 0 && n < kern_call_n_elems(&forward, i); n++)
      kern_call_set(&forward, i, n, kern_call_get(call, from[i], n));
  assert_int_equal(kern_call_run(&forward, ops, kern, NULL), ZR_OK);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++)
    for (int64_t n = 0; to[i] >= 0 && n < kern_call_n_elems(&forward, i); n++)
      kern_call_set(call, to[i], n, rounded(call, to[i], kern_call_get(&forward, i, n)));
  kern_call_fini(&forward);
  ops->close(kern);
}

static void fill_derived(kern_call_t *call) {
  kern_case_t one = {.real = call->shape.real, .compute = call->compute, .sum = call->sum};
  memcpy(one.attr, call->shape.attr, sizeof one.attr);
  switch (call->shape.kind) {
    case ZR_OP_LAYERNORM_GRAD:
      one.kind = ZR_OP_LAYERNORM;
      derive(call, &one, (const int[8]){0, 1, -1, -1, -1, -1, -1, -1},
             (const int[8]){-1, -1, -1, -1, 2, -1, -1, -1});
      break;
    case ZR_OP_RMSNORM_GRAD:
      one.kind = ZR_OP_RMSNORM;
      derive(call, &one, (const int[8]){0, 1, -1, -1, -1, -1, -1, -1},
             (const int[8]){-1, -1, -1, 2, -1, -1, -1, -1});
      break;
    case ZR_OP_HEAD_NORM_GRAD:
      one.kind = ZR_OP_HEAD_NORM;
      derive(call, &one, (const int[8]){0, 1, -1, -1, -1, -1, -1, -1},
             (const int[8]){-1, -1, -1, 2, -1, -1, -1, -1});
      break;
    case ZR_OP_ATTENTION_GRAD:
      one.kind = ZR_OP_ATTENTION;
      one.documents = call->call.operand[5] != NULL;
      derive(call, &one, (const int[8]){0, -1, -1, 5, -1, -1, -1, -1},
             (const int[8]){-1, 1, 2, -1, -1, -1, -1, -1});
      break;
    case ZR_OP_ROPE: /* theta is not an attribute of the rotation, nor are its others the table's */
      one.attr[ZR_ROPE_TABLE_FACTOR] = one.attr[ZR_ROPE_TABLE_ORIGINAL] = 0;
      one.kind = ZR_OP_ROPE_TABLE;
      one.real = 10000;
      derive(call, &one, (const int[8]){-1, -1, -1, -1, -1, -1, -1, -1},
             (const int[8]){0, -1, -1, -1, -1, -1, -1, -1});
      break;
    default:
      break;
  }
}

static bool is_input(const kern_call_t *call, int operand) {
  kern_role_t role = call->desc[operand].role;
  return role == KERN_READ || role == KERN_MODIFY ||
         (role == KERN_ADD && (call->shape.accumulate >> operand & 1u));
}

void kern_call_fill(kern_call_t *call, uint64_t seed) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (!is_input(call, i)) continue;
    uint64_t key = zr_mix64(seed * 64 + (uint64_t)i + 1);
    if (call->desc[i].type == KERN_I32) {
      fill_i32(call, i, key);
    } else if (call->desc[i].type == KERN_STARTS) {
      fill_starts(call, i, key);
    } else if (call->desc[i].type == KERN_CONTROL) {
      kern_control_fill(call->call.operand[i], call->control);
    } else if (call->desc[i].type == KERN_LAYOUT) {
      kern_layout_build(&call->shape, call->call.operand[i]);
    } else if (call->desc[i].type != KERN_REST) {
      for (int64_t n = 0; n < kern_call_n_elems(call, i); n++) {
        double value = kern_round((zr_dtype_t)call->stored[i], real_value(call, i, key, n));
        kern_call_set(call, i, n, call->desc[i].type == KERN_F64 ? fabs(4 * value) : value);
      }
    }
  }
  if (zr_kern_is_update(call->shape.kind) && call->compute != 0)
    split_masters(call, zr_mix64(seed * 64 + 1));
  if (zr_kern_is_update(call->shape.kind)) zero_padding(call);
  fill_derived(call);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++)
    if (call->block[i] != NULL)
      memcpy(call->snapshot[i], call->block[i], (size_t)call->block_bytes[i]);
}
