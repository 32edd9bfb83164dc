#include "runtime/train/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "runtime/train/files.h"

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

static int64_t headroom_of(const zr_config_t *values, int64_t free_bytes) {
  const zr_option_bytes_t *headroom = &values->headroom;
  return headroom->share > 0 ? (int64_t)((double)free_bytes * headroom->share) : headroom->bytes;
}

static int64_t at_least_none(int64_t bytes) {
  return bytes > 0 ? bytes : 0;
}

/* Of the file system where `path` is, or will be made. */
static bool look_at(const char *path, struct statvfs *out_about) {
  char text[ZR_PATH_BYTES];
  (void)snprintf(text, sizeof text, "%s", path);
  for (char *slash; statvfs(text, out_about) != 0; *slash = 0) {
    slash = strrchr(text, '/');
    if (slash == NULL) return statvfs(".", out_about) == 0;
    if (slash == text) return statvfs("/", out_about) == 0;
  }
  return true;
}

/* Of the directories together; those of one drive after each other count once. */
static int64_t disk_free(const zr_option_list_t *paths) {
  int64_t sum = 0;
  unsigned long last = 0;
  for (size_t i = 0; i < paths->n_items; ++i) {
    struct statvfs about;
    if (!look_at(paths->items[i], &about) || (i > 0 && about.f_fsid == last)) continue;
    last = about.f_fsid;
    sum += (int64_t)about.f_bavail * (int64_t)about.f_frsize;
  }
  return sum;
}

/* 0 would be no limit. */
static int64_t at_least_one(int64_t bytes) {
  return bytes > 0 ? bytes : 1;
}

/* Of memory that each of n_local ranks has `each` bytes of, if it is given as a size. */
static int64_t memory_budget(const zr_option_bytes_t *asked, int64_t each, int n_local,
                             int64_t total, int64_t available) {
  if (asked->bytes >= 0) return at_least_one(each);
  if (asked->share > 0) return at_least_one((int64_t)((double)total * asked->share) / n_local);
  return at_least_one(available / n_local);
}

void zr_setup_budgets(const zr_config_t *values, int n_local_ranks, int64_t out_bytes[ZR_N_TIERS]) {
  int64_t total, free_bytes;
  node_memory(&total, &free_bytes);
  int64_t available = at_least_none(free_bytes - headroom_of(values, free_bytes));
  const zr_option_bytes_t *disk = &values->memory_disk;
  const zr_option_bytes_t *device = &values->memory_device, *host = &values->memory_host;
  out_bytes[ZR_TIER_DEVICE] = memory_budget(device, device->bytes, n_local_ranks, total, available);
  out_bytes[ZR_TIER_HOST] =
      memory_budget(host, host->bytes / n_local_ranks, n_local_ranks, total, available);
  out_bytes[ZR_TIER_DISK] = 0;
  if (disk->bytes >= 0) out_bytes[ZR_TIER_DISK] = at_least_one(disk->bytes / n_local_ranks);
  if (disk->share > 0 && values->disk_path.n_items > 0) {
    double share = (double)disk_free(&values->disk_path) * disk->share;
    out_bytes[ZR_TIER_DISK] = at_least_one((int64_t)share / n_local_ranks);
  }
}

void zr_setup_given_budgets(const zr_config_t *values, int n_local_ranks,
                            int64_t out_bytes[ZR_N_TIERS]) {
  out_bytes[ZR_TIER_DEVICE] = at_least_none(values->memory_device.bytes);
  out_bytes[ZR_TIER_HOST] = at_least_none(values->memory_host.bytes) / n_local_ranks;
  out_bytes[ZR_TIER_DISK] = at_least_none(values->memory_disk.bytes) / n_local_ranks;
}

static uint8_t tier_of(int home) {
  return (uint8_t)(home - ZR_HOME_DEVICE);
}

static void set_homes(const zr_config_t *v, zr_zero_options_t *o) {
  o->home = (zr_homes_t){.param = tier_of(v->home_param),
                         .grad = tier_of(v->home_grad),
                         .optimizer = tier_of(v->home_optimizer),
                         .activation = tier_of(v->home_activation)};
  o->ratio = v->offload_ratio;
  o->chunk_elems = v->chunk_elems == ZR_OPTION_AUTO_INT ? 0 : v->chunk_elems;
  o->n_slots = v->n_slots == ZR_OPTION_AUTO_INT ? 0 : v->n_slots;
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
                            .separate = v->documents != 0,
                            .dtype = v->dtype};
  o->kern_ops = place->kern_ops;
  o->kern = place->kern;
  o->n_workers = place->n_workers;
  set_homes(v, o);
  for (int tier = 0; tier < ZR_N_TIERS; ++tier) {
    o->place.budget_bytes[tier] = place->budget_bytes[tier];
  }
}
