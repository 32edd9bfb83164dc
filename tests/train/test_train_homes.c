/* Where states live, as DeepSpeed's blocks and plan.homes say it: every spelling, what it becomes,
 * what is said of it, and the exact message where it is wrong. */
#include <stdio.h>
#include <string.h>

#include "runtime/train/config.h"
#include "tests/support/cmocka_all.h"

static const char base[] =
    "model: {architectures: [LlamaForCausalLM], hidden_size: 64, num_hidden_layers: 6,\n"
    "  num_attention_heads: 4, intermediate_size: 128}\n"
    "data: {train: a.txt, tokenizer: byte, seq_len: 32}\n"
    "run: {steps: 10}\n";

static zr_status_t resolve(const char *more, int n_ranks, zr_config_file_t **out_config) {
  char text[4096];
  bool has_batch = strstr(more, "train_batch_size") != NULL;
  (void)snprintf(text, sizeof text, "%s%s%s", base, more,
                 has_batch ? "" : "train_micro_batch_size_per_gpu: 2\n");
  zr_config_file_t *config = NULL;
  zr_status_t status = zr_config_parse(zr_alloc_default(), "cfg.yaml", text, strlen(text), &config);
  if (status == ZR_OK) status = zr_config_check(config);
  if (status == ZR_OK) status = zr_config_batch(config, n_ranks);
  if (status == ZR_OK) {
    *out_config = config;
  } else {
    zr_config_destroy(config);
  }
  return status;
}

/* --- what is read ---------------------------------------------------------------------------- */

enum { A = ZR_HOME_DEVICE, H = ZR_HOME_HOST, D = ZR_HOME_DISK };

typedef struct {
  const char *text;
  int param, grad, optimizer, activation;
  int n_ranks;
} homes_t;

#define ZERO(stage, rest) "zero_optimization: {stage: " #stage ", " rest "}\n"

static const homes_t homes[] = {
    {"", A, A, A, A, 2},
    {ZERO(0, "offload_optimizer: {device: cpu}"), A, H, H, A, 2},
    {ZERO(1, "offload_optimizer: {device: cpu}"), A, H, H, A, 2},
    {ZERO(2, "offload_optimizer: {device: cpu, pin_memory: true}"), A, H, H, A, 2},
    {ZERO(3, "offload_optimizer: {device: nvme, nvme_path: /x}"), A, H, D, A, 2},
    {ZERO(3, "offload_optimizer: {device: cpu}, offload_param: {device: cpu}"), H, H, H, A, 2},
    {ZERO(3,
          "offload_optimizer: {device: nvme, nvme_path: /x}, offload_param: {device: nvme, "
          "nvme_path: /x}"),
     D, H, D, A, 2},
    {ZERO(0, "offload_optimizer: {device: cpu}, offload_param: {device: cpu}"), H, H, H, A, 1},
    {ZERO(2, "offload_optimizer: {device: none}, offload_param: {device: \"none\"}"), A, A, A, A,
     2},
    {ZERO(2, "offload_optimizer: {device: auto}"), A, A, A, A, 2},
    {ZERO(2, "offload_optimizer: {}"), A, A, A, A, 2},
    {ZERO(2, "offload_optimizer: null, offload_param: ~"), A, A, A, A, 2},
    {ZERO(2, "cpu_offload: true"), A, H, H, A, 2},
    {ZERO(2, "cpu_offload: true, offload_optimizer: {device: cpu}"), A, H, H, A, 2},
    {ZERO(2, "cpu_offload: false"), A, A, A, A, 2},
    {ZERO(3, "cpu_offload: \"true\", cpu_offload_params: true, cpu_offload_use_pin_memory: true"),
     H, H, H, A, 2},
    {ZERO(3, "offload_optimizer: {device: cpu, ratio: 0}"), A, A, A, A, 2},
    {ZERO(3, "offload_optimizer: {device: cpu, ratio: 0.3}"), A, H, H, A, 2},
    {"plan: {homes: {optimizer: host}}\n", A, H, H, A, 2},
    {"plan: {homes: {optimizer: host, grad: device}}\n", A, A, H, A, 2},
    {"plan: {homes: {optimizer: disk, grad: disk}}\n", A, D, D, A, 2},
    {"plan: {homes: {activation: disk}}\n", A, A, A, D, 2},
    {"plan: {homes: {optimizer: disk, param: host, activation: host}}\n", H, H, D, H, 1},
    {"plan: {homes: {optimizer: host}}\nzero_optimization: {offload_optimizer: {device: none}}\n",
     A, H, H, A, 2},
    {"activation_checkpointing: {cpu_checkpointing: true}\n", A, A, A, H, 2},
};

