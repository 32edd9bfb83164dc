/* The model's shape: a preset or an architecture's defaults, under the keys that are given; what an
 * architecture does not have, or zerorun has no kernel for, is refused by name. */
#include <stddef.h>
#include <string.h>

#include "runtime/train/config.h"

static bool is_given(const zr_config_file_t *config, const char *key) {
  int64_t row = zr_options_find(config->options, key);
  return row >= 0 && zr_options_source(config->options, (size_t)row) != ZR_OPTION_FROM_DEFAULT;
}

static zr_status_t put(zr_config_file_t *config, const char *key, const char *text) {
  return zr_options_set(config->options, key, text, ZR_OPTION_FROM_PROGRAM, "resolved");
}

static zr_status_t put_int(zr_config_file_t *config, const char *key, int64_t value) {
  char text[32];
  (void)snprintf(text, sizeof text, "%lld", (long long)value);
  return put(config, key, text);
}

static zr_status_t put_double(zr_config_file_t *config, const char *key, double value) {
  char text[40];
  (void)snprintf(text, sizeof text, "%.17g", value);
  return put(config, key, text);
}

typedef struct {
  const char *key;
  size_t offset;
  bool is_real;
} shape_row_t;

#define ROW(name, field, real) \
  { "model." name, offsetof(zr_model_config_t, field), real }
static const shape_row_t shape_rows[] = {
    ROW("vocab_size", vocab_size, false),
    ROW("hidden_size", hidden_size, false),
    ROW("num_hidden_layers", n_layers, false),
    ROW("num_attention_heads", n_heads, false),
    ROW("num_key_value_heads", n_kv_heads, false),
    ROW("head_dim", head_dim, false),
    ROW("intermediate_size", intermediate_size, false),
    ROW("max_position_embeddings", max_positions, false),
    ROW("rms_norm_eps", norm_eps, true),
    ROW("rope_theta", rope_theta, true),
    ROW("initializer_range", initializer_range, true),
    ROW("rope_scaling.factor", rope_factor, true),
    ROW("rope_scaling.low_freq_factor", rope_low_freq, true),
    ROW("rope_scaling.high_freq_factor", rope_high_freq, true),
    ROW("rope_scaling.original_max_position_embeddings", rope_original, false),
};
enum { N_SHAPE_ROWS = sizeof shape_rows / sizeof shape_rows[0] };
#define ALL_CLASSES \
  "GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"
static const char *const arch_classes[] = {"GPT2LMHeadModel", "LlamaForCausalLM",
                                           "MistralForCausalLM", "Qwen2ForCausalLM",
                                           "Qwen3ForCausalLM"};
static const char *const arch_types[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};

static zr_status_t choose_arch(const zr_config_file_t *config, int *out_arch) {
  const zr_config_t *v = &config->values;
  int arch = -1;
  if (v->architectures.n_items > 0) {
    for (int i = 0; i < ZR_N_ARCHS; ++i) {
      if (strcmp(v->architectures.items[0], arch_classes[i]) == 0) arch = i;
    }
    if (arch < 0 || v->architectures.n_items > 1) {
      return zr_options_complain(config->options, "model.architectures",
                                 "must be one of " ALL_CLASSES ", not '%.80s'",
                                 v->architectures.items[v->architectures.n_items - 1]);
    }
  }
  if (v->model_type != ZR_N_ARCHS) {
    if (arch >= 0 && arch != v->model_type) {
      return zr_options_complain(config->options, "model.model_type",
                                 "is %s, but model.architectures is %s; keep one",
                                 arch_types[v->model_type], arch_classes[arch]);
    }
    arch = v->model_type;
  }
  *out_arch = arch;
  return ZR_OK;
}

