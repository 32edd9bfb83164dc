#include "runtime/base/dtype.h"

#include <string.h>

typedef struct {
  int64_t bytes;
  const char *name, *safetensors;
} dtype_row_t;

static const dtype_row_t dtype_rows[ZR_N_DTYPES] = {
    [ZR_U8] = {1, "uint8", "U8"},  [ZR_I32] = {4, "int32", "I32"}, [ZR_I64] = {8, "int64", "I64"},
    [ZR_F32] = {4, "fp32", "F32"}, [ZR_F64] = {8, "fp64", "F64"},  [ZR_BF16] = {2, "bf16", "BF16"},
    [ZR_F16] = {2, "fp16", "F16"}, [ZR_I16] = {2, "int16", "I16"},
};

int64_t zr_dtype_bytes(zr_dtype_t dtype) {
  return dtype_rows[dtype].bytes;
}
const char *zr_dtype_name(zr_dtype_t dtype) {
  return dtype_rows[dtype].name;
}
const char *zr_dtype_safetensors(zr_dtype_t dtype) {
  return dtype_rows[dtype].safetensors;
}

zr_status_t zr_dtype_parse(const char *name, zr_dtype_t *out_dtype) {
  for (int i = 0; i < ZR_N_DTYPES; ++i) {
    if (strcmp(name, dtype_rows[i].name) == 0 || strcmp(name, dtype_rows[i].safetensors) == 0) {
      *out_dtype = (zr_dtype_t)i;
      return ZR_OK;
    }
  }
  return zr_fail(ZR_ERR_DATA, "unknown element type '%s' (known: fp32, bf16, fp16, fp64, ...)",
                 name);
}
