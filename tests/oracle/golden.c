#include "tests/oracle/golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/check.h"

const char *const golden_names[GOLDEN_N_MODELS] = {
    "gpt2",  "llama_grouped",  "llama_head_dim",  "llama_scaled",   "mistral",      "qwen2",
    "qwen3", "gpt2_documents", "llama_documents", "mistral_window", "qwen2_window", "llama_gelu"};

static char *read_file(const char *path, size_t *out_bytes) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) fail_msg("%s: no such file", path);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  *out_bytes = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*out_bytes);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, *out_bytes, file), *out_bytes);
  fclose(file);
  return bytes;
}

static const json_t *setting_of(const golden_t *g, const char *key) {
  const json_t *setting = json_object_get(g->settings, key);
  if (setting == NULL) fail_msg("%s: no setting %s", g->name, key);
  return setting;
}

static double number_of(const golden_t *g, const char *key) {
  return json_number_value(setting_of(g, key));
}

static int64_t int_of(const golden_t *g, const char *key) {
  return json_integer_value(setting_of(g, key));
}

/* Which of the names the setting is; 0 where it is not there. */
static int choice_of(const golden_t *g, const char *key, const char *const *names, int n_names) {
  const char *text = json_string_value(json_object_get(g->settings, key));
  if (text == NULL) return 0;
  for (int i = 0; i < n_names; i++)
    if (strcmp(text, names[i]) == 0) return i;
  fail_msg("%s: no %s %s", g->name, key, text);
  return 0;
}

/* Of settings that only some models have. */
static double optional_of(const golden_t *g, const char *key) {
  return json_number_value(json_object_get(g->settings, key));
}

static void read_config(golden_t *g) {
  static const char *const archs[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};
  static const char *const ropes[] = {"default", "linear", "llama3"};
  zr_model_config_t *c = &g->config;
  zr_model_defaults((zr_arch_t)choice_of(g, "arch", archs, ZR_N_ARCHS), c);
  c->attention_bias = (int64_t)optional_of(g, "attention_bias");
  c->mlp_bias = (int64_t)optional_of(g, "mlp_bias");
  c->sliding_window = (int64_t)optional_of(g, "sliding_window");
  c->window_first_layer = (int64_t)optional_of(g, "max_window_layers");
  static const char *const acts[ZR_N_ACTIVATIONS] = {"", "silu", "gelu_new", "gelu", "relu"};
  c->activation = choice_of(g, "hidden_act", acts, ZR_N_ACTIVATIONS);
  c->rope_scaling = choice_of(g, "rope_type", ropes, 3);
  c->rope_factor = optional_of(g, "rope_factor");
  c->rope_low_freq = optional_of(g, "rope_low_freq");
  c->rope_high_freq = optional_of(g, "rope_high_freq");
  c->rope_original = (int64_t)optional_of(g, "rope_original");
  c->vocab_size = int_of(g, "vocab_size");
  c->hidden_size = int_of(g, "hidden_size");
  c->n_layers = int_of(g, "n_layers");
  c->n_heads = int_of(g, "n_heads");
  c->n_kv_heads = int_of(g, "n_kv_heads");
  c->head_dim = int_of(g, "head_dim");
  c->intermediate_size = int_of(g, "intermediate_size");
  c->max_positions = int_of(g, "max_positions");
  c->norm_eps = number_of(g, "norm_eps");
  c->rope_theta = number_of(g, "rope_theta");
  c->tie_word_embeddings = int_of(g, "tied");
  assert_int_equal(zr_model_resolve(c), ZR_OK);
}

static void read_optimizer(golden_t *g) {
  g->control.schedule = (zr_schedule_params_t){.kind = ZR_SCHEDULE_WARMUP,
                                               .lr = number_of(g, "lr"),
                                               .warmup_min_lr = number_of(g, "warmup_min_lr"),
                                               .warmup_steps = int_of(g, "warmup_steps")};
  g->control.beta1 = number_of(g, "beta1");
  g->control.beta2 = number_of(g, "beta2");
  g->control.eps = number_of(g, "eps");
  g->control.weight_decay = number_of(g, "weight_decay");
  g->control.max_grad_norm = number_of(g, "max_grad_norm");
  g->control.bias_correction = 1;
  g->decay_matrices = int_of(g, "decay_matrices") != 0;
}

