/* The configuration: what is read, what it resolves to, and the exact message of what is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/config.h"
#include "tests/support/cmocka_all.h"

static const char base[] =
    "model: {architectures: [LlamaForCausalLM], hidden_size: 64, num_hidden_layers: 2,\n"
    "  num_attention_heads: 4, intermediate_size: 128}\n"
    "data: {train: a.txt, tokenizer: byte, seq_len: 32}\n"
    "run: {steps: 10}\n"
    "train_micro_batch_size_per_gpu: 2\n";

typedef struct {
  const char *text; /* appended to `base`; a leading '!' replaces it */
  int n_ranks;
  const char *error;
} bad_t;

static const bad_t bad[] = {
    {"run_: 3\n", 1, "cfg.yaml:6:1: unknown key 'run_'"},
    {"zero_optimisation: {stage: 3}\n", 1, "cfg.yaml:6:1: unknown key 'zero_optimisation'"},
    {"zero_optimization: {stagge: 3}\n", 1,
     "cfg.yaml:6:21: unknown key 'zero_optimization.stagge'; did you mean "
     "'zero_optimization.stage'?"},
    {"stage: 3\n", 1,
     "cfg.yaml:6:1: key 'stage' is at the wrong level: it belongs under 'zero_optimization'"},
    {"optimizer:\n  lr: 3e-4\n", 1,
     "cfg.yaml:7:3: key 'lr' is at the wrong level: it belongs under 'optimizer.params'"},
    {"optimizer: {params: {gradient_clipping: 1}}\n", 1,
     "cfg.yaml:6:22: key 'gradient_clipping' is at the wrong level: it belongs at the top level"},
    {"zero_optimization: {optimizer: {type: Adam}}\n", 1,
     "cfg.yaml:6:21: block 'optimizer' is at the wrong level: it belongs at the top level"},
    {"zero_optimization:\n  stage: 4\n", 1,
     "cfg.yaml:7:3: 'zero_optimization.stage' must be one of 0, 1, 2, 3, auto, not '4'"},
    {"run: {steps: 3}\n", 1,
     "cfg.yaml:6:1: key \"run\" is given twice (first at line 4); keep one"},
    {"optimizer: {type: Adan}\n", 1,
     "cfg.yaml:6:13: 'optimizer.type' must be one of AdamW, Adam, SGD, Lion, Adagrad, not 'Adan'"},
    {"optimizer: {type: Lion, params: {momentum: 0.9}}\n", 1,
     "cfg.yaml:6:34: 'optimizer.params.momentum' is not a parameter of Lion, which has lr, betas, "
     "weight_decay"},
    {"optimizer: {type: SGD, params: {betas: [0.8, 0.9]}}\n", 1,
     "cfg.yaml:6:33: 'optimizer.params.betas' is not a parameter of SGD, which has lr, momentum, "
     "dampening, weight_decay, nesterov"},
    {"optimizer: {type: AdamW, params: {lr_decay: 0.1}}\n", 1,
     "cfg.yaml:6:35: 'optimizer.params.lr_decay' is not a parameter of AdamW, which has lr, betas, "
     "eps, weight_decay, bias_correction"},
    {"optimizer: {type: Adagrad, params: {nesterov: true}}\n", 1,
     "cfg.yaml:6:37: 'optimizer.params.nesterov' is not a parameter of Adagrad, which has lr, "
     "lr_decay, weight_decay, initial_accumulator_value, eps"},
    {"optimizer: {type: SGD, params: {nesterov: true}}\n", 1,
     "cfg.yaml:6:33: 'optimizer.params.nesterov' needs a momentum above 0 and no dampening"},
    {"optimizer: {type: SGD, params: {dampening: 0.5}}\n", 1,
     "cfg.yaml:6:33: 'optimizer.params.dampening' has no effect without a momentum above 0; leave "
     "it out"},
    {"optimizer: {type: SGD, params: {momentum: 1.5}}\n", 1,
     "cfg.yaml:6:33: 'optimizer.params.momentum' must be a number from 0 to 1, not '1.5'"},
    {"optimizer: {type: Adagrad, params: {initial_accumulator_value: nan}}\n", 1,
     "cfg.yaml:6:37: 'optimizer.params.initial_accumulator_value' must be a number from 0 to "
     "1e+30, not 'nan'"},
    {"optimizer: {state_dtype: fp16}\n", 1,
     "cfg.yaml:6:13: 'optimizer.state_dtype' must be fp32 or bf16: fp16 has too few exponents for "
     "squares"},
    {"optimizer: {params: {lr: fast}}\n", 1,
     "cfg.yaml:6:22: 'optimizer.params.lr' must be a number of at least 0, or auto, not 'fast'"},
    {"optimizer: {params: {lr: -1}}\n", 1,
     "cfg.yaml:6:22: 'optimizer.params.lr' must be a number of at least 0, or auto, not '-1'"},
    {"optimizer: {params: {betas: [0.9, 1.5]}}\n", 1,
     "cfg.yaml:6:22: 'optimizer.params.betas' must be two numbers from 0 to below 1, like [0.9, "
     "0.999], not '1.5'"},
    {"bf16: {enabled: true}\nfp16: {enabled: \"true\"}\n", 1,
     "cfg.yaml:7:8: 'fp16.enabled' = true and 'bf16.enabled' = true (cfg.yaml:6:8) exclude each "
     "other; keep one"},
    {"data_types: {grad_accum_dtype: fp16}\n", 1,
     "cfg.yaml:6:14: 'data_types.grad_accum_dtype' must be fp32 or bf16: sums of gradients leave "
     "the range of fp16"},
    {"bf16: {enabled: true}\ncommunication_data_type: bf16\n", 1,
     "cfg.yaml:7:1: 'communication_data_type' = bf16 must be data_types.grad_accum_dtype = fp32; "
     "leave it out"},
    {"fp16: {enabled: true, loss_scale: -1}\n", 1,
     "cfg.yaml:6:23: 'fp16.loss_scale' must be a number from 0 to 1.84467440737096e+19, or auto, "
     "not '-1'"},
    {"fp16: {enabled: true, loss_scale: nan}\n", 1,
     "cfg.yaml:6:23: 'fp16.loss_scale' must be a number from 0 to 1.84467440737096e+19, or auto, "
     "not 'nan'"},
    {"fp16: {enabled: true, loss_scale_window: 0}\n", 1,
     "cfg.yaml:6:23: 'fp16.loss_scale_window' must be an integer of at least 1, or auto, not '0'"},
    {"fp16: {initial_scale_power: 2, min_loss_scale: 8, enabled: true}\n", 1,
     "cfg.yaml:6:32: 'fp16.min_loss_scale' = 8 is more than the scale begins with, 2^2; lower it "
     "or raise fp16.initial_scale_power"},
    {"fp16: {fp16_master_weights_and_grads: true}\n", 1,
     "cfg.yaml:6:8: 'fp16.fp16_master_weights_and_grads: true' is not possible: masters and "
     "moments are fp32 here"},
    {"zero_optimization: {zero_quantized_weights: true}\n", 1,
     "cfg.yaml:6:21: 'zero_optimization.zero_quantized_weights: true' is not possible: not built "
     "yet"},
    {"scheduler: {type: LRRangeTest}\n", 1,
     "cfg.yaml:6:13: 'scheduler.type' = LRRangeTest is not built yet; there are Constant, "
     "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, Cosine, Linear, WSD"},
    {"scheduler: {type: OneCycle}\n", 1,
     "cfg.yaml:6:13: 'scheduler.type' = OneCycle needs scheduler.params.cycle_min_lr and "
     "cycle_max_lr"},
    {"scheduler: {type: WSD, params: {warmup_num_steps: 5, decay_num_steps: 6}}\n", 1,
     "cfg.yaml:6:54: 'scheduler.params.decay_num_steps' = 6 and warmup_num_steps = 5 are together "
     "more than total_num_steps = 10"},
    {"aio: {use_gds: true}\n", 1,
     "cfg.yaml:6:7: 'aio.use_gds: true' is not possible: not built yet"},
    {"reduce: fast\n", 1, "cfg.yaml:6:1: 'reduce' = fast is not built yet; use tree"},
    {"elasticity: {enabled: true}\n", 1,
     "cfg.yaml:6:14: 'elasticity.enabled: true' is not possible: any checkpoint continues on any "
     "rank count without it"},
    {"gradient_clipping: {value: 1}\n", 1,
     "cfg.yaml:6:1: 'gradient_clipping' takes a value, not a block"},
    {"optimizer: AdamW\n", 1, "cfg.yaml:6:1: 'optimizer' is a block of keys, not a value"},
    {"gradient_clipping: [1, 2]\n", 1,
     "cfg.yaml:6:1: 'gradient_clipping' must be a number of at least 0, or auto, not 'a list'"},
    {"train_batch_size: 8\ngradient_accumulation_steps: 3\n", 1,
     "cfg.yaml:6:1: 'train_batch_size' = 8 is not train_micro_batch_size_per_gpu = 2 x "
     "gradient_accumulation_steps = 3 x 1 ranks = 6; leave one of the three out, or make them "
     "agree"},
    {"train_batch_size: 8\n", 3,
     "cfg.yaml:6:1: 'train_batch_size' = 8 is not divisible by train_micro_batch_size_per_gpu = 2 "
     "x 3 ranks = 6"},
    {"memory: {device: 24G}\n", 1,
     "cfg.yaml:6:10: 'memory.device' must be a size like 24GiB, 500MB or 80% of at least 1, or "
     "auto, not '24G'"},
    {"scheduler: {type: Cosine, params: {warmup_num_steps: 10}}\n", 1,
     "cfg.yaml:6:36: 'scheduler.params.warmup_num_steps' = 10 must be less than total_num_steps = "
     "10"},
    {"a: [1, 2\n", 1,
     "cfg.yaml:7:1: not YAML: did not find expected ',' or ']' while parsing a flow sequence"},
    {"a: &x 3\n", 1, "cfg.yaml:6:4: anchors are not supported; write the value out"},
    {"!- 1\n- 2\n", 1, "cfg.yaml:1:1: a configuration is a block of keys, like run: {...}"},
    {"!run: {steps: 0}\n", 1,
     "cfg.yaml:1:7: 'run.steps' must be an integer of at least 1, not '0'"},
    {"!run: {steps: 2.5}\n", 1,
     "cfg.yaml:1:7: 'run.steps' must be an integer of at least 1, not '2.5'"},
    {"!{}\n", 1,
     "no model is given: set model.preset, or model.architectures (GPT2LMHeadModel, "
     "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM) with the shape in "
     "Hugging Face's names"},
    {"!model: {architectures: [BertModel]}\n", 1,
     "cfg.yaml:1:9: 'model.architectures' must be one of GPT2LMHeadModel, LlamaForCausalLM, "
     "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, not 'BertModel'"},
    {"!model: {model_type: gpt2, n_embd: 64, n_layer: 2, n_head: 4, n_positions: 16}\n"
     "data: {train: a, seq_len: 32}\nrun: {steps: 1}\n",
     1,
     "cfg.yaml:2:18: 'data.seq_len' = 32 is longer than the model's "
     "model.max_position_embeddings = 16"},
    {"!model: {model_type: gpt2}\n", 1,
     "data.seq_len is not given: set it to the tokens of a sample"},
    {"!model: {model_type: gpt2}\ndata: {seq_len: 8}\nrun: {steps: 1}\n", 1,
     "data.train is not given: name token files or text files"},
    {"!model: {model_type: gpt2}\ndata: {seq_len: 8, train: a}\n", 1,
     "the run's length is not given: set run.steps, run.tokens or run.epochs"},
    {"!model: {model_type: gpt2}\ndata: {seq_len: 8, train: a}\nrun: {steps: 2, epochs: 1}\n", 1,
     "run.steps, run.tokens and run.epochs exclude each other: keep one"},
    {"!model: {model_type: gpt2}\ndata: {seq_len: 8, train: a}\nrun: {steps: 2}\n", 1,
     "no batch size is given: set train_batch_size or train_micro_batch_size_per_gpu, or two of "
     "them and gradient_accumulation_steps"},
    {"!model: {model_type: gpt2, attn_pdrop: 0.1}\n", 1,
     "cfg.yaml:1:27: 'model.attn_pdrop: 0.1' is not possible: dropout is not built yet; set it to "
     "0"},
};

