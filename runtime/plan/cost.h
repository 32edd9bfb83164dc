/* Accounting and bounds: what a plan holds, moves and computes, and how long a step takes at least.
 * Exact but for time. */
#ifndef ZR_PLAN_COST_H
#define ZR_PLAN_COST_H

#include "runtime/plan/plan.h"
#include "runtime/plan/profile.h"

typedef struct {
  int64_t category_bytes[ZR_N_TIERS][ZR_N_CATEGORIES]; /* sum of buffers' bytes (not of places) */
  int64_t persistent_bytes[ZR_N_TIERS][ZR_N_CATEGORIES];
  int64_t sent_bytes; /* by each rank in one execution: the payload of its collectives, (N-1) per
                         shard ... */
  int64_t flops;
  int64_t touched_bytes; /* operand bytes read and written by compute operations */
  int64_t h2d_bytes, d2h_bytes, disk_read_bytes, disk_write_bytes; /* of copies in one execution */
} zr_account_t;

void zr_cost_account(const zr_plan_t *plan, zr_account_t *out_account);
/* Payload bytes one rank hands to the library for one operation; the formula of runtime/comm. */
int64_t zr_cost_sent_bytes(const zr_plan_t *plan, const zr_op_t *op);

/* Bytes a copy between tiers moves; 0 for other kinds. */
int64_t zr_cost_copy_bytes(const zr_op_t *op);
/* What an operation's time is a function of: its flops where its kind counts them; bytes sent by a
 * rank; else the bytes it reads and writes, of a table that it picks rows from those picked. */
double zr_cost_work(const zr_plan_t *plan, const zr_op_t *op);

/* An operation alone on the machine, and what it takes of what others use too. */
typedef struct {
  int64_t alone_ns;
  double cores;               /* threads that compute while it runs */
  double memory_bytes_per_ns; /* moved while it runs alone */
} zr_cost_demand_t;

/* out[n_ops]. Compute and host operations run on n_workers threads, others on one; collectives and
 * requests to a disk are waited for. No failure: a kind that was not measured is priced by its
 * flops and bytes. */
void zr_cost_demands(const zr_plan_t *plan, const zr_profile_t *profile, int n_workers,
                     zr_cost_demand_t *out_demand);
/* The times alone of it: out_ns[n_ops]. */
void zr_cost_times(const zr_plan_t *plan, const zr_profile_t *profile, int n_workers,
                   int64_t *out_ns);

/* How long a step takes at least, whatever is done about order and overlap: computed apart from
 * plan and simulator, from the list's values and each operation's time alone. */
typedef struct {
  int64_t busy_ns;  /* of the busiest stream in one step */
  int64_t chain_ns; /* growth per step of the longest chain of true dependencies (values, not space)
                       over unrolled steps */
  int64_t serial_ns; /* all operations one after the other */
  int64_t cores_ns;  /* time x threads of what computes, over the cores */
  int64_t drive_ns;  /* reads and writes together on one drive */
  int64_t bound_ns;  /* the longest: no schedule of this list's values is faster in the long run */
  uint8_t busiest;   /* stream */
} zr_bound_t;

/* duration_ns[n_ops]. Follows buffer versions only: knows nothing of waits, offsets or the
 * verifier. cores_ns and drive_ns are 0: streams do not disturb each other. */
zr_status_t zr_cost_bound(const zr_plan_t *plan, const int64_t *duration_ns,
                          zr_bound_t *out_bound) ZR_MUST_CHECK;

/* The same where streams share n_cores cores and a drive. mixed_drive: zr_profile_t's; reads and
 * writes of a drive that was never asked count as undisturbed (2). */
typedef struct {
  int n_workers, n_cores;
  double mixed_drive;
} zr_bound_machine_t;
zr_status_t zr_cost_bound_on(const zr_plan_t *plan, const int64_t *duration_ns,
                             const zr_bound_machine_t *machine,
                             zr_bound_t *out_bound) ZR_MUST_CHECK;

#endif
