/* What a compiled program holds, moves and computes, for people and for machines: `zerorun plan`,
 * plan.txt and plan.json. Exact but for time. One thread. */
#ifndef ZR_TRAIN_REPORT_H
#define ZR_TRAIN_REPORT_H

#include <jansson.h>

#include "runtime/zero/zero.h"

void zr_report_print(const zr_zero_t *zero, FILE *out);
/* The figures; NULL when memory is short. */
json_t *zr_report_json(const zr_zero_t *zero);
/* plan.txt (figures, then every plan's text form) and plan.json in a run's folder. */
zr_status_t zr_report_write(const zr_zero_t *zero, const char *dir) ZR_MUST_CHECK;
/* "%016llx" of all plans' hashes. */
void zr_report_hash(const zr_zero_t *zero, char out_text[17]);

#endif