static zr_status_t start_shape(const zr_config_file_t *config, zr_model_config_t *out_shape) {
  const zr_config_t *v = &config->values;
  int arch = -1;
  ZR_TRY(choose_arch(config, &arch));
  if (v->model_preset != NULL) {
    ZR_TRY(zr_model_preset(v->model_preset, out_shape));
    if (arch >= 0 && arch != out_shape->arch) {
      return zr_options_complain(config->options, "model.preset",
                                 "'%s' is a %s, but model.* says %s; keep one", v->model_preset,
                                 arch_types[out_shape->arch], arch_types[arch]);
    }
    return ZR_OK;
  }
  if (arch < 0) {
    return zr_fail(ZR_ERR_CONFIG,
                   "no model is given: set model.preset, or model.architectures (" ALL_CLASSES
                   ") with the shape in Hugging Face's names");
  }
  zr_model_defaults((zr_arch_t)arch, out_shape);
  return ZR_OK;
}

/* The shape's own fields win over the preset's or the architecture's. */
static void overlay_shape(const zr_config_file_t *config, zr_model_config_t *shape) {
  const char *given = (const char *)&config->values.shape;
  for (int i = 0; i < N_SHAPE_ROWS; ++i) {
    int64_t bits;
    memcpy(&bits, given + shape_rows[i].offset, sizeof bits);
    if (bits != 0) memcpy((char *)shape + shape_rows[i].offset, &bits, sizeof bits);
  }
  /* What hangs on a given field is derived again, unless it is given too. */
  const zr_model_config_t *own = &config->values.shape;
  const bool derives = shape->arch != ZR_ARCH_QWEN3; /* its heads are 128 wide whatever the rest */
  if ((own->hidden_size || own->n_heads) && !own->head_dim && derives) shape->head_dim = 0;
  if (own->n_heads && !own->n_kv_heads) shape->n_kv_heads = 0;
  if (own->hidden_size && !own->intermediate_size && shape->arch == ZR_ARCH_GPT2) {
    shape->intermediate_size = 0;
  }
  if (config->values.tie_word_embeddings != ZR_OPTION_AUTO_BOOL) {
    shape->tie_word_embeddings = config->values.tie_word_embeddings;
  }
}

/* Of GPT-2 that it has positions of its own, of Qwen2 that its biases are given, and so on. */
static zr_status_t refuse_key(const zr_config_file_t *config, const char *key, int32_t arch,
                              const char *why) {
  return zr_options_complain(config->options, key, "does not go with %s: %s; leave it out",
                             zr_model_arch_name(arch), why);
}

static zr_status_t take_biases(const zr_config_file_t *config, zr_model_config_t *shape) {
  const zr_config_t *v = &config->values;
  int32_t arch = shape->arch;
  bool always = arch == ZR_ARCH_GPT2 || arch == ZR_ARCH_QWEN2, never = arch == ZR_ARCH_MISTRAL;
  if (v->attention_bias == 0 && always)
    return refuse_key(config, "model.attention_bias", arch, "it always has biases in attention");
  if (v->attention_bias == 1 && never)
    return refuse_key(config, "model.attention_bias", arch, "it has no biases in attention");
  if (v->mlp_bias == 0 && arch == ZR_ARCH_GPT2)
    return refuse_key(config, "model.mlp_bias", arch, "its MLP always has biases");
  if (v->mlp_bias == 1 && arch != ZR_ARCH_GPT2 && arch != ZR_ARCH_LLAMA)
    return refuse_key(config, "model.mlp_bias", arch, "its MLP has no biases");
  if (v->attention_bias >= 0) shape->attention_bias = v->attention_bias;
  if (v->mlp_bias >= 0) shape->mlp_bias = v->mlp_bias;
  return ZR_OK;
}

/* In the order of the option's names. */
static void take_activation(const zr_config_file_t *config, zr_model_config_t *shape) {
  static const int64_t activation[] = {
      ZR_ACTIVATION_DEFAULT,   ZR_ACTIVATION_SILU,     ZR_ACTIVATION_SILU, ZR_ACTIVATION_GELU_TANH,
      ZR_ACTIVATION_GELU_TANH, ZR_ACTIVATION_GELU_ERF, ZR_ACTIVATION_RELU};
  shape->activation = activation[config->values.hidden_act];
}