static zr_status_t resolve(const char *text, const char *set, int n_ranks,
                           zr_config_file_t **out_config) {
  zr_config_file_t *config = NULL;
  zr_status_t status = zr_config_parse(zr_alloc_default(), "cfg.yaml", text, strlen(text), &config);
  if (status == ZR_OK && set) status = zr_config_set(config, set);
  if (status == ZR_OK) status = zr_config_check(config);
  if (status == ZR_OK) status = zr_config_batch(config, n_ranks);
  if (status == ZR_OK) status = zr_config_steps(config, 1000);
  if (status == ZR_OK) {
    *out_config = config;
  } else {
    zr_config_destroy(config);
  }
  return status;
}

static zr_config_file_t *resolve_base(const char *more, const char *set, int n_ranks) {
  char text[4096];
  (void)snprintf(text, sizeof text, "%s%s", *more == '!' ? "" : base,
                 *more == '!' ? more + 1 : more);
  zr_config_file_t *config = NULL;
  zr_status_t status = resolve(text, set, n_ranks, &config);
  if (status != ZR_OK) print_error("%s\n", zr_detail());
  assert_int_equal(status, ZR_OK);
  return config;
}

static void bad_input_is_named(void **state) {
  (void)state;
  int n_wrong = 0;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    char text[4096];
    bool whole = bad[i].text[0] == '!';
    (void)snprintf(text, sizeof text, "%s%s", whole ? "" : base, bad[i].text + whole);
    zr_config_file_t *config = NULL;
    zr_detail_set("");
    zr_status_t status = resolve(text, NULL, bad[i].n_ranks, &config);
    if (status == ZR_OK) zr_config_destroy(config);
    if (status != ZR_OK && zr_status_exit_code(status) == 2 &&
        strcmp(zr_detail(), bad[i].error) == 0) {
      continue;
    }
    print_error("%sgot: %s\nfor: %s\n", bad[i].text, status == ZR_OK ? "no error" : zr_detail(),
                bad[i].error);
    n_wrong += 1;
  }
  assert_int_equal(n_wrong, 0);
}

