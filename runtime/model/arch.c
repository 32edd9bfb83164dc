#include "runtime/model/arch.h"

#define ALL(value, access) zr_tape_all(a->tape, value, access)

static zr_tape_operand_t starts_operand(const zr_recorder_t *a) {
  int32_t starts = a->tape->starts;
  return starts < 0 ? zr_tape_none() : ALL(starts, ZR_READ);
}

int32_t zr_arch_embedding(zr_recorder_t *a, int32_t table, int32_t positions) {
  const zr_model_config_t *c = a->config;
  int32_t y = zr_tape_value(a->tape, "h", a->rows * c->hidden_size);
  int64_t pos_rows = positions < 0 ? 0 : c->max_positions;
  int64_t attr[] = {a->rows, c->hidden_size, (c->vocab_size + 63) / 64 * 64, a->run->seq_len,
                    pos_rows};
  zr_tape_operand_t operand[] = {ALL(a->tape->tokens, ZR_READ), ALL(table, ZR_READ),
                                 positions < 0 ? zr_tape_none() : ALL(positions, ZR_READ),
                                 ALL(y, ZR_WRITE), starts_operand(a)};
  int n_operands = positions >= 0 && a->tape->starts >= 0 ? 5 : 4;
  zr_tape_record(a->tape, ZR_OP_EMBEDDING, attr, 0, n_operands, operand);
  return y;
}

void zr_arch_linear_into(zr_recorder_t *a, int32_t x, int64_t in, int64_t out, int32_t weight,
                         int32_t bias, int w_io, int32_t y, int64_t column, int64_t ldy) {
  int64_t attr[] = {a->rows, in, out, in, ldy, w_io};
  zr_tape_operand_t operand[] = {ALL(x, ZR_READ), ALL(weight, ZR_READ),
                                 bias < 0 ? zr_tape_none() : ALL(bias, ZR_READ),
                                 zr_tape_part(y, column, (a->rows - 1) * ldy + out, ZR_WRITE)};
  zr_tape_record(a->tape, ZR_OP_LINEAR, attr, 0, 4, operand);
}

int32_t zr_arch_linear(zr_recorder_t *a, const char *name, int32_t x, int64_t in, int64_t out,
                       int32_t weight, int32_t bias, int w_io) {
  int32_t y = zr_tape_value(a->tape, name, a->rows * out);
  zr_arch_linear_into(a, x, in, out, weight, bias, w_io, y, 0, out);
  return y;
}

/* Statistics stay fp32 whatever the compute type. */
static int32_t fp32_value(zr_recorder_t *a, const char *name, int64_t elems) {
  int32_t value = zr_tape_value(a->tape, name, elems);
  if (a->tape->status == ZR_OK) a->tape->value[value].dtype = ZR_F32;
  return value;
}

static int32_t stats_value(zr_recorder_t *a, const char *norm, int64_t elems) {
  char name[32];
  snprintf(name, sizeof name, "%s.stats", norm);
  return fp32_value(a, name, elems);
}

int32_t zr_arch_layernorm(zr_recorder_t *a, const char *name, int32_t x, int32_t weight,
                          int32_t bias) {
  int32_t y = zr_tape_value(a->tape, name, a->rows * a->config->hidden_size);
  int32_t stats = stats_value(a, name, a->rows * 2);
  int64_t attr[] = {a->rows, a->config->hidden_size};
  zr_tape_operand_t operand[] = {ALL(x, ZR_READ), ALL(weight, ZR_READ), ALL(bias, ZR_READ),
                                 ALL(y, ZR_WRITE), ALL(stats, ZR_WRITE)};
  zr_tape_record(a->tape, ZR_OP_LAYERNORM, attr, a->config->norm_eps, 5, operand);
  return y;
}

int32_t zr_arch_rmsnorm(zr_recorder_t *a, const char *name, int32_t x, int32_t weight) {
  int32_t y = zr_tape_value(a->tape, name, a->rows * a->config->hidden_size);
  int32_t stats = stats_value(a, name, a->rows);
  int64_t attr[] = {a->rows, a->config->hidden_size};
  zr_tape_operand_t operand[] = {ALL(x, ZR_READ), ALL(weight, ZR_READ), ALL(y, ZR_WRITE),
                                 ALL(stats, ZR_WRITE)};
  zr_tape_record(a->tape, ZR_OP_RMSNORM, attr, a->config->norm_eps, 4, operand);
  return y;
}

void zr_arch_head_norm_into(zr_recorder_t *a, const char *name, int32_t x, int64_t heads,
                            int32_t weight, int32_t y, int64_t column, int64_t ldy) {
  int64_t dim = a->config->head_dim, attr[] = {a->rows, heads, dim, ldy};
  int32_t stats = stats_value(a, name, a->rows * heads);
  zr_tape_operand_t operand[] = {
      ALL(x, ZR_READ), ALL(weight, ZR_READ),
      zr_tape_part(y, column, (a->rows - 1) * ldy + heads * dim, ZR_WRITE), ALL(stats, ZR_WRITE)};
  zr_tape_record(a->tape, ZR_OP_HEAD_NORM, attr, a->config->norm_eps, 4, operand);
}

