/* `zerorun cfg.yaml`: picks the backends, opens them, runs the loop, and ends every rank with the
 * exit code of the first cause. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command.h"
#include "launch/version.h"
#include "runtime/base/affinity.h"
#include "runtime/base/log.h"
#include "runtime/train/loop.h"

typedef struct {
  zr_alloc_t *alloc;
  const zr_command_t *command;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  zr_job_t *job;
  zr_config_file_t *config;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  int n_cores;
} launch_t;

static int number(const char *variable, int otherwise) {
  const char *text = getenv(variable);
  return text == NULL ? otherwise : (int)strtol(text, NULL, 10);
}

/* Before any thread starts, so all of them get the cores: from what the launcher says. */
static zr_status_t widen(launch_t *launch) {
  int local = number("OMPI_COMM_WORLD_LOCAL_RANK", number("MPI_LOCALRANKID", 0));
  int n_local = number("OMPI_COMM_WORLD_LOCAL_SIZE", number("MPI_LOCALNRANKS", 1));
  if (n_local < 1 || local < 0 || local >= n_local) local = 0, n_local = 1;
  return zr_affinity_widen(local, n_local, &launch->n_cores);
}

static zr_status_t open_job(launch_t *launch) {
  bool launched = zr_comm_mpi_launched() != 0;
  ZR_TRY(launched ? zr_comm_mpi_open(launch->alloc, &launch->comm_ops, &launch->comm)
                  : zr_comm_self_open(launch->alloc, &launch->comm_ops, &launch->comm));
  zr_comm_info_t info = launch->comm_ops->info(launch->comm);
  zr_log_set_rank(info.rank, info.n_ranks);
  return zr_job_create(launch->alloc, launch->comm_ops, launch->comm, &launch->job);
}

static zr_status_t check_comm(const launch_t *launch) {
  int n_ranks = zr_job_info(launch->job).n_ranks, choice = launch->config->values.comm;
  if (choice != ZR_COMM_SELF || n_ranks == 1) return ZR_OK;
  return zr_options_complain(launch->config->options, "backend.comm",
                             "= self is for one rank, the launcher started %d; use mpi", n_ranks);
}

static zr_status_t configure(launch_t *launch) {
  ZR_TRY(zr_command_config(launch->alloc, launch->command, zr_job_info(launch->job).n_ranks,
                           &launch->config));
  ZR_TRY(check_comm(launch));
  /* run.epochs waits for the data. */
  return launch->command->print_config ? zr_config_steps(launch->config, 0) : ZR_OK;
}

static zr_status_t open_backends(launch_t *launch) {
  ZR_TRY(zr_hal_cpu_open(launch->alloc, &launch->hal_ops, &launch->hal));
  return zr_kern_cpu_open(launch->alloc, launch->config->values.isa, &launch->kern_ops,
                          &launch->kern);
}

static zr_status_t run(launch_t *launch) {
  ZR_TRY(zr_job_agree(launch->job, configure(launch)));
  if (launch->command->print_config) {
    if (zr_job_info(launch->job).rank == 0) zr_config_print(launch->config, stdout);
    return ZR_OK;
  }
  ZR_TRY(zr_job_agree(launch->job, open_backends(launch)));
  int64_t threads = launch->config->values.threads;
  zr_loop_options_t options = {
      .config = launch->config,
      .job = launch->job,
      .hal_ops = launch->hal_ops,
      .hal = launch->hal,
      .kern_ops = launch->kern_ops,
      .kern = launch->kern,
      .open_disk = zr_disk_open,
      .host_map = zr_host_map,
      .host_unmap = zr_host_unmap,
      .n_threads = threads == ZR_OPTION_AUTO_INT ? launch->n_cores : (int)threads,
      .json = launch->command->json,
      /* mpirun gives its ranks a pseudo-terminal whatever its own output is. */
      .piped = getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMI_SIZE") != NULL,
      .check_only = launch->command->check,
      .version = ZR_VERSION};
  return zr_loop_run(launch->alloc, &options);
}

static void close_all(launch_t *launch) {
  if (launch->kern_ops != NULL) launch->kern_ops->close(launch->kern);
  if (launch->hal_ops != NULL) launch->hal_ops->close(launch->hal);
  zr_config_destroy(launch->config);
  zr_job_destroy(launch->job);
  if (launch->comm_ops != NULL) launch->comm_ops->close(launch->comm);
}

int zr_command_run(zr_alloc_t *alloc, const zr_command_t *command) {
  launch_t launch = {.alloc = alloc, .command = command};
  zr_job_verdict_t verdict = {0};
  zr_status_t status = widen(&launch);
  if (status == ZR_OK) status = open_job(&launch);
  if (status == ZR_OK) status = run(&launch);
  if (status != ZR_OK) {
    verdict = (zr_job_verdict_t){.speaks = true, .exit_code = zr_status_exit_code(status)};
    if (launch.job != NULL) zr_job_judge(launch.job, status, &verdict);
    if (verdict.speaks) zr_error("%s", zr_detail());
  }
  close_all(&launch);
  zr_job_linger(&verdict);
  return verdict.exit_code;
}
