/* zerobench: each number beside its ceiling, measured in the same run. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "bench/zerobench/bench.h"
#include "runtime/base/affinity.h"
#include "runtime/base/log.h"
#include "runtime/base/options.h"

typedef struct {
  const char *name;
  zr_status_t (*run)(zr_bench_t *bench);
  const char *help;
} command_t;

static const command_t commands[] = {
    {"gemm", zr_bench_gemm, "matrix products as zerorun cuts them, beside the library's threads"},
    {"copy", zr_bench_copy, "memory, and copies between device and host, beside memcpy"},
    {"adam", zr_bench_adam, "the optimizer's pass over memory, beside a copy (--all: every one)"},
    {"comm", zr_bench_comm, "collectives by size, under mpirun, beside a copy"},
    {"calibrate", zr_bench_calibrate,
     "[FILE [FOLDER]]: writes a machine profile, which predicts steps; FOLDER: of the disk"},
    {"step", zr_bench_step, "[CONFIG]: a training step by kinds of operation, and its bound"},
    {"disk", zr_bench_disk, "reads, writes and both at once, beside fio and DeepNVMe"},
    {"tune-disk", zr_bench_tune_disk,
     "the best `aio` block for a drive, and what the defaults lose"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

enum {
  QUICK = 256,
  ALL,
  JSON,
  DTYPE,
  ISA,
  THREADS,
  SIZE,
  ROUNDS,
  SHAPE,
  SET,
  CHUNK,
  SECONDS,
  IN,
  DEEPNVME
};

static const struct option long_options[] = {
    {"quick", no_argument, NULL, QUICK},
    {"all", no_argument, NULL, ALL},
    {"json", required_argument, NULL, JSON},
    {"dtype", required_argument, NULL, DTYPE},
    {"isa", required_argument, NULL, ISA},
    {"threads", required_argument, NULL, THREADS},
    {"size", required_argument, NULL, SIZE},
    {"rounds", required_argument, NULL, ROUNDS},
    {"shape", required_argument, NULL, SHAPE},
    {"set", required_argument, NULL, SET},
    {"bytes", required_argument, NULL, SIZE},
    {"chunk", required_argument, NULL, CHUNK},
    {"path", required_argument, NULL, IN},
    {"seconds", required_argument, NULL, SECONDS},
    {"help", no_argument, NULL, 'h'},
    {"deepnvme", required_argument, NULL, DEEPNVME},
    {NULL, 0, NULL, 0},
};

static void help(FILE *out) {
  (void)fputs("usage: [mpirun -n N] zerobench COMMAND [options]\n\n", out);
  for (int i = 0; i < N_COMMANDS; i++) {
    (void)fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].help);
  }
  (void)fputs(
      "\n  --json FILE     the same numbers for machines\n"
      "  --quick         a few seconds, small sizes: shows that it runs, measures nothing\n"
      "  --all           more rows, where a command has more\n"
      "  --dtype T       fp32, bf16 or fp16 instead of fp32 and bf16\n"
      "  --threads N     workers of a rank (default: its cores)\n"
      "  --isa I         auto, avx512, avx2, baseline\n"
      "  --size BYTES    how much is copied, updated or sent at most; --bytes is the same\n"
      "  --rounds N      repetitions at least; the best counts\n"
      "  --shape M,N,K   gemm: this product only\n"
      "  --set key=value step: overrides a key of the configuration; may repeat\n"
      "  --path DIR      disk: on the drive that is measured (default: this folder)\n"
      "  --chunk BYTES   disk: of a transfer (default 10 MiB, as states move)\n"
      "  --seconds S     disk: of each long run; the sweep's take half as long\n"
      "  --deepnvme PYTHON SCRIPT  disk: SCRIPT FILE BYTES prints lines with read_gb_per_s and\n"
      "                  write_gb_per_s\n"
      "\nThe table goes to standard output, what is being done to standard error.\n",
      out);
}

static zr_status_t number(const char *name, const char *text, int64_t most, int64_t *out_value) {
  if (zr_parse_int(text, out_value) && *out_value >= 1 && *out_value <= most) return ZR_OK;
  return zr_fail(ZR_ERR_CONFIG, "--%s must be an integer from 1 to %lld, not '%.40s'", name,
                 (long long)most, text);
}

static zr_status_t bytes(const char *name, const char *text, int64_t *out_value) {
  zr_option_bytes_t value;
  if (zr_parse_bytes(text, &value) && value.bytes >= 1 && value.bytes <= (int64_t)1 << 44) {
    return *out_value = value.bytes, ZR_OK;
  }
  return zr_fail(ZR_ERR_CONFIG, "--%s must be bytes such as 64MiB, not '%.40s'", name, text);
}

static zr_status_t parse_disk_option(int option, int argc, char **argv, zr_bench_options_t *o) {
  switch (option) {
    case IN:
      return o->path = optarg, ZR_OK;
    case CHUNK:
      return bytes("chunk", optarg, &o->chunk_bytes);
    case SECONDS:
      if (zr_parse_double(optarg, &o->seconds) && o->seconds >= 0.01 && o->seconds <= 3600) {
        return ZR_OK;
      }
      return zr_fail(ZR_ERR_CONFIG, "--seconds must be from 0.01 to 3600, not '%.40s'", optarg);
    default: /* DEEPNVME: two words */
      o->deepnvme[0] = optarg;
      if (optind < argc) return o->deepnvme[1] = argv[optind++], ZR_OK;
      return zr_fail(ZR_ERR_CONFIG, "--deepnvme needs an interpreter and a script");
  }
}

