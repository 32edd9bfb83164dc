#include "runtime/model/model.h"

#include <math.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/model/arch.h"

void zr_model_defaults(zr_arch_t arch, zr_model_config_t *out_config) {
  static const zr_model_config_t defaults[] = {[ZR_ARCH_GPT2] = {.arch = ZR_ARCH_GPT2,
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
                                                                  .initializer_range = 0.02}};
  *out_config = defaults[arch];
}

typedef struct {
  const char *name;
  zr_arch_t arch;
  int64_t vocab, hidden, layers, heads, kv_heads, intermediate, positions, tied;
} preset_t;

static const preset_t presets[] = {
    {"gpt2", ZR_ARCH_GPT2, 50257, 768, 12, 12, 0, 0, 1024, 1},
    {"gpt2-medium", ZR_ARCH_GPT2, 50257, 1024, 24, 16, 0, 0, 1024, 1},
    {"gpt2-large", ZR_ARCH_GPT2, 50257, 1280, 36, 20, 0, 0, 1024, 1},
    {"gpt2-xl", ZR_ARCH_GPT2, 50257, 1600, 48, 25, 0, 0, 1024, 1},
    {"gpt2-tiny", ZR_ARCH_GPT2, 256, 128, 4, 4, 0, 0, 512, 1},
    {"llama-tiny", ZR_ARCH_LLAMA, 256, 256, 4, 4, 2, 768, 1024, 1},
    {"llama-2-7b", ZR_ARCH_LLAMA, 32000, 4096, 32, 32, 0, 11008, 4096, 0},
    {"tinyllama-1.1b", ZR_ARCH_LLAMA, 32000, 2048, 22, 32, 4, 5632, 2048, 0},
};

zr_status_t zr_model_preset(const char *name, zr_model_config_t *out_config) {
  char known[256] = "";
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
    const preset_t *preset = &presets[i];
    if (strcmp(preset->name, name) == 0) {
      zr_model_defaults(preset->arch, out_config);
      out_config->vocab_size = preset->vocab;
      out_config->hidden_size = preset->hidden;
      out_config->n_layers = preset->layers;
      out_config->n_heads = preset->heads;
      out_config->n_kv_heads = preset->kv_heads;
      out_config->intermediate_size = preset->intermediate;
      out_config->max_positions = preset->positions;
      out_config->tie_word_embeddings = preset->tied;
      return ZR_OK;
    }
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", preset->name);
  }
  return zr_fail(ZR_ERR_CONFIG, "model.preset: no preset \"%s\"; there are %s", name, known);
}

static zr_status_t check_range(const char *key, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return ZR_OK;
  return zr_fail(ZR_ERR_CONFIG, "model.%s: %lld is not in %lld .. %lld", key, (long long)value,
                 (long long)least, (long long)most);
}

static zr_status_t check_multiple(const char *key, int64_t value, const char *of_key, int64_t of) {
  if (value % of == 0) return ZR_OK;
  return zr_fail(ZR_ERR_CONFIG, "model.%s: %lld is not a multiple of model.%s (%lld)", key,
                 (long long)value, of_key, (long long)of);
}

static zr_status_t resolve_heads(zr_model_config_t *config) {
  ZR_TRY(check_range("num_attention_heads", config->n_heads, 1, 1 << 16));
  if (config->n_kv_heads == 0) config->n_kv_heads = config->n_heads;
  ZR_TRY(check_range("num_key_value_heads", config->n_kv_heads, 1, 1 << 16));
  ZR_TRY(check_multiple("num_attention_heads", config->n_heads, "num_key_value_heads",
                        config->n_kv_heads));
  if (config->head_dim == 0) {
    ZR_TRY(
        check_multiple("hidden_size", config->hidden_size, "num_attention_heads", config->n_heads));
    config->head_dim = config->hidden_size / config->n_heads;
  }
  return check_range("head_dim", config->head_dim, 1, 4096);
}

