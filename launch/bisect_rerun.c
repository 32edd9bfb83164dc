/* Both runs' steps made again from their last equal checkpoint, one operation at a time on one rank
 * (the bits do not depend on ranks and schedule), with a digest of what each operation read and
 * wrote: the first run's are kept, the second's compared. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "launch/bisect.h"
#include "launch/version.h"
#include "runtime/base/affinity.h"
#include "runtime/base/log.h"
#include "runtime/train/loop.h"

typedef struct {
  zr_alloc_t *alloc;
  uint64_t *digest; /* of the first run: each operation's operands, one after the other */
  size_t n_digests, capacity, cursor;
  bool compares;
  zr_status_t status;
  json_t *found; /* the first operation that differs */
} watch_t;

/* --- one operation --------------------------------------------------------------------------- */

/* Of the control block only what steps compute, not the options it begins with. */
static uint64_t digest_of(const zr_plan_t *plan, const zr_operand_t *operand, const void *memory,
                          int64_t bytes) {
  const int64_t options = offsetof(zr_control_t, iteration);
  int64_t skip = 0;
  if (strncmp(plan->buffer[operand->buffer].name, "ctl", 3) == 0 && operand->offset < options) {
    skip = options - operand->offset < bytes ? options - operand->offset : bytes;
  }
  return XXH3_64bits((const char *)memory + skip, (size_t)(bytes - skip));
}

static void keep(watch_t *watch, uint64_t digest) {
  if (watch->status != ZR_OK) return;
  watch->status = zr_alloc_grow(watch->alloc, &watch->digest, &watch->capacity,
                                watch->n_digests + 1, sizeof *watch->digest);
  if (watch->status == ZR_OK) watch->digest[watch->n_digests++] = digest;
}

/* false: the first run had another one. */
static bool meet(watch_t *watch, uint64_t digest) {
  if (!watch->compares) {
    keep(watch, digest);
    return true;
  }
  bool same = watch->cursor < watch->n_digests && watch->digest[watch->cursor] == digest;
  watch->cursor += 1;
  return same;
}

static json_t *operand_text(const zr_plan_t *plan, const zr_op_t *op, int i) {
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  return json_sprintf("%s (%s)", row->operand[i].name, plan->buffer[op->operand[i].buffer].name);
}

static void observe(void *context, const zr_plan_t *plan, int64_t iteration, int32_t index,
                    const zr_kern_call_t *call) {
  watch_t *watch = context;
  const zr_op_t *op = &plan->op[index];
  if (watch->found != NULL) return;
  if (index == 0 && !meet(watch, zr_plan_hash(plan))) {
    watch->found = json_pack("{s:s, s:s}", "plan", plan->name, "text",
                             "the plans differ, so operations can not be compared one by one");
    return;
  }
  json_t *reads = json_array(), *writes = json_array();
  for (int i = 0; i < ZR_MAX_OPERANDS; ++i) {
    uint8_t access = op->operand[i].access;
    if (call->operand[i] == NULL || access == ZR_SCRATCH) continue;
    if (meet(watch, digest_of(plan, &op->operand[i], call->operand[i], call->bytes[i]))) continue;
    (void)json_array_append_new(access == ZR_READ ? reads : writes, operand_text(plan, op, i));
  }
  if (json_array_size(writes) > 0) {
    char name[96];
    zr_plan_op_name(plan, index, name, sizeof name);
    watch->found = json_pack("{s:s, s:i, s:s, s:I, s:O, s:O}", "plan", plan->name, "index",
                             (int)index, "operation", name, "step", (json_int_t)(iteration + 1),
                             "writes", writes, "reads", reads);
  }
  json_decref(reads);
  json_decref(writes);
}

/* --- one run --------------------------------------------------------------------------------- */

typedef struct {
  zr_alloc_t *alloc;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  zr_job_t *job;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
} machine_t;

static zr_status_t open_machine(machine_t *m, const zr_config_t *v) {
  ZR_TRY(zr_comm_self_open(m->alloc, &m->comm_ops, &m->comm));
  ZR_TRY(zr_job_create(m->alloc, m->comm_ops, m->comm, &m->job));
  ZR_TRY(zr_hal_cpu_open(m->alloc, &m->hal_ops, &m->hal));
  return zr_kern_cpu_open(m->alloc, v->isa, &m->kern_ops, &m->kern);
}

static void close_machine(machine_t *m) {
  if (m->kern_ops != NULL) m->kern_ops->close(m->kern);
  if (m->hal_ops != NULL) m->hal_ops->close(m->hal);
  zr_job_destroy(m->job);
  if (m->comm_ops != NULL) m->comm_ops->close(m->comm);
}

/* The numeric options of the run, the same schedule for both, no output. */
static zr_status_t prepare(zr_config_file_t *config, const char *dir, int64_t last_step) {
  static const char *const pairs[] = {"run.serial=true",
                                      "run.tokens=null",
                                      "run.epochs=null",
                                      "run.trace=null",
                                      "run.threads=auto",
                                      "run.delay_us=0",
                                      "run.poison=-1",
                                      "run.eval_every=0",
                                      "run.digest=states",
                                      "data.eval=null",
                                      "checkpoint.every=0",
                                      "checkpoint.at_end=false",
                                      "checkpoint.resume=true",
                                      "checkpoint.ignore_options=true",
                                      "memory.device=auto",
                                      "plan.order=auto",
                                      "plan.group=auto",
                                      "plan.prefetch=auto",
                                      "plan.recompute=none",
                                      "gradient_accumulation_steps=auto",
                                      "zero_optimization.stage=0",
                                      "backend.comm=auto"};
  char pair[ZR_PATH_BYTES + 16];
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; ++i) {
    ZR_TRY(zr_config_set(config, pairs[i]));
  }
  (void)snprintf(pair, sizeof pair, "run.dir=%s", dir);
  ZR_TRY(zr_config_set(config, pair));
  (void)snprintf(pair, sizeof pair, "run.steps=%lld", (long long)last_step);
  ZR_TRY(zr_config_set(config, pair));
  ZR_TRY(zr_config_check(config));
  return zr_config_batch(config, 1);
}

