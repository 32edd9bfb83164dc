/* What became of options of another trainer that are read as options of zerorun, and of those for
 * tiers that the run does not use. */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/train/config_put.h"

#define OPTIMIZER_BLOCK "zero_optimization.offload_optimizer"
#define PARAM_BLOCK "zero_optimization.offload_param"

typedef struct {
  const zr_config_file_t *config;
  zr_config_needless_fn_t fn;
  void *context;
} say_t;

static void __attribute__((format(printf, 3, 4)))
say(const say_t *to, const char *key, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  to->fn(to->context, key, text);
}

static const char *home_name(int home) {
  static const char *const names[] = {"auto", "device", "host", "disk"};
  return names[home];
}

static void say_old(const say_t *to) {
  const zr_config_t *v = &to->config->values;
  if (v->cpu_offload) {
    say(to, "zero_optimization.cpu_offload",
        "read as offload_optimizer.device = cpu, whose old form it is");
  }
  if (v->cpu_offload_params) {
    say(to, "zero_optimization.cpu_offload_params",
        "read as offload_param.device = cpu, whose old form it is");
  }
  if (zr_config_is_asked(to->config, "zero_optimization.cpu_offload_use_pin_memory")) {
    say(to, "zero_optimization.cpu_offload_use_pin_memory",
        "read as pin_memory, whose old form it is: memory.pin = %s", v->pin ? "true" : "false");
  }
}

static void say_key(const say_t *to, const char *block, const char *name, const char *became,
                    int64_t value) {
  char key[96];
  (void)snprintf(key, sizeof key, "%s.%s", block, name);
  if (!zr_config_is_asked(to->config, key)) return;
  if (value == ZR_OPTION_AUTO_INT) {
    say(to, key, "left to the compiler: %s = auto", became);
  } else {
    say(to, key, "read as %s, which is %lld", became, (long long)value);
  }
}

static void say_block(const say_t *to, const char *block, const zr_offload_t *given, int home,
                      const char *home_key) {
  const zr_config_t *v = &to->config->values;
  char key[96];
  (void)snprintf(key, sizeof key, "%s.device", block);
  bool is_none = given->device == ZR_OFFLOAD_NONE;
  if (zr_config_is_given(to->config, key) && (!is_none || home == ZR_HOME_DEVICE)) {
    say(to, key, "read as %s = %s", home_key, home_name(home));
  }
  say_key(to, block, "buffer_size", "plan.chunk", v->chunk_elems);
  say_key(to, block, "buffer_count", "plan.slots", v->n_slots);
  (void)snprintf(key, sizeof key, "%s.pin_memory", block);
  if (zr_config_is_asked(to->config, key)) {
    say(to, key, "read as memory.pin, which is %s", v->pin ? "true" : "false");
  }
  (void)snprintf(key, sizeof key, "%s.nvme_path", block);
  if (zr_config_is_asked(to->config, key) && given->device == ZR_OFFLOAD_NVME) {
    say(to, key, "read as memory.disk_path");
  }
}

static void say_activations(const say_t *to) {
  const zr_config_t *v = &to->config->values;
  if (v->number_checkpoints > 0) {
    say(to, "activation_checkpointing.number_checkpoints",
        "read as plan.recompute = full, plan.recompute_every = %lld",
        (long long)v->recompute_every);
  }
  if (v->cpu_checkpointing) {
    say(to, "activation_checkpointing.cpu_checkpointing",
        "read as plan.recompute = full, plan.homes.activation = host");
  }
}

void zr_config_mapped(const zr_config_file_t *config, zr_config_needless_fn_t fn, void *context) {
  const zr_config_t *v = &config->values;
  say_t to = {config, fn, context};
  say_old(&to);
  say_block(&to, OPTIMIZER_BLOCK, &v->offload_optimizer, v->home_optimizer, "plan.homes.optimizer");
  say_block(&to, PARAM_BLOCK, &v->offload_param, v->home_param, "plan.homes.param");
  say_activations(&to);
}

static void say_if(const say_t *to, bool is_idle, const char *key, const char *why) {
  if (is_idle && zr_config_is_asked(to->config, key)) to->fn(to->context, key, why);
}

void zr_config_homes_needless(const zr_config_file_t *config, zr_config_needless_fn_t fn,
                              void *context) {
  static const char no_disk[] = "nothing lives on disk", no_away[] = "nothing is away";
  const zr_config_t *v = &config->values;
  say_t to = {config, fn, context};
  bool disk = zr_config_lives_on(v, ZR_HOME_DISK);
  bool away = disk || zr_config_lives_on(v, ZR_HOME_HOST);
  say_if(&to, !disk, "memory.disk_path", no_disk);
  say_if(&to, !disk, "aio.block_size", no_disk);
  say_if(&to, !disk, "aio.queue_depth", no_disk);
  say_if(&to, !away, "plan.chunk", no_away);
  say_if(&to, !away, "plan.slots", no_away);
  say_if(&to, v->home_optimizer == ZR_HOME_DEVICE && v->offload_ratio != 0,
         OPTIMIZER_BLOCK ".ratio", "the optimizer's states live on the device");
  bool optimizer_nvme = v->offload_optimizer.device == ZR_OFFLOAD_NVME;
  bool param_nvme = v->offload_param.device == ZR_OFFLOAD_NVME;
  say_if(&to, !optimizer_nvme, OPTIMIZER_BLOCK ".nvme_path", "device is not nvme");
  say_if(&to, !param_nvme, PARAM_BLOCK ".nvme_path", "device is not nvme");
}
