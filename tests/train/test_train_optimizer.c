/* The optimizer's and the schedule's keys: defaults of each type, what they resolve to, and what a
 * type has no use for. */
#include <string.h>

#include "runtime/train/config.h"
#include "tests/support/cmocka_all.h"

static const char base[] =
    "model: {architectures: [LlamaForCausalLM], vocab_size: 256, hidden_size: 64,\n"
    "  num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 160}\n"
    "data: {train: a, seq_len: 64}\nrun: {steps: 10}\ntrain_micro_batch_size_per_gpu: 1\n";

static zr_config_file_t *resolve(const char *more) {
  char text[4096];
  (void)snprintf(text, sizeof text, "%s%s", base, more);
  zr_config_file_t *config = NULL;
  zr_status_t status = zr_config_parse(zr_alloc_default(), "cfg.yaml", text, strlen(text), &config);
  if (status == ZR_OK) status = zr_config_check(config);
  if (status == ZR_OK) status = zr_config_batch(config, 1);
  if (status == ZR_OK) status = zr_config_steps(config, 100);
  if (status != ZR_OK) fail_msg("%s: %s", more, zr_detail());
  return config;
}

static void schedules_are_mapped(void **state) {
  (void)state;
  static const struct {
    const char *text;
    zr_schedule_params_t want;
  } cases[] = {
      {"",
       {.kind = ZR_SCHEDULE_CONSTANT,
        .lr = 1e-3,
        .min_lr = 0,
        .warmup_min_lr = 0,
        .warmup_steps = 0,
        .total_steps = 0}},
      {"scheduler: {type: WarmupLR, params: {warmup_num_steps: 5}}\n",
       {.kind = ZR_SCHEDULE_WARMUP_LOG,
        .lr = 1e-3,
        .min_lr = 0,
        .warmup_min_lr = 0,
        .warmup_steps = 5,
        .total_steps = 0}},
      {"optimizer: {params: {lr: 3e-4}}\nscheduler: {type: WarmupDecayLR, params: "
       "{warmup_max_lr: auto, warmup_min_lr: 1e-5, warmup_num_steps: 5, warmup_type: linear}}\n",
       {.kind = ZR_SCHEDULE_WARMUP_LINEAR,
        .lr = 3e-4,
        .min_lr = 1e-5,
        .warmup_min_lr = 1e-5,
        .warmup_steps = 5,
        .total_steps = 10}},
      {"scheduler: {type: WarmupCosineLR, params: {warmup_num_steps: 5, total_num_steps: 50, "
       "cos_min_ratio: 0.5, warmup_min_ratio: 0.25}}\n",
       {.kind = ZR_SCHEDULE_WARMUP_LOG_COSINE,
        .lr = 1e-3,
        .min_lr = 5e-4,
        .warmup_min_lr = 2.5e-4,
        .warmup_steps = 5,
        .total_steps = 50,
        .cosine_ahead = 1}},
      {"scheduler: {type: Cosine, params: {min_lr: 1e-4}}\n",
       {.kind = ZR_SCHEDULE_WARMUP_COSINE,
        .lr = 1e-3,
        .min_lr = 1e-4,
        .warmup_min_lr = 0,
        .warmup_steps = 0,
        .total_steps = 10}},
      {"scheduler: {type: Linear, params: {warmup_num_steps: 2}}\n",
       {.kind = ZR_SCHEDULE_WARMUP_LINEAR,
        .lr = 1e-3,
        .min_lr = 0,
        .warmup_min_lr = 0,
        .warmup_steps = 2,
        .total_steps = 10}},
      {"scheduler: {type: WarmupLR, params: {warmup_num_steps: 0, warmup_type: linear}}\n",
       {.kind = ZR_SCHEDULE_WARMUP, .lr = 1e-3, .warmup_steps = 2}},
      {"scheduler: {type: WSD, params: {warmup_num_steps: 2, min_lr: 1e-5}}\n",
       {.kind = ZR_SCHEDULE_WSD,
        .lr = 1e-3,
        .min_lr = 1e-5,
        .warmup_steps = 2,
        .total_steps = 10,
        .decay_steps = 1}},
      {"scheduler: {type: WSD, params: {decay_num_steps: 4, decay_type: 1-sqrt, total_num_steps: "
       "8}}\n",
       {.kind = ZR_SCHEDULE_WSD,
        .lr = 1e-3,
        .total_steps = 8,
        .decay_steps = 4,
        .decay_shape = ZR_DECAY_1_SQRT}},
      {"optimizer: {type: Lion}\nscheduler: {type: OneCycle, params: {cycle_min_lr: 1e-4, "
       "cycle_max_lr: 1e-2, cycle_first_step_size: 5, decay_step_size: 7, decay_lr_rate: 0.5}}\n",
       {.kind = ZR_SCHEDULE_ONE_CYCLE,
        .lr = 1e-2,
        .min_lr = 1e-4,
        .cycle = {5, 5, 0, 0, 7, 0.5, 1, 0.8, 0.9}}},
      {"optimizer: {type: SGD}\nscheduler: {type: OneCycle, params: {cycle_min_lr: 0, "
       "cycle_max_lr: 1, cycle_second_step_size: 3, cycle_first_stair_count: 2}}\n",
       {.kind = ZR_SCHEDULE_ONE_CYCLE, .lr = 1, .cycle = {2000, 3, 2, 2, 0, 0, 0, 0.8, 0.9}}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    zr_config_file_t *config = resolve(cases[i].text);
    const zr_schedule_params_t *got = &config->values.schedule, *want = &cases[i].want;
    assert_int_equal(got->kind, want->kind);
    assert_int_equal(got->warmup_steps, want->warmup_steps);
    assert_int_equal(got->total_steps, want->total_steps);
    assert_true(got->lr == want->lr && got->min_lr == want->min_lr);
    assert_true(got->warmup_min_lr == want->warmup_min_lr);
    assert_int_equal(got->decay_steps, want->decay_steps);
    assert_int_equal(got->decay_shape, want->decay_shape);
    assert_int_equal(got->cosine_ahead, want->cosine_ahead);
    assert_memory_equal(&got->cycle, &want->cycle, sizeof got->cycle);
    zr_config_destroy(config);
  }
}

static void optimizers_have_their_defaults(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int32_t kind;
    double lr, beta2, eps;
    zr_dtype_t state;
  } cases[] = {
      {"", ZR_OP_ADAMW, 1e-3, 0.999, 1e-8, ZR_F32},
      {"optimizer: {type: Adam, params: {betas: auto, lr: auto, eps: auto}}\n", ZR_OP_ADAMW, 1e-3,
       0.999, 1e-8, ZR_F32},
      {"optimizer: {type: SGD, params: {momentum: 0.9, nesterov: true}}\n", ZR_OP_SGD, 1e-3, 0.999,
       1e-8, ZR_F32},
      {"optimizer: {type: Lion, state_dtype: bf16}\n", ZR_OP_LION, 1e-3, 0.99, 1e-8, ZR_BF16},
      {"optimizer: {type: Lion, params: {betas: [0.95, 0.98]}}\n", ZR_OP_LION, 1e-3, 0.98, 1e-8,
       ZR_F32},
      {"optimizer: {type: Adagrad}\n", ZR_OP_ADAGRAD, 1e-2, 0.999, 1e-10, ZR_F32},
      {"optimizer: {type: Adagrad, params: {lr: 0.001, eps: 1e-8}}\n", ZR_OP_ADAGRAD, 1e-3, 0.999,
       1e-8, ZR_F32},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    zr_config_file_t *config = resolve(cases[i].text);
    const zr_config_t *v = &config->values;
    assert_int_equal(v->update_kind, cases[i].kind);
    assert_int_equal(v->state_type, cases[i].state);
    assert_true(v->lr == cases[i].lr && v->beta2 == cases[i].beta2 && v->eps == cases[i].eps);
    zr_config_destroy(config);
  }
}

