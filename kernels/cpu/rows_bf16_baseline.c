#define ZR_VEC 4
#define ZR_ELEM 16
#define ZR_ROWS_TABLE zr_cpu_rows_bf16_baseline
#include "kernels/cpu/rows.inc.h"
