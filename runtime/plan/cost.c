#include "runtime/plan/cost.h"

/* The formulas of runtime/comm: a shard, or the whole of an integer all-reduce or a broadcast, to
 * every other rank. Of a broadcast: what its root sends; the others send nothing. */
int64_t zr_cost_sent_bytes(const zr_plan_t *plan, const zr_op_t *op) {
  int64_t others = plan->n_ranks - 1, bytes = op->shape.attr[ZR_COMM_SHARD_BYTES];
  switch (op->shape.kind) {
    case ZR_OP_ALL_GATHER:
    case ZR_OP_REDUCE_SCATTER:
    case ZR_OP_ALL_REDUCE:
    case ZR_OP_BROADCAST:
      return others * bytes;
    default:
      return 0;
  }
}

int64_t zr_cost_copy_bytes(const zr_op_t *op) {
  return zr_kern_is_copy(op->shape.kind) ? op->shape.attr[ZR_COPY_BYTES] : 0;
}

static void add_copy(zr_account_t *account, const zr_op_t *op) {
  switch (op->shape.kind) {
    case ZR_OP_H2D:
      account->h2d_bytes += zr_cost_copy_bytes(op);
      break;
    case ZR_OP_D2H:
      account->d2h_bytes += zr_cost_copy_bytes(op);
      break;
    case ZR_OP_DISK_READ:
      account->disk_read_bytes += zr_cost_copy_bytes(op);
      break;
    case ZR_OP_DISK_WRITE:
      account->disk_write_bytes += zr_cost_copy_bytes(op);
      break;
    default:
      break;
  }
}

void zr_cost_account(const zr_plan_t *plan, zr_account_t *out_account) {
  zr_account_t account = {0};
  for (size_t i = 0; i < plan->n_buffers; i++) {
    const zr_buffer_t *buffer = &plan->buffer[i];
    account.category_bytes[buffer->tier][buffer->category] += buffer->bytes;
    if (buffer->persistent)
      account.persistent_bytes[buffer->tier][buffer->category] += buffer->bytes;
  }
  for (size_t i = 0; i < plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    const zr_op_row_t *row = zr_op_row(op->shape.kind);
    account.sent_bytes += zr_cost_sent_bytes(plan, op);
    add_copy(&account, op);
    if (row->flops != NULL) account.flops += row->flops(&op->shape);
    if (op->stream != ZR_STREAM_COMPUTE) continue;
    for (int j = 0; j < row->n_operands; j++) {
      if (op->operand[j].buffer < 0) continue;
      int times =
          ((op->operand[j].access & ZR_READ) != 0) + ((op->operand[j].access & ZR_WRITE) != 0);
      account.touched_bytes += times * op->operand[j].bytes;
    }
  }
  *out_account = account;
}
