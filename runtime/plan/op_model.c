/* The rows of the model's kinds: forward, head, backward. */
#include "runtime/plan/op_rows.h"

#define EMBEDDING_ATTRS .n_attrs = 5, .attr = {"rows", "hidden", "vocab", "seq", "pos_rows"}
#define LINEAR_ATTRS .n_attrs = 6, .attr = {"rows", "in", "out", "ldx", "ldy", "w_io"}
#define NORM_ATTRS .n_attrs = 2, .attr = {"rows", "cols"}, .has_real = true, .real_name = "eps"
#define ROPE_ATTRS .n_attrs = 6, .attr = {"rows", "seq", "heads", "head_dim", "ldx", "inverse"}
#define ROPE_TABLE_ATTRS \
  .n_attrs = 6, .attr = {"factor", "seq", "low_freq", "head_dim", "high_freq", "original"}
#define HEAD_NORM_ATTRS \
  .n_attrs = 4, .attr = {"rows", "heads", "head_dim", "ldy"}, .has_real = true, .real_name = "eps"
#define ATTENTION_ATTRS                                                              \
  .n_attrs = 6, .attr = {"batch", "seq", "heads", "kv_heads", "head_dim", "window"}, \
  .has_real = true, .real_name = "scale"
#define ELEMS_ATTRS .n_attrs = 1, .attr = {"elems"}
#define ACT_ATTRS .n_attrs = 2, .attr = {"elems", "act"}
#define HEAD_ATTRS .n_attrs = 5, .attr = {"rows", "hidden", "vocab", "vocab_padded", "chunk"}

static void embedding_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  int64_t rows = s->attr[ZR_EMBEDDING_ROWS], hidden = s->attr[ZR_EMBEDDING_HIDDEN];
  need[0] = zr_op_elems_bytes(s, 0, rows);
  need[1] = zr_op_elems_bytes(s, 1, s->attr[ZR_EMBEDDING_VOCAB] * hidden);
  need[2] = zr_op_elems_bytes(s, 2, s->attr[ZR_EMBEDDING_POS_ROWS] * hidden);
  need[3] = zr_op_elems_bytes(s, 3, rows * hidden);
  need[4] = zr_op_elems_bytes(s, 4, rows);
}

static void embedding_grad_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  int64_t rows = s->attr[ZR_EMBEDDING_ROWS], hidden = s->attr[ZR_EMBEDDING_HIDDEN];
  need[0] = zr_op_elems_bytes(s, 0, rows);
  need[1] = zr_op_elems_bytes(s, 1, rows * hidden);
  need[2] = zr_op_elems_bytes(s, 2, s->attr[ZR_EMBEDDING_VOCAB] * hidden);
  need[3] = zr_op_elems_bytes(s, 3, s->attr[ZR_EMBEDDING_POS_ROWS] * hidden);
  need[4] = zr_op_elems_bytes(s, 4, rows);
  need[5] = -1;
}

static int64_t linear_x_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_rows_bytes(s, i, s->attr[ZR_LINEAR_ROWS], s->attr[ZR_LINEAR_IN],
                          s->attr[ZR_LINEAR_LDX]);
}

static int64_t linear_y_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_rows_bytes(s, i, s->attr[ZR_LINEAR_ROWS], s->attr[ZR_LINEAR_OUT],
                          s->attr[ZR_LINEAR_LDY]);
}

static int64_t linear_w_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_elems_bytes(s, i, s->attr[ZR_LINEAR_IN] * s->attr[ZR_LINEAR_OUT]);
}

static void linear_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = linear_x_bytes(s, 0);
  need[1] = linear_w_bytes(s, 1);
  need[2] = zr_op_elems_bytes(s, 2, s->attr[ZR_LINEAR_OUT]);
  need[3] = linear_y_bytes(s, 3);
  need[4] = -1;
}

static void linear_grad_x_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = linear_y_bytes(s, 0);
  need[1] = linear_w_bytes(s, 1);
  need[2] = linear_x_bytes(s, 2);
  need[3] = -1;
}

static void linear_grad_w_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = linear_x_bytes(s, 0);
  need[1] = linear_y_bytes(s, 1);
  need[2] = linear_w_bytes(s, 2);
  need[3] = -1;
}

