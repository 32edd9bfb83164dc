/* GPT-2 as transformers' GPT2LMHeadModel: learned positions, pre-norm blocks, Conv1D weights [in,
 * out]. */
#include <stdio.h>

#include "runtime/model/arch.h"

typedef struct {
  int32_t weight, bias;
} pair_t;

static pair_t params(zr_tape_t *tape, const char *prefix, const char *name, int64_t rows,
                     int64_t cols, zr_init_t init) {
  char full[96];
  int n_dims = rows > 1 ? 2 : 1;
  snprintf(full, sizeof full, "%s%s.weight", prefix, name);
  pair_t pair = {.weight = zr_tape_param(tape, full, rows, cols, n_dims, init, false)};
  snprintf(full, sizeof full, "%s%s.bias", prefix, name);
  pair.bias = zr_tape_param(tape, full, 1, cols, 1, ZR_INIT_ZERO, false);
  return pair;
}

static int32_t block(zr_recorder_t *a, const char *prefix, int32_t h) {
  zr_tape_t *tape = a->tape;
  int64_t hidden = a->config->hidden_size, inner = a->config->intermediate_size;
  pair_t ln_1 = params(tape, prefix, "ln_1", 1, hidden, ZR_INIT_ONE);
  pair_t c_attn = params(tape, prefix, "attn.c_attn", hidden, 3 * hidden, ZR_INIT_NORMAL);
  pair_t attn_proj = params(tape, prefix, "attn.c_proj", hidden, hidden, ZR_INIT_NORMAL_SCALED);
  pair_t ln_2 = params(tape, prefix, "ln_2", 1, hidden, ZR_INIT_ONE);
  pair_t c_fc = params(tape, prefix, "mlp.c_fc", hidden, inner, ZR_INIT_NORMAL);
  pair_t mlp_proj = params(tape, prefix, "mlp.c_proj", inner, hidden, ZR_INIT_NORMAL_SCALED);

  int32_t x = zr_arch_layernorm(a, "ln_1", h, ln_1.weight, ln_1.bias);
  int32_t qkv = zr_arch_linear(a, "qkv", x, hidden, 3 * hidden, c_attn.weight, c_attn.bias, 1);
  int32_t att = zr_arch_attention(a, qkv);
  int32_t y = zr_arch_linear(a, "proj", att, hidden, hidden, attn_proj.weight, attn_proj.bias, 1);
  h = zr_arch_binary(a, ZR_OP_ADD, "h_mid", h, y);
  x = zr_arch_layernorm(a, "ln_2", h, ln_2.weight, ln_2.bias);
  int32_t up = zr_arch_linear(a, "fc", x, hidden, inner, c_fc.weight, c_fc.bias, 1);
  int32_t act = zr_arch_unary(a, ZR_OP_GELU, "gelu", up);
  y = zr_arch_linear(a, "mlp", act, inner, hidden, mlp_proj.weight, mlp_proj.bias, 1);
  return zr_arch_binary(a, ZR_OP_ADD, "h", h, y);
}

void zr_arch_gpt2_record(zr_tape_t *tape, const zr_model_config_t *config,
                         const zr_model_run_t *run) {
  zr_recorder_t a = {tape, config, run, run->micro_batch * run->seq_len, 0};
  zr_tape_unit(tape, "embed");
  int32_t wte = zr_tape_param(tape, "transformer.wte.weight", config->vocab_size,
                              config->hidden_size, 2, ZR_INIT_NORMAL, true);
  int32_t wpe = zr_tape_param(tape, "transformer.wpe.weight", config->max_positions,
                              config->hidden_size, 2, ZR_INIT_NORMAL, false);
  int32_t h = zr_arch_embedding(&a, wte, wpe);
  for (int64_t i = 0; i < config->n_layers; i++) {
    char name[32], prefix[48];
    snprintf(name, sizeof name, "h.%lld", (long long)i);
    snprintf(prefix, sizeof prefix, "transformer.h.%lld.", (long long)i);
    zr_tape_unit(tape, name);
    h = block(&a, prefix, h);
  }
  zr_tape_unit(tape, "head");
  pair_t ln_f = params(tape, "transformer.", "ln_f", 1, config->hidden_size, ZR_INIT_ONE);
  int32_t lm_head = wte;
  if (!config->tie_word_embeddings)
    lm_head = zr_tape_param(tape, "lm_head.weight", config->vocab_size, config->hidden_size, 2,
                            ZR_INIT_NORMAL, true);
  zr_arch_head(&a, zr_arch_layernorm(&a, "ln_f", h, ln_f.weight, ln_f.bias), lm_head);
}
