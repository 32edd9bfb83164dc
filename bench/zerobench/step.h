/* Parts of `zerobench step`: the run, its trace, and the products of its plan alone. */
#ifndef ZR_BENCH_STEP_H
#define ZR_BENCH_STEP_H

#include "bench/zerobench/bench.h"
#include "runtime/plan/plan.h"
#include "runtime/train/config.h"
#include "runtime/train/job.h"

enum { ZR_STEP_PATH_BYTES = 512 };

/* --- step_config.c: what is run ----------------------------------------------------------------
 */

typedef struct {
  zr_bench_t *bench;
  zr_job_t *job;
  char folder[ZR_STEP_PATH_BYTES]; /* of this run alone, equal on all ranks; removed at the end */
  int64_t budget_bytes, steps;
} zr_step_run_t;

zr_status_t zr_step_folder_make(zr_bench_t *bench, char folder[ZR_STEP_PATH_BYTES]) ZR_MUST_CHECK;
void zr_step_folder_remove(const zr_bench_t *bench, const char *folder);
/* The file of the command line, or GPT-2 124M on 4 x 256 synthetic tokens; with --set, and with
 * what makes it a measurement: the folder, `steps`, a trace from the second one on, no checkpoint.
 * A config can be run once. */
zr_status_t zr_step_config(const zr_step_run_t *run, zr_config_file_t **out_config) ZR_MUST_CHECK;

/* --- step_products.c: the plan's products alone, as cut -----------------------------------------
 */

enum { ZR_STEP_MAX_PRODUCTS = 40 };

typedef struct {
  int32_t kind; /* of the plan's operation: the head's products stand under head_loss */
  int64_t count;
  zr_bench_kernel_t kernel;
  double seconds; /* least so far, one execution */
} zr_step_product_t;

typedef struct {
  zr_bench_copy_t copy;
  double copy_seconds;
  int n;
  zr_step_product_t product[ZR_STEP_MAX_PRODUCTS];
} zr_step_products_t;

int zr_step_is_product(int32_t kind);
zr_status_t zr_step_products_make(zr_bench_t *bench, const zr_plan_t *plan,
                                  zr_step_products_t *out_products) ZR_MUST_CHECK;
/* All of them in turn; keeps the least times. */
zr_status_t zr_step_products_time(zr_bench_t *bench, zr_step_products_t *products) ZR_MUST_CHECK;
void zr_step_products_free(zr_bench_t *bench, zr_step_products_t *products);
/* Seconds of all the step's products of a kind, -1: of all kinds; and their flops. */
double zr_step_products_seconds(const zr_step_products_t *products, int32_t kind,
                                double *out_flops);

/* --- step_trace.c: times of a run ----------------------------------------------------------------
 */

/* The fastest step so far: its time, and that of each operation. */
typedef struct {
  double step_seconds;
  double *op_seconds; /* [n_ops] */
  int64_t n_ops;
} zr_step_times_t;

/* Replaces `times` by those of the trace's fastest step if that is faster. */
zr_status_t zr_step_trace_read(const char *path, const zr_plan_t *plan,
                               zr_step_times_t *times) ZR_MUST_CHECK;

#endif
