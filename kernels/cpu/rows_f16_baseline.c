#define ZR_VEC 4
#define ZR_ELEM 5
#define ZR_ROWS_TABLE zr_cpu_rows_f16_baseline
#include "kernels/cpu/rows.inc.h"
