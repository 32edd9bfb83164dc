/* What transformers' configurations default to, and named shapes as their models' config.json has
 * them. */
#include <string.h>

#include "runtime/model/model.h"

static const zr_model_config_t defaults[] = {
    [ZR_ARCH_GPT2] = {.arch = ZR_ARCH_GPT2,
                      .vocab_size = 50257,
                      .hidden_size = 768,
                      .n_layers = 12,
                      .n_heads = 12,
                      .max_positions = 1024,
                      .norm_eps = 1e-5,
                      .initializer_range = 0.02,
                      .tie_word_embeddings = 1},
    [ZR_ARCH_LLAMA] = {.arch = ZR_ARCH_LLAMA,
                       .vocab_size = 32000,
                       .hidden_size = 4096,
                       .n_layers = 32,
                       .n_heads = 32,
                       .intermediate_size = 11008,
                       .max_positions = 2048,
                       .norm_eps = 1e-6,
                       .rope_theta = 10000.0,
                       .initializer_range = 0.02},
    [ZR_ARCH_MISTRAL] = {.arch = ZR_ARCH_MISTRAL,
                         .vocab_size = 32000,
                         .hidden_size = 4096,
                         .n_layers = 32,
                         .n_heads = 32,
                         .n_kv_heads = 8,
                         .intermediate_size = 14336,
                         .max_positions = 131072,
                         .norm_eps = 1e-6,
                         .rope_theta = 10000.0,
                         .initializer_range = 0.02,
                         .sliding_window = 4096},
    [ZR_ARCH_QWEN2] = {.arch = ZR_ARCH_QWEN2,
                       .vocab_size = 151936,
                       .hidden_size = 4096,
                       .n_layers = 32,
                       .n_heads = 32,
                       .intermediate_size = 22016,
                       .max_positions = 32768,
                       .norm_eps = 1e-6,
                       .rope_theta = 10000.0,
                       .initializer_range = 0.02,
                       .attention_bias = 1,
                       .window_first_layer = 28},
    [ZR_ARCH_QWEN3] = {.arch = ZR_ARCH_QWEN3,
                       .vocab_size = 151936,
                       .hidden_size = 4096,
                       .n_layers = 32,
                       .n_heads = 32,
                       .head_dim = 128,
                       .intermediate_size = 22016,
                       .max_positions = 32768,
                       .norm_eps = 1e-6,
                       .rope_theta = 10000.0,
                       .initializer_range = 0.02,
                       .window_first_layer = 28},
};

void zr_model_defaults(zr_arch_t arch, zr_model_config_t *out_config) {
  *out_config = defaults[arch];
}

typedef struct {
  const char *name;
  zr_arch_t arch;
  int64_t vocab, hidden, layers, heads, kv_heads, head_dim, intermediate, positions, tied;
  double eps, theta; /* 0: the architecture's default */
} preset_t;

static const preset_t presets[] = {
    {"gpt2", ZR_ARCH_GPT2, 50257, 768, 12, 12, 0, 0, 0, 1024, 1, 0, 0},
    {"gpt2-medium", ZR_ARCH_GPT2, 50257, 1024, 24, 16, 0, 0, 0, 1024, 1, 0, 0},
    {"gpt2-large", ZR_ARCH_GPT2, 50257, 1280, 36, 20, 0, 0, 0, 1024, 1, 0, 0},
    {"gpt2-xl", ZR_ARCH_GPT2, 50257, 1600, 48, 25, 0, 0, 0, 1024, 1, 0, 0},
    {"gpt2-tiny", ZR_ARCH_GPT2, 256, 128, 4, 4, 0, 0, 0, 512, 1, 0, 0},
    {"llama-tiny", ZR_ARCH_LLAMA, 256, 256, 4, 4, 2, 0, 768, 1024, 1, 0, 0},
    {"llama-2-7b", ZR_ARCH_LLAMA, 32000, 4096, 32, 32, 0, 0, 11008, 4096, 0, 1e-5, 0},
    {"tinyllama-1.1b", ZR_ARCH_LLAMA, 32000, 2048, 22, 32, 4, 0, 5632, 2048, 0, 1e-5, 0},
    {"llama-3-8b", ZR_ARCH_LLAMA, 128256, 4096, 32, 32, 8, 0, 14336, 8192, 0, 1e-5, 5e5},
    {"llama-3.2-1b", ZR_ARCH_LLAMA, 128256, 2048, 16, 32, 8, 64, 8192, 131072, 1, 1e-5, 5e5},
    {"mistral-7b", ZR_ARCH_MISTRAL, 32000, 4096, 32, 32, 8, 0, 14336, 32768, 0, 1e-5, 1e4},
    {"qwen2-0.5b", ZR_ARCH_QWEN2, 151936, 896, 24, 14, 2, 0, 4864, 131072, 1, 1e-6, 1e6},
    {"qwen3-0.6b", ZR_ARCH_QWEN3, 151936, 1024, 28, 16, 8, 128, 3072, 40960, 1, 1e-6, 1e6},
};

static void take(const preset_t *preset, zr_model_config_t *out_config) {
  zr_model_defaults(preset->arch, out_config);
  out_config->vocab_size = preset->vocab;
  out_config->hidden_size = preset->hidden;
  out_config->n_layers = preset->layers;
  out_config->n_heads = preset->heads;
  out_config->n_kv_heads = preset->kv_heads;
  out_config->head_dim = preset->head_dim;
  out_config->intermediate_size = preset->intermediate;
  out_config->max_positions = preset->positions;
  out_config->tie_word_embeddings = preset->tied;
  if (preset->eps > 0) out_config->norm_eps = preset->eps;
  if (preset->theta > 0) out_config->rope_theta = preset->theta;
  if (strcmp(preset->name, "llama-3.2-1b") != 0) return;
  out_config->rope_scaling = ZR_ROPE_LLAMA3;
  out_config->rope_factor = 32;
  out_config->rope_low_freq = 1;
  out_config->rope_high_freq = 4;
  out_config->rope_original = 8192;
}

zr_status_t zr_model_preset(const char *name, zr_model_config_t *out_config) {
  char known[512] = "";
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
    if (strcmp(presets[i].name, name) == 0) {
      take(&presets[i], out_config);
      return ZR_OK;
    }
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", presets[i].name);
  }
  return zr_fail(ZR_ERR_CONFIG, "model.preset: no preset \"%s\"; there are %s", name, known);
}
