/* The simulator: runs a plan a few times on a virtual clock, as the executor would run it, and says
 * how long a step takes, what waited for what, and which bytes moved.
 *
 * Floor 5. Streams are queues with timelines, operations wait for what the plan says, as in
 * runtime/exec. Unlike the null device's, streams here disturb each other: what runs at once shares
 * the cores, the memory's bandwidth and the drive. Deterministic: the same input gives the same
 * output to the last nanosecond. One thread; allocates for itself and frees. */
#ifndef ZR_SIM_SIM_H
#define ZR_SIM_SIM_H

#include "runtime/plan/cost.h"

typedef struct {
  const zr_cost_demand_t *demand; /* [n_ops] */
  double n_cores;
  double crowded_cores;       /* of n_cores, when more threads than that want one: zr_profile_t's */
  double memory_bytes_per_ns; /* <= 0: no limit */
  double mixed_drive;         /* zr_profile_t's */
  int n_executions;           /* at least 4; the second half is measured */
  int ahead; /* executions that may be under way besides the oldest one; 0: no limit. The training
                loop starts a step once the step before the last one has written its record */
} zr_sim_options_t;

typedef struct {
  int64_t step_ns;               /* between ends of executions, once the first ones have worn off */
  int64_t first_ns;              /* of the first execution, from its begin to its end */
  int64_t busy_ns[ZR_N_STREAMS]; /* in a step: from begin to end of operations, slowed or not */
  int64_t exposed_ns[ZR_N_STREAMS]; /* compute's idle time in a step, by the stream that it waited
                                       for in the end: zr_exec_stats_t's */
  int64_t idle_ns;    /* compute's other idle time in a step: for the loop, for space of streams */
  int64_t crowded_ns; /* time that compute's operations in a step took beyond their time alone */
  int64_t peak_bytes[ZR_N_TIERS]; /* highest byte touched: at most the plan's peak */
  int64_t sent_bytes, h2d_bytes, d2h_bytes, disk_read_bytes, disk_write_bytes; /* an execution */
} zr_sim_result_t;

/* A machine's shares from its profile, for one of the node's ranks that has n_cores of its cores.
 */
void zr_sim_options(const zr_profile_t *profile, int n_cores, zr_sim_options_t *out_options);

/* The plan is compiled. ZR_ERR_INTERNAL: operations wait for each other in a circle. */
zr_status_t zr_sim_run(const zr_plan_t *plan, const zr_sim_options_t *options,
                       zr_sim_result_t *out_result) ZR_MUST_CHECK;

/* Prices and runs a plan: what `zerorun plan` and the tuner ask. */
zr_status_t zr_sim_plan(const zr_plan_t *plan, const zr_profile_t *profile, int n_workers,
                        int n_cores, zr_sim_result_t *out_result) ZR_MUST_CHECK;

#endif
