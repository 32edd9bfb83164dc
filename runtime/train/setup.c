#include "runtime/train/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number from a file of one line; -1 where there is none ("max" too). */
static int64_t read_number(const char *path) {
  char text[64] = "";
  FILE *file = fopen(path, "re");
  if (file == NULL) return -1;
  char *line = fgets(text, sizeof text, file);
  (void)fclose(file);
  char *end = text;
  long long value = line == NULL ? -1 : strtoll(text, &end, 10);
  return end == text ? -1 : value;
}

static void read_meminfo(int64_t *out_total, int64_t *out_free) {
  char line[128];
  long long kib;
  *out_total = *out_free = 0;
  FILE *file = fopen("/proc/meminfo", "re");
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "MemTotal: %lld kB", &kib) == 1) *out_total = kib * 1024;
    if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1) *out_free = kib * 1024;
  }
  (void)fclose(file);
}

/* The node's memory and what is free of it, within the cgroup's limit. */
static void node_memory(int64_t *out_total, int64_t *out_free) {
  read_meminfo(out_total, out_free);
  int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit < 0) {
    limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    used = read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  }
  if (limit < 0) return;
  if (*out_total == 0 || limit < *out_total) *out_total = limit;
  if (used >= 0 && limit - used < *out_free) *out_free = limit > used ? limit - used : 0;
}

int64_t zr_setup_budget(const zr_config_t *values, int n_local_ranks) {
  const zr_option_bytes_t *asked = &values->memory_device;
  if (asked->bytes >= 0) return asked->bytes;
  int64_t total, free_bytes;
  node_memory(&total, &free_bytes);
  if (asked->share > 0) return (int64_t)((double)total * asked->share) / n_local_ranks;
  const zr_option_bytes_t *headroom = &values->headroom;
  int64_t left_free =
      headroom->share > 0 ? (int64_t)((double)free_bytes * headroom->share) : headroom->bytes;
  return (free_bytes > left_free ? free_bytes - left_free : 0) / n_local_ranks;
}

void zr_setup_zero_options(const zr_config_file_t *config, const zr_setup_place_t *place,
                           zr_zero_options_t *out_options) {
  const zr_config_t *v = &config->values;
  zr_zero_options_t *o = out_options;
  zr_zero_defaults(o);
  o->stage = v->stage;
  o->n_ranks = place->n_ranks;
  o->n_micro = v->grad_accum_steps;
  o->group = v->group == ZR_OPTION_AUTO_INT ? ZR_GROUP_AUTO : v->group;
  o->order = v->order == ZR_CHOICE_AUTO_ORDER ? ZR_ORDER_DEPTH : v->order;
  o->prefetch = v->prefetch == ZR_OPTION_AUTO_INT ? ZR_PREFETCH_AUTO : v->prefetch;
  o->recompute = v->recompute;
  o->recompute_every = v->recompute_every;
  o->digest = v->digest != ZR_DIGEST_NONE;
  o->decay_matrices = v->decay == 1;
  o->optimizer = v->update_kind;
  o->no_momentum = v->momentum == 0;
  o->state_dtype = v->state_type;
  o->state_fill = v->optimizer == ZR_OPTIMIZER_ADAGRAD ? v->initial_accumulator : 0;
  o->eval = v->data_eval.n_items > 0;
  o->model = v->model;
  o->grad_dtype = v->grad_dtype;
  o->run = (zr_model_run_t){.micro_batch = v->micro_batch_size,
                            .seq_len = v->seq_len,
                            .logits_chunk = v->logits_chunk,
                            .dtype = v->dtype};
  o->kern_ops = place->kern_ops;
  o->kern = place->kern;
  o->n_workers = place->n_workers;
  o->place.budget_bytes[ZR_TIER_DEVICE] = place->budget_bytes;
}
