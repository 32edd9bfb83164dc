/* How long each operation takes alone, from a machine profile. */
#include <math.h>

#include "runtime/plan/cost.h"

static double touched_bytes(const zr_op_t *op) {
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  double bytes = 0;
  for (int i = 0; i < row->n_operands; i++) {
    const zr_operand_t *operand = &op->operand[i];
    if (operand->buffer < 0 || operand->access == ZR_SCRATCH) continue;
    int times = ((operand->access & ZR_READ) != 0) + ((operand->access & ZR_WRITE) != 0);
    bytes += (double)times * (double)operand->bytes;
  }
  return bytes;
}

double zr_cost_work(const zr_plan_t *plan, const zr_op_t *op) {
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  if (row->flops != NULL) return (double)row->flops(&op->shape);
  if (zr_kern_is_copy(op->shape.kind)) return (double)zr_cost_copy_bytes(op);
  if (row->collective && plan->n_ranks > 1) return (double)zr_cost_sent_bytes(plan, op);
  if (op->shape.kind == ZR_OP_EMBEDDING) return 2 * (double)op->operand[3].bytes;
  return touched_bytes(op);
}

/* --- what was not measured ------------------------------------------------------------------- */

static double workers_share(const zr_profile_t *profile, int n_workers) {
  if (profile->n_workers <= 1 || n_workers <= 1) return 0;
  double share = (double)(n_workers - 1) / (double)(profile->n_workers - 1);
  return share < 1 ? share : 1;
}

static double memory_rate(const zr_profile_t *profile, int n_workers) {
  const double *rate = profile->memory_bytes_per_ns;
  double share = workers_share(profile, n_workers);
  return rate[ZR_PROFILE_ONE] + share * (rate[ZR_PROFILE_ALL] - rate[ZR_PROFILE_ONE]);
}

static double guess_ns(const zr_plan_t *plan, const zr_op_t *op, const zr_profile_t *profile,
                       int n_workers) {
  const zr_op_row_t *row = zr_op_row(op->shape.kind);
  double work = zr_cost_work(plan, op), by_bytes = touched_bytes(op);
  if (row->collective && plan->n_ranks > 1) {
    return profile->link_latency_ns + work / profile->link_bytes_per_ns;
  }
  if (row->collective && op->shape.kind != ZR_OP_REDUCE_SCATTER) return 0;
  if (op->shape.kind == ZR_OP_DISK_READ || op->shape.kind == ZR_OP_DISK_WRITE) {
    return profile->disk_latency_ns + work / profile->disk_bytes_per_ns;
  }
  by_bytes /= memory_rate(profile, n_workers);
  if (row->flops == NULL) return by_bytes;
  double rate = profile->product_flops_per_ns[zr_profile_type(&op->shape)] * n_workers;
  return fmax(by_bytes, work / rate);
}

/* --- what was -------------------------------------------------------------------------------- */

/* A kind measured in another type is a better guess than none. */
static const zr_profile_curve_t *find_curve(const zr_profile_t *profile, const zr_op_t *op,
                                            int team) {
  const zr_profile_curve_t *curves = profile->curve[team][op->shape.kind];
  const zr_profile_curve_t *curve = &curves[zr_profile_type(&op->shape)];
  for (int type = 0; curve->n_points == 0 && type < ZR_PROFILE_TYPES; type++) curve = &curves[type];
  return curve->n_points == 0 ? NULL : curve;
}

/* Rates between one thread and all are a line over the number of threads. */
static double alone_ns(const zr_plan_t *plan, const zr_op_t *op, const zr_profile_t *profile,
                       int n_workers) {
  bool is_link = zr_op_row(op->shape.kind)->collective;
  const zr_profile_curve_t *one = find_curve(profile, op, ZR_PROFILE_ONE);
  double work = zr_cost_work(plan, op);
  if (one == NULL || (is_link && plan->n_ranks == 1)) {
    return guess_ns(plan, op, profile, n_workers);
  }
  double one_ns = zr_profile_curve_ns(one, work);
  const zr_profile_curve_t *all = find_curve(profile, op, ZR_PROFILE_ALL);
  double share = workers_share(profile, n_workers);
  if (all == NULL || share <= 0 || one_ns <= 0) return one_ns;
  double all_ns = zr_profile_curve_ns(all, work);
  return 1 / (1 / one_ns + share * (1 / all_ns - 1 / one_ns));
}

static double cores_of(const zr_op_t *op, int n_workers) {
  switch (op->stream) {
    case ZR_STREAM_COMPUTE:
    case ZR_STREAM_HOST:
      return n_workers;
    case ZR_STREAM_READ:
    case ZR_STREAM_WRITE:
      return 0;
    default:
      return 1;
  }
}

void zr_cost_demands(const zr_plan_t *plan, const zr_profile_t *profile, int n_workers,
                     zr_cost_demand_t *out_demand) {
  for (size_t i = 0; i < plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    double cores = cores_of(op, n_workers);
    int n_threads = cores > 1 ? n_workers : 1;
    double ns = alone_ns(plan, op, profile, n_threads) + profile->overhead_ns;
    double rate = touched_bytes(op) / ns, most = memory_rate(profile, n_threads);
    out_demand[i] = (zr_cost_demand_t){.alone_ns = (int64_t)llround(ns),
                                       .cores = cores,
                                       .memory_bytes_per_ns = rate < most ? rate : most};
  }
}

void zr_cost_times(const zr_plan_t *plan, const zr_profile_t *profile, int n_workers,
                   int64_t *out_ns) {
  for (size_t i = 0; i < plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    int n_threads = cores_of(op, n_workers) > 1 ? n_workers : 1;
    out_ns[i] = llround(alone_ns(plan, op, profile, n_threads) + profile->overhead_ns);
  }
}
