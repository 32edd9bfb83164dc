/* Where states live: plan.homes.*, and DeepSpeed's offload blocks, whose old and new spellings end
 * up there. */
#include <math.h>
#include <string.h>

#include "runtime/train/config_put.h"

#define OPTIMIZER_BLOCK "zero_optimization.offload_optimizer"
#define PARAM_BLOCK "zero_optimization.offload_param"

/* A buffer of DeepSpeed's is a tensor; a chunk needs not be larger than what keeps a link busy. */
enum { ELEMS_GRAIN = 1024, MOST_CHUNK_ELEMS = 1 << 22, MOST_SLOTS = 256, DISK_GRAIN = 4096 };

static const char *const home_names[] = {"auto", "device", "host", "disk"};
static const char *const device_names[] = {"none", "cpu", "nvme", "auto"};

static const char *where(const zr_config_file_t *config, const char *key) {
  return zr_options_where(config->options, (size_t)zr_options_find(config->options, key));
}

/* --- DeepSpeed's blocks ---------------------------------------------------------------------- */

static zr_status_t take_old(zr_config_file_t *config, const char *old, int is_on, const char *key,
                            int device) {
  if (!is_on) return ZR_OK;
  if (zr_config_is_asked(config, key) && device != ZR_OFFLOAD_CPU) {
    return zr_options_complain(config->options, old,
                               "= true is the old form of %s = cpu, which is %s (%s); keep one",
                               key, device_names[device], where(config, key));
  }
  return device == ZR_OFFLOAD_CPU ? ZR_OK : zr_config_put(config, key, "cpu");
}

static zr_status_t resolve_device(zr_config_file_t *config, const char *key, const char *path_key,
                                  const zr_offload_t *block) {
  if (block->device == ZR_OFFLOAD_AUTO) return zr_config_put(config, key, "none");
  bool has_path = block->nvme_path.n_items > 0 || config->values.disk_path.n_items > 0;
  if (block->device != ZR_OFFLOAD_NVME || has_path) return ZR_OK;
  return zr_options_complain(config->options, key,
                             "= nvme needs %s: set it to a directory on a local drive", path_key);
}

static zr_status_t resolve_blocks(zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  static const char optimizer[] = OPTIMIZER_BLOCK ".device", param[] = PARAM_BLOCK ".device";
  ZR_TRY(take_old(config, "zero_optimization.cpu_offload", v->cpu_offload, optimizer,
                  v->offload_optimizer.device));
  ZR_TRY(take_old(config, "zero_optimization.cpu_offload_params", v->cpu_offload_params, param,
                  v->offload_param.device));
  ZR_TRY(resolve_device(config, optimizer, OPTIMIZER_BLOCK ".nvme_path", &v->offload_optimizer));
  ZR_TRY(resolve_device(config, param, PARAM_BLOCK ".nvme_path", &v->offload_param));
  if (isnan(v->offload_ratio)) ZR_TRY(zr_config_put(config, OPTIMIZER_BLOCK ".ratio", "1"));
  return ZR_OK;
}

/* --- homes ----------------------------------------------------------------------------------- */

static int home_of(int device) {
  return device == ZR_OFFLOAD_CPU    ? ZR_HOME_HOST
         : device == ZR_OFFLOAD_NVME ? ZR_HOME_DISK
                                     : ZR_HOME_DEVICE;
}

/* What a block says, where plan.homes.* leaves it open; a block that says none leaves it open too.
 */
static zr_status_t settle_home(zr_config_file_t *config, const char *key, int home,
                               const char *device_key, int device, int block_home) {
  if (home == ZR_HOME_AUTO) return zr_config_put(config, key, home_names[block_home]);
  if (device == ZR_OFFLOAD_NONE || home == block_home) return ZR_OK;
  return zr_options_complain(
      config->options, key, "= %s, but %s = %s (%s) says %s; keep one of them", home_names[home],
      device_key, device_names[device], where(config, device_key), home_names[block_home]);
}

/* The key by which the user asked for a home. */
static const char *asked_by(const zr_config_file_t *config, const char *key, const char *device_key,
                            const char *old_key) {
  if (zr_config_is_asked(config, key)) return key;
  return zr_config_is_asked(config, device_key) ? device_key : old_key;
}

static const char *param_key(const zr_config_file_t *config) {
  return asked_by(config, "plan.homes.param", PARAM_BLOCK ".device",
                  "zero_optimization.cpu_offload_params");
}

