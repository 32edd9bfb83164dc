/* Models: a shape, and a function that records its operations on a tape. Floor 4; no backend; one
 * thread.
 *
 * Tensor names and shapes are Hugging Face's (transformers): a state dict of GPT2LMHeadModel,
 * LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM. */
#ifndef ZR_MODEL_MODEL_H
#define ZR_MODEL_MODEL_H

#include "runtime/model/tape.h"

typedef enum {
  ZR_ARCH_GPT2 = 0,
  ZR_ARCH_LLAMA,
  ZR_ARCH_MISTRAL, /* Llama with a window */
  ZR_ARCH_QWEN2,   /* Llama with biases of q, k and v */
  ZR_ARCH_QWEN3,   /* Llama with a norm of each q and k head */
  ZR_N_ARCHS
} zr_arch_t;

/* Of the MLP. GELU_TANH: gelu_new, gelu_pytorch_tanh; GELU_ERF: gelu. */
typedef enum {
  ZR_ACTIVATION_DEFAULT = 0,
  ZR_ACTIVATION_SILU,
  ZR_ACTIVATION_GELU_TANH,
  ZR_ACTIVATION_GELU_ERF,
  ZR_ACTIVATION_RELU,
  ZR_N_ACTIVATIONS
} zr_activation_t;

/* rope_scaling.rope_type: how rotary angles are stretched (kernels/rope_frequency.h). */
typedef enum { ZR_ROPE_PLAIN = 0, ZR_ROPE_LINEAR, ZR_ROPE_LLAMA3 } zr_rope_scaling_t;

/* One struct for all families; the comments give the configuration's keys (both spellings are the
 * reader's business). */
typedef struct {
  int32_t arch; /* zr_arch_t; architectures */
  int64_t vocab_size;
  int64_t hidden_size;       /* n_embd */
  int64_t n_layers;          /* num_hidden_layers, n_layer */
  int64_t n_heads;           /* num_attention_heads, n_head */
  int64_t n_kv_heads;        /* num_key_value_heads; 0: n_heads; GPT-2: always n_heads */
  int64_t head_dim;          /* head_dim; 0: hidden_size / n_heads; GPT-2: always that */
  int64_t intermediate_size; /* 0: GPT-2 4 n_embd (n_inner); Llama: required */
  int64_t max_positions; /* n_positions, max_position_embeddings: GPT-2's rows of wpe; Llama: only a
                            check */
  double norm_eps;       /* layer_norm_epsilon, rms_norm_eps */
  double rope_theta;
  double initializer_range;
  int64_t tie_word_embeddings; /* 0, 1 */
  int64_t attention_bias;      /* 0, 1: of q, k, v, and but for Qwen2 of o */
  int64_t mlp_bias;            /* 0, 1 */
  int64_t activation;          /* zr_activation_t; hidden_act, activation_function */
  int64_t sliding_window;      /* positions that a query sees, with its own; 0: all before it */
  int64_t window_first_layer;  /* layers before it see all: Qwen's max_window_layers */
  int64_t rope_scaling;        /* zr_rope_scaling_t */
  double rope_factor, rope_low_freq, rope_high_freq;
  int64_t rope_original; /* original_max_position_embeddings */
} zr_model_config_t;

/* Fills defaults of the architecture (transformers' own): GPT-2 124M, Llama-2-7B's shape. */
void zr_model_defaults(zr_arch_t arch, zr_model_config_t *out_config);
/* Named shapes of preset.c: "gpt2", "llama-tiny" (quick start), "qwen3-0.6b", ...; ZR_ERR_CONFIG
 * lists them. */
zr_status_t zr_model_preset(const char *name, zr_model_config_t *out_config) ZR_MUST_CHECK;
const char *zr_model_arch_name(int32_t arch);      /* "GPT-2" */
zr_activation_t zr_model_activation(int32_t arch); /* what transformers' configuration has */
/* Attributes of the operation that makes the rotary table of a model. */
void zr_model_rope_table(const zr_model_config_t *config, int64_t seq_len,
                         int64_t out_attr[ZR_MAX_ATTRS]);
/* Resolves zeros, checks ranges and divisibility: ZR_ERR_CONFIG names key, value and rule. */
zr_status_t zr_model_resolve(zr_model_config_t *config) ZR_MUST_CHECK;
/* Logical parameters, tied tensors once. */
int64_t zr_model_n_params(const zr_model_config_t *config);

typedef struct {
  int64_t micro_batch, seq_len; /* rows T = micro_batch * seq_len */
  int64_t logits_chunk;         /* rows of logits at once; 0: 1024 */
  bool training;                /* head_loss and backward; false: head_eval */
  bool separate; /* documents: attention stays inside, positions restart; the tape has `starts` */
  zr_dtype_t dtype; /* of parameters and activations: ZR_F32 (also if 0), ZR_BF16, ZR_F16 */
} zr_model_run_t;

/* Records forward (and, in training, backward) of one micro-batch on a new tape. */
zr_status_t zr_model_record(zr_alloc_t *alloc, const zr_model_config_t *config,
                            const zr_model_run_t *run, zr_tape_t **out_tape) ZR_MUST_CHECK;

/* Initial value of logical element `index` (row-major in the Hugging Face shape) of a tensor, as
 * transformers initialises (normal(0, initializer_range); GPT-2's c_proj scaled by 1 / sqrt(2
 * n_layers); norms 1; biases 0). A function of (seed, tensor name, index): independent of ranks and
 * stage. */
float zr_model_initial(const zr_model_config_t *config, uint64_t seed,
                       const zr_tape_tensor_t *tensor, int64_t index);

#endif
