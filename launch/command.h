/* The command line of zerorun. */
#ifndef ZR_LAUNCH_COMMAND_H
#define ZR_LAUNCH_COMMAND_H

#include <stdbool.h>

#include "runtime/train/config.h"

typedef enum {
  ZR_COMMAND_RUN = 0,
  ZR_COMMAND_PLAN,
  ZR_COMMAND_HELP,
  ZR_COMMAND_VERSION,
  ZR_COMMAND_BISECT
} zr_verb_t;

enum { ZR_COMMAND_MAX_SETS = 256, ZR_COMMAND_MAX_DATA = 256 };

typedef struct {
  zr_verb_t verb;
  const char *other_path; /* bisect: the second run's folder */
  bool rerun;             /* bisect --rerun */
  const char *path; /* bisect: the first run's folder; else of the configuration; "help": the topic,
                       or NULL */
  const char *set[ZR_COMMAND_MAX_SETS];
  int n_sets;
  const char
      *model; /* --model: a preset's name or a file with a shape; NULL: in the configuration */
  const char *data[ZR_COMMAND_MAX_DATA]; /* --data: token files, text files or globs */
  int n_data;
  bool print_config, json, check;
  int n_ranks;            /* plan --ranks; 0: not given */
  const char *dump_after; /* plan --dump-after */
} zr_command_t;

/* ZR_ERR_CONFIG for wrong usage. Strings stay those of argv. */
zr_status_t zr_command_parse(int argc, char **argv, zr_command_t *out_command) ZR_MUST_CHECK;
void zr_command_help(FILE *out);

/* The configuration with its --set options, checked; the batch rule for n_ranks. */
zr_status_t zr_command_config(zr_alloc_t *alloc, const zr_command_t *command, int n_ranks,
                              zr_config_file_t **out_config) ZR_MUST_CHECK;

/* form.c: --model and --data over the file's keys; then, once --set is done, what the file of
 * another trainer leaves open: sequence length and run length. */
zr_status_t zr_form_apply(const zr_command_t *command, zr_config_file_t *config) ZR_MUST_CHECK;
zr_status_t zr_form_complete(const zr_command_t *command, zr_config_file_t *config) ZR_MUST_CHECK;

/* `zerorun plan`: what lives where, without running. Prints on standard output. */
zr_status_t zr_command_plan(zr_alloc_t *alloc, const zr_command_t *command) ZR_MUST_CHECK;
/* `zerorun bisect A B`: where two runs part; returns the exit code, ZR_EXIT_DIFFER if they do. */
enum { ZR_EXIT_DIFFER = 8 };
int zr_command_bisect(zr_alloc_t *alloc, const zr_command_t *command);
/* `zerorun cfg.yaml`: returns the exit code; messages are printed. */
int zr_command_run(zr_alloc_t *alloc, const zr_command_t *command);

#endif
