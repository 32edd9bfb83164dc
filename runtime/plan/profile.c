#include "runtime/plan/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of a kernel, however little it does. */
static const double least_ns = 1000;

void zr_profile_defaults(zr_profile_t *out_profile) {
  memset(out_profile, 0, sizeof *out_profile);
  (void)snprintf(out_profile->source, sizeof out_profile->source, "built-in");
  out_profile->n_workers = 1;
  out_profile->product_flops_per_ns[ZR_PROFILE_F32] = 40;
  out_profile->product_flops_per_ns[ZR_PROFILE_BF16] = 40;
  out_profile->product_flops_per_ns[ZR_PROFILE_F16] = 20;
  out_profile->memory_bytes_per_ns[ZR_PROFILE_ONE] = 8;
  out_profile->memory_bytes_per_ns[ZR_PROFILE_ALL] = 8;
  out_profile->link_bytes_per_ns = 1;
  out_profile->link_latency_ns = 50000;
  out_profile->disk_bytes_per_ns = 0.5;
  out_profile->disk_latency_ns = 200000;
  out_profile->overhead_ns = 5000;
  out_profile->crowded_cores = 1;
  out_profile->mixed_drive = 1;
}

double zr_profile_curve_ns(const zr_profile_curve_t *curve, double work) {
  int last = curve->n_points - 1, i = 0;
  if (work <= curve->work[0]) {
    return fmax(curve->ns[0] * work / curve->work[0], fmin(curve->ns[0], least_ns));
  }
  if (work >= curve->work[last]) return curve->ns[last] * work / curve->work[last];
  while (work > curve->work[i + 1]) i++;
  double share = log(work / curve->work[i]) / log(curve->work[i + 1] / curve->work[i]);
  return curve->ns[i] * pow(curve->ns[i + 1] / curve->ns[i], share);
}

bool zr_profile_curve_add(zr_profile_curve_t *curve, double work, double ns) {
  int at = 0;
  if (curve->n_points >= ZR_PROFILE_POINTS) return false;
  if (!(work > 0) || !(ns > 0) || !isfinite(work) || !isfinite(ns)) return false;
  while (at < curve->n_points && curve->work[at] < work) at++;
  if (at < curve->n_points && curve->work[at] == work) return false;
  for (int i = curve->n_points; i > at; i--) {
    curve->work[i] = curve->work[i - 1];
    curve->ns[i] = curve->ns[i - 1];
  }
  curve->work[at] = work;
  curve->ns[at] = ns;
  curve->n_points++;
  return true;
}

zr_profile_type_t zr_profile_type(const zr_kern_shape_t *shape) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (!(shape->present >> i & 1)) continue;
    if (shape->dtype[i] == ZR_F32) return ZR_PROFILE_F32;
    if (shape->dtype[i] == ZR_BF16) return ZR_PROFILE_BF16;
    if (shape->dtype[i] == ZR_F16) return ZR_PROFILE_F16;
  }
  return ZR_PROFILE_F32;
}

const char *zr_profile_type_name(zr_profile_type_t type) {
  static const char *const name[] = {"fp32", "bf16", "fp16"};
  return name[type];
}
