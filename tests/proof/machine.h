/* A training machine in one process: a tiny model compiled with zr_zero_compile and run with
 * zr_exec on synthetic data, so that a proof is a few lines. Data is a function of (iteration,
 * leaf) and parameters of (name, index): settings that promise the same bits get the same inputs.
 */
#ifndef ZR_TESTS_PROOF_MACHINE_H
#define ZR_TESTS_PROOF_MACHINE_H

#include <string.h>

#include "runtime/exec/exec.h"
#include "runtime/plan/cost.h"
#include "runtime/zero/zero.h"
#include "tests/support/cmocka_all.h"

enum { MACHINE_MAX_STEPS = 8, MACHINE_LOAD = 0, MACHINE_STEP = 1 };

/* The ranks of this process's job: MPI under mpirun, else one rank. Opened once by a process. */
typedef struct {
  zr_alloc_t alloc;
  const zr_comm_ops_t *ops;
  zr_comm_t *comm;
  int rank, n_ranks;
} machine_world_t;
void machine_world_open(machine_world_t *world);
void machine_world_close(machine_world_t *world);

/* A disk in memory, whose transfers may be late, or the tiers' own. */
typedef enum { MACHINE_MEMORY = 0, MACHINE_URING, MACHINE_POSIX } machine_disk_t;

typedef struct {
  zr_arch_t arch;
  int stage, order;
  zr_dtype_t dtype, grad_dtype;   /* parameters and activations; sums of gradients. 0: fp32 */
  zr_loss_scale_params_t scaling; /* fp16; all zero: none */
  int64_t n_leaves;               /* M: micro-batches of a step over all ranks */
  int64_t group, prefetch, n_layers;
  int n_threads;
  bool documents;     /* samples hold several: attention stays inside, positions restart */
  bool regular;       /* sizes that divide, so that flats have no gaps between tensors */
  bool serial, plain; /* plain: kernels/ref instead of kernels/cpu */
  uint64_t delay_seed, hal_delay_seed; /* != 0: every operation, every submitted work is delayed */
  int64_t delay_max_ns;
  int poison;
  double max_grad_norm;
  int64_t skipped_step; /* the iteration that finds a parameter that is not a number; 0: none */
  int64_t budget_bytes; /* device; 0: unlimited */
  int recompute;        /* zr_recompute_t */
  int32_t optimizer;    /* zr_op_kind_t; 0: ZR_OP_ADAMW */
  double momentum;      /* SGD; 0: none */
  bool nesterov;
  zr_dtype_t state_dtype; /* 0: fp32 */
  zr_homes_t home;
  double ratio;
  int64_t chunk_elems, n_slots;
  int disk;        /* machine_disk_t, where something lives on disk */
  int queue_depth; /* 0: the tier's own */
} machine_options_t;

typedef struct {
  machine_options_t options;
  zr_alloc_t alloc;
  int rank, n_ranks;
  const zr_kern_ops_t *kern_ops;
  zr_kern_t *kern;
  const zr_hal_ops_t *hal_ops;
  zr_hal_t *hal;
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  bool owns_comm;
  zr_pool_t *pool;
  zr_zero_t *zero;
  zr_plan_t *step; /* zero's */
  const zr_disk_ops_t *disk_ops;
  zr_disk_t *disk;
  zr_exec_t *exec;
  int64_t iteration; /* last one started */
} machine_t;

void machine_defaults(machine_options_t *out_options);
/* The compiler's options of a machine for n_ranks; kernels as opened. */
void machine_zero_options(const machine_options_t *options, int n_ranks,
                          const zr_kern_ops_t *kern_ops, zr_kern_t *kern,
                          zr_zero_options_t *out_zero);

/* On the world's ranks (NULL: alone): compiles, opens everything, runs "load", uploads. */
void machine_open(machine_t *machine, const machine_options_t *options,
                  const machine_world_t *world);
/* Compiled for n_ranks and put on the null device as rank 0: nothing is computed, time is virtual.
 * duration_ns[n_ops of step], or NULL; serial as in options. */
void machine_open_virtual(machine_t *machine, const machine_options_t *options, int n_ranks);
void machine_start_virtual(machine_t *machine, const int64_t *duration_ns);
/* Runs the next n_steps; their records. */
void machine_run(machine_t *machine, int n_steps, zr_step_record_t *out_record);
/* Checks that nothing is left. */
void machine_close(machine_t *machine);

/* open, run, close; *out_sent_bytes (may be NULL): by this rank in all steps. */
void machine_records(const machine_options_t *options, const machine_world_t *world, int n_steps,
                     zr_step_record_t *out_record, int64_t *out_sent_bytes);
/* Same bits in everything a record says. */
bool machine_records_equal(const zr_step_record_t *a, const zr_step_record_t *b, int n_steps);
void machine_print_options(const machine_options_t *options, int n_ranks);

#define assert_ok(expr)                                               \
  do {                                                                \
    const zr_status_t ok_status_ = (expr);                            \
    if (ok_status_ == ZR_OK) break;                                   \
    print_error("%s: %s\n", zr_status_name(ok_status_), zr_detail()); \
    _fail(__FILE__, __LINE__);                                        \
  } while (0)

#endif
