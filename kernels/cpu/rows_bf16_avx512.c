#define ZR_VEC 16
#define ZR_ELEM 16
#define ZR_ROWS_TABLE zr_cpu_rows_bf16_avx512
#include "kernels/cpu/rows.inc.h"