static void homes_are_read(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof homes / sizeof homes[0]; ++i) {
    const homes_t *want = &homes[i];
    zr_config_file_t *config = NULL;
    zr_status_t status = resolve(want->text, want->n_ranks, &config);
    if (status != ZR_OK) fail_msg("%s%s", want->text, zr_detail());
    const zr_config_t *v = &config->values;
    if (v->home_param != want->param || v->home_grad != want->grad ||
        v->home_optimizer != want->optimizer || v->home_activation != want->activation) {
      fail_msg("%sgot %d %d %d %d", want->text, v->home_param, v->home_grad, v->home_optimizer,
               v->home_activation);
    }
    zr_config_destroy(config);
  }
}

/* --- DeepSpeed's files ----------------------------------------------------------------------- */

static const char issue_file[] =
    "\"train_batch_size\": 16\n\"gradient_accumulation_steps\": 4\n"
    "\"fp16\": {\"enabled\": true, \"loss_scale\": 0}\n"
    "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", "
    "\"pin_memory\": true}, \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}, "
    "\"stage3_max_live_parameters\": 1e8, \"stage3_max_reuse_distance\": 1e8}\n";

static void a_file_of_deepspeeds_is_read(void **state) {
  (void)state;
  zr_config_file_t *config = NULL;
  if (resolve(issue_file, 2, &config) != ZR_OK) fail_msg("%s", zr_detail());
  const zr_config_t *v = &config->values;
  assert_int_equal(v->home_param, H);
  assert_int_equal(v->home_grad, H);
  assert_int_equal(v->home_optimizer, H);
  assert_int_equal(v->home_activation, A);
  assert_int_equal(v->micro_batch_size, 2);
  assert_int_equal(v->pin, 1);
  assert_int_equal(v->dtype, ZR_F16);
  zr_config_destroy(config);
}

static const char nvme_file[] =
    "train_batch_size: 8\n"
    "bf16: {enabled: true}\n"
    "zero_optimization:\n"
    "  stage: 3\n"
    "  offload_optimizer: {device: nvme, nvme_path: /local_nvme, pin_memory: true,\n"
    "    buffer_count: 4, fast_init: false, pipeline_read: true, pipeline_write: true}\n"
    "  offload_param: {device: nvme, nvme_path: [/local_nvme, /other], pin_memory: true,\n"
    "    buffer_count: 5, buffer_size: 1e8, max_in_cpu: 1e9}\n"
    "  overlap_comm: true\n  reduce_bucket_size: auto\n  sub_group_size: 1e9\n"
    "aio: {block_size: 262144, queue_depth: 32, thread_count: 1, single_submit: false,\n"
    "  overlap_events: true}\n";

static void a_file_with_nvme_is_read(void **state) {
  (void)state;
  zr_config_file_t *config = NULL;
  if (resolve(nvme_file, 2, &config) != ZR_OK) fail_msg("%s", zr_detail());
  const zr_config_t *v = &config->values;
  assert_int_equal(v->home_param, D);
  assert_int_equal(v->home_optimizer, D);
  assert_int_equal(v->n_slots, 5);
  assert_int_equal(v->chunk_elems, 1 << 22);
  assert_int_equal(v->disk_block_bytes, 262144);
  assert_int_equal(v->disk_depth, 32);
  assert_int_equal(v->disk_path.n_items, 2);
  assert_string_equal(v->disk_path.items[0], "/local_nvme");
  assert_string_equal(v->disk_path.items[1], "/other");
  zr_config_destroy(config);
}

static void the_disk_has_a_path(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"plan: {homes: {optimizer: disk}}\n", "runs/cfg"},
      {"plan: {homes: {optimizer: disk}}\nmemory: {disk_path: /mine}\n", "/mine"},
      {"zero_optimization: {offload_optimizer: {device: nvme, nvme_path: /x}}\nmemory: {disk_path: "
       "[/mine]}\n",
       "/mine"},
      {"zero_optimization: {offload_optimizer: {device: nvme}}\nmemory: {disk_path: /mine}\n",
       "/mine"},
      {"zero_optimization: {offload_optimizer: {device: nvme, nvme_path: /x}}\n", "/x"},
      {"zero_optimization: {offload_optimizer: {device: cpu, nvme_path: /x}}\n", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    zr_config_file_t *config = NULL;
    if (resolve(cases[i][0], 1, &config) != ZR_OK) fail_msg("%s", zr_detail());
    const zr_option_list_t *path = &config->values.disk_path;
    assert_int_equal(path->n_items, cases[i][1] != NULL);
    if (cases[i][1] != NULL) assert_string_equal(path->items[0], cases[i][1]);
    zr_config_destroy(config);
  }
}