void zr_arch_rope(zr_recorder_t *a, int32_t qkv) {
  const zr_model_config_t *c = a->config;
  int64_t ld = (c->n_heads + 2 * c->n_kv_heads) * c->head_dim, heads = c->n_heads + c->n_kv_heads;
  int64_t attr[] = {a->rows, a->run->seq_len, heads, c->head_dim, ld, 0};
  zr_tape_operand_t operand[] = {
      ALL(a->tape->rope_table, ZR_READ),
      zr_tape_part(qkv, 0, (a->rows - 1) * ld + heads * c->head_dim, ZR_ACCUMULATE)};
  zr_tape_record(a->tape, ZR_OP_ROPE, attr, 0, 2, operand);
}

int32_t zr_arch_attention(zr_recorder_t *a, int32_t qkv) {
  const zr_model_config_t *c = a->config;
  int32_t y = zr_tape_value(a->tape, "att", a->rows * c->n_heads * c->head_dim);
  int32_t lse = fp32_value(a, "lse", a->rows * c->n_heads);
  int64_t attr[] = {a->run->micro_batch, a->run->seq_len, c->n_heads,
                    c->n_kv_heads,       c->head_dim,     a->window};
  zr_tape_operand_t operand[] = {ALL(qkv, ZR_READ), ALL(y, ZR_WRITE), ALL(lse, ZR_WRITE),
                                 starts_operand(a)};
  double scale = 1.0 / __builtin_sqrt((double)c->head_dim);
  zr_tape_record(a->tape, ZR_OP_ATTENTION, attr, scale, a->tape->starts < 0 ? 3 : 4, operand);
  return y;
}

/* As an attribute: what an architecture has of itself is the kind's own. */
static int64_t activation(const zr_model_config_t *c) {
  static const int64_t act[] = {[ZR_ACTIVATION_SILU] = ZR_ACT_SILU,
                                [ZR_ACTIVATION_GELU_TANH] = ZR_ACT_GELU_TANH,
                                [ZR_ACTIVATION_GELU_ERF] = ZR_ACT_GELU_ERF,
                                [ZR_ACTIVATION_RELU] = ZR_ACT_RELU};
  return c->activation == zr_model_activation(c->arch) ? ZR_ACT_OWN : act[c->activation];
}

int32_t zr_arch_unary(zr_recorder_t *a, int32_t kind, const char *name, int32_t x) {
  int64_t attr[] = {ALL(x, ZR_READ).elems, activation(a->config)};
  int32_t y = zr_tape_value(a->tape, name, attr[0]);
  zr_tape_operand_t operand[] = {ALL(x, ZR_READ), ALL(y, ZR_WRITE)};
  zr_tape_record(a->tape, kind, attr, 0, 2, operand);
  return y;
}

int32_t zr_arch_binary(zr_recorder_t *a, int32_t kind, const char *name, int32_t x, int32_t y) {
  int64_t attr[] = {ALL(x, ZR_READ).elems, activation(a->config)};
  int32_t z = zr_tape_value(a->tape, name, attr[0]);
  zr_tape_operand_t operand[] = {ALL(x, ZR_READ), ALL(y, ZR_READ), ALL(z, ZR_WRITE)};
  zr_tape_record(a->tape, kind, attr, 0, 3, operand);
  return z;
}

void zr_arch_head(zr_recorder_t *a, int32_t x, int32_t weight) {
  const zr_model_config_t *c = a->config;
  zr_tape_t *tape = a->tape;
  int64_t chunk = a->run->logits_chunk < a->rows ? a->run->logits_chunk : a->rows;
  int64_t attr[] = {a->rows, c->hidden_size, c->vocab_size, (c->vocab_size + 63) / 64 * 64, chunk};
  if (a->run->training) {
    zr_tape_operand_t operand[] = {ALL(x, ZR_READ),
                                   ALL(weight, ZR_READ),
                                   ALL(tape->targets, ZR_READ),
                                   ALL(tape->control, ZR_READ),
                                   ALL(tape->losses, ZR_WRITE),
                                   ALL(zr_tape_grad(tape, x), ZR_WRITE),
                                   ALL(zr_tape_param_grad(tape, weight), ZR_WRITE)};
    zr_tape_record(tape, ZR_OP_HEAD_LOSS, attr, 0, 7, operand);
  } else {
    zr_tape_operand_t operand[] = {ALL(x, ZR_READ), ALL(weight, ZR_READ),
                                   ALL(tape->targets, ZR_READ), ALL(tape->losses, ZR_WRITE)};
    zr_tape_record(tape, ZR_OP_HEAD_EVAL, attr, 0, 4, operand);
  }
  zr_tape_operand_t sum[] = {ALL(tape->losses, ZR_READ), ALL(tape->control, ZR_ACCUMULATE)};
  zr_tape_record(tape, ZR_OP_LOSS_SUM, &a->rows, 0, 2, sum);
}
