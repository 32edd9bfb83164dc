#include "launch/command.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
  OPTION_SET = 256,
  OPTION_PRINT,
  OPTION_JSON,
  OPTION_CHECK,
  OPTION_RANKS,
  OPTION_DUMP,
  OPTION_MODEL,
  OPTION_DATA,
  OPTION_RERUN
};

static const struct option long_options[] = {
    {"set", required_argument, NULL, OPTION_SET},
    {"print-config", no_argument, NULL, OPTION_PRINT},
    {"json", no_argument, NULL, OPTION_JSON},
    {"check", no_argument, NULL, OPTION_CHECK},
    {"ranks", required_argument, NULL, OPTION_RANKS},
    {"dump-after", required_argument, NULL, OPTION_DUMP},
    {"model", required_argument, NULL, OPTION_MODEL},
    {"data", required_argument, NULL, OPTION_DATA},
    {"rerun", no_argument, NULL, OPTION_RERUN},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

void zr_command_help(FILE *out) {
  (void)fputs(
      "usage: [mpirun -np N] zerorun [options] cfg.yaml      train\n"
      "       zerorun --model M --data FILE ds_config.json   train with DeepSpeed's file as it is\n"
      "       zerorun plan [options] cfg.yaml                what will live where, exact bytes\n"
      "       zerorun bisect [--rerun] [--json] RUN_A RUN_B  where two runs part: step, state, "
      "operation\n"
      "       zerorun help options                           every key of a configuration\n"
      "\n"
      "options\n"
      "  --set key=value     overrides a key of the file; may repeat\n"
      "  --model M           a preset's name, a Hugging Face config.json, or a file with a model "
      "block\n"
      "  --data FILE         token files (.bin, .idx) or text, or a glob; may repeat. Without "
      "data.seq_len\n"
      "                      samples are as long as the model's positions, at most 1024; without a "
      "length\n"
      "                      the run is one epoch\n"
      "  --print-config      prints all values, resolved, and ends\n"
      "  --check             prepares everything, up to the first step, and ends\n"
      "  --json              the lines of log.jsonl on standard output instead of progress\n"
      "  --ranks N           plan: for N ranks (default 1)\n"
      "  --dump-after PASS   plan: the list after model, shard, hoist, place or wait\n"
      "  --rerun             bisect: makes the steps again and names the first operation that "
      "differs\n"
      "  --version, --help\n"
      "\n"
      "cfg.yaml is YAML or JSON (a DeepSpeed ds_config.json block is read as it is); - is "
      "standard\n"
      "input. Output goes to run.dir: log.jsonl, plan.txt, plan.json, trace.json, checkpoints/.\n"
      "The same command continues from the last checkpoint there. SIGUSR1 saves; SIGTERM and\n"
      "SIGINT finish the step, save and end.\n"
      "\n"
      "exit codes\n"
      "  0 done    1 internal    2 usage or configuration    3 data, model or checkpoint\n"
      "  4 does not fit    5 a device, disk or network failed    6 another rank failed or "
      "vanished\n"
      "  7 the numbers failed    8 bisect: the runs differ\n",
      out);
}

static zr_status_t parse_ranks(const char *text, int *out_ranks) {
  int64_t ranks;
  if (!zr_parse_int(text, &ranks) || ranks < 1 || ranks > 65536) {
    return zr_fail(ZR_ERR_CONFIG, "--ranks must be an integer from 1 to 65536, not '%.40s'", text);
  }
  *out_ranks = (int)ranks;
  return ZR_OK;
}

static zr_status_t parse_dump(const char *text, zr_command_t *command) {
  static const char *const passes[] = {"model", "shard", "hoist", "place", "wait"};
  for (size_t i = 0; i < sizeof passes / sizeof passes[0]; ++i) {
    if (strcmp(text, passes[i]) == 0) {
      command->dump_after = passes[i];
      return ZR_OK;
    }
  }
  return zr_fail(ZR_ERR_CONFIG,
                 "--dump-after must be model, shard, hoist, place or wait, not '%.40s'", text);
}

static zr_status_t parse_option(int option, char **argv, zr_command_t *command) {
  switch (option) {
    case OPTION_SET:
      if (command->n_sets == ZR_COMMAND_MAX_SETS) {
        return zr_fail(ZR_ERR_CONFIG, "more than %d --set options", (int)ZR_COMMAND_MAX_SETS);
      }
      command->set[command->n_sets++] = optarg;
      return ZR_OK;
    case OPTION_PRINT:
      command->print_config = true;
      return ZR_OK;
    case OPTION_JSON:
      command->json = true;
      return ZR_OK;
    case OPTION_CHECK:
      command->check = true;
      return ZR_OK;
    case OPTION_RANKS:
      return parse_ranks(optarg, &command->n_ranks);
    case OPTION_DUMP:
      return parse_dump(optarg, command);
    case OPTION_MODEL:
      command->model = optarg;
      return ZR_OK;
    case OPTION_RERUN:
      command->rerun = true;
      return ZR_OK;
    case OPTION_DATA:
      if (command->n_data == ZR_COMMAND_MAX_DATA) {
        return zr_fail(ZR_ERR_CONFIG, "more than %d --data options", (int)ZR_COMMAND_MAX_DATA);
      }
      command->data[command->n_data++] = optarg;
      return ZR_OK;
    case 'h':
      command->verb = ZR_COMMAND_HELP;
      return ZR_OK;
    case 'V':
      command->verb = ZR_COMMAND_VERSION;
      return ZR_OK;
    case ':':
      return zr_fail(ZR_ERR_CONFIG, "%s needs a value; zerorun --help lists the options",
                     argv[optind - 1]);
    default:
      return zr_fail(ZR_ERR_CONFIG, "unknown option %s; zerorun --help lists the options",
                     argv[optind - 1]);
  }
}

static bool takes_word(int argc, char **argv, const char *word) {
  bool is_it = optind < argc && strcmp(argv[optind], word) == 0;
  if (is_it) ++optind;
  return is_it;
}

/* [plan | help | bisect] and one path, or two. */
static zr_status_t parse_words(int argc, char **argv, zr_command_t *command) {
  if (takes_word(argc, argv, "plan")) {
    command->verb = ZR_COMMAND_PLAN;
  } else if (takes_word(argc, argv, "help")) {
    command->verb = ZR_COMMAND_HELP;
  } else if (takes_word(argc, argv, "bisect")) {
    command->verb = ZR_COMMAND_BISECT;
  }
  if (optind < argc) command->path = argv[optind++];
  if (optind < argc && command->verb == ZR_COMMAND_BISECT) command->other_path = argv[optind++];
  if (optind < argc) {
    return zr_fail(ZR_ERR_CONFIG, "'%.80s' is one argument too many; zerorun --help", argv[optind]);
  }
  if (command->path == NULL && command->verb <= ZR_COMMAND_PLAN) {
    return zr_fail(ZR_ERR_CONFIG, "no configuration is named: zerorun cfg.yaml; zerorun --help");
  }
  if (command->verb == ZR_COMMAND_BISECT && command->other_path == NULL) {
    return zr_fail(ZR_ERR_CONFIG, "two run folders are needed: zerorun bisect RUN_A RUN_B");
  }
  if (command->verb != ZR_COMMAND_BISECT && command->rerun) {
    return zr_fail(ZR_ERR_CONFIG, "--rerun belongs to zerorun bisect");
  }
  if (command->verb != ZR_COMMAND_PLAN && (command->n_ranks > 0 || command->dump_after != NULL)) {
    return zr_fail(ZR_ERR_CONFIG, "--ranks and --dump-after belong to zerorun plan");
  }
  return ZR_OK;
}

zr_status_t zr_command_parse(int argc, char **argv, zr_command_t *out_command) {
  zr_command_t command = {0};
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":hV", long_options, NULL)) != -1;) {
    ZR_TRY(parse_option(option, argv, &command));
  }
  zr_verb_t asked = command.verb;
  if (asked == ZR_COMMAND_RUN) ZR_TRY(parse_words(argc, argv, &command));
  *out_command = command;
  return ZR_OK;
}

static zr_status_t fill(const zr_command_t *command, int n_ranks, zr_config_file_t *config) {
  ZR_TRY(zr_form_apply(command, config));
  for (int i = 0; i < command->n_sets; ++i) ZR_TRY(zr_config_set(config, command->set[i]));
  ZR_TRY(zr_form_complete(command, config));
  ZR_TRY(zr_config_check(config));
  return zr_config_batch(config, n_ranks);
}

zr_status_t zr_command_config(zr_alloc_t *alloc, const zr_command_t *command, int n_ranks,
                              zr_config_file_t **out_config) {
  zr_config_file_t *config = NULL;
  ZR_TRY(zr_config_load(alloc, command->path, &config));
  zr_status_t status = fill(command, n_ranks, config);
  if (status != ZR_OK) {
    zr_config_destroy(config);
    return status;
  }
  *out_config = config;
  return ZR_OK;
}
