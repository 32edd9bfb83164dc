#define ZR_VEC 8
#define ZR_ELEM 5
#define ZR_ROWS_TABLE zr_cpu_rows_f16_avx2
#include "kernels/cpu/rows.inc.h"
