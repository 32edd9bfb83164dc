/* The canonical text form of a plan: it can be printed, diffed, stored as a golden file and read
 * back. write(read(write(p))) = write(p), byte for byte; a read plan has the same hash. */
#ifndef ZR_PLAN_TEXT_H
#define ZR_PLAN_TEXT_H

#include "runtime/plan/plan.h"

zr_status_t zr_text_write(const zr_plan_t *plan, FILE *file) ZR_MUST_CHECK;
/* Errors name line and column. `name` is used in messages. */
zr_status_t zr_text_read(zr_alloc_t *alloc, FILE *file, const char *name,
                         zr_plan_t **out_plan) ZR_MUST_CHECK;

#endif