/* The tensor's bytes, of which there must be `bytes`. */
static const void *raw(const golden_t *g, const char *name, int64_t bytes, const char **out_type) {
  const json_t *entry = json_object_get(g->header, name);
  if (entry == NULL) fail_msg("%s: no tensor %s", g->name, name);
  const json_t *offsets = json_object_get(entry, "data_offsets");
  int64_t begin = json_integer_value(json_array_get(offsets, 0));
  int64_t end = json_integer_value(json_array_get(offsets, 1));
  if (end - begin != bytes) fail_msg("%s: %s is not of this size", g->name, name);
  if (out_type != NULL) *out_type = json_string_value(json_object_get(entry, "dtype"));
  return g->data + begin;
}

static const void *typed(const golden_t *g, const char *name, const char *type, int64_t bytes) {
  const char *got;
  const void *data = raw(g, name, bytes, &got);
  assert_string_equal(got, type);
  return data;
}

void golden_open(golden_t *g, const char *name) {
  *g = (golden_t){.name = name};
  char path[512];
  snprintf(path, sizeof path, "%s/%s.safetensors", ZR_GOLDEN_DIR, name);
  size_t bytes;
  uint64_t header_bytes;
  g->bytes = read_file(path, &bytes);
  memcpy(&header_bytes, g->bytes, sizeof header_bytes);
  assert_true(8 + header_bytes < bytes);
  g->header = json_loadb(g->bytes + 8, header_bytes, 0, NULL);
  assert_non_null(g->header);
  g->data = g->bytes + 8 + header_bytes;
  const json_t *metadata = json_object_get(g->header, "__metadata__");
  g->settings = json_loads(json_string_value(json_object_get(metadata, "config")), 0, NULL);
  assert_non_null(g->settings);
  read_config(g);
  read_optimizer(g);
  g->steps = int_of(g, "steps");
  g->samples = int_of(g, "samples");
  g->seq = int_of(g, "seq");
  int64_t rows = g->samples * g->seq;
  g->tokens = typed(g, "tokens", "I32", g->steps * rows * 4);
  g->targets = typed(g, "targets", "I32", g->steps * rows * 4);
  if (optional_of(g, "documents") != 0) g->starts = typed(g, "starts", "I32", g->steps * rows * 4);
  g->logits = typed(g, "logits", "F64", rows * g->config.vocab_size * 8);
  g->losses = typed(g, "losses", "F64", g->steps * 8);
  g->norms = typed(g, "norms", "F64", g->steps * 8);
}

void golden_close(golden_t *g) {
  json_decref(g->settings);
  json_decref(g->header);
  free(g->bytes);
}

double *golden_tensor(const golden_t *g, const char *what, const char *name, int64_t elems) {
  char full[128];
  snprintf(full, sizeof full, "%s.%s", what, name);
  const float *from = typed(g, full, "F32", elems * 4);
  double *values = malloc((size_t)elems * sizeof *values);
  assert_non_null(values);
  for (int64_t i = 0; i < elems; i++) values[i] = (double)from[i];
  return values;
}

double golden_norm(const double *a, int64_t elems) {
  double sum = 0;
  for (int64_t i = 0; i < elems; i++) sum += a[i] * a[i];
  return sqrt(sum);
}

double golden_distance(const double *a, const double *b, int64_t elems) {
  double sum = 0;
  for (int64_t i = 0; i < elems; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sqrt(sum) / golden_norm(b, elems);
}

int64_t golden_skip_key_bias(const char *name, double *values, int64_t elems) {
  if (strstr(name, "attn.c_attn.bias") == NULL) return elems;
  int64_t part = elems / 3;
  memmove(values + part, values + 2 * part, (size_t)part * sizeof *values);
  return 2 * part;
}