static zr_status_t run_watched(zr_alloc_t *alloc, zr_config_file_t *config, watch_t *watch) {
  machine_t machine = {.alloc = alloc};
  int n_cores = 1;
  zr_status_t status = zr_affinity_widen(0, 1, &n_cores);
  if (status == ZR_OK) status = open_machine(&machine, &config->values);
  if (status == ZR_OK) {
    zr_loop_options_t options = {.config = config,
                                 .job = machine.job,
                                 .hal_ops = machine.hal_ops,
                                 .hal = machine.hal,
                                 .kern_ops = machine.kern_ops,
                                 .kern = machine.kern,
                                 .open_disk = zr_disk_open,
                                 .host_map = zr_host_map,
                                 .host_unmap = zr_host_unmap,
                                 .n_threads = n_cores,
                                 .version = ZR_VERSION,
                                 .observe = observe,
                                 .observe_context = watch};
    status = zr_loop_run(alloc, &options);
  }
  close_machine(&machine);
  /* A run whose numbers failed has made its operations all the same. */
  return status == ZR_ERR_NUMERIC ? ZR_OK : status;
}

/* --- both ------------------------------------------------------------------------------------ */

/* A run folder that holds nothing but the checkpoint to begin with. */
static zr_status_t point_at(const char *folder, const char *run_dir, int64_t step) {
  char dir[ZR_PATH_BYTES], name[32], from[ZR_PATH_BYTES], path[ZR_PATH_BYTES];
  ZR_TRY(zr_files_join(dir, folder, "checkpoints"));
  ZR_TRY(zr_files_make_dirs(dir));
  if (step == 0) return ZR_OK;
  (void)snprintf(name, sizeof name, "step-%08lld", (long long)step);
  (void)snprintf(from, sizeof from, "%s/checkpoints/%s", run_dir, name);
  char *whole = realpath(from, NULL);
  ZR_TRY(zr_files_join(path, dir, name));
  (void)unlink(path);
  int failed = whole == NULL ? errno : symlink(whole, path) != 0 ? errno : 0;
  zr_files_release(whole);
  if (failed) return zr_files_fail("link", path, failed);
  ZR_TRY(zr_files_join(path, dir, "latest"));
  return zr_files_replace(path, name, strlen(name));
}

static void remove_folder(const char *folder, int64_t step) {
  char path[ZR_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/checkpoints/step-%08lld", folder, (long long)step);
  (void)unlink(path);
  (void)snprintf(path, sizeof path, "%s/checkpoints", folder);
  zr_files_remove_dir(path);
  (void)rmdir(folder);
}

static int64_t last_step(const zr_bisect_t *bisect) {
  int64_t by_log = bisect->first_step, by_state = bisect->first_bad;
  return by_log == 0 || (by_state > 0 && by_state < by_log) ? by_state : by_log;
}

static zr_status_t rerun_one(zr_bisect_t *bisect, int which, const char *folder, watch_t *watch) {
  zr_config_file_t *config = NULL;
  const zr_bisect_run_t *run = &bisect->run[which];
  ZR_TRY(point_at(folder, run->dir, bisect->last_equal));
  ZR_TRY(zr_bisect_config(bisect->alloc, run, last_step(bisect), &config));
  zr_status_t status = prepare(config, folder, last_step(bisect));
  watch->compares = which == 1;
  if (status == ZR_OK) status = run_watched(bisect->alloc, config, watch);
  zr_config_destroy(config);
  return status != ZR_OK ? status : watch->status;
}

static zr_status_t rerun_both(zr_bisect_t *bisect, const char *folder, watch_t *watch) {
  for (int which = 0; which < 2; ++which) {
    zr_status_t status = rerun_one(bisect, which, folder, watch);
    if (status != ZR_OK) {
      char cause[ZR_DETAIL_BYTES];
      (void)snprintf(cause, sizeof cause, "%s", zr_detail());
      return zr_fail(status, "making the steps of %s again: %.400s", bisect->run[which].dir, cause);
    }
  }
  return ZR_OK;
}

zr_status_t zr_bisect_rerun(zr_bisect_t *bisect) {
  char folder[] = "/tmp/zerorun-bisect-XXXXXX";
  watch_t watch = {.alloc = bisect->alloc};
  if (bisect->last_equal >= last_step(bisect)) {
    bisect->last_equal = 0; /* the logs differ before any checkpoint does */
  }
  if (mkdtemp(folder) == NULL) return zr_files_fail("make", folder, errno);
  zr_log_set_level(ZR_LOG_WARNING);
  zr_status_t status = rerun_both(bisect, folder, &watch);
  zr_log_set_level(ZR_LOG_INFO);
  remove_folder(folder, bisect->last_equal);
  if (status == ZR_OK) {
    json_t *rerun =
        json_pack("{s:I, s:I, s:I}", "from_step", (json_int_t)bisect->last_equal, "to_step",
                  (json_int_t)last_step(bisect), "digests", (json_int_t)watch.n_digests);
    if (watch.found != NULL) (void)json_object_set(rerun, "operation", watch.found);
    (void)json_object_set_new(bisect->report, "rerun", rerun);
  }
  json_decref(watch.found);
  zr_alloc_free(bisect->alloc, watch.digest);
  return status;
}