static void bad_set_is_named(void **state) {
  (void)state;
  static const char *const pairs[][2] = {
      {"run.stepz=3", "--set: unknown key 'run.stepz'; did you mean 'run.steps'?"},
      {"stage=3", "--set: key 'stage' is at the wrong level: it belongs under 'zero_optimization'"},
      {"run.steps", "--set: 'run.steps' is not of the form key=value"},
      {"run.steps=x", "--set: 'run.steps' must be an integer of at least 1, not 'x'"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; ++i) {
    zr_config_file_t *config = NULL;
    assert_int_equal(resolve(base, pairs[i][0], 1, &config), ZR_ERR_CONFIG);
    assert_string_equal(zr_detail(), pairs[i][1]);
  }
}

typedef struct {
  const char *text;
  int n_ranks;
  int64_t total, micro, accum;
} batch_t;

static void batch_is_derived(void **state) {
  (void)state;
  static const batch_t cases[] = {
      {"train_batch_size: 24\n", 3, 24, 2, 4},
      {"gradient_accumulation_steps: 3\n", 4, 24, 2, 3},
      {"", 4, 8, 2, 1},
      {"train_batch_size: 24\ngradient_accumulation_steps: 6\n", 2, 24, 2, 6},
      {"train_batch_size: auto\ngradient_accumulation_steps: \"auto\"\n", 2, 4, 2, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    zr_config_file_t *config = resolve_base(cases[i].text, NULL, cases[i].n_ranks);
    assert_int_equal(config->values.train_batch_size, cases[i].total);
    assert_int_equal(config->values.micro_batch_size, cases[i].micro);
    assert_int_equal(config->values.grad_accum_steps, cases[i].accum);
    zr_config_destroy(config);
  }
  zr_config_file_t *config = resolve_base("train_batch_size: 24\ngradient_accumulation_steps: 3\n",
                                          "train_micro_batch_size_per_gpu=auto", 2);
  assert_int_equal(config->values.micro_batch_size, 4);
  zr_config_destroy(config);
}

static void model_keys_have_two_spellings(void **state) {
  (void)state;
  zr_config_file_t *config = resolve_base("", NULL, 1);
  const zr_model_config_t *model = &config->values.model;
  assert_int_equal(model->arch, ZR_ARCH_LLAMA);
  assert_int_equal(model->vocab_size, 256);
  assert_int_equal(model->head_dim, 16);
  assert_int_equal(model->n_kv_heads, 4);
  assert_string_equal(config->values.run_dir, "runs/cfg");
  zr_config_destroy(config);
  config = resolve_base(
      "!{\"model\": {\"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 48, \"n_layer\": 3, "
      "\"n_head\": 6, \"n_positions\": 64, \"use_cache\": true, \"attn_pdrop\": 0.0},\n"
      "\"data\": {\"train\": [\"a\", \"b\"], \"seq_len\": 64},\n"
      "\"run\": {\"epochs\": 2}, \"train_batch_size\": 16, \"bf16\": {\"enabled\": \"auto\"},\n"
      "\"steps_per_print\": 1e1, \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": "
      "\"true\", \"reduce_bucket_size\": 5e8, \"offload_optimizer\": {\"device\": \"auto\"}},\n"
      "\"wall_clock_breakdown\": false, \"flops_profiler\": {\"enabled\": false, \"x\": [1]}}",
      NULL, 4);
  model = &config->values.model;
  assert_int_equal(model->hidden_size, 48);
  assert_int_equal(model->intermediate_size, 192);
  assert_int_equal(model->vocab_size, 50257);
  assert_int_equal(model->tie_word_embeddings, 1);
  assert_int_equal(config->values.steps, 125); /* 2 x 1000 samples / 16 */
  assert_int_equal(config->values.stage, 3);
  assert_int_equal(config->values.micro_batch_size, 4);
  zr_config_destroy(config);
}

static void collect(void *context, const char *key, const char *reason) {
  assert_true(strlen(reason) > 0);
  char *text = context;
  (void)snprintf(text + strlen(text), 512 - strlen(text), "%s ", key);
}

static void needless_options_are_named(void **state) {
  (void)state;
  zr_config_file_t *config = resolve_base(
      "zero_optimization: {overlap_comm: true, stage3_max_live_parameters: auto}\n"
      "comms_logger: {enabled: true}\naio: {thread_count: 4}\n",
      NULL, 1);
  char text[512] = "";
  zr_config_needless(config, collect, text);
  assert_string_equal(text,
                      "zero_optimization.stage3_max_live_parameters zero_optimization.overlap_comm "
                      "aio.intra_op_parallelism comms_logger.* ");
  zr_config_destroy(config);
}

static char *print(const zr_config_file_t *config) {
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  assert_non_null(file);
  zr_config_print(config, file);
  assert_int_equal(fclose(file), 0);
  return text;
}

static void printed_configuration_reads_back(void **state) {
  (void)state;
  static const char *const more[] = {
      "",
      "optimizer: {type: Adagrad, params: {initial_accumulator_value: 0.5}}\nscheduler: {type: "
      "OneCycle, params: {cycle_min_lr: 1e-4, cycle_max_lr: 1e-2}}\n",
      "optimizer: {type: SGD, params: {momentum: 0.5, dampening: 0.1}}\nscheduler: {type: WSD}\n",
      "optimizer: {type: Lion, state_dtype: bf16}\n",
      "scheduler: {type: WarmupCosineLR, params: {warmup_num_steps: 3}}\n",
      "optimizer: {type: Adam, params: {lr: 1.7e-3, betas: [0.8, 0.95]}}\nbackend: {comm: self}\n",
      "zero_optimization: {stage: auto}\nmemory: {device: 80%, host: 1GiB}\n",
      "zero_optimization: {stage: 3, offload_optimizer: {device: nvme, nvme_path: [/a, /b], "
      "buffer_count: 4, ratio: 1}, offload_param: {device: cpu, buffer_size: 1e8, pin_memory: "
      "false}, cpu_offload_params: true}\nactivation_checkpointing: {cpu_checkpointing: true, "
      "number_checkpoints: 1}\n",
      "plan: {homes: {optimizer: disk, activation: host}, recompute: full, chunk: 4096, slots: "
      "2}\n",
      "fp16: {enabled: true, loss_scale: auto, hysteresis: 4}\n",
      "bf16: {enabled: true}\ndata_types: {grad_accum_dtype: bf16}\n"};
  for (size_t i = 0; i < sizeof more / sizeof more[0]; ++i) {
    zr_config_file_t *config = resolve_base(more[i], "run.seed=99", 2), *again = NULL;
    char *first = print(config), *numeric[2];
    zr_status_t status = resolve(first, NULL, 2, &again);
    if (status != ZR_OK) print_error("%s\n%s", zr_detail(), first);
    assert_int_equal(status, ZR_OK);
    assert_int_equal(zr_config_numeric_text(config, &numeric[0]), ZR_OK);
    assert_int_equal(zr_config_numeric_text(again, &numeric[1]), ZR_OK);
    assert_string_equal(numeric[0], numeric[1]);
    assert_int_equal(again->values.seed, 99);
    assert_int_equal(again->values.stage, config->values.stage);
    assert_memory_equal(&again->values.model, &config->values.model, sizeof config->values.model);
    assert_int_equal(again->values.home_optimizer, config->values.home_optimizer);
    assert_int_equal(again->values.home_param, config->values.home_param);
    assert_int_equal(again->values.chunk_elems, config->values.chunk_elems);
    zr_alloc_free(zr_alloc_default(), numeric[0]);
    zr_alloc_free(zr_alloc_default(), numeric[1]);
    free(first);
    zr_config_destroy(config);
    zr_config_destroy(again);
  }
}

static void schedule_options_are_not_numeric(void **state) {
  (void)state;
  char *text[2];
  zr_config_file_t *one = resolve_base("train_batch_size: 8\n", NULL, 1);
  zr_config_file_t *two = resolve_base(
      "train_batch_size: 8\nzero_optimization: {stage: 3}\nplan: {group: 1, order: breadth}\n",
      NULL, 2);
  assert_int_equal(zr_config_numeric_text(one, &text[0]), ZR_OK);
  assert_int_equal(zr_config_numeric_text(two, &text[1]), ZR_OK);
  assert_string_equal(text[0], text[1]);
  zr_alloc_free(zr_alloc_default(), text[0]);
  zr_alloc_free(zr_alloc_default(), text[1]);
  zr_config_destroy(one);
  zr_config_destroy(two);
}

typedef struct {
  const char *text;
  zr_dtype_t dtype, grad_dtype;
  zr_loss_scale_params_t scaling;
  int64_t max_skipped;
} types_t;

static void types_are_resolved(void **state) {
  (void)state;
  static const types_t cases[] = {
      {"", ZR_F32, ZR_F32, {0}, 20},
      {"fp16: {enabled: auto}\nbf16: {enabled: auto}\n", ZR_F32, ZR_F32, {0}, 20},
      {"bf16: {enabled: true}\nfp16: {hysteresis: 9}\n", ZR_BF16, ZR_F32, {0}, 20},
      {"bfloat16: {enabled: true}\ndata_types: {grad_accum_dtype: bf16}\n",
       ZR_BF16,
       ZR_BF16,
       {0},
       20},
      {"fp16: {enabled: true}\n", ZR_F16, ZR_F32, {1, 65536, 1, 1000, 2, 0}, 38},
      {"fp16: {enabled: true, loss_scale: 0, initial_scale_power: 20, loss_scale_window: 7, "
       "hysteresis: 3, min_loss_scale: 4, consecutive_hysteresis: true, auto_cast: false}\n",
       ZR_F16,
       ZR_F32,
       {1, 1048576, 4, 7, 3, 1},
       43},
      {"fp16: {enabled: true, loss_scale: 128, initial_scale_power: auto}\n"
       "communication_data_type: fp32\n",
       ZR_F16,
       ZR_F32,
       {0, 128, 1, 1000, 2, 0},
       20},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    zr_config_file_t *config = resolve_base(cases[i].text, NULL, 1);
    const zr_config_t *v = &config->values;
    const zr_loss_scale_params_t *want = &cases[i].scaling;
    assert_int_equal(v->dtype, cases[i].dtype);
    assert_int_equal(v->grad_dtype, cases[i].grad_dtype);
    assert_int_equal(v->scaling.dynamic, want->dynamic);
    assert_true(v->scaling.initial == want->initial && v->scaling.min == want->min);
    assert_int_equal(v->scaling.window, want->window);
    assert_int_equal(v->scaling.hysteresis, want->hysteresis);
    assert_int_equal(v->scaling.consecutive_hysteresis, want->consecutive_hysteresis);
    assert_int_equal(v->max_skipped, cases[i].max_skipped);
    zr_config_destroy(config);
  }
}

/* Other types are other numbers; options of the loss scale are none where there is no fp16. */
static void types_are_numeric(void **state) {
  (void)state;
  static const char *const more[] = {"",
                                     "fp16: {hysteresis: 5, loss_scale: 8}\n",
                                     "bf16: {enabled: true}\n",
                                     "fp16: {enabled: true}\n",
                                     "fp16: {enabled: true, hysteresis: 5}\n",
                                     "data_types: {grad_accum_dtype: bf16}\n"};
  enum { N = sizeof more / sizeof more[0] };
  char *text[N];
  for (int i = 0; i < N; ++i) {
    zr_config_file_t *config = resolve_base(more[i], NULL, 1);
    assert_int_equal(zr_config_numeric_text(config, &text[i]), ZR_OK);
    char needless[512] = "";
    zr_config_needless(config, collect, needless);
    assert_string_equal(needless, i == 1 ? "fp16.loss_scale fp16.hysteresis " : "");
    zr_config_destroy(config);
    for (int k = 0; k < i; ++k) {
      assert_int_equal(strcmp(text[i], text[k]) == 0, i == 1 && k == 0);
    }
  }
  for (int i = 0; i < N; ++i) zr_alloc_free(zr_alloc_default(), text[i]);
}

static void nothing_is_left_when_memory_fails(void **state) {
  (void)state;
  zr_alloc_t alloc;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  for (int64_t n = 1; status != ZR_OK; ++n) {
    assert_true(n < 1000);
    zr_alloc_init(&alloc);
    alloc.fail_at = n;
    zr_config_file_t *config = NULL;
    status = zr_config_parse(&alloc, "cfg.yaml", base, strlen(base), &config);
    zr_config_destroy(config);
    assert_int_equal(alloc.live_count, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bad_input_is_named),
      cmocka_unit_test(bad_set_is_named),
      cmocka_unit_test(batch_is_derived),
      cmocka_unit_test(model_keys_have_two_spellings),
      cmocka_unit_test(needless_options_are_named),
      cmocka_unit_test(printed_configuration_reads_back),
      cmocka_unit_test(schedule_options_are_not_numeric),
      cmocka_unit_test(types_are_resolved),
      cmocka_unit_test(types_are_numeric),
      cmocka_unit_test(nothing_is_left_when_memory_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