/* Its states are updated where they live, and read gradients and write parameters there. */
static zr_status_t check_together(const zr_config_file_t *config) {
  static const char remedy[] =
      "needs the optimizer's states away from the device too: set "
      "zero_optimization.offload_optimizer.device = cpu or plan.homes.optimizer = host";
  const zr_config_t *v = &config->values;
  if (v->home_optimizer != ZR_HOME_DEVICE && v->offload_ratio > 0) {
    if (v->offload_ratio >= 1 || v->home_param == ZR_HOME_DEVICE) return ZR_OK;
    return zr_options_complain(config->options, OPTIMIZER_BLOCK ".ratio",
                               "= %g updates a part on the device, where the parameters do not "
                               "live; leave it out, or keep parameters on the device",
                               v->offload_ratio);
  }
  if (v->home_param != ZR_HOME_DEVICE) {
    return zr_options_complain(config->options, param_key(config), "= %s %s",
                               home_names[v->home_param], remedy);
  }
  if (v->home_grad != ZR_HOME_DEVICE) {
    return zr_options_complain(config->options, "plan.homes.grad", "= %s %s",
                               home_names[v->home_grad], remedy);
  }
  return ZR_OK;
}

static zr_status_t resolve_states(zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  int optimizer = v->offload_optimizer.device, param = v->offload_param.device;
  int optimizer_home = v->offload_ratio > 0 ? home_of(optimizer) : ZR_HOME_DEVICE;
  ZR_TRY(settle_home(config, "plan.homes.optimizer", v->home_optimizer, OPTIMIZER_BLOCK ".device",
                     optimizer, optimizer_home));
  ZR_TRY(settle_home(config, "plan.homes.param", v->home_param, PARAM_BLOCK ".device", param,
                     home_of(param)));
  if (v->offload_ratio == 0 && v->home_optimizer != ZR_HOME_DEVICE) {
    return zr_options_complain(config->options, OPTIMIZER_BLOCK ".ratio",
                               "= 0 leaves nothing for plan.homes.optimizer = %s; keep one",
                               home_names[v->home_optimizer]);
  }
  if (v->home_grad == ZR_HOME_AUTO) {
    bool away = v->home_optimizer != ZR_HOME_DEVICE;
    ZR_TRY(zr_config_put(config, "plan.homes.grad", away ? "host" : "device"));
  }
  return check_together(config);
}

zr_status_t zr_config_homes_batch(const zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  if (v->home_param == ZR_HOME_DEVICE || config->n_ranks == 1 || v->stage == 3) return ZR_OK;
  return zr_options_complain(config->options, param_key(config),
                             "puts parameters on %s: on %d ranks that needs "
                             "zero_optimization.stage = 3, not %d",
                             v->home_param == ZR_HOME_HOST ? "the host" : "disk", config->n_ranks,
                             v->stage);
}

/* --- activations ----------------------------------------------------------------------------- */

enum { RECOMPUTE_FULL = 2, RECOMPUTE_AUTO = 3 };

static zr_status_t want_recompute(zr_config_file_t *config, const char *key) {
  if (config->values.recompute == RECOMPUTE_AUTO) {
    return zr_config_put(config, "plan.recompute", "full");
  }
  if (config->values.recompute == RECOMPUTE_FULL) return ZR_OK;
  return zr_options_complain(config->options, key,
                             "makes activations again, and plan.recompute (%s) says otherwise; "
                             "leave one out, or say full",
                             where(config, "plan.recompute"));
}

/* number_checkpoints = n: n blocks, evenly spread, keep nothing but their input. */
static zr_status_t resolve_number(zr_config_file_t *config) {
  static const char key[] = "activation_checkpointing.number_checkpoints";
  const zr_config_t *v = &config->values;
  if (v->number_checkpoints == 0) return ZR_OK;
  int64_t blocks = v->model.n_layers, every = blocks / v->number_checkpoints;
  if (blocks % v->number_checkpoints != 0) {
    return zr_options_complain(config->options, key,
                               "= %lld does not divide the model's %lld blocks; use plan.recompute "
                               "and plan.recompute_every",
                               (long long)v->number_checkpoints, (long long)blocks);
  }
  if (zr_config_is_asked(config, "plan.recompute_every") && v->recompute_every != every) {
    return zr_options_complain(config->options, key,
                               "= %lld of %lld blocks is every %lld-th, and plan.recompute_every = "
                               "%lld (%s); keep one",
                               (long long)v->number_checkpoints, (long long)blocks,
                               (long long)every, (long long)v->recompute_every,
                               where(config, "plan.recompute_every"));
  }
  ZR_TRY(want_recompute(config, key));
  return zr_config_put_int(config, "plan.recompute_every", every);
}

static zr_status_t resolve_activations(zr_config_file_t *config) {
  static const char key[] = "plan.homes.activation",
                    old[] = "activation_checkpointing.cpu_checkpointing";
  const zr_config_t *v = &config->values;
  ZR_TRY(resolve_number(config));
  if (v->cpu_checkpointing) {
    ZR_TRY(want_recompute(config, old));
    if (v->home_activation == ZR_HOME_AUTO) return zr_config_put(config, key, "host");
    if (v->home_activation == ZR_HOME_HOST) return ZR_OK;
    return zr_options_complain(config->options, key, "= %s, but %s = true (%s) says host; keep one",
                               home_names[v->home_activation], old, where(config, old));
  }
  return v->home_activation == ZR_HOME_AUTO ? zr_config_put(config, key, "device") : ZR_OK;
}

