/* The machine profile: how long operations take alone on one machine, and what several that run at
 * once share. Plain data; `zerobench calibrate` measures one, runtime/train/profile_file.h reads
 * and writes it, runtime/plan/cost.h turns a plan and a profile into times. Any thread. */
#ifndef ZR_PLAN_PROFILE_H
#define ZR_PLAN_PROFILE_H

#include <stdbool.h>

#include "runtime/plan/op.h"

enum { ZR_PROFILE_POINTS = 12, ZR_PROFILE_SOURCE_BYTES = 256 };

/* Time over work: work is flops where the kind counts them, else bytes (zr_cost_work). */
typedef struct {
  int n_points;                   /* 0: nothing was measured */
  double work[ZR_PROFILE_POINTS]; /* ascending, > 0 */
  double ns[ZR_PROFILE_POINTS];   /* > 0 */
} zr_profile_curve_t;

/* Compute types that are told apart; an operation on bytes or integers counts as fp32. */
typedef enum {
  ZR_PROFILE_F32 = 0,
  ZR_PROFILE_BF16,
  ZR_PROFILE_F16,
  ZR_PROFILE_TYPES
} zr_profile_type_t;

/* What a kind was measured with. Copies, disks and collectives: ZR_PROFILE_ONE. */
typedef enum {
  ZR_PROFILE_ONE = 0, /* one thread */
  ZR_PROFILE_ALL,     /* n_workers threads */
  ZR_PROFILE_TEAMS
} zr_profile_team_t;

typedef struct {
  char source[ZR_PROFILE_SOURCE_BYTES]; /* the file, or "built-in" */
  bool is_measured;                     /* false: numbers that no machine was asked for */
  int n_workers;                        /* of ZR_PROFILE_ALL */
  zr_profile_curve_t curve[ZR_PROFILE_TEAMS][ZR_N_OP_KINDS][ZR_PROFILE_TYPES];
  /* For kinds without a curve. */
  double product_flops_per_ns[ZR_PROFILE_TYPES]; /* of one thread */
  double memory_bytes_per_ns[ZR_PROFILE_TEAMS];  /* read + written, by a copy */
  double link_bytes_per_ns, link_latency_ns;     /* collectives: bytes sent by a rank */
  double disk_bytes_per_ns, disk_latency_ns;
  double overhead_ns; /* between an operation's end and the next one's begin on a stream */
  /* When more threads want cores than there are, the share of their full speed the cores still
   * give; and what a drive serves of reads and writes at once, each counted as a share of its speed
   * alone: 1 when they take turns, 2 when they do not disturb each other. */
  double crowded_cores;
  double mixed_drive;
} zr_profile_t;

/* The built-in numbers: a slow machine, so that a plan looks late rather than early. */
void zr_profile_defaults(zr_profile_t *out_profile);
/* Interpolated between points by powers; beyond them at the rate of the nearest one, but no less
 * than a microsecond. The curve has points. */
double zr_profile_curve_ns(const zr_profile_curve_t *curve, double work);
/* Adds a point in its place. Points beyond ZR_PROFILE_POINTS, of no work or of no time: false. */
bool zr_profile_curve_add(zr_profile_curve_t *curve, double work, double ns);
/* The type under which an operation is looked up: that of its first operand of fp32, bf16 or fp16.
 */
zr_profile_type_t zr_profile_type(const zr_kern_shape_t *shape);
const char *zr_profile_type_name(zr_profile_type_t type);

#endif
