/* The rows of the step's own kinds: data, control, optimizer, collectives. */
#include "runtime/plan/op_rows.h"

#define COLLECTIVE .stream = ZR_STREAM_COMM, .collective = true
#define CTL_BYTES ((int64_t)sizeof(zr_control_t))

static void fetch_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = zr_op_elems_bytes(s, 0, s->attr[ZR_FETCH_ROWS]);
  need[1] = zr_op_elems_bytes(s, 1, s->attr[ZR_FETCH_ROWS]);
  need[2] = zr_op_elems_bytes(s, 2, s->attr[ZR_FETCH_ROWS]);
}

static void rows_ctl_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = zr_op_elems_bytes(s, 0, s->attr[ZR_ROWS]);
  need[1] = CTL_BYTES;
}

static void ctl_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  (void)s;
  need[0] = CTL_BYTES;
}

static void elems_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = zr_op_elems_bytes(s, 0, s->attr[ZR_ELEMS]);
  need[1] = zr_op_elems_bytes(s, 1, s->attr[ZR_ELEMS]);
}

static void block_norm_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = zr_op_elems_bytes(s, 0, s->attr[ZR_ELEMS]);
  need[1] = CTL_BYTES;
}

static void update_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  for (int i = 0; i < 4; i++) need[i] = zr_op_elems_bytes(s, i, s->attr[ZR_ADAMW_ELEMS]);
  need[4] = -1;
  need[5] = CTL_BYTES;
  need[6] = zr_op_elems_bytes(s, 6, s->attr[ZR_ADAMW_ELEMS]);
}

/* The flat side is n_ranks shards: the builder, which knows the ranks, checks it. */
static void all_gather_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = s->attr[ZR_COMM_SHARD_BYTES];
  need[1] = -1;
  need[2] = -1;
}

static void reduce_scatter_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = -1;
  need[1] = s->attr[ZR_COMM_SHARD_BYTES];
  need[2] = -1;
}

static void data_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = s->attr[ZR_COMM_SHARD_BYTES];
  need[1] = -1;
}

static void copy_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  need[0] = need[1] = s->attr[ZR_COPY_BYTES];
}

static void no_bytes(const zr_kern_shape_t *s, int64_t need[ZR_MAX_OPERANDS]) {
  (void)s;
  (void)need;
}

#define CONTROL_ROW(n, on)                                              \
  {                                                                     \
    .name = n, .stream = on, .n_operands = 1, .operand = {OP_C("ctl")}, \
    .also = 1 << ZR_STREAM_HOST, .operand_bytes = ctl_bytes, NO_GRAD    \
  }

#define COPY_ROW(n, on, ...)                                                               \
  {                                                                                        \
    .name = n, .stream = on, .n_operands = 2, .n_attrs = 1, .attr = {"bytes"},             \
    .operand = {OP_R("src"), OP_W("dst")}, __VA_ARGS__.operand_bytes = copy_bytes, NO_GRAD \
  }

/* All optimizers have their operands in the same places: ZR_UPDATE_... */
#define UPDATE_ROW(n, first_state, second_state)                                        \
  {                                                                                     \
    .name = n, .stream = ZR_STREAM_COMPUTE, .n_operands = 7, .n_attrs = 4,              \
    .attr = {"elems", "first", "first_per_rank", "shard"}, .also = 1 << ZR_STREAM_HOST, \
    .operand = {OP_C("param"),  OP_R("g"),   first_state,         second_state,         \
                OP_R("layout"), OP_C("ctl"), OP_C_OPTIONAL("low")},                     \
    .operand_bytes = update_bytes, NO_GRAD                                              \
  }