zr_status_t zr_model_resolve(zr_model_config_t *config) {
  ZR_TRY(check_range("vocab_size", config->vocab_size, 2, (int64_t)1 << 30));
  ZR_TRY(check_range("hidden_size", config->hidden_size, 1, (int64_t)1 << 20));
  ZR_TRY(check_range("num_hidden_layers", config->n_layers, 1, 30000));
  ZR_TRY(check_range("max_position_embeddings", config->max_positions, 1, (int64_t)1 << 30));
  ZR_TRY(resolve_heads(config));
  if (config->arch == ZR_ARCH_GPT2) {
    if (config->n_kv_heads != config->n_heads)
      return zr_fail(ZR_ERR_CONFIG, "model.num_key_value_heads: GPT-2 has no grouped heads");
    if (config->head_dim * config->n_heads != config->hidden_size)
      return zr_fail(ZR_ERR_CONFIG, "model.head_dim: GPT-2's is n_embd / n_head");
    if (config->intermediate_size == 0) config->intermediate_size = 4 * config->hidden_size;
  } else if (config->head_dim % 2 != 0) {
    return zr_fail(ZR_ERR_CONFIG, "model.head_dim: %lld is odd, rotary embedding needs pairs",
                   (long long)config->head_dim);
  }
  ZR_TRY(check_range("intermediate_size", config->intermediate_size, 1, (int64_t)1 << 24));
  if (config->arch == ZR_ARCH_LLAMA && !(config->rope_theta > 0))
    return zr_fail(ZR_ERR_CONFIG, "model.rope_theta: must be above 0");
  if (!(config->norm_eps > 0)) return zr_fail(ZR_ERR_CONFIG, "model.rms_norm_eps: must be above 0");
  return ZR_OK;
}

int64_t zr_model_n_params(const zr_model_config_t *config) {
  int64_t h = config->hidden_size, i = config->intermediate_size, v = config->vocab_size;
  int64_t q = config->n_heads * config->head_dim, kv = config->n_kv_heads * config->head_dim;
  int64_t head = config->tie_word_embeddings ? 0 : v * h;
  if (config->arch == ZR_ARCH_GPT2)
    return v * h + config->max_positions * h + head + 2 * h +
           config->n_layers * (4 * h + 4 * h * h + 4 * h + 2 * h * i + i + h);
  return v * h + head + h + config->n_layers * (2 * h + 2 * q * h + 2 * kv * h + 3 * h * i);
}

zr_status_t zr_model_record(zr_alloc_t *alloc, const zr_model_config_t *config,
                            const zr_model_run_t *run, zr_tape_t **out_tape) {
  if (run->seq_len > config->max_positions)
    return zr_fail(ZR_ERR_CONFIG, "data.seq_len: %lld is longer than the model's %lld positions",
                   (long long)run->seq_len, (long long)config->max_positions);
  zr_tape_t *tape = NULL;
  ZR_TRY(zr_tape_create(alloc, run->micro_batch * run->seq_len, run->dtype, &tape));
  if (config->arch == ZR_ARCH_GPT2) {
    zr_arch_gpt2_record(tape, config, run);
  } else {
    zr_arch_llama_record(tape, config, run);
  }
  zr_status_t status = run->training ? zr_tape_backward(tape) : tape->status;
  if (status != ZR_OK) {
    zr_tape_destroy(tape);
    return status;
  }
  *out_tape = tape;
  return ZR_OK;
}

float zr_model_initial(const zr_model_config_t *config, uint64_t seed,
                       const zr_tape_tensor_t *tensor, int64_t index) {
  if (tensor->init == ZR_INIT_ONE) return 1.0f;
  if (tensor->init == ZR_INIT_ZERO) return 0.0f;
  double deviation = config->initializer_range;
  if (tensor->init == ZR_INIT_NORMAL_SCALED) deviation /= sqrt(2.0 * (double)config->n_layers);
  return (float)(deviation * zr_rng_normal(zr_rng_key(seed, tensor->name), (uint64_t)index));
}
