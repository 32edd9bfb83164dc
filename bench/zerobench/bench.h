/* zerobench: what its subcommands share.
 *
 * A subcommand is one file with one function, declared at the end of this header, and one row of
 * the table in main.c. It measures on every rank, all of them calling the same functions in the
 * same order, and hands its numbers to the report, which rank 0 prints. One thread. */
#ifndef ZR_BENCH_BENCH_H
#define ZR_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernels/kern.h"
#include "runtime/base/pool.h"
#include "runtime/comm/comm.h"
#include "runtime/hal/hal.h"

enum { ZR_BENCH_MAX_SETS = 64 };

typedef struct {
  bool quick, all;
  const char *json;  /* file; NULL: none */
  const char *dtype; /* NULL: what the subcommand takes by itself */
  const char *isa;
  int64_t n_threads;                  /* of a rank; 0: its cores */
  int64_t bytes;                      /* --size; 0: the subcommand's own */
  int64_t rounds;                     /* 0: the subcommand's own */
  int64_t chunk_bytes;                /* of a transfer; 0: the subcommand's own */
  double seconds;                     /* of a run; 0: the subcommand's own */
  const char *path;                   /* folder; NULL: this one */
  const char *deepnvme[2];            /* interpreter and script; NULL: none */
  const char *shape;                  /* "M,N,K" */
  const char *set[ZR_BENCH_MAX_SETS]; /* key=value of a configuration */
  int n_sets;
  char **argument; /* what follows the subcommand */
  int n_arguments;
} zr_bench_options_t;

typedef struct {
  zr_alloc_t *alloc;
  zr_bench_options_t options;
  const char *command;
  int rank, n_ranks, n_threads;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  zr_pool_t *pool;
  json_t *rows, *facts, *notes; /* the report so far */
} zr_bench_t;

/* --- time ------------------------------------------------------------------------------------ */

typedef zr_status_t (*zr_bench_fn_t)(void *context);

typedef struct {
  zr_bench_fn_t run;
  void *context;
  double seconds; /* out: the least of all rounds; of the slowest rank where there are several */
} zr_bench_work_t;

/* Runs the works in turn, round after round: at least `least` rounds, and more until they have
 * taken budget_s in all. Neighbours then disturb one as much as the other. All ranks start each
 * work together. */
zr_status_t zr_bench_time(zr_bench_t *bench, zr_bench_work_t *work, int n_works, int least,
                          double budget_s) ZR_MUST_CHECK;

/* --- report ---------------------------------------------------------------------------------- */

typedef struct {
  const char *what;
  int64_t count;  /* times in a step; 0: does not apply */
  double seconds; /* of one execution; of all `count` of them where that applies */
  double share;   /* of a step; 0: does not apply */
  double value;
  const char *unit; /* "GB/s", "GF/s" */
  double ceiling;   /* in the same unit; 0: this row is a yardstick itself */
  const char *ceiling_of;
} zr_bench_row_t;

/* What is being done now, on standard error, for the one who waits. */
void zr_bench_say(const zr_bench_t *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
zr_status_t zr_bench_row(zr_bench_t *bench, const zr_bench_row_t *row) ZR_MUST_CHECK;
/* A number or a sentence below the table. */
zr_status_t zr_bench_fact(zr_bench_t *bench, const char *name, double value) ZR_MUST_CHECK;
zr_status_t zr_bench_note(zr_bench_t *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3))) ZR_MUST_CHECK;
void zr_bench_print(const zr_bench_t *bench, FILE *out);
zr_status_t zr_bench_write_json(const zr_bench_t *bench, const char *path) ZR_MUST_CHECK;

/* --- memory copies: the yardstick of everything that is bytes --------------------------------- */

typedef struct {
  char *to;
  const char *from;
  int64_t bytes;
  zr_pool_t *pool; /* NULL: the calling thread */
} zr_bench_copy_t;

zr_status_t zr_bench_memcpy(void *copy);      /* zr_bench_copy_t */
zr_status_t zr_bench_copy_stream(void *copy); /* with non-temporal stores, where there are any */
/* Two areas of `bytes`, touched. */
zr_status_t zr_bench_copy_make(zr_bench_t *bench, int64_t bytes, zr_pool_t *pool,
                               zr_bench_copy_t *out_copy) ZR_MUST_CHECK;
void zr_bench_copy_free(zr_bench_t *bench, zr_bench_copy_t *copy);

/* --- one kernel with operands of its own ------------------------------------------------------ */

typedef struct {
  const zr_bench_t *bench;
  zr_kern_shape_t shape;
  zr_kern_call_t call;
  double flops, bytes; /* of one execution; bytes that must be read and written */
} zr_bench_kernel_t;

/* A shape with operands of the given types: t compute, s sum of gradients, f fp32, h bf16, d fp64,
 * i int32, l rest of a master, b bytes, '-' absent. */
zr_kern_shape_t zr_bench_shape(int32_t kind, const int64_t attr[ZR_MAX_ATTRS], const char *types,
                               zr_dtype_t compute);
/* Allocates and fills operands, prepares. Free also after a failure. */
zr_status_t zr_bench_kernel_make(zr_bench_t *bench, const zr_kern_shape_t *shape,
                                 zr_bench_kernel_t *out_kernel) ZR_MUST_CHECK;
zr_status_t zr_bench_kernel_run(void *kernel); /* zr_bench_kernel_t */
void zr_bench_kernel_free(zr_bench_t *bench, zr_bench_kernel_t *kernel);

/* The types that --dtype asks for, or fp32 and bf16. */
zr_status_t zr_bench_dtypes(const zr_bench_t *bench, zr_dtype_t out_dtype[3],
                            int *out_n) ZR_MUST_CHECK;

/* --- subcommands ------------------------------------------------------------------------------ */

zr_status_t zr_bench_gemm(zr_bench_t *bench) ZR_MUST_CHECK;
zr_status_t zr_bench_copy(zr_bench_t *bench) ZR_MUST_CHECK;
zr_status_t zr_bench_adam(zr_bench_t *bench) ZR_MUST_CHECK;
zr_status_t zr_bench_comm(zr_bench_t *bench) ZR_MUST_CHECK;
zr_status_t zr_bench_calibrate(zr_bench_t *bench) ZR_MUST_CHECK;
zr_status_t zr_bench_step(zr_bench_t *bench) ZR_MUST_CHECK;
zr_status_t zr_bench_disk(zr_bench_t *bench) ZR_MUST_CHECK;
zr_status_t zr_bench_tune_disk(zr_bench_t *bench) ZR_MUST_CHECK;

#endif