static void memory_is_pinned_unless_told(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int pin;
  } cases[] = {
      {"", 1},
      {ZERO(3, "offload_optimizer: {device: cpu, pin_memory: false}"), 0},
      {ZERO(3, "offload_optimizer: {device: cpu, pin_memory: auto}"), 1},
      {ZERO(3,
            "offload_optimizer: {device: cpu, pin_memory: false}, offload_param: {pin_memory: "
            "true}"),
       1},
      {ZERO(3, "cpu_offload: true, cpu_offload_use_pin_memory: false"), 0},
      {ZERO(3, "offload_optimizer: {device: cpu, pin_memory: false}") "memory: {pin: true}\n", 1},
      {"memory: {pin: false}\n", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    zr_config_file_t *config = NULL;
    if (resolve(cases[i].text, 1, &config) != ZR_OK) fail_msg("%s", zr_detail());
    assert_int_equal(config->values.pin, cases[i].pin);
    zr_config_destroy(config);
  }
}

static void checkpointed_activations_are_recomputed(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int recompute, every;
  } cases[] = {
      {"", 3, 1},
      {"activation_checkpointing: {number_checkpoints: null}\n", 3, 1},
      {"activation_checkpointing: {number_checkpoints: 6}\n", 2, 1},
      {"activation_checkpointing: {number_checkpoints: 2, cpu_checkpointing: true}\n", 2, 3},
      {"activation_checkpointing: {number_checkpoints: 2}\nplan: {recompute: full}\n", 2, 3},
      {"activation_checkpointing: {cpu_checkpointing: true}\n", 2, 1},
      {"activation_checkpointing: {cpu_checkpointing: true}\nplan: {recompute_every: 2}\n", 2, 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    zr_config_file_t *config = NULL;
    if (resolve(cases[i].text, 1, &config) != ZR_OK) fail_msg("%s", zr_detail());
    assert_int_equal(config->values.recompute, cases[i].recompute);
    assert_int_equal(config->values.recompute_every, cases[i].every);
    zr_config_destroy(config);
  }
}

/* --- what is wrong --------------------------------------------------------------------------- */

#define DEVICES "one of none, cpu, nvme, auto"
#define AT(column) "cfg.yaml:5:" #column ": "

typedef struct {
  const char *text;
  int n_ranks;
  const char *error;
} bad_t;