static bool is_qwen(const zr_model_config_t *shape) {
  return shape->arch == ZR_ARCH_QWEN2 || shape->arch == ZR_ARCH_QWEN3;
}

/* Layers that see all, then layers with a window: what max_window_layers can say. */
static zr_status_t take_layer_types(const zr_config_file_t *config, zr_model_config_t *shape) {
  const zr_config_t *v = &config->values;
  int64_t n_full = 0, n = (int64_t)v->layer_types.n_items;
  if (n == 0) return ZR_OK;
  for (int64_t i = 0; i < n; ++i) {
    const char *type = v->layer_types.items[i];
    bool full = strcmp(type, "full_attention") == 0;
    if (full && n_full == i) {
      ++n_full;
    } else if (full || strcmp(type, "sliding_attention") != 0 || shape->sliding_window == 0) {
      return zr_options_complain(config->options, "model.layer_types",
                                 "has '%.40s' as layer %lld: there are layers of full_attention, "
                                 "and behind them with model.sliding_window of sliding_attention",
                                 type, (long long)i);
    }
  }
  if (n != shape->n_layers) {
    return zr_options_complain(config->options, "model.layer_types",
                               "names %lld layers, model.num_hidden_layers is %lld", (long long)n,
                               (long long)shape->n_layers);
  }
  shape->window_first_layer = n_full;
  return ZR_OK;
}

/* Qwen's configurations name a window that use_sliding_window turns on, from a layer on. */
static zr_status_t take_window(const zr_config_file_t *config, zr_model_config_t *shape) {
  const zr_config_t *v = &config->values;
  bool given = is_given(config, "model.sliding_window");
  bool qwen = is_qwen(shape);
  if (given) shape->sliding_window = v->sliding_window > 0 ? v->sliding_window : 0;
  if (qwen && v->use_sliding_window == 1 && !given) shape->sliding_window = 4096;
  if (v->use_sliding_window == 0 || (qwen && v->use_sliding_window != 1)) shape->sliding_window = 0;
  if (shape->sliding_window > 0 && shape->arch == ZR_ARCH_GPT2)
    return refuse_key(config, "model.sliding_window", shape->arch, "it sees all positions");
  bool layers_given = v->max_window_layers >= 0;
  if (layers_given && !qwen)
    return refuse_key(config, "model.max_window_layers", shape->arch, "its layers are all alike");
  if (layers_given) shape->window_first_layer = v->max_window_layers;
  return take_layer_types(config, shape);
}

static zr_status_t take_rope(const zr_config_file_t *config, zr_model_config_t *shape) {
  static const char *const later[] = {"dynamic", "yarn", "longrope"};
  enum { N_TYPES = ZR_ROPE_LLAMA3 + 1, N_LATER = 3 };
  static const char key[] = "model.rope_scaling.rope_type";
  int type = config->values.rope_type;
  if (shape->arch == ZR_ARCH_GPT2 && is_given(config, "model.rope_theta"))
    return refuse_key(config, "model.rope_theta", shape->arch, "it has learned positions");
  if (type < N_TYPES && shape->arch == ZR_ARCH_GPT2)
    return refuse_key(config, key, shape->arch, "it has learned positions");
  if (type >= N_TYPES && type < N_TYPES + N_LATER) {
    zr_status_t status = zr_options_complain(config->options, key,
                                             "= %s is not built yet; there are default, "
                                             "linear and llama3",
                                             later[type - N_TYPES]);
    return status == ZR_ERR_CONFIG ? ZR_ERR_UNSUPPORTED : status;
  }
  if (type < N_TYPES) shape->rope_scaling = type;
  if (shape->rope_scaling == ZR_ROPE_PLAIN && shape->rope_factor > 0 && type != ZR_ROPE_PLAIN)
    return zr_options_complain(config->options, "model.rope_scaling.factor",
                               "needs rope_type beside it: linear or llama3");
  if (shape->rope_scaling == ZR_ROPE_PLAIN)
    shape->rope_factor = shape->rope_low_freq = shape->rope_high_freq = 0;
  if (shape->rope_scaling == ZR_ROPE_PLAIN) shape->rope_original = 0;
  return ZR_OK;
}

