#include "runtime/model/model.h"

#include <math.h>
#include <string.h>

#include "kernels/rope_frequency.h"
#include "runtime/base/rng.h"
#include "runtime/model/arch.h"

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

const char *zr_model_arch_name(int32_t arch) {
  static const char *const name[] = {"GPT-2", "Llama", "Mistral", "Qwen2", "Qwen3"};
  return name[arch];
}

static zr_status_t resolve_rope(const zr_model_config_t *config) {
  if (config->head_dim % 2 != 0)
    return zr_fail(ZR_ERR_CONFIG, "model.head_dim: %lld is odd, rotary embedding needs pairs",
                   (long long)config->head_dim);
  if (!(config->rope_theta > 0)) return zr_fail(ZR_ERR_CONFIG, "model.rope_theta: must be above 0");
  if (config->rope_scaling == ZR_ROPE_PLAIN) return ZR_OK;
  if (!(config->rope_factor >= 1))
    return zr_fail(ZR_ERR_CONFIG, "model.rope_scaling.factor: must be given, and at least 1");
  if (config->rope_scaling == ZR_ROPE_LINEAR) return ZR_OK;
  if (!(config->rope_low_freq > 0) || !(config->rope_high_freq > config->rope_low_freq))
    return zr_fail(ZR_ERR_CONFIG,
                   "model.rope_scaling: llama3 needs low_freq_factor above 0 and high_freq_factor "
                   "above it, not %g and %g",
                   config->rope_low_freq, config->rope_high_freq);
  return check_range("rope_scaling.original_max_position_embeddings", config->rope_original, 1,
                     (int64_t)1 << 30);
}

/* Llama and Qwen3 may have biases in attention, Llama in its MLP; the rest is given. */
static zr_status_t resolve_biases(zr_model_config_t *config) {
  const char *name = zr_model_arch_name(config->arch);
  if (config->arch == ZR_ARCH_GPT2) config->attention_bias = config->mlp_bias = 1;
  if (config->arch == ZR_ARCH_QWEN2) config->attention_bias = 1;
  if (config->attention_bias && config->arch == ZR_ARCH_MISTRAL)
    return zr_fail(ZR_ERR_CONFIG, "model.attention_bias: %s has no biases in attention", name);
  if (config->mlp_bias && config->arch != ZR_ARCH_GPT2 && config->arch != ZR_ARCH_LLAMA)
    return zr_fail(ZR_ERR_CONFIG, "model.mlp_bias: %s has no biases in its MLP", name);
  return ZR_OK;
}

zr_activation_t zr_model_activation(int32_t arch) {
  return arch == ZR_ARCH_GPT2 ? ZR_ACTIVATION_GELU_TANH : ZR_ACTIVATION_SILU;
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
  }
  ZR_TRY(check_range("intermediate_size", config->intermediate_size, 1, (int64_t)1 << 24));
  if (config->arch != ZR_ARCH_GPT2) ZR_TRY(resolve_rope(config));
  ZR_TRY(resolve_biases(config));
  if (config->activation == ZR_ACTIVATION_DEFAULT)
    config->activation = zr_model_activation(config->arch);
  ZR_TRY(check_range("hidden_act", config->activation, 1, ZR_N_ACTIVATIONS - 1));
  if (!(config->norm_eps > 0)) return zr_fail(ZR_ERR_CONFIG, "model.rms_norm_eps: must be above 0");
  return ZR_OK;
}

int64_t zr_model_n_params(const zr_model_config_t *config) {
  int64_t h = config->hidden_size, i = config->intermediate_size, v = config->vocab_size;
  int64_t q = config->n_heads * config->head_dim, kv = config->n_kv_heads * config->head_dim;
  int64_t head = config->tie_word_embeddings ? 0 : v * h, biases = 0;
  if (config->arch == ZR_ARCH_GPT2)
    return v * h + config->max_positions * h + head + 2 * h +
           config->n_layers * (4 * h + 4 * h * h + 4 * h + 2 * h * i + i + h);
  if (config->attention_bias) biases += q + 2 * kv;
  if (config->attention_bias && config->arch != ZR_ARCH_QWEN2) biases += h;
  if (config->mlp_bias) biases += 2 * i + h;
  int64_t norms = 2 * h + (config->arch == ZR_ARCH_QWEN3 ? 2 * config->head_dim : 0);
  return v * h + head + h +
         config->n_layers * (norms + biases + 2 * q * h + 2 * kv * h + 3 * h * i);
}

zr_status_t zr_model_record(zr_alloc_t *alloc, const zr_model_config_t *config,
                            const zr_model_run_t *run, zr_tape_t **out_tape) {
  if (run->seq_len > config->max_positions)
    return zr_fail(ZR_ERR_CONFIG, "data.seq_len: %lld is longer than the model's %lld positions",
                   (long long)run->seq_len, (long long)config->max_positions);
  zr_tape_t *tape = NULL;
  ZR_TRY(zr_tape_create(alloc, run->micro_batch * run->seq_len, run->dtype, &tape));
  if (run->separate) zr_tape_add_starts(tape);
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

void zr_model_rope_table(const zr_model_config_t *config, int64_t seq_len,
                         int64_t out_attr[ZR_MAX_ATTRS]) {
  memset(out_attr, 0, ZR_MAX_ATTRS * sizeof *out_attr);
  out_attr[ZR_ROPE_SEQ] = seq_len;
  out_attr[ZR_ROPE_HEAD_DIM] = config->head_dim;
  if (config->rope_scaling == ZR_ROPE_PLAIN) return;
  out_attr[ZR_ROPE_TABLE_FACTOR] = zr_attr_of_double(config->rope_factor);
  if (config->rope_scaling == ZR_ROPE_LINEAR) return;
  out_attr[ZR_ROPE_TABLE_LOW_FREQ] = zr_attr_of_double(config->rope_low_freq);
  out_attr[ZR_ROPE_TABLE_HIGH_FREQ] = zr_attr_of_double(config->rope_high_freq);
  out_attr[ZR_ROPE_TABLE_ORIGINAL] = config->rope_original;
}

float zr_model_initial(const zr_model_config_t *config, uint64_t seed,
                       const zr_tape_tensor_t *tensor, int64_t index) {
  if (tensor->init == ZR_INIT_ONE) return 1.0f;
  if (tensor->init == ZR_INIT_ZERO) return 0.0f;
  double deviation = config->initializer_range;
  if (tensor->init == ZR_INIT_NORMAL_SCALED) deviation /= sqrt(2.0 * (double)config->n_layers);
  return (float)(deviation * zr_rng_normal(zr_rng_key(seed, tensor->name), (uint64_t)index));
}
