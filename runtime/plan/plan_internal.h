/* Shared by the files of runtime/plan that build and read plans; not by the verifier. */
#ifndef ZR_PLAN_PLAN_INTERNAL_H
#define ZR_PLAN_PLAN_INTERNAL_H

#include "runtime/plan/plan.h"

/* Name of an operation that need not stand in the list yet. */
void zr_op_name_format(const zr_plan_t *plan, const zr_op_t *op, char *out_name, size_t bytes);

/* Buffer names to indices: open addressing, `slot` holds index + 1. */
typedef struct {
  zr_alloc_t *alloc;
  int32_t *slot;
  size_t n_slots; /* a power of two; 0: empty */
} zr_name_map_t;

/* Maps all buffers of the plan; ZR_ERR_INTERNAL names a name that occurs twice. */
zr_status_t zr_name_map_init(zr_name_map_t *map, const zr_plan_t *plan) ZR_MUST_CHECK;
void zr_name_map_fini(zr_name_map_t *map);
int32_t zr_name_map_find(const zr_name_map_t *map, const zr_plan_t *plan,
                         const char *name); /* -1: none */

static inline int64_t zr_align_up(int64_t bytes) {
  return (bytes + ZR_PLAN_ALIGN_BYTES - 1) / ZR_PLAN_ALIGN_BYTES * ZR_PLAN_ALIGN_BYTES;
}

#endif