static void linear_grad_b_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = linear_y_bytes(s, 0);
  need[1] = zr_op_elems_bytes(s, 1, s->attr[ZR_LINEAR_OUT]);
  need[2] = -1;
}

static int64_t linear_flops(const zr_kern_shape_t *s) {
  return 2 * s->attr[ZR_LINEAR_ROWS] * s->attr[ZR_LINEAR_IN] * s->attr[ZR_LINEAR_OUT];
}

static int64_t norm_x_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_elems_bytes(s, i, s->attr[ZR_NORM_ROWS] * s->attr[ZR_NORM_COLS]);
}

static int64_t norm_w_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_elems_bytes(s, i, s->attr[ZR_NORM_COLS]);
}

static int64_t norm_stats_bytes(const zr_kern_shape_t *s, int i, int64_t per_row) {
  return zr_op_elems_bytes(s, i, s->attr[ZR_NORM_ROWS] * per_row);
}

static void layernorm_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = norm_x_bytes(s, 0);
  need[1] = norm_w_bytes(s, 1);
  need[2] = norm_w_bytes(s, 2);
  need[3] = norm_x_bytes(s, 3);
  need[4] = norm_stats_bytes(s, 4, 2);
}

static void layernorm_grad_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = norm_x_bytes(s, 0);
  need[1] = norm_w_bytes(s, 1);
  need[2] = norm_stats_bytes(s, 2, 2);
  need[3] = norm_x_bytes(s, 3);
  need[4] = norm_x_bytes(s, 4);
  need[5] = norm_w_bytes(s, 5);
  need[6] = norm_w_bytes(s, 6);
  need[7] = -1;
}

static void rmsnorm_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = norm_x_bytes(s, 0);
  need[1] = norm_w_bytes(s, 1);
  need[2] = norm_x_bytes(s, 2);
  need[3] = norm_stats_bytes(s, 3, 1);
}

static void rmsnorm_grad_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = norm_x_bytes(s, 0);
  need[1] = norm_w_bytes(s, 1);
  need[2] = norm_stats_bytes(s, 2, 1);
  need[3] = norm_x_bytes(s, 3);
  need[4] = norm_x_bytes(s, 4);
  need[5] = norm_w_bytes(s, 5);
  need[6] = -1;
}

static int64_t head_norm_x_bytes(const zr_kern_shape_t *s, int i, int64_t head_dim) {
  return zr_op_elems_bytes(s, i,
                           s->attr[ZR_HEAD_NORM_ROWS] * s->attr[ZR_HEAD_NORM_HEADS] * head_dim);
}

static int64_t head_norm_y_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_rows_bytes(s, i, s->attr[ZR_HEAD_NORM_ROWS],
                          s->attr[ZR_HEAD_NORM_HEADS] * s->attr[ZR_HEAD_NORM_HEAD_DIM],
                          s->attr[ZR_HEAD_NORM_LDY]);
}

static void head_norm_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  int64_t dim = s->attr[ZR_HEAD_NORM_HEAD_DIM];
  need[0] = head_norm_x_bytes(s, 0, dim);
  need[1] = zr_op_elems_bytes(s, 1, dim);
  need[2] = head_norm_y_bytes(s, 2);
  need[3] = head_norm_x_bytes(s, 3, 1);
}

static void head_norm_grad_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  int64_t dim = s->attr[ZR_HEAD_NORM_HEAD_DIM];
  need[0] = head_norm_x_bytes(s, 0, dim);
  need[1] = zr_op_elems_bytes(s, 1, dim);
  need[2] = head_norm_x_bytes(s, 2, 1);
  need[3] = head_norm_y_bytes(s, 3);
  need[4] = head_norm_x_bytes(s, 4, dim);
  need[5] = zr_op_elems_bytes(s, 5, dim);
  need[6] = -1;
}

static void rope_table_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = zr_op_elems_bytes(s, 0, s->attr[ZR_ROPE_SEQ] * (s->attr[ZR_ROPE_HEAD_DIM] / 2) * 2);
}

