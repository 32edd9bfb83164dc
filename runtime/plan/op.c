#include "runtime/plan/op.h"

#include <string.h>

#include "runtime/plan/op_rows.h"

const zr_op_row_t *zr_op_row(int32_t kind) {
  if (kind < 0 || kind >= ZR_N_OP_KINDS) return NULL;
  if (zr_op_rows_model[kind].name != NULL) return &zr_op_rows_model[kind];
  return zr_op_rows_step[kind].name != NULL ? &zr_op_rows_step[kind] : NULL;
}

int32_t zr_op_find(const char *name) {
  for (int32_t kind = 0; kind < ZR_N_OP_KINDS; kind++) {
    const zr_op_row_t *row = zr_op_row(kind);
    if (row != NULL && strcmp(row->name, name) == 0) return kind;
  }
  return -1;
}
