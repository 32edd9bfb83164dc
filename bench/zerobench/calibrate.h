/* What the files of `zerobench calibrate` share. */
#ifndef ZR_BENCH_CALIBRATE_H
#define ZR_BENCH_CALIBRATE_H

#include "bench/zerobench/bench.h"
#include "runtime/plan/profile.h"

/* The middle one of several executions, after a first one that does not count: what a step will
 * most often see. All ranks run it at the same time. */
zr_status_t zr_bench_middle_ns(zr_bench_t *bench, zr_bench_fn_t run, void *context,
                               double *out_ns) ZR_MUST_CHECK;
/* calibrate_kernels.c: every kind of kernel on one thread and on all, by size and type. */
zr_status_t zr_bench_calibrate_kernels(zr_bench_t *bench, zr_profile_t *profile) ZR_MUST_CHECK;
/* calibrate_links.c: memory, copies alone and beside products, streams, collectives. */
zr_status_t zr_bench_calibrate_links(zr_bench_t *bench, zr_profile_t *profile) ZR_MUST_CHECK;
/* calibrate_disk.c: in the folder named after the file, $TMPDIR or /tmp. */
zr_status_t zr_bench_calibrate_disk(zr_bench_t *bench, zr_profile_t *profile) ZR_MUST_CHECK;

#endif