static void rope_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  rope_table_bytes(s, need);
  need[1] =
      zr_op_rows_bytes(s, 1, s->attr[ZR_ROPE_ROWS],
                       s->attr[ZR_ROPE_HEADS] * s->attr[ZR_ROPE_HEAD_DIM], s->attr[ZR_ROPE_LDX]);
}

static int64_t attention_rows(const zr_kern_shape_t *s) {
  return s->attr[ZR_ATTENTION_BATCH] * s->attr[ZR_ATTENTION_SEQ];
}

static int64_t attention_qkv_bytes(const zr_kern_shape_t *s, int i) {
  int64_t heads = s->attr[ZR_ATTENTION_HEADS] + 2 * s->attr[ZR_ATTENTION_KV_HEADS];
  return zr_op_elems_bytes(s, i, attention_rows(s) * heads * s->attr[ZR_ATTENTION_HEAD_DIM]);
}

static int64_t attention_y_bytes(const zr_kern_shape_t *s, int i) {
  int64_t cols = s->attr[ZR_ATTENTION_HEADS] * s->attr[ZR_ATTENTION_HEAD_DIM];
  return zr_op_elems_bytes(s, i, attention_rows(s) * cols);
}

static int64_t attention_lse_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_elems_bytes(s, i, attention_rows(s) * s->attr[ZR_ATTENTION_HEADS]);
}

static void attention_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = attention_qkv_bytes(s, 0);
  need[1] = attention_y_bytes(s, 1);
  need[2] = attention_lse_bytes(s, 2);
  need[3] = zr_op_elems_bytes(s, 3, attention_rows(s));
  need[4] = -1;
}

static void attention_grad_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = attention_qkv_bytes(s, 0);
  need[1] = attention_y_bytes(s, 1);
  need[2] = attention_lse_bytes(s, 2);
  need[3] = attention_y_bytes(s, 3);
  need[4] = attention_qkv_bytes(s, 4);
  need[5] = zr_op_elems_bytes(s, 5, attention_rows(s));
  need[6] = -1;
}

/* One product of the causal half, or of its part in the window: scores or weighted values. */
static int64_t attention_product_flops(const zr_kern_shape_t *s) {
  int64_t seq = s->attr[ZR_ATTENTION_SEQ], window = s->attr[ZR_ATTENTION_WINDOW];
  int64_t hidden = window > 0 && window < seq ? seq - window : 0; /* keys of the last row */
  return 2 * s->attr[ZR_ATTENTION_BATCH] * s->attr[ZR_ATTENTION_HEADS] *
         s->attr[ZR_ATTENTION_HEAD_DIM] * (seq * (seq + 1) / 2 - hidden * (hidden + 1) / 2);
}

static int64_t attention_flops(const zr_kern_shape_t *s) {
  return 2 * attention_product_flops(s);
}

/* Scores again, then the gradients of probabilities, values, queries and keys. */
static int64_t attention_grad_flops(const zr_kern_shape_t *s) {
  return 5 * attention_product_flops(s);
}

static void elems_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) need[i] = zr_op_elems_bytes(s, i, s->attr[ZR_ELEMS]);
}

static int64_t head_x_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_elems_bytes(s, i, s->attr[ZR_HEAD_ROWS] * s->attr[ZR_HEAD_HIDDEN]);
}

static int64_t head_w_bytes(const zr_kern_shape_t *s, int i) {
  return zr_op_elems_bytes(s, i, s->attr[ZR_HEAD_VOCAB_PADDED] * s->attr[ZR_HEAD_HIDDEN]);
}

static void head_eval_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = head_x_bytes(s, 0);
  need[1] = head_w_bytes(s, 1);
  need[2] = zr_op_elems_bytes(s, 2, s->attr[ZR_HEAD_ROWS]);
  need[3] = zr_op_elems_bytes(s, 3, s->attr[ZR_HEAD_ROWS]);
  need[4] = -1;
}

static void head_loss_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = head_x_bytes(s, 0);
  need[1] = head_w_bytes(s, 1);
  need[2] = zr_op_elems_bytes(s, 2, s->attr[ZR_HEAD_ROWS]);
  need[3] = (int64_t)sizeof(zr_control_t);
  need[4] = zr_op_elems_bytes(s, 4, s->attr[ZR_HEAD_ROWS]);
  need[5] = head_x_bytes(s, 5);
  need[6] = head_w_bytes(s, 6);
  need[7] = -1;
}

