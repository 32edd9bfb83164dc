/* Llama as transformers' LlamaForCausalLM: RMSNorm, rotary positions, grouped KV heads, SwiGLU; and
 * its family: Mistral, Qwen2 with biases of q, k and v, Qwen3 with a norm of each q and k head. */
#include <stdio.h>

#include "runtime/model/arch.h"

static int32_t weight(zr_tape_t *tape, const char *prefix, const char *name, int64_t rows,
                      int64_t cols) {
  char full[96];
  snprintf(full, sizeof full, "%s%s.weight", prefix, name);
  return zr_tape_param(tape, full, rows, cols, rows > 1 ? 2 : 1,
                       rows > 1 ? ZR_INIT_NORMAL : ZR_INIT_ONE, false);
}

typedef struct {
  int32_t weight, bias;
} linear_t;

static linear_t linear(zr_tape_t *tape, const char *prefix, const char *name, int64_t rows,
                       int64_t cols, bool has_bias) {
  char full[96];
  linear_t l = {weight(tape, prefix, name, rows, cols), -1};
  snprintf(full, sizeof full, "%s%s.bias", prefix, name);
  if (has_bias) l.bias = zr_tape_param(tape, full, 1, rows, 1, ZR_INIT_ZERO, false);
  return l;
}

static int32_t apply(zr_recorder_t *a, const char *name, int32_t x, int64_t in, int64_t out,
                     linear_t l) {
  return zr_arch_linear(a, name, x, in, out, l.weight, l.bias, 0);
}

/* `heads` heads into columns of qkv, each through a norm of its own: Qwen3's q and k. */
static void normed_heads(zr_recorder_t *a, const char *name, int32_t x, int64_t heads, linear_t l,
                         int32_t norm, int32_t qkv, int64_t column, int64_t ld) {
  char norm_name[24];
  snprintf(norm_name, sizeof norm_name, "%s_norm", name);
  int32_t y = apply(a, name, x, a->config->hidden_size, heads * a->config->head_dim, l);
  zr_arch_head_norm_into(a, norm_name, y, heads, norm, qkv, column, ld);
}

static int32_t attention(zr_recorder_t *a, const char *prefix, int32_t x) {
  const zr_model_config_t *c = a->config;
  zr_tape_t *tape = a->tape;
  int64_t hidden = c->hidden_size, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
  int64_t ld = q + 2 * kv;
  bool bias = c->attention_bias != 0, o_bias = bias && c->arch != ZR_ARCH_QWEN2;
  linear_t q_proj = linear(tape, prefix, "self_attn.q_proj", q, hidden, bias);
  linear_t k_proj = linear(tape, prefix, "self_attn.k_proj", kv, hidden, bias);
  linear_t v_proj = linear(tape, prefix, "self_attn.v_proj", kv, hidden, bias);
  linear_t o_proj = linear(tape, prefix, "self_attn.o_proj", hidden, q, o_bias);
  int32_t qkv = zr_tape_value(tape, "qkv", a->rows * ld); /* [T, q | k | v] */
  if (c->arch == ZR_ARCH_QWEN3) {
    int32_t q_norm = weight(tape, prefix, "self_attn.q_norm", 1, c->head_dim);
    int32_t k_norm = weight(tape, prefix, "self_attn.k_norm", 1, c->head_dim);
    normed_heads(a, "q", x, c->n_heads, q_proj, q_norm, qkv, 0, ld);
    normed_heads(a, "k", x, c->n_kv_heads, k_proj, k_norm, qkv, q, ld);
  } else {
    zr_arch_linear_into(a, x, hidden, q, q_proj.weight, q_proj.bias, 0, qkv, 0, ld);
    zr_arch_linear_into(a, x, hidden, kv, k_proj.weight, k_proj.bias, 0, qkv, q, ld);
  }
  zr_arch_linear_into(a, x, hidden, kv, v_proj.weight, v_proj.bias, 0, qkv, q + kv, ld);
  zr_arch_rope(a, qkv);
  return apply(a, "proj", zr_arch_attention(a, qkv), q, hidden, o_proj);
}

static int32_t mlp(zr_recorder_t *a, const char *prefix, int32_t x) {
  int64_t hidden = a->config->hidden_size, inner = a->config->intermediate_size;
  bool bias = a->config->mlp_bias != 0;
  linear_t gate_proj = linear(a->tape, prefix, "mlp.gate_proj", inner, hidden, bias);
  linear_t up_proj = linear(a->tape, prefix, "mlp.up_proj", inner, hidden, bias);
  linear_t down_proj = linear(a->tape, prefix, "mlp.down_proj", hidden, inner, bias);
  int32_t gate = apply(a, "gate", x, hidden, inner, gate_proj);
  int32_t up = apply(a, "up", x, hidden, inner, up_proj);
  int32_t act = zr_arch_binary(a, ZR_OP_SWIGLU, "act", gate, up);
  return apply(a, "mlp", act, inner, hidden, down_proj);
}

static int32_t block(zr_recorder_t *a, const char *prefix, int32_t h) {
  zr_tape_t *tape = a->tape;
  int64_t hidden = a->config->hidden_size;
  int32_t norm_1 = weight(tape, prefix, "input_layernorm", 1, hidden);
  int32_t y = attention(a, prefix, zr_arch_rmsnorm(a, "norm_1", h, norm_1));
  h = zr_arch_binary(a, ZR_OP_ADD, "h_mid", h, y);
  int32_t norm_2 = weight(tape, prefix, "post_attention_layernorm", 1, hidden);
  y = mlp(a, prefix, zr_arch_rmsnorm(a, "norm_2", h, norm_2));
  return zr_arch_binary(a, ZR_OP_ADD, "h", h, y);
}

void zr_arch_llama_record(zr_tape_t *tape, const zr_model_config_t *config,
                          const zr_model_run_t *run) {
  zr_recorder_t a = {tape, config, run, run->micro_batch * run->seq_len, 0};
  zr_tape_unit(tape, "embed");
  tape->rope_table = zr_tape_value(tape, "rope", run->seq_len * config->head_dim);
  if (tape->status == ZR_OK) {
    tape->value[tape->rope_table].kind = ZR_VALUE_TABLE;
    tape->value[tape->rope_table].dtype = ZR_F32;
  }
  int32_t embed = zr_tape_param(tape, "model.embed_tokens.weight", config->vocab_size,
                                config->hidden_size, 2, ZR_INIT_NORMAL, true);
  int32_t h = zr_arch_embedding(&a, embed, -1);
  for (int64_t i = 0; i < config->n_layers; i++) {
    char name[32], prefix[48];
    snprintf(name, sizeof name, "layers.%lld", (long long)i);
    snprintf(prefix, sizeof prefix, "model.layers.%lld.", (long long)i);
    zr_tape_unit(tape, name);
    bool sees_all = i < config->window_first_layer || config->sliding_window >= run->seq_len;
    a.window = sees_all ? 0 : config->sliding_window;
    h = block(&a, prefix, h);
  }
  zr_tape_unit(tape, "head");
  int32_t norm = weight(tape, "model.", "norm", 1, config->hidden_size);
  int32_t lm_head = embed;
  if (!config->tie_word_embeddings)
    lm_head = zr_tape_param(tape, "lm_head.weight", config->vocab_size, config->hidden_size, 2,
                            ZR_INIT_NORMAL, true);
  zr_arch_head(&a, zr_arch_rmsnorm(&a, "norm", h, norm), lm_head);
}