static const bad_t bad[] = {
    {ZERO(3, "offload_optimizer: {device: nvme}"), 1,
     AT(51) "'zero_optimization.offload_optimizer.device' = nvme needs "
            "zero_optimization.offload_optimizer.nvme_path: set it to a directory on a local "
            "drive"},
    {ZERO(3, "offload_param: {device: nvme, nvme_path: null}"), 1,
     AT(47) "'zero_optimization.offload_param.device' = nvme needs "
            "zero_optimization.offload_param.nvme_path: set it to a directory on a local drive"},
    {ZERO(3, "offload_optimizer: {device: None}"), 1,
     AT(51) "'zero_optimization.offload_optimizer.device' must be " DEVICES ", not 'None'"},
    {ZERO(3, "offload_optimizer: {device: null}"), 1,
     AT(51) "'zero_optimization.offload_optimizer.device' must be " DEVICES ", not 'null'"},
    {ZERO(3, "offload_param: {device: CPU}"), 1,
     AT(47) "'zero_optimization.offload_param.device' must be " DEVICES ", not 'CPU'"},
    {ZERO(3, "offload_param: {device: gpu}"), 1,
     AT(47) "'zero_optimization.offload_param.device' must be " DEVICES ", not 'gpu'"},
    {ZERO(3, "offload_optimizer: cpu"), 1,
     AT(31) "'zero_optimization.offload_optimizer' is a block of keys, not a value"},
    {"offload_optimizer: {device: cpu}\n", 1,
     AT(1) "block 'offload_optimizer' is at the wrong level: it belongs under "
           "'zero_optimization'"},
    {"fp16: {offload_param: {device: cpu}}\n", 1,
     AT(8) "block 'offload_param' is at the wrong level: it belongs under 'zero_optimization'"},
    {ZERO(3, "offload_optimizer: {offload_param: {device: cpu}}"), 1,
     AT(51) "block 'offload_param' is at the wrong level: it belongs under 'zero_optimization'"},
    {"nvme_path: /x\n", 1,
     AT(1) "key 'nvme_path' is at the wrong level: it belongs under "
           "'zero_optimization.offload_optimizer'"},
    {ZERO(3, "device: cpu"), 1,
     AT(31) "key 'device' is at the wrong level: it belongs under "
            "'zero_optimization.offload_optimizer'"},
    {"optimizer: {cpu_offload: true}\n", 1,
     AT(13) "key 'cpu_offload' is at the wrong level: it belongs under 'zero_optimization'"},
    {ZERO(3, "offload_optimizer: {device: cpu, ratio: 1.5}"), 1,
     AT(64) "'zero_optimization.offload_optimizer.ratio' must be a number from 0 to 1, or auto, "
            "not '1.5'"},
    {ZERO(3, "offload_optimizer: {device: cpu, ratio: 0.5}, offload_param: {device: cpu}"), 1,
     AT(64) "'zero_optimization.offload_optimizer.ratio' = 0.5 updates a part on the device, where "
            "the parameters do not live; leave it out, or keep parameters on the device"},
    {ZERO(2, "offload_optimizer: {device: cpu}, offload_param: {device: cpu}"), 2,
     AT(81) "'zero_optimization.offload_param.device' puts parameters on the host: on 2 ranks that "
            "needs zero_optimization.stage = 3, not 2"},
    {ZERO(3, "offload_param: {device: cpu}"), 2,
     AT(47) "'zero_optimization.offload_param.device' = host needs the optimizer's states away "
            "from "
            "the device too: set zero_optimization.offload_optimizer.device = cpu or "
            "plan.homes.optimizer = host"},
    {"plan: {homes: {grad: host}}\n", 1,
     AT(16) "'plan.homes.grad' = host needs the optimizer's states away from the device too: set "
            "zero_optimization.offload_optimizer.device = cpu or plan.homes.optimizer = host"},
    {ZERO(3, "cpu_offload: true, offload_optimizer: {device: nvme, nvme_path: /x}"), 1,
     AT(31) "'zero_optimization.cpu_offload' = true is the old form of "
            "zero_optimization.offload_optimizer.device = cpu, which is nvme (cfg.yaml:5:70); keep "
            "one"},
    {"plan: {homes: {optimizer: disk}}\nzero_optimization: {offload_optimizer: {device: cpu}}\n", 1,
     AT(16) "'plan.homes.optimizer' = disk, but zero_optimization.offload_optimizer.device = cpu "
            "(cfg.yaml:6:41) says host; keep one of them"},
    {"plan: {homes: {optimizer: nvme}}\n", 1,
     AT(16) "'plan.homes.optimizer' must be one of auto, device, host, disk, not 'nvme'"},
    {"plan: {chunk: 5000}\n", 1, AT(8) "'plan.chunk' = 5000 must be a multiple of 1024"},
    {"plan: {slots: 400}\n", 1,
     AT(8) "'plan.slots' must be an integer from 1 to 256, or auto, not '400'"},
    {"aio: {block_size: 5000}\n", 1, AT(7) "'aio.block_size' = 5000 must be a multiple of 4096"},
    {"aio: {use_gds: true}\n", 1, AT(7) "'aio.use_gds: true' is not possible: not built yet"},
    {"activation_checkpointing: {number_checkpoints: 4}\n", 1,
     AT(28) "'activation_checkpointing.number_checkpoints' = 4 does not divide the model's 6 "
            "blocks; use plan.recompute and plan.recompute_every"},
    {"activation_checkpointing: {cpu_checkpointing: true}\nplan: {recompute: none}\n", 1,
     AT(28) "'activation_checkpointing.cpu_checkpointing' makes activations again, and "
            "plan.recompute (cfg.yaml:6:8) says otherwise; leave one out, or say full"},
    {"memory: {disk_backend: libaio}\n", 1,
     AT(10) "'memory.disk_backend' must be one of auto, uring, posix, not 'libaio'"},
};