static zr_status_t parse_option(int option, int argc, char **argv, zr_bench_options_t *o) {
  switch (option) {
    case QUICK:
      return o->quick = true, ZR_OK;
    case ALL:
      return o->all = true, ZR_OK;
    case JSON:
      return o->json = optarg, ZR_OK;
    case DTYPE:
      return o->dtype = optarg, ZR_OK;
    case ISA:
      return o->isa = optarg, ZR_OK;
    case SHAPE:
      return o->shape = optarg, ZR_OK;
    case THREADS:
      return number("threads", optarg, 1024, &o->n_threads);
    case SIZE:
      return bytes("size", optarg, &o->bytes);
    case ROUNDS:
      return number("rounds", optarg, 1000000, &o->rounds);
    case SET:
      if (o->n_sets == ZR_BENCH_MAX_SETS) return zr_fail(ZR_ERR_CONFIG, "too many --set options");
      return o->set[o->n_sets++] = optarg, ZR_OK;
    case IN:
    case CHUNK:
    case SECONDS:
    case DEEPNVME:
      return parse_disk_option(option, argc, argv, o);
    case ':':
      return zr_fail(ZR_ERR_CONFIG, "%s needs a value; zerobench --help", argv[optind - 1]);
    default:
      return zr_fail(ZR_ERR_CONFIG, "unknown option %s; zerobench --help", argv[optind - 1]);
  }
}

static const command_t *find(const char *name) {
  for (int i = 0; i < N_COMMANDS; i++) {
    if (strcmp(commands[i].name, name) == 0) return &commands[i];
  }
  return NULL;
}

/* *out_command NULL: help is asked for. */
static zr_status_t parse(int argc, char **argv, zr_bench_options_t *o,
                         const command_t **out_command) {
  *out_command = NULL;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1;) {
    if (option == 'h') return ZR_OK;
    ZR_TRY(parse_option(option, argc, argv, o));
  }
  if (optind == argc) return zr_fail(ZR_ERR_CONFIG, "no command is named; zerobench --help");
  *out_command = find(argv[optind]);
  if (*out_command == NULL) {
    return zr_fail(ZR_ERR_CONFIG, "there is no command '%.40s'; zerobench --help lists them",
                   argv[optind]);
  }
  o->argument = argv + optind + 1;
  o->n_arguments = argc - optind - 1;
  if (o->n_arguments > 0 && (*out_command)->help[0] != '[') {
    return zr_fail(ZR_ERR_CONFIG, "'%.80s' is one argument too many for %s", o->argument[0],
                   (*out_command)->name);
  }
  return ZR_OK;
}

static int from_launcher(const char *variable, const char *other, int otherwise) {
  const char *text = getenv(variable);
  if (text == NULL) text = getenv(other);
  return text == NULL ? otherwise : (int)strtol(text, NULL, 10);
}

static zr_status_t open_all(zr_bench_t *b) {
  int local = from_launcher("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", 0), n_cores = 1;
  int n_local = from_launcher("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", 1);
  ZR_TRY(zr_affinity_widen(local, n_local, &n_cores));
  ZR_TRY(zr_comm_mpi_launched() ? zr_comm_mpi_open(b->alloc, &b->comm_ops, &b->comm)
                                : zr_comm_self_open(b->alloc, &b->comm_ops, &b->comm));
  zr_comm_info_t info = b->comm_ops->info(b->comm);
  b->rank = info.rank;
  b->n_ranks = info.n_ranks;
  zr_log_set_rank(info.rank, info.n_ranks);
  b->n_threads = b->options.n_threads > 0 ? (int)b->options.n_threads : n_cores;
  ZR_TRY(zr_pool_create(b->alloc, b->n_threads, &b->pool));
  ZR_TRY(zr_hal_cpu_open(b->alloc, &b->hal_ops, &b->hal));
  return zr_kern_cpu_open(b->alloc, b->options.isa, &b->kern_ops, &b->kern);
}

static void close_all(zr_bench_t *b) {
  if (b->kern_ops != NULL) b->kern_ops->close(b->kern);
  if (b->hal_ops != NULL) b->hal_ops->close(b->hal);
  zr_pool_destroy(b->pool);
  if (b->comm_ops != NULL) b->comm_ops->close(b->comm);
  json_decref(b->rows);
  json_decref(b->facts);
  json_decref(b->notes);
}

static zr_status_t run(zr_bench_t *b, const command_t *command) {
  ZR_TRY(open_all(b));
  if (b->rows == NULL || b->facts == NULL || b->notes == NULL) {
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for the report");
  }
  zr_status_t status = command->run(b);
  if (status != ZR_OK) {
    b->comm_ops->abort(b->comm, status, zr_detail());
    return status;
  }
  if (b->rank != 0) return ZR_OK;
  zr_bench_print(b, stdout);
  if (fflush(stdout) != 0) return zr_fail(ZR_ERR_IO, "standard output can not be written");
  return b->options.json == NULL ? ZR_OK : zr_bench_write_json(b, b->options.json);
}

int main(int argc, char **argv) {
  zr_bench_t bench = {.alloc = zr_alloc_default(), .options = {.isa = "auto"}};
  const command_t *command;
  zr_status_t status = parse(argc, argv, &bench.options, &command);
  if (status == ZR_OK && command == NULL) return help(stdout), 0;
  if (status == ZR_OK) {
    bench.command = command->name;
    bench.rows = json_array();
    bench.facts = json_object();
    bench.notes = json_array();
    status = run(&bench, command);
  }
  int code = zr_status_exit_code(status);
  if (status != ZR_OK && status != ZR_ERR_PEER) zr_error("%s", zr_detail());
  close_all(&bench);
  return code;
}