static int64_t head_eval_flops(const zr_kern_shape_t *s) {
  return 2 * s->attr[ZR_HEAD_ROWS] * s->attr[ZR_HEAD_HIDDEN] * s->attr[ZR_HEAD_VOCAB_PADDED];
}

static int64_t head_loss_flops(const zr_kern_shape_t *s) {
  return 3 * head_eval_flops(s);
}

const zr_op_row_t zr_op_rows_model[ZR_N_OP_KINDS] = {
    [ZR_OP_EMBEDDING] = {.name = "embedding",
                         .stream = ZR_STREAM_COMPUTE,
                         .n_operands = 5,
                         EMBEDDING_ATTRS,
                         .operand = {OP_R("tokens"), OP_R("table"), OP_R_OPTIONAL("pos"), OP_W("y"),
                                     OP_R_OPTIONAL("starts")},
                         .operand_bytes = embedding_bytes,
                         NO_GRAD,
                         .grad = {{ZR_OP_EMBEDDING_GRAD,
                                   {VALUE(0), GRAD(3), GRAD(1), GRAD(2), VALUE(4)}}}},
    [ZR_OP_LINEAR] = {.name = "linear",
                      .stream = ZR_STREAM_COMPUTE,
                      .n_operands = 5,
                      LINEAR_ATTRS,
                      .operand = {OP_R("x"), OP_R("w"), OP_R_OPTIONAL("b"), OP_W("y"), OP_S},
                      .flops = linear_flops,
                      .operand_bytes = linear_bytes,
                      NO_GRAD,
                      .grad = {{ZR_OP_LINEAR_GRAD_X, {GRAD(3), VALUE(1), GRAD(0)}},
                               {ZR_OP_LINEAR_GRAD_W, {VALUE(0), GRAD(3), GRAD(1)}},
                               {ZR_OP_LINEAR_GRAD_B, {GRAD(3), GRAD(2)}}}},
    [ZR_OP_LAYERNORM] = {.name = "layernorm",
                         .stream = ZR_STREAM_COMPUTE,
                         .n_operands = 5,
                         NORM_ATTRS,
                         .operand = {OP_R("x"), OP_R("w"), OP_R("b"), OP_W("y"), OP_W("stats")},
                         .operand_bytes = layernorm_bytes,
                         NO_GRAD,
                         .grad = {{ZR_OP_LAYERNORM_GRAD,
                                   {VALUE(0), VALUE(1), VALUE(4), GRAD(3), GRAD(0), GRAD(1),
                                    GRAD(2)}}}},
    [ZR_OP_RMSNORM] = {.name = "rmsnorm",
                       .stream = ZR_STREAM_COMPUTE,
                       .n_operands = 4,
                       NORM_ATTRS,
                       .operand = {OP_R("x"), OP_R("w"), OP_W("y"), OP_W("stats")},
                       .operand_bytes = rmsnorm_bytes,
                       NO_GRAD,
                       .grad = {{ZR_OP_RMSNORM_GRAD,
                                 {VALUE(0), VALUE(1), VALUE(3), GRAD(2), GRAD(0), GRAD(1)}}}},
    [ZR_OP_HEAD_NORM] = {.name = "head_norm",
                         .stream = ZR_STREAM_COMPUTE,
                         .n_operands = 4,
                         HEAD_NORM_ATTRS,
                         .operand = {OP_R("x"), OP_R("w"), OP_W("y"), OP_W("stats")},
                         .operand_bytes = head_norm_bytes,
                         NO_GRAD,
                         .grad = {{ZR_OP_HEAD_NORM_GRAD,
                                   {VALUE(0), VALUE(1), VALUE(3), GRAD(2), GRAD(0), GRAD(1)}}}},
    [ZR_OP_ROPE] = {.name = "rope",
                    .stream = ZR_STREAM_COMPUTE,
                    .n_operands = 2,
                    ROPE_ATTRS,
                    .operand = {OP_R("table"), OP_C("x")},
                    .operand_bytes = rope_bytes,
                    .in_place = 1,
                    .grad_flip_attr = ZR_ROPE_INVERSE,
                    .eager_grad = NO_EAGER_GRAD,
                    .grad = {{ZR_OP_ROPE, {VALUE(0), GRAD(1)}}}},
    [ZR_OP_ROPE_TABLE] = {.name = "rope_table",
                          .stream = ZR_STREAM_COMPUTE,
                          .n_operands = 1,
                          ROPE_TABLE_ATTRS,
                          .has_real = true,
                          .real_name = "theta",
                          .operand = {OP_W("table")},
                          .operand_bytes = rope_table_bytes,
                          NO_GRAD},
    [ZR_OP_ATTENTION] = {.name = "attention",
                         .stream = ZR_STREAM_COMPUTE,
                         .n_operands = 5,
                         ATTENTION_ATTRS,
                         .operand = {OP_R("qkv"), OP_W("y"), OP_W("lse"), OP_R_OPTIONAL("starts"),
                                     OP_S},
                         .flops = attention_flops,
                         .operand_bytes = attention_bytes,
                         NO_GRAD,
                         .grad = {{ZR_OP_ATTENTION_GRAD,
                                   {VALUE(0), VALUE(1), VALUE(2), GRAD(1), GRAD(0), VALUE(3)}}}},
    [ZR_OP_GELU] = {.name = "gelu",
                    .stream = ZR_STREAM_COMPUTE,
                    .n_operands = 2,
                    ACT_ATTRS,
                    .operand = {OP_R("x"), OP_W("y")},
                    .operand_bytes = elems_bytes,
                    NO_GRAD,
                    .grad = {{ZR_OP_GELU_GRAD, {VALUE(0), GRAD(1), GRAD(0)}}}},
    [ZR_OP_SWIGLU] = {.name = "swiglu",
                      .stream = ZR_STREAM_COMPUTE,
                      .n_operands = 3,
                      ACT_ATTRS,
                      .operand = {OP_R("gate"), OP_R("up"), OP_W("y")},
                      .operand_bytes = elems_bytes,
                      NO_GRAD,
                      .grad = {{ZR_OP_SWIGLU_GRAD,
                                {VALUE(0), VALUE(1), GRAD(2), GRAD(0), GRAD(1)}}}},
    [ZR_OP_ADD] = {.name = "add",
                   .stream = ZR_STREAM_COMPUTE,
                   .n_operands = 3,
                   ELEMS_ATTRS,
                   .operand = {OP_R("a"), OP_R("b"), OP_W("y")},
                   .operand_bytes = elems_bytes,
                   NO_GRAD,
                   .grad_alias = 3},
    [ZR_OP_HEAD_LOSS] = {.name = "head_loss",
                         .stream = ZR_STREAM_COMPUTE,
                         .n_operands = 8,
                         HEAD_ATTRS,
                         .operand = {OP_R("x"), OP_R("w"), OP_R("targets"), OP_R("ctl"),
                                     OP_W("loss"), OP_W("dx"), OP_A("dw"), OP_S},
                         .flops = head_loss_flops,
                         .operand_bytes = head_loss_bytes,
                         .in_place = -1,
                         .grad_flip_attr = -1,
                         .eager_grad = {-1, -1, -1, -1, -1, 0, 1, -1}},
    [ZR_OP_HEAD_EVAL] = {.name = "head_eval",
                         .stream = ZR_STREAM_COMPUTE,
                         .n_operands = 5,
                         HEAD_ATTRS,
                         .operand = {OP_R("x"), OP_R("w"), OP_R("targets"), OP_W("loss"), OP_S},
                         .flops = head_eval_flops,
                         .operand_bytes = head_eval_bytes,
                         NO_GRAD},
    [ZR_OP_EMBEDDING_GRAD] = {.name = "embedding_grad",
                              .stream = ZR_STREAM_COMPUTE,
                              .n_operands = 6,
                              EMBEDDING_ATTRS,
                              .operand = {OP_R("tokens"), OP_R("dy"), OP_A("dtable"),
                                          OP_A_OPTIONAL("dpos"), OP_R_OPTIONAL("starts"), OP_S},
                              .operand_bytes = embedding_grad_bytes,
                              NO_GRAD},
    [ZR_OP_LINEAR_GRAD_X] = {.name = "linear_grad_x",
                             .stream = ZR_STREAM_COMPUTE,
                             .n_operands = 4,
                             LINEAR_ATTRS,
                             .operand = {OP_R("dy"), OP_R("w"), OP_A("dx"), OP_S},
                             .flops = linear_flops,
                             .operand_bytes = linear_grad_x_bytes,
                             NO_GRAD},
    [ZR_OP_LINEAR_GRAD_W] = {.name = "linear_grad_w",
                             .stream = ZR_STREAM_COMPUTE,
                             .n_operands = 4,
                             LINEAR_ATTRS,
                             .operand = {OP_R("x"), OP_R("dy"), OP_A("dw"), OP_S},
                             .flops = linear_flops,
                             .operand_bytes = linear_grad_w_bytes,
                             NO_GRAD},
    [ZR_OP_LINEAR_GRAD_B] = {.name = "linear_grad_b",
                             .stream = ZR_STREAM_COMPUTE,
                             .n_operands = 3,
                             LINEAR_ATTRS,
                             .operand = {OP_R("dy"), OP_A("db"), OP_S},
                             .operand_bytes = linear_grad_b_bytes,
                             NO_GRAD},
    [ZR_OP_LAYERNORM_GRAD] = {.name = "layernorm_grad",
                              .stream = ZR_STREAM_COMPUTE,
                              .n_operands = 8,
                              NORM_ATTRS,
                              .operand = {OP_R("x"), OP_R("w"), OP_R("stats"), OP_R("dy"),
                                          OP_A("dx"), OP_A("dw"), OP_A("db"), OP_S},
                              .operand_bytes = layernorm_grad_bytes,
                              NO_GRAD},
    [ZR_OP_RMSNORM_GRAD] = {.name = "rmsnorm_grad",
                            .stream = ZR_STREAM_COMPUTE,
                            .n_operands = 7,
                            NORM_ATTRS,
                            .operand = {OP_R("x"), OP_R("w"), OP_R("stats"), OP_R("dy"), OP_A("dx"),
                                        OP_A("dw"), OP_S},
                            .operand_bytes = rmsnorm_grad_bytes,
                            NO_GRAD},
    [ZR_OP_HEAD_NORM_GRAD] = {.name = "head_norm_grad",
                              .stream = ZR_STREAM_COMPUTE,
                              .n_operands = 7,
                              HEAD_NORM_ATTRS,
                              .operand = {OP_R("x"), OP_R("w"), OP_R("stats"), OP_R("dy"),
                                          OP_A("dx"), OP_A("dw"), OP_S},
                              .operand_bytes = head_norm_grad_bytes,
                              NO_GRAD},
    [ZR_OP_ATTENTION_GRAD] = {.name = "attention_grad",
                              .stream = ZR_STREAM_COMPUTE,
                              .n_operands = 7,
                              ATTENTION_ATTRS,
                              .operand = {OP_R("qkv"), OP_R("y"), OP_R("lse"), OP_R("dy"),
                                          OP_W("dqkv"), OP_R_OPTIONAL("starts"), OP_S},
                              .flops = attention_grad_flops,
                              .operand_bytes = attention_grad_bytes,
                              NO_GRAD},
    [ZR_OP_GELU_GRAD] = {.name = "gelu_grad",
                         .stream = ZR_STREAM_COMPUTE,
                         .n_operands = 3,
                         ACT_ATTRS,
                         .operand = {OP_R("x"), OP_R("dy"), OP_W("dx")},
                         .operand_bytes = elems_bytes,
                         NO_GRAD},
    [ZR_OP_SWIGLU_GRAD] = {.name = "swiglu_grad",
                           .stream = ZR_STREAM_COMPUTE,
                           .n_operands = 5,
                           ACT_ATTRS,
                           .operand = {OP_R("gate"), OP_R("up"), OP_R("dy"), OP_W("dgate"),
                                       OP_W("dup")},
                           .operand_bytes = elems_bytes,
                           NO_GRAD},
};
