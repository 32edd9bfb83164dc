/* zerorun: the command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command.h"
#include "launch/version.h"
#include "runtime/base/log.h"

/* Of a job that a launcher started; these commands say the same on every rank, one is enough. */
static int launched_rank(void) {
  static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                          "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; ++i) {
    const char *text = getenv(variables[i]);
    if (text != NULL) return (int)strtol(text, NULL, 10);
  }
  return 0;
}

static zr_status_t help(const zr_command_t *command) {
  if (command->path == NULL) {
    zr_command_help(stdout);
    return ZR_OK;
  }
  if (strcmp(command->path, "options") != 0) {
    return zr_fail(ZR_ERR_CONFIG, "there is no help on '%.40s'; try zerorun help options",
                   command->path);
  }
  size_t n_rows;
  const zr_option_t *table = zr_config_table(&n_rows);
  zr_options_print_reference(table, n_rows, stdout);
  return ZR_OK;
}

static zr_status_t speak(zr_alloc_t *alloc, const zr_command_t *command) {
  switch (command->verb) {
    case ZR_COMMAND_PLAN:
      return zr_command_plan(alloc, command);
    case ZR_COMMAND_HELP:
      return help(command);
    default:
      (void)puts("zerorun " ZR_VERSION);
      return ZR_OK;
  }
}

int main(int argc, char **argv) {
  zr_alloc_t *alloc = zr_alloc_default();
  zr_command_t command;
  zr_status_t status = zr_command_parse(argc, argv, &command);
  if (status == ZR_OK && command.verb == ZR_COMMAND_RUN) return zr_command_run(alloc, &command);
  bool first = launched_rank() == 0;
  if (status == ZR_OK && command.verb == ZR_COMMAND_BISECT) {
    return first ? zr_command_bisect(alloc, &command) : 0;
  }
  if (status == ZR_OK && first) status = speak(alloc, &command);
  if (status != ZR_OK && first) zr_error("%s", zr_detail());
  if (status == ZR_OK && (fflush(stdout) != 0 || ferror(stdout))) status = ZR_ERR_IO;
  return zr_status_exit_code(status);
}
