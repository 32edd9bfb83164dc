/* `zerorun plan`: compiles and reports; needs no MPI, no data and no memory for the states. */
#include <stdlib.h>

#include "launch/command.h"
#include "runtime/base/affinity.h"
#include "runtime/train/files.h"
#include "runtime/train/predict.h"
#include "runtime/train/profile_file.h"
#include "runtime/train/report.h"
#include "runtime/train/setup.h"

static zr_status_t print_plan(const zr_command_t *command, const zr_zero_t *zero,
                              const zr_prediction_t *prediction) {
  if (!command->json) {
    zr_report_print(zero, stdout);
    zr_predict_print(prediction, stdout);
    return ZR_OK;
  }
  json_t *report = zr_report_json(zero);
  if (report != NULL) {
    (void)json_object_set_new(report, "predicted", zr_predict_json(prediction));
  }
  char *text = report == NULL ? NULL : json_dumps(report, JSON_INDENT(1));
  json_decref(report);
  if (text == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for the report");
  (void)puts(text);
  zr_files_release(text);
  return ZR_OK;
}

static zr_status_t predict(zr_alloc_t *alloc, const zr_command_t *command,
                           const zr_config_file_t *config, const zr_zero_t *zero, int n_cores) {
  zr_profile_t *profile = NULL;
  zr_prediction_t prediction;
  if (command->dump_after != NULL) return ZR_OK; /* the compiler has printed it */
  ZR_TRY(zr_profile_find(alloc, config->values.profile, &profile));
  zr_status_t status = zr_predict(zr_program_find(zero->program, "step"), profile,
                                  zero->options.n_workers, n_cores, &prediction);
  if (status == ZR_OK) status = print_plan(command, zero, &prediction);
  zr_alloc_free(alloc, profile);
  return status;
}

static zr_status_t compile(zr_alloc_t *alloc, const zr_command_t *command,
                           const zr_config_file_t *config, zr_setup_place_t *place, int n_cores) {
  zr_zero_options_t options;
  zr_zero_t *zero = NULL;
  zr_setup_zero_options(config, place, &options);
  options.dump = stdout;
  options.dump_after = command->dump_after;
  ZR_TRY(zr_zero_compile(alloc, &options, &zero));
  zr_status_t status = predict(alloc, command, config, zero, n_cores);
  zr_zero_destroy(zero);
  return status;
}

static zr_status_t plan(zr_alloc_t *alloc, const zr_command_t *command, zr_config_file_t *config) {
  ZR_TRY(zr_config_steps(config, 0));
  if (command->print_config) {
    zr_config_print(config, stdout);
    return ZR_OK;
  }
  int n_ranks = config->n_ranks, n_cores = 1;
  ZR_TRY(zr_affinity_widen(0, n_ranks, &n_cores));
  zr_setup_place_t place = {.n_ranks = n_ranks, .n_workers = n_cores};
  if (config->values.threads != ZR_OPTION_AUTO_INT) place.n_workers = (int)config->values.threads;
  /* The plan of another machine may be asked for: only a budget that is given counts. */
  zr_setup_given_budgets(&config->values, n_ranks, place.budget_bytes);
  ZR_TRY(zr_kern_cpu_open(alloc, config->values.isa, &place.kern_ops, &place.kern));
  zr_status_t status = compile(alloc, command, config, &place, n_cores);
  place.kern_ops->close(place.kern);
  return status;
}

zr_status_t zr_command_plan(zr_alloc_t *alloc, const zr_command_t *command) {
  zr_config_file_t *config = NULL;
  int n_ranks = command->n_ranks > 0 ? command->n_ranks : 1;
  ZR_TRY(zr_command_config(alloc, command, n_ranks, &config));
  zr_status_t status = plan(alloc, command, config);
  zr_config_destroy(config);
  return status;
}
