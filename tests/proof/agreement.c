#include "tests/proof/agreement.h"

#include <stdlib.h>

#include "tests/support/cmocka_all.h"

enum { N_LEAST = 40 }; /* smallest heads and tails that are tried */

static const int64_t none_ns = -1;

/* The list twice in a row; positions 0 .. 2 n - 1. */
typedef struct {
  const zr_plan_t *plan;
  const int64_t *duration_ns;
  int32_t n, first, second;   /* first, second: the two control_update */
  int32_t *writer_before;     /* [2 n x operands]: the write of the same buffer before this one */
  int32_t *last_writer;       /* [n_buffers] while walking: position x operands + operand */
  int64_t *head_ns, *tail_ns; /* [2 n]: before the start, after the end; none_ns: independent */
} net_t;

static const zr_op_t *op_at(const net_t *net, int32_t at) {
  return &net->plan->op[at % net->n];
}

static int64_t ns_at(const net_t *net, int32_t at) {
  return net->duration_ns[at % net->n];
}

static void keep_larger(int64_t *kept, int64_t value) {
  if (value > *kept) *kept = value;
}

/* One value flows from operation `from` to `to`. Forward: heads grow; else tails, walked back. */
static void flow(net_t *net, int32_t from, int32_t to, bool forward) {
  if (forward) {
    if (from == net->first) keep_larger(&net->head_ns[to], 0);
    if (net->head_ns[from] != none_ns)
      keep_larger(&net->head_ns[to], net->head_ns[from] + ns_at(net, from));
  } else {
    if (to == net->second) keep_larger(&net->tail_ns[from], 0);
    if (net->tail_ns[to] != none_ns)
      keep_larger(&net->tail_ns[from], net->tail_ns[to] + ns_at(net, to));
  }
}

/* The writers of what the operand reads: newest first, until one of them wrote all of it. */
static void flow_operand(net_t *net, int32_t at, const zr_operand_t *operand, int32_t writer,
                         bool forward) {
  for (; writer >= 0; writer = net->writer_before[writer]) {
    const zr_operand_t *w =
        &op_at(net, writer / ZR_MAX_OPERANDS)->operand[writer % ZR_MAX_OPERANDS];
    if (w->offset >= operand->offset + operand->bytes || operand->offset >= w->offset + w->bytes)
      continue;
    flow(net, writer / ZR_MAX_OPERANDS, at, forward);
    if (w->offset <= operand->offset && w->offset + w->bytes >= operand->offset + operand->bytes)
      return;
  }
}

typedef struct {
  int32_t at, operand, writer;
} read_t;

/* Collects each read with the newest write before it, and chains the writes. */
static size_t collect_reads(net_t *net, read_t *reads) {
  size_t n_reads = 0;
  for (size_t b = 0; b < net->plan->n_buffers; b++) net->last_writer[b] = -1;
  for (int32_t at = 0; at < 2 * net->n; at++) {
    const zr_op_t *op = op_at(net, at);
    for (int32_t k = 0; k < ZR_MAX_OPERANDS; k++) {
      if (op->operand[k].buffer < 0 || !(op->operand[k].access & ZR_READ)) continue;
      reads[n_reads++] = (read_t){at, k, net->last_writer[op->operand[k].buffer]};
    }
    for (int32_t k = 0; k < ZR_MAX_OPERANDS; k++) {
      if (op->operand[k].buffer < 0 || !(op->operand[k].access & ZR_WRITE)) continue;
      int32_t *last = &net->last_writer[op->operand[k].buffer];
      net->writer_before[at * ZR_MAX_OPERANDS + k] = *last;
      *last = at * ZR_MAX_OPERANDS + k;
    }
  }
  return n_reads;
}

static void heads_and_tails(net_t *net) {
  const size_t most = (size_t)(2 * net->n) * ZR_MAX_OPERANDS;
  read_t *reads = calloc(most, sizeof *reads);
  assert_non_null(reads);
  const size_t n_reads = collect_reads(net, reads);
  for (int32_t at = 0; at < 2 * net->n; at++) net->head_ns[at] = net->tail_ns[at] = none_ns;
  for (size_t i = 0; i < n_reads; i++)
    flow_operand(net, reads[i].at, &op_at(net, reads[i].at)->operand[reads[i].operand],
                 reads[i].writer, true);
  for (size_t i = n_reads; i-- > 0;)
    flow_operand(net, reads[i].at, &op_at(net, reads[i].at)->operand[reads[i].operand],
                 reads[i].writer, false);
  free(reads);
}

static int ascending(const void *left, const void *right) {
  const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return a < b ? -1 : a > b;
}

static bool between(const net_t *net, int32_t at, int stream) {
  return op_at(net, at)->stream == stream && net->head_ns[at] != none_ns &&
         net->tail_ns[at] != none_ns;
}

/* The N_LEAST smallest distinct values of a stream's heads or tails. */
static int least_values(const net_t *net, int stream, const int64_t *value,
                        int64_t out_value[N_LEAST]) {
  int64_t *all = calloc((size_t)net->n * 2, sizeof *all);
  assert_non_null(all);
  size_t n_all = 0;
  for (int32_t at = 0; at < 2 * net->n; at++)
    if (between(net, at, stream)) all[n_all++] = value[at];
  if (n_all > 0) qsort(all, n_all, sizeof *all, ascending);
  int n = 0;
  for (size_t i = 0; i < n_all && n < N_LEAST; i++)
    if (n == 0 || all[i] != out_value[n - 1]) out_value[n++] = all[i];
  free(all);
  return n;
}

static int64_t stream_bound_ns(const net_t *net, int stream) {
  int64_t head[N_LEAST], tail[N_LEAST], most = 0;
  const int n_heads = least_values(net, stream, net->head_ns, head);
  const int n_tails = least_values(net, stream, net->tail_ns, tail);
  for (int h = 0; h < n_heads; h++)
    for (int t = 0; t < n_tails; t++) {
      int64_t work_ns = 0;
      for (int32_t at = 0; at < 2 * net->n; at++)
        if (between(net, at, stream) && net->head_ns[at] >= head[h] && net->tail_ns[at] >= tail[t])
          work_ns += ns_at(net, at);
      if (work_ns > 0) keep_larger(&most, head[h] + work_ns + tail[t]);
    }
  return most;
}

int64_t agreement_bound_ns(const zr_plan_t *plan, const int64_t *duration_ns) {
  net_t net = {.plan = plan, .duration_ns = duration_ns, .n = (int32_t)plan->n_ops, .first = -1};
  for (int32_t i = 0; i < net.n; i++)
    if (plan->op[i].shape.kind == ZR_OP_CONTROL_UPDATE) net.first = i;
  assert_true(net.first >= 0);
  net.second = net.first + net.n;
  net.writer_before = calloc((size_t)(2 * net.n) * ZR_MAX_OPERANDS, sizeof *net.writer_before);
  net.last_writer = calloc(plan->n_buffers, sizeof *net.last_writer);
  net.head_ns = calloc((size_t)net.n * 2, sizeof *net.head_ns);
  net.tail_ns = calloc((size_t)net.n * 2, sizeof *net.tail_ns);
  assert_true(net.writer_before && net.last_writer && net.head_ns && net.tail_ns);
  heads_and_tails(&net);
  int64_t most = 0;
  for (int s = 0; s < ZR_N_STREAMS; s++) keep_larger(&most, stream_bound_ns(&net, s));
  free(net.writer_before);
  free(net.last_writer);
  free(net.head_ns);
  free(net.tail_ns);
  return most + duration_ns[net.first];
}