static void what_is_wrong_is_named(void **state) {
  (void)state;
  int n_wrong = 0;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    zr_config_file_t *config = NULL;
    zr_detail_set("");
    zr_status_t status = resolve(bad[i].text, bad[i].n_ranks, &config);
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

/* --- what is said ---------------------------------------------------------------------------- */

static void collect(void *context, const char *key, const char *text) {
  char *all = context;
  const char *name = strncmp(key, "zero_optimization.", 18) == 0 ? key + 18 : key;
  (void)snprintf(all + strlen(all), 4096 - strlen(all), "%s: %s\n", name, text);
}

static void what_is_read_otherwise_is_said(void **state) {
  (void)state;
  static const struct {
    const char *text, *said;
  } cases[] = {
      {"", ""},
      {"plan: {homes: {optimizer: host}, chunk: 2048}\n", ""},
      {ZERO(2, "cpu_offload: true, cpu_offload_use_pin_memory: false"),
       "cpu_offload: read as offload_optimizer.device = cpu, whose old form it is\n"
       "cpu_offload_use_pin_memory: read as pin_memory, whose old form it is: memory.pin = false\n"
       "offload_optimizer.device: read as plan.homes.optimizer = host\n"},
      {ZERO(2, "offload_optimizer: {device: auto, ratio: auto}"),
       "offload_optimizer.device: read as plan.homes.optimizer = device\n"},
      {ZERO(3,
            "offload_optimizer: {device: nvme, nvme_path: /x, buffer_count: 1000, buffer_size: "
            "5000, pin_memory: false}"),
       "offload_optimizer.device: read as plan.homes.optimizer = disk\n"
       "offload_optimizer.buffer_size: read as plan.chunk, which is 4096\n"
       "offload_optimizer.buffer_count: read as plan.slots, which is 256\n"
       "offload_optimizer.pin_memory: read as memory.pin, which is false\n"
       "offload_optimizer.nvme_path: read as memory.disk_path\n"},
      {"activation_checkpointing: {number_checkpoints: 3, cpu_checkpointing: true}\n",
       "activation_checkpointing.number_checkpoints: read as plan.recompute = full, "
       "plan.recompute_every = 2\n"
       "activation_checkpointing.cpu_checkpointing: read as plan.recompute = full, "
       "plan.homes.activation = host\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    char text[4096] = "";
    zr_config_file_t *config = NULL;
    if (resolve(cases[i].text, 1, &config) != ZR_OK) fail_msg("%s", zr_detail());
    zr_config_mapped(config, collect, text);
    assert_string_equal(text, cases[i].said);
    zr_config_destroy(config);
  }
}

static void what_has_no_effect_is_said(void **state) {
  (void)state;
  zr_config_file_t *config = NULL;
  char text[4096] = "";
  static const char file[] = ZERO(
      3, "offload_optimizer: {nvme_path: /x, ratio: 0.5, pipeline_read: true, fast_init: true}, "
         "offload_param: {max_in_cpu: 1e9}, stage3_max_live_parameters: 1e8") "aio: {block_size: "
                                                                              "8192, thread_count: "
                                                                              "2}\nplan: {slots: "
                                                                              "2}\n";
  if (resolve(file, 1, &config) != ZR_OK) fail_msg("%s", zr_detail());
  zr_config_needless(config, collect, text);
  static const char *const keys[] = {
      "offload_optimizer.nvme_path: device is not nvme\n",
      "offload_optimizer.ratio: the optimizer's states live on the device\n",
      "offload_optimizer.pipeline_read: reads, updates and writes always overlap\n",
      "offload_optimizer.fast_init: ",
      "offload_param.max_in_cpu: ",
      "stage3_max_live_parameters: ",
      "aio.block_size: nothing lives on disk\n",
      "aio.intra_op_parallelism: ",
      "plan.slots: nothing is away\n"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    if (strstr(text, keys[i]) == NULL) fail_msg("%s is not in\n%s", keys[i], text);
  }
  zr_config_destroy(config);
}

/* Homes are schedule: a checkpoint does not record them. */
static void homes_are_not_numeric(void **state) {
  (void)state;
  char *text[2];
  zr_config_file_t *one = NULL, *two = NULL;
  assert_int_equal(resolve("", 1, &one), ZR_OK);
  assert_int_equal(
      resolve(nvme_file + sizeof "train_batch_size: 8\nbf16: {enabled: true}\n" - 1, 1, &two),
      ZR_OK);
  assert_int_equal(zr_config_numeric_text(one, &text[0]), ZR_OK);
  assert_int_equal(zr_config_numeric_text(two, &text[1]), ZR_OK);
  assert_string_equal(text[0], text[1]);
  for (int i = 0; i < 2; ++i) zr_alloc_free(zr_alloc_default(), text[i]);
  zr_config_destroy(one);
  zr_config_destroy(two);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(homes_are_read),
      cmocka_unit_test(a_file_of_deepspeeds_is_read),
      cmocka_unit_test(a_file_with_nvme_is_read),
      cmocka_unit_test(the_disk_has_a_path),
      cmocka_unit_test(memory_is_pinned_unless_told),
      cmocka_unit_test(checkpointed_activations_are_recomputed),
      cmocka_unit_test(what_is_wrong_is_named),
      cmocka_unit_test(what_is_read_otherwise_is_said),
      cmocka_unit_test(what_has_no_effect_is_said),
      cmocka_unit_test(homes_are_not_numeric),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
