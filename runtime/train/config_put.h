/* Inside runtime/train: resolved values put back into the table, so that they are printed. */
#ifndef ZR_TRAIN_CONFIG_PUT_H
#define ZR_TRAIN_CONFIG_PUT_H

#include <stdio.h>

#include "runtime/train/config.h"

static inline bool zr_config_is_given(const zr_config_file_t *config, const char *key) {
  int64_t row = zr_options_find(config->options, key);
  return row >= 0 && zr_options_source(config->options, (size_t)row) != ZR_OPTION_FROM_DEFAULT;
}

/* Written by the user, not resolved here. */
static inline bool zr_config_is_asked(const zr_config_file_t *config, const char *key) {
  int64_t row = zr_options_find(config->options, key);
  zr_option_source_t source = zr_options_source(config->options, (size_t)row);
  return source == ZR_OPTION_FROM_FILE || source == ZR_OPTION_FROM_COMMAND_LINE;
}

/* Once homes are resolved. */
static inline bool zr_config_lives_on(const zr_config_t *v, zr_home_choice_t home) {
  return v->home_param == (int)home || v->home_optimizer == (int)home ||
         v->home_grad == (int)home || v->home_activation == (int)home;
}

static inline zr_status_t zr_config_put(zr_config_file_t *config, const char *key,
                                        const char *text) {
  return zr_options_set(config->options, key, text, ZR_OPTION_FROM_PROGRAM, "resolved");
}

static inline zr_status_t zr_config_put_int(zr_config_file_t *config, const char *key,
                                            int64_t value) {
  char text[32];
  (void)snprintf(text, sizeof text, "%lld", (long long)value);
  return zr_config_put(config, key, text);
}

static inline zr_status_t zr_config_put_double(zr_config_file_t *config, const char *key,
                                               double value) {
  char text[40];
  (void)snprintf(text, sizeof text, "%.17g", value);
  return zr_config_put(config, key, text);
}

#endif
