/* Element types of buffers and tensors. */
#ifndef ZR_BASE_DTYPE_H
#define ZR_BASE_DTYPE_H

#include <stdint.h>

#include "runtime/base/status.h"

typedef enum {
  ZR_U8 = 0,
  ZR_I32,
  ZR_I64,
  ZR_F32,
  ZR_F64,
  ZR_BF16,
  ZR_F16,
  ZR_I16,
  ZR_N_DTYPES
} zr_dtype_t;

int64_t zr_dtype_bytes(zr_dtype_t dtype);
const char *zr_dtype_name(zr_dtype_t dtype);        /* "fp32", as configurations spell it */
const char *zr_dtype_safetensors(zr_dtype_t dtype); /* "F32" */
zr_status_t zr_dtype_parse(const char *name,
                           zr_dtype_t *out_dtype) ZR_MUST_CHECK; /* either spelling */

#endif