const zr_op_row_t zr_op_rows_step[ZR_N_OP_KINDS] = {
    [ZR_OP_NOP] = {.name = "nop", .stream = ZR_STREAM_COMPUTE, .operand_bytes = no_bytes, NO_GRAD},
    [ZR_OP_FETCH] = {.name = "fetch",
                     .stream = ZR_STREAM_H2D,
                     .also = 1 << ZR_STREAM_COMPUTE,
                     .n_operands = 3,
                     .n_attrs = 2,
                     .attr = {"micro", "rows"},
                     .operand = {OP_W("tokens"), OP_W("targets"), OP_W_OPTIONAL("starts")},
                     .operand_bytes = fetch_bytes,
                     NO_GRAD},
    [ZR_OP_COUNT] = {.name = "count",
                     .stream = ZR_STREAM_COMPUTE,
                     .n_operands = 2,
                     .n_attrs = 1,
                     .attr = {"rows"},
                     .operand = {OP_R("targets"), OP_C("ctl")},
                     .operand_bytes = rows_ctl_bytes,
                     NO_GRAD},
    [ZR_OP_LOSS_SUM] = {.name = "loss_sum",
                        .stream = ZR_STREAM_COMPUTE,
                        .n_operands = 2,
                        .n_attrs = 1,
                        .attr = {"rows"},
                        .operand = {OP_R("loss"), OP_C("ctl")},
                        .operand_bytes = rows_ctl_bytes,
                        NO_GRAD},
    [ZR_OP_CONTROL_BEGIN] = CONTROL_ROW("control_begin", ZR_STREAM_COMPUTE),
    [ZR_OP_CONTROL_COUNT] = CONTROL_ROW("control_count", ZR_STREAM_COMPUTE),
    [ZR_OP_CONTROL_UPDATE] = CONTROL_ROW("control_update", ZR_STREAM_COMPUTE),
    /* behind the digests' all_reduce: compute need not wait for it */
    [ZR_OP_CONTROL_END] = CONTROL_ROW("control_end", ZR_STREAM_COMM),
    [ZR_OP_FILL] = {.name = "fill",
                    .stream = ZR_STREAM_COMPUTE,
                    .also = 1 << ZR_STREAM_HOST,
                    .n_operands = 1,
                    .n_attrs = 1,
                    .attr = {"elems"},
                    .has_real = true,
                    .real_name = "value",
                    .operand = {OP_W("dst")},
                    .operand_bytes = elems_bytes,
                    NO_GRAD},
    [ZR_OP_ACCUMULATE] = {.name = "accumulate",
                          .stream = ZR_STREAM_COMPUTE,
                          .n_operands = 2,
                          .n_attrs = 1,
                          .attr = {"elems"},
                          .operand = {OP_R("src"), OP_C("dst")},
                          .operand_bytes = elems_bytes,
                          NO_GRAD},
    [ZR_OP_SHARD_ADD] = {.name = "shard_add",
                         .stream = ZR_STREAM_COMM,
                         .n_operands = 2,
                         .n_attrs = 1,
                         .attr = {"elems"},
                         .operand = {OP_R("src"), OP_C("dst")},
                         .operand_bytes = elems_bytes,
                         NO_GRAD},
    [ZR_OP_BLOCK_NORM] = {.name = "block_norm",
                          .stream = ZR_STREAM_COMPUTE,
                          .n_operands = 2,
                          .n_attrs = 1,
                          .attr = {"elems"},
                          .operand = {OP_R("g"), OP_C("ctl")},
                          .operand_bytes = block_norm_bytes,
                          NO_GRAD},
    [ZR_OP_ADAMW] = UPDATE_ROW("adamw", OP_C("exp_avg"), OP_C("exp_avg_sq")),
    [ZR_OP_SGD] = UPDATE_ROW("sgd", OP_C_OPTIONAL("momentum_buffer"), OP_C_OPTIONAL("none")),
    [ZR_OP_LION] = UPDATE_ROW("lion", OP_C("exp_avg"), OP_C_OPTIONAL("none")),
    [ZR_OP_ADAGRAD] = UPDATE_ROW("adagrad", OP_C("sum"), OP_C_OPTIONAL("none")),
    [ZR_OP_ALL_GATHER] = {.name = "all_gather",
                          COLLECTIVE,
                          .n_operands = 3,
                          .n_attrs = 1,
                          .attr = {"shard_bytes"},
                          .operand = {OP_R("shard"), OP_W("flat"), OP_S},
                          .operand_bytes = all_gather_bytes,
                          NO_GRAD},
    [ZR_OP_REDUCE_SCATTER] = {.name = "reduce_scatter",
                              COLLECTIVE,
                              .n_operands = 3,
                              .n_attrs = 1,
                              .attr = {"shard_bytes"},
                              .operand = {OP_R("flat"), OP_A("shard"), OP_S},
                              .operand_bytes = reduce_scatter_bytes,
                              NO_GRAD},
    [ZR_OP_ALL_REDUCE] = {.name = "all_reduce",
                          COLLECTIVE,
                          .n_operands = 2,
                          .n_attrs = 1,
                          .attr = {"bytes"},
                          .operand = {OP_C("data"), OP_S},
                          .operand_bytes = data_bytes,
                          NO_GRAD},
    [ZR_OP_BROADCAST] = {.name = "broadcast",
                         COLLECTIVE,
                         .n_operands = 1,
                         .n_attrs = 1,
                         .attr = {"bytes"},
                         .operand = {OP_C("data")},
                         .operand_bytes = data_bytes,
                         NO_GRAD},
    [ZR_OP_BARRIER] = {.name = "barrier", COLLECTIVE, .operand_bytes = no_bytes, NO_GRAD},
    [ZR_OP_H2D] = COPY_ROW("h2d", ZR_STREAM_H2D),
    [ZR_OP_D2H] = COPY_ROW("d2h", ZR_STREAM_D2H),
    /* h2d: parameters on their way to their use pass the reads of updates */
    [ZR_OP_DISK_READ] = COPY_ROW("disk_read", ZR_STREAM_READ, .also = 1 << ZR_STREAM_H2D, ),
    [ZR_OP_DISK_WRITE] = COPY_ROW("disk_write", ZR_STREAM_WRITE),
};
