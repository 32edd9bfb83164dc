/* The model's keys: every family by preset and by its own config.json, what is refused and how, and
 * that nothing which changes the model is dropped. */
#include <stdlib.h>
#include <string.h>

#include "runtime/train/config.h"
#include "tests/support/cmocka_all.h"

static const char rest[] =
    "data: {train: a, seq_len: 64}\nrun: {steps: 1}\ntrain_micro_batch_size_per_gpu: 1\n";

static zr_status_t resolve(const char *model, zr_config_file_t **out_config) {
  char text[4096];
  (void)snprintf(text, sizeof text, "model: {%s}\n%s", model, rest);
  zr_config_file_t *config = NULL;
  zr_status_t status = zr_config_parse(zr_alloc_default(), "cfg.yaml", text, strlen(text), &config);
  if (status == ZR_OK) status = zr_config_check(config);
  if (status == ZR_OK) status = zr_config_batch(config, 1);
  if (status == ZR_OK) {
    *out_config = config;
  } else {
    zr_config_destroy(config);
  }
  return status;
}

static zr_model_config_t model_of(const char *text) {
  zr_config_file_t *config = NULL;
  if (resolve(text, &config) != ZR_OK) fail_msg("%s: %s", text, zr_detail());
  zr_model_config_t model = config->values.model;
  zr_config_destroy(config);
  return model;
}

/* --- presets ---------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  int64_t n_params; /* as the models' cards and files have it */
} presets[] = {
    {"gpt2", 124439808},        {"gpt2-xl", 1557611200},      {"llama-2-7b", 6738415616},
    {"llama-3-8b", 8030261248}, {"llama-3.2-1b", 1235814400}, {"mistral-7b", 7241732096},
    {"qwen2-0.5b", 494032768},  {"qwen3-0.6b", 596049920},    {"tinyllama-1.1b", 1100048384},
};

static void presets_have_the_models_parameters(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
    char text[64];
    (void)snprintf(text, sizeof text, "preset: %s", presets[i].name);
    zr_model_config_t model = model_of(text);
    if (zr_model_n_params(&model) != presets[i].n_params)
      fail_msg("%s has %lld parameters", presets[i].name, (long long)zr_model_n_params(&model));
    zr_model_run_t run = {.micro_batch = 1, .seq_len = 64, .logits_chunk = 64};
    zr_tape_t *tape = NULL;
    assert_int_equal(zr_model_record(NULL, &model, &run, &tape), ZR_OK);
    int64_t elems = 0;
    for (size_t t = 0; t < tape->n_tensors; t++)
      elems += tape->tensor[t].rows * tape->tensor[t].cols;
    assert_int_equal(elems, presets[i].n_params);
    zr_tape_destroy(tape);
  }
}

static void printed_models_read_back(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
    char model[64], *text = NULL;
    size_t bytes = 0;
    (void)snprintf(model, sizeof model, "preset: %s", presets[i].name);
    zr_config_file_t *config = NULL, *again = NULL;
    assert_int_equal(resolve(model, &config), ZR_OK);
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    zr_config_print(config, file);
    assert_int_equal(fclose(file), 0);
    zr_status_t status = zr_config_parse(zr_alloc_default(), "again.yaml", text, bytes, &again);
    if (status == ZR_OK) status = zr_config_check(again);
    if (status != ZR_OK) fail_msg("%s: %s\n%s", presets[i].name, zr_detail(), text);
    assert_memory_equal(&again->values.model, &config->values.model, sizeof config->values.model);
    zr_config_destroy(config);
    zr_config_destroy(again);
    free(text);
  }
}

/* --- as Hugging Face writes it ---------------------------------------------------------------- */

static void qwen3_as_its_file(void **state) {
  (void)state;
  zr_model_config_t model = model_of(
      "architectures: [Qwen3ForCausalLM], attention_bias: false, attention_dropout: 0.0, "
      "bos_token_id: 151643, eos_token_id: 151645, head_dim: 128, hidden_act: silu, hidden_size: "
      "1024, initializer_range: 0.02, intermediate_size: 3072, max_position_embeddings: 40960, "
      "max_window_layers: 28, model_type: qwen3, num_attention_heads: 16, num_hidden_layers: 28, "
      "num_key_value_heads: 8, rms_norm_eps: 1e-06, rope_scaling: null, rope_theta: 1000000, "
      "sliding_window: null, tie_word_embeddings: true, torch_dtype: bfloat16, "
      "transformers_version: 4.51.0, use_cache: true, use_sliding_window: false, vocab_size: "
      "151936");
  zr_model_config_t preset = model_of("preset: qwen3-0.6b");
  assert_memory_equal(&model, &preset, sizeof model);
}