/* --- how things move ------------------------------------------------------------------------- */

static bool is_number(int64_t value) {
  return value > 0;
}

static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static bool anything_away(const zr_config_t *v) {
  return zr_config_lives_on(v, ZR_HOME_HOST) || zr_config_lives_on(v, ZR_HOME_DISK);
}

/* The larger wish of the two blocks. */
static zr_status_t resolve_chunks(zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  const zr_offload_t *a = &v->offload_optimizer, *b = &v->offload_param;
  if (is_number(v->chunk_elems) && v->chunk_elems % ELEMS_GRAIN != 0) {
    return zr_options_complain(config->options, "plan.chunk", "= %lld must be a multiple of %d",
                               (long long)v->chunk_elems, (int)ELEMS_GRAIN);
  }
  int64_t elems = most(a->buffer_size, b->buffer_size) / ELEMS_GRAIN * ELEMS_GRAIN;
  int64_t count = most(a->buffer_count, b->buffer_count);
  bool has_size = is_number(a->buffer_size) || is_number(b->buffer_size);
  if (v->chunk_elems == ZR_OPTION_AUTO_INT && has_size && anything_away(v)) {
    elems = elems < ELEMS_GRAIN ? ELEMS_GRAIN : elems > MOST_CHUNK_ELEMS ? MOST_CHUNK_ELEMS : elems;
    ZR_TRY(zr_config_put_int(config, "plan.chunk", elems));
  }
  if (v->n_slots == ZR_OPTION_AUTO_INT && is_number(count) && anything_away(v)) {
    ZR_TRY(zr_config_put_int(config, "plan.slots", count > MOST_SLOTS ? MOST_SLOTS : count));
  }
  if (is_number(v->disk_block_bytes) && v->disk_block_bytes % DISK_GRAIN != 0) {
    return zr_options_complain(config->options, "aio.block_size", "= %lld must be a multiple of %d",
                               (long long)v->disk_block_bytes, (int)DISK_GRAIN);
  }
  return ZR_OK;
}

/* Pinned unless every place that speaks of it says no. */
static zr_status_t resolve_pin(zr_config_file_t *config) {
  static const char *const keys[] = {OPTIMIZER_BLOCK ".pin_memory", PARAM_BLOCK ".pin_memory",
                                     "zero_optimization.cpu_offload_use_pin_memory"};
  const zr_config_t *v = &config->values;
  const int values[] = {v->offload_optimizer.pin_memory, v->offload_param.pin_memory,
                        v->cpu_offload_pin};
  int n_no = 0, n_yes = 0;
  for (int i = 0; i < 3; ++i) {
    if (!zr_config_is_asked(config, keys[i]) || values[i] == ZR_OPTION_AUTO_BOOL) continue;
    n_no += values[i] == 0;
    n_yes += values[i] == 1;
  }
  if (zr_config_is_asked(config, "memory.pin") || n_no == 0 || n_yes > 0) return ZR_OK;
  return zr_config_put(config, "memory.pin", "false");
}

enum { MOST_PATHS = 64 };

static size_t add_paths(const zr_offload_t *block, const char **path, size_t n_paths) {
  for (size_t i = 0; block->device == ZR_OFFLOAD_NVME && i < block->nvme_path.n_items; ++i) {
    bool is_new = true;
    for (size_t j = 0; j < n_paths; ++j) {
      if (strcmp(path[j], block->nvme_path.items[i]) == 0) is_new = false;
    }
    if (is_new && n_paths < MOST_PATHS) path[n_paths++] = block->nvme_path.items[i];
  }
  return n_paths;
}

static zr_status_t resolve_disk(zr_config_file_t *config) {
  static const char key[] = "memory.disk_path";
  const zr_config_t *v = &config->values;
  const char *path[MOST_PATHS];
  if (v->disk_path.n_items > MOST_PATHS) {
    return zr_options_complain(config->options, key, "has more than %d directories",
                               (int)MOST_PATHS);
  }
  if (!zr_config_lives_on(v, ZR_HOME_DISK) || v->disk_path.n_items > 0) return ZR_OK;
  size_t n_paths = add_paths(&v->offload_param, path, add_paths(&v->offload_optimizer, path, 0));
  if (n_paths == 0) path[n_paths++] = v->run_dir;
  return zr_options_set_list(config->options, key, path, n_paths, ZR_OPTION_FROM_PROGRAM,
                             "resolved");
}

zr_status_t zr_config_homes(zr_config_file_t *config) {
  ZR_TRY(resolve_blocks(config));
  ZR_TRY(resolve_states(config));
  ZR_TRY(resolve_activations(config));
  ZR_TRY(resolve_chunks(config));
  ZR_TRY(resolve_pin(config));
  return resolve_disk(config);
}