static void note_key(void *context, const char *key, const char *reason) {
  char *keys = context;
  assert_true(strlen(reason) > 10);
  (void)snprintf(keys + strlen(keys), 256 - strlen(keys), "%s ", strrchr(key, '.') + 1);
}

/* One of another type is named in the log, not ignored in silence. */
static void needless_parameters_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text, *keys;
  } cases[] = {
      {"scheduler: {type: Cosine, params: {warmup_max_lr: 0.1, min_lr: 0, cos_min_ratio: 0}}\n",
       "warmup_max_lr cos_min_ratio "},
      {"scheduler: {type: WarmupLR, params: {warmup_max_lr: auto, total_num_steps: 9}}\n",
       "total_num_steps "},
      {"optimizer: {params: {lr: 0.5}}\nscheduler: {type: WSD, params: {cycle_min_lr: 1}}\n",
       "cycle_min_lr "},
      {"optimizer: {params: {lr: 0.5}}\nscheduler: {type: OneCycle, params: {cycle_min_lr: 0, "
       "cycle_max_lr: 1}}\n",
       "lr "},
      {"scheduler: {type: Constant}\n", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    char keys[256] = "";
    zr_config_file_t *config = resolve(cases[i].text);
    zr_config_needless(config, note_key, keys);
    assert_string_equal(keys, cases[i].keys);
    zr_config_destroy(config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_are_mapped),
                                     cmocka_unit_test(optimizers_have_their_defaults),
                                     cmocka_unit_test(needless_parameters_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
