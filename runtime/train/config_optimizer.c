/* The optimizer: defaults of each type as DeepSpeed's and PyTorch's, and its parameters, which may
 * only be its own. */
#include <math.h>
#include <string.h>

#include "runtime/train/config_put.h"

static const struct {
  const char *name, *params;
  const char *lr, *betas, *eps; /* defaults */
  int32_t kind;
} types[] = {
    [ZR_OPTIMIZER_ADAMW] = {"AdamW", "lr, betas, eps, weight_decay, bias_correction", "0.001",
                            "[0.9, 0.999]", "1e-08", ZR_OP_ADAMW},
    [ZR_OPTIMIZER_ADAM] = {"Adam", "lr, betas, eps, weight_decay, bias_correction, adam_w_mode",
                           "0.001", "[0.9, 0.999]", "1e-08", ZR_OP_ADAMW},
    [ZR_OPTIMIZER_SGD] = {"SGD", "lr, momentum, dampening, weight_decay, nesterov", "0.001",
                          "[0.9, 0.999]", "1e-08", ZR_OP_SGD},
    [ZR_OPTIMIZER_LION] = {"Lion", "lr, betas, weight_decay", "0.001", "[0.9, 0.99]", "1e-08",
                           ZR_OP_LION},
    [ZR_OPTIMIZER_ADAGRAD] = {"Adagrad",
                              "lr, lr_decay, weight_decay, initial_accumulator_value, eps", "0.01",
                              "[0.9, 0.999]", "1e-10", ZR_OP_ADAGRAD},
};

static const char betas_key[] = "optimizer.params.betas";

static zr_status_t parse_beta(const zr_config_file_t *config, size_t index, double standard,
                              double *out_beta) {
  const char *text = config->values.betas.items[index];
  double beta = standard;
  if (strcmp(text, "auto") != 0 && (!zr_parse_double(text, &beta) || beta < 0 || beta >= 1)) {
    return zr_options_complain(config->options, betas_key,
                               "must be two numbers from 0 to below 1, like [0.9, 0.999], not "
                               "'%.40s'",
                               text);
  }
  *out_beta = beta;
  return ZR_OK;
}

static zr_status_t resolve_betas(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  bool is_lion = v->optimizer == ZR_OPTIMIZER_LION;
  bool is_auto = v->betas.n_items == 1 && strcmp(v->betas.items[0], "auto") == 0;
  if (is_auto || (is_lion && !zr_config_is_given(config, betas_key))) {
    ZR_TRY(zr_config_put(config, betas_key, types[v->optimizer].betas));
  }
  if (v->betas.n_items != 2) {
    return zr_options_complain(config->options, betas_key,
                               "must be two numbers, like [0.9, 0.999]");
  }
  ZR_TRY(parse_beta(config, 0, 0.9, &v->beta1));
  return parse_beta(config, 1, is_lion ? 0.99 : 0.999, &v->beta2);
}

/* "auto" is resolved, and where nothing is given, a type's default that is not `usual`, the
 * table's.
 */
static zr_status_t resolve_default(zr_config_file_t *config, const char *key, double value,
                                   const char *standard, const char *usual) {
  bool untold = strcmp(standard, usual) != 0 && !zr_config_is_given(config, key);
  return isnan(value) || untold ? zr_config_put(config, key, standard) : ZR_OK;
}

/* A parameter of another type may be there only with the value that the table gives it, which is
 * what a printed configuration has. */
static zr_status_t refuse_others(const zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  const struct {
    const char *name;
    bool is_default;
  } rows[] = {
      {"betas", v->beta1 == 0.9 && v->beta2 == 0.999},
      {"eps", v->eps == 1e-8},
      {"bias_correction", v->bias_correction == 1},
      {"adam_w_mode", v->adam_w_mode == 1},
      {"momentum", v->momentum == 0},
      {"dampening", v->dampening == 0},
      {"nesterov", v->nesterov == 0},
      {"lr_decay", v->lr_decay == 0},
      {"initial_accumulator_value", v->initial_accumulator == 0},
  };
  const char *own = types[v->optimizer].params;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    char key[64];
    (void)snprintf(key, sizeof key, "optimizer.params.%s", rows[i].name);
    const char *found = strstr(own, rows[i].name);
    size_t chars = strlen(rows[i].name);
    bool is_own = found != NULL && (found[chars] == ',' || found[chars] == 0);
    if (is_own || rows[i].is_default || !zr_config_is_given(config, key)) continue;
    return zr_options_complain(config->options, key, "is not a parameter of %s, which has %s",
                               types[v->optimizer].name, own);
  }
  return ZR_OK;
}

/* As torch.optim.SGD. */
static zr_status_t check_momentum(const zr_config_file_t *config) {
  const zr_config_t *v = &config->values;
  if (v->nesterov && (v->momentum == 0 || v->dampening != 0)) {
    return zr_options_complain(config->options, "optimizer.params.nesterov",
                               "needs a momentum above 0 and no dampening");
  }
  if (v->dampening != 0 && v->momentum == 0) {
    return zr_options_complain(config->options, "optimizer.params.dampening",
                               "has no effect without a momentum above 0; leave it out");
  }
  return ZR_OK;
}

static zr_status_t resolve_state_type(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  if (v->state_dtype > 1) {
    return zr_options_complain(config->options, "optimizer.state_dtype",
                               "must be fp32 or bf16: fp16 has too few exponents for squares");
  }
  v->state_type = v->state_dtype == 1 ? ZR_BF16 : ZR_F32;
  return ZR_OK;
}

zr_status_t zr_config_optimizer(zr_config_file_t *config) {
  zr_config_t *v = &config->values;
  v->update_kind = types[v->optimizer].kind;
  ZR_TRY(resolve_betas(config));
  const char *lr = types[v->optimizer].lr, *eps = types[v->optimizer].eps;
  ZR_TRY(resolve_default(config, "optimizer.params.lr", v->lr, lr, types[0].lr));
  ZR_TRY(resolve_default(config, "optimizer.params.eps", v->eps, eps, types[0].eps));
  ZR_TRY(resolve_default(config, "optimizer.params.weight_decay", v->weight_decay, "0", "0"));
  ZR_TRY(resolve_default(config, "gradient_clipping", v->gradient_clipping, "1", "1"));
  /* DeepSpeed: the type AdamW is decoupled whatever adam_w_mode says. */
  if (v->optimizer == ZR_OPTIMIZER_ADAMW && !v->adam_w_mode) {
    ZR_TRY(zr_config_put(config, "optimizer.params.adam_w_mode", "true"));
  }
  ZR_TRY(refuse_others(config));
  ZR_TRY(check_momentum(config));
  return resolve_state_type(config);
}
