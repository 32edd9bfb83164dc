/* zerorun --model M --data FILE ds_config.json: another trainer's file knows no model, no data, no
 * length; the command line gives the first two and this the rest. */
#include <string.h>
#include <sys/stat.h>

#include "launch/command.h"

enum { MOST_SEQ_LEN = 1024 };

static zr_status_t put(zr_config_file_t *config, const char *key, const char *text,
                       const char *where) {
  return zr_options_set(config->options, key, text, ZR_OPTION_FROM_COMMAND_LINE, where);
}

static bool ends_in(const char *text, const char *ending) {
  size_t chars = strlen(text), end = strlen(ending);
  return chars > end && strcmp(text + chars - end, ending) == 0;
}

/* A file, a Hugging Face folder, or a preset's name. */
static zr_status_t apply_model(zr_config_file_t *config, const char *model) {
  struct stat about;
  if (stat(model, &about) == 0) {
    return S_ISDIR(about.st_mode) ? put(config, "model.path", model, "--model")
                                  : zr_config_load_block(config, "model", model);
  }
  if (strchr(model, '/') != NULL || ends_in(model, ".json") || ends_in(model, ".yaml")) {
    return zr_fail(ZR_ERR_CONFIG,
                   "--model %s: there is no such file; name a Hugging Face config.json, a file "
                   "with a model block, or a preset",
                   model);
  }
  return put(config, "model.preset", model, "--model");
}

/* Megatron's pair may be named without an ending. */
static bool holds_tokens(const char *path) {
  char index[1024];
  struct stat about;
  int used = snprintf(index, sizeof index, "%s.idx", path);
  return ends_in(path, ".bin") || ends_in(path, ".idx") ||
         (used < (int)sizeof index && stat(path, &about) != 0 && stat(index, &about) == 0);
}

zr_status_t zr_form_apply(const zr_command_t *command, zr_config_file_t *config) {
  if (command->model != NULL) ZR_TRY(apply_model(config, command->model));
  if (command->n_data == 0) return ZR_OK;
  ZR_TRY(zr_options_set_list(config->options, "data.train", command->data, (size_t)command->n_data,
                             ZR_OPTION_FROM_COMMAND_LINE, "--data"));
  const zr_config_t *v = &config->values;
  if (v->tokenizer != NULL || v->data_format != 0 || holds_tokens(command->data[0])) return ZR_OK;
  return put(config, "data.tokenizer", "byte", "--data");
}

/* Positions that the model is said to have; 0: not said. */
static zr_status_t positions_of(const zr_config_t *v, int64_t *out_positions) {
  *out_positions = v->shape.max_positions;
  if (*out_positions != 0 || v->model_preset == NULL) return ZR_OK;
  zr_model_config_t shape;
  ZR_TRY(zr_model_preset(v->model_preset, &shape));
  *out_positions = shape.max_positions;
  return ZR_OK;
}

zr_status_t zr_form_complete(const zr_command_t *command, zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  if (command->model == NULL && command->n_data == 0) return ZR_OK;
  if (v->seq_len == 0) {
    char text[32];
    int64_t positions = 0;
    ZR_TRY(positions_of(v, &positions));
    if (positions <= 0 || positions > MOST_SEQ_LEN) positions = MOST_SEQ_LEN;
    (void)snprintf(text, sizeof text, "%lld", (long long)positions);
    ZR_TRY(put(config, "data.seq_len", text, "not given"));
  }
  if (v->steps > 0 || v->tokens > 0 || v->epochs > 0) return ZR_OK;
  return put(config, "run.epochs", "1", "not given");
}