static void llama_3_as_its_file(void **state) {
  (void)state;
  static const char shape[] =
      "architectures: [LlamaForCausalLM], attention_bias: false, hidden_act: silu, hidden_size: "
      "2048, head_dim: 64, intermediate_size: 8192, max_position_embeddings: 131072, mlp_bias: "
      "false, num_attention_heads: 32, num_hidden_layers: 16, num_key_value_heads: 8, "
      "pretraining_tp: 1, rms_norm_eps: 1e-05, tie_word_embeddings: true, vocab_size: 128256, ";
  static const char *const rope[] = {
      "rope_theta: 500000.0, rope_scaling: {factor: 32.0, high_freq_factor: 4.0, low_freq_factor: "
      "1.0, original_max_position_embeddings: 8192, rope_type: llama3}",
      "rope_parameters: {factor: 32.0, high_freq_factor: 4.0, low_freq_factor: 1.0, "
      "original_max_position_embeddings: 8192, rope_type: llama3, rope_theta: 500000.0}"};
  zr_model_config_t preset = model_of("preset: llama-3.2-1b");
  for (int i = 0; i < 2; i++) {
    char text[1024];
    (void)snprintf(text, sizeof text, "%s%s", shape, rope[i]);
    zr_model_config_t model = model_of(text);
    assert_memory_equal(&model, &preset, sizeof model);
  }
}

static void keys_change_the_model(void **state) {
  (void)state;
  assert_int_equal(model_of("preset: llama-tiny, attention_bias: true").attention_bias, 1);
  assert_int_equal(model_of("preset: llama-tiny, mlp_bias: true").mlp_bias, 1);
  assert_int_equal(model_of("preset: qwen3-0.6b, attention_bias: true").attention_bias, 1);
  assert_int_equal(model_of("preset: mistral-7b").sliding_window, 4096);
  assert_int_equal(model_of("preset: mistral-7b, sliding_window: null").sliding_window, 0);
  assert_int_equal(model_of("preset: mistral-7b, sliding_window: 64").sliding_window, 64);
  assert_int_equal(model_of("preset: qwen2-0.5b, sliding_window: 32").sliding_window, 0);
  assert_int_equal(model_of("preset: mistral-7b, sliding_window: 63").sliding_window, 63);
  zr_model_config_t window = model_of(
      "preset: qwen2-0.5b, use_sliding_window: true, sliding_window: 8, max_window_layers: "
      "21");
  assert_int_equal(window.sliding_window, 8);
  assert_int_equal(window.window_first_layer, 21);
  window = model_of("preset: qwen2-0.5b, use_sliding_window: true");
  assert_int_equal(window.sliding_window, 4096);
  assert_int_equal(window.window_first_layer, 28);
  window = model_of(
      "preset: qwen3-0.6b, num_hidden_layers: 3, use_sliding_window: true, sliding_window: 8, "
      "layer_types: [full_attention, sliding_attention, sliding_attention]");
  assert_int_equal(window.window_first_layer, 1);
  zr_model_config_t model = model_of("preset: llama-tiny, rope_scaling: {type: linear, factor: 2}");
  assert_int_equal(model.rope_scaling, ZR_ROPE_LINEAR);
  assert_true(model.rope_factor == 2.0);
  model = model_of("preset: llama-3.2-1b, rope_scaling: {rope_type: default}");
  assert_int_equal(model.rope_scaling, ZR_ROPE_PLAIN);
  model = model_of("preset: gpt2-tiny, activation_function: gelu_pytorch_tanh");
  assert_int_equal(model.activation, ZR_ACTIVATION_GELU_TANH);
  model = model_of("preset: gpt2-tiny, activation_function: relu");
  assert_int_equal(model.activation, ZR_ACTIVATION_RELU);
  model = model_of("preset: llama-tiny, hidden_act: gelu");
  assert_int_equal(model.activation, ZR_ACTIVATION_GELU_ERF);
  model =
      model_of("model_type: qwen3, hidden_size: 64, num_attention_heads: 4, num_hidden_layers: 1");
  assert_int_equal(model.head_dim, 128);
}

