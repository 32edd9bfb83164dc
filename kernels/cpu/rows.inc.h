/* Defines the table ZR_ROWS_TABLE of row kernels for vectors of ZR_VEC floats and elements ZR_ELEM.
 */
#include "kernels/cpu/rows.h"
#include "kernels/cpu/rows_attention.inc.h"
#include "kernels/cpu/rows_head.inc.h"
#include "kernels/cpu/rows_norm.inc.h"
#include "kernels/cpu/rows_optimizer.inc.h"
#include "kernels/cpu/rows_pointwise.inc.h"
#include "kernels/cpu/rows_product.inc.h"
#include "kernels/cpu/rows_update.inc.h"

#ifdef ZR_ROWS_TABLE
#define BY_ACT(row)                                                           \
  {                                                                           \
    [ZR_ACT_GELU_TANH] = row##_gelu_tanh, [ZR_ACT_GELU_ERF] = row##_gelu_erf, \
    [ZR_ACT_SILU] = row##_silu, [ZR_ACT_RELU] = row##_relu                    \
  }

const zr_cpu_rows_t ZR_ROWS_TABLE = {
    .elem_bytes = (int64_t)sizeof(elem),
    .widen = row_widen,
    .round = row_round,
    .round_add = row_round_add,
    .widen_add = row_widen_add,
    .add_bias = row_widen_add,
    .add = row_add,
    .accumulate = row_accumulate,
    .fill = row_fill,
    .gelu = BY_ACT(row_gelu),
    .gelu_grad = BY_ACT(row_gelu_grad),
    .swiglu = BY_ACT(row_swiglu),
    .swiglu_grad = BY_ACT(row_swiglu_grad),
    .column_sum = row_column_sum,
    .rope = row_rope,
    .layernorm = norm_layernorm,
    .layernorm_grad = norm_layernorm_grad,
    .rmsnorm = norm_rmsnorm,
    .rmsnorm_grad = norm_rmsnorm_grad,
    .product = row_product,
    .pack = tile_pack,
    .unpack = tile_unpack,
    .softmax_tile = tile_softmax,
    .scale_tile = tile_scale,
    .softmax_tile_grad = tile_softmax_grad,
    .dot = row_dot,
    .head_row = head_row,
    .block_norm = update_block_norm,
    .update = update_range,
    .digest = update_digest,
};
#endif