static zr_status_t check_length(zr_config_file_t *config, zr_model_config_t *shape) {
  zr_config_t *v = &config->values;
  if (v->seq_len == 0) {
    return zr_fail(ZR_ERR_CONFIG, "data.seq_len is not given: set it to the tokens of a sample");
  }
  if (v->shape.max_positions == 0 && shape->arch != ZR_ARCH_GPT2 &&
      shape->max_positions < v->seq_len) {
    shape->max_positions = v->seq_len;
  }
  if (v->seq_len > shape->max_positions) {
    return zr_options_complain(
        config->options, "data.seq_len",
        "= %lld is longer than the model's model.max_position_embeddings = %lld",
        (long long)v->seq_len, (long long)shape->max_positions);
  }
  return ZR_OK;
}

static zr_status_t show_shape(zr_config_file_t *config) {
  const zr_model_config_t *shape = &config->values.model;
  for (int i = 0; i < N_SHAPE_ROWS; ++i) {
    const char *field = (const char *)shape + shape_rows[i].offset;
    int64_t integer;
    double real;
    memcpy(&integer, field, sizeof integer);
    memcpy(&real, field, sizeof real);
    if (integer == 0) continue; /* of the other architecture */
    ZR_TRY(shape_rows[i].is_real ? put_double(config, shape_rows[i].key, real)
                                 : put_int(config, shape_rows[i].key, integer));
  }
  static const char *const ropes[] = {"default", "linear", "llama3"};
  bool gpt2 = shape->arch == ZR_ARCH_GPT2;
  ZR_TRY(put(config, "model.attention_bias", shape->attention_bias ? "true" : "false"));
  ZR_TRY(put(config, "model.mlp_bias", shape->mlp_bias ? "true" : "false"));
  if (config->values.hidden_act == 0)
    ZR_TRY(put(config, "model.hidden_act", gpt2 ? "gelu_new" : "silu"));
  if (!gpt2) ZR_TRY(put_int(config, "model.sliding_window", shape->sliding_window));
  if (!gpt2) ZR_TRY(put(config, "model.rope_scaling.rope_type", ropes[shape->rope_scaling]));
  if (shape->sliding_window > 0) ZR_TRY(put(config, "model.use_sliding_window", "true"));
  if (is_qwen(shape)) {
    ZR_TRY(put_int(config, "model.max_window_layers", shape->window_first_layer));
  }
  ZR_TRY(put(config, "model.model_type", arch_types[shape->arch]));
  ZR_TRY(put(config, "model.architectures", arch_classes[shape->arch]));
  return put(config, "model.tie_word_embeddings", shape->tie_word_embeddings ? "true" : "false");
}

zr_status_t zr_config_model(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  zr_model_config_t shape;
  ZR_TRY(start_shape(config, &shape));
  overlay_shape(config, &shape);
  ZR_TRY(take_biases(config, &shape));
  take_activation(config, &shape);
  ZR_TRY(take_window(config, &shape));
  ZR_TRY(take_rope(config, &shape));
  if (v->tokenizer != NULL && v->shape.vocab_size == 0 && v->model_preset == NULL) {
    shape.vocab_size = 256;
  }
  ZR_TRY(check_length(config, &shape));
  ZR_TRY(zr_model_resolve(&shape));
  v->model = shape;
  return show_shape(config);
}