/* --- what is refused ---------------------------------------------------------------------------
 */

static const struct {
  const char *model, *error;
} refused[] = {
    {"preset: llama-tiny, hidden_act: relu2",
     "cfg.yaml:1:29: 'model.hidden_act' must be one of auto, silu, swish, gelu_new, "
     "gelu_pytorch_tanh, gelu, relu, not 'relu2'"},
    {"preset: mistral-7b, attention_bias: true",
     "cfg.yaml:1:29: 'model.attention_bias' does not go with Mistral: it has no biases in "
     "attention; leave it out"},
    {"preset: qwen2-0.5b, attention_bias: false",
     "cfg.yaml:1:29: 'model.attention_bias' does not go with Qwen2: it always has biases in "
     "attention; leave it out"},
    {"preset: qwen3-0.6b, mlp_bias: true",
     "cfg.yaml:1:29: 'model.mlp_bias' does not go with Qwen3: its MLP has no biases; leave it out"},
    {"preset: mistral-7b, max_window_layers: 2",
     "cfg.yaml:1:29: 'model.max_window_layers' does not go with Mistral: its layers are all alike; "
     "leave it out"},
    {"preset: qwen3-0.6b, layer_types: [full_attention, sliding_attention]",
     "cfg.yaml:1:29: 'model.layer_types' has 'sliding_attention' as layer 1: there are layers of "
     "full_attention, and behind them with model.sliding_window of sliding_attention"},
    {"preset: mistral-7b, layer_types: [sliding_attention, full_attention]",
     "cfg.yaml:1:29: 'model.layer_types' has 'full_attention' as layer 1: there are layers of "
     "full_attention, and behind them with model.sliding_window of sliding_attention"},
    {"preset: mistral-7b, layer_types: [sliding_attention]",
     "cfg.yaml:1:29: 'model.layer_types' names 1 layers, model.num_hidden_layers is 32"},
    {"preset: llama-tiny, rope_scaling: {rope_type: yarn, factor: 4}",
     "cfg.yaml:1:44: 'model.rope_scaling.rope_type' = yarn is not built yet; there are default, "
     "linear and llama3"},
    {"preset: llama-tiny, rope_scaling: {type: dynamic, factor: 4}",
     "cfg.yaml:1:44: 'model.rope_scaling.rope_type' = dynamic is not built yet; there are default, "
     "linear and llama3"},
    {"preset: llama-tiny, rope_scaling: {factor: 4}",
     "cfg.yaml:1:44: 'model.rope_scaling.factor' needs rope_type beside it: linear or llama3"},
    {"preset: llama-tiny, rope_scaling: {rope_type: llama3, factor: 4, low_freq_factor: 4, "
     "high_freq_factor: 4}",
     "model.rope_scaling: llama3 needs low_freq_factor above 0 and high_freq_factor above it, not "
     "4 "
     "and 4"},
    {"preset: llama-tiny, rope_scaling: {rope_type: linear, factor: 2, beta_fast: 32}",
     "cfg.yaml:1:74: 'model.rope_scaling.beta_fast: 32' is not possible: not built yet"},
    {"preset: gpt2, rope_theta: 10000",
     "cfg.yaml:1:23: 'model.rope_theta' does not go with GPT-2: it has learned positions; leave it "
     "out"},
    {"preset: gpt2, model_type: qwen2",
     "cfg.yaml:1:9: 'model.preset' 'gpt2' is a gpt2, but model.* says qwen2; keep one"},
};

static void what_is_not_built_is_named(void **state) {
  (void)state;
  int n_wrong = 0;
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    zr_config_file_t *config = NULL;
    zr_status_t status = resolve(refused[i].model, &config);
    if (status == ZR_OK) zr_config_destroy(config);
    if (status != ZR_OK && zr_status_exit_code(status) == 2 &&
        strcmp(zr_detail(), refused[i].error) == 0)
      continue;
    print_error("%s\n  %s\n", refused[i].model, status == ZR_OK ? "no error" : zr_detail());
    n_wrong++;
  }
  assert_int_equal(n_wrong, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(presets_have_the_models_parameters),
      cmocka_unit_test(printed_models_read_back),
      cmocka_unit_test(qwen3_as_its_file),
      cmocka_unit_test(llama_3_as_its_file),
      cmocka_unit_test(keys_change_the_model),
      cmocka_unit_test(what_is_not_built_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
