/* When space can be reused without a wait for it.
 *
 * The values alone order many operations. A buffer is quiet for a stream from that stream's first
 * operation that comes, by values alone, after all of the buffer's uses:
 *
 *   comm     gather A . . . . . reduce_scatter . gather B     B may have A's bytes: the
 *   compute           use A . grad ---^                       reduce_scatter waited for compute
 *
 * If the next owner of the bytes is first touched by that stream, at that place or later, its reuse
 * needs no wait of its own. */
#include "runtime/plan/place_internal.h"
#include "runtime/plan/wait_internal.h"

typedef struct {
  const zr_plan_t *plan;
  zr_clock_t *clock;                /* [2 n_ops] */
  int32_t *of_stream[ZR_N_STREAMS]; /* the operations of each stream, in order */
  int32_t *list;                    /* their memory: [n_ops] */
  int32_t *last[ZR_N_STREAMS];      /* [n_buffers]: last use on a stream, -1: none */
  int32_t *lasts;                   /* their memory */
} quiet_t;

static zr_status_t prepare(quiet_t *q, uint8_t *first_stream) {
  const zr_plan_t *plan = q->plan;
  size_t n_lasts = plan->n_buffers * ZR_N_STREAMS, at = 0;
  ZR_TRY(zr_alloc_get(plan->alloc, 2 * plan->n_ops, sizeof *q->clock, &q->clock));
  ZR_TRY(zr_alloc_get(plan->alloc, plan->n_ops, sizeof *q->list, &q->list));
  ZR_TRY(zr_alloc_get(plan->alloc, n_lasts, sizeof *q->lasts, &q->lasts));
  ZR_TRY(zr_wait_value_clocks(plan, q->clock));
  for (size_t i = 0; i < n_lasts; i++) q->lasts[i] = -1;
  for (size_t i = 0; i < plan->n_buffers; i++) first_stream[i] = ZR_N_STREAMS;
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    q->of_stream[s] = q->list + at;
    q->last[s] = q->lasts + (size_t)s * plan->n_buffers;
    at += (size_t)plan->stream_ops[s];
  }
  for (int32_t i = 0; i < (int32_t)plan->n_ops; i++) {
    const zr_op_t *op = &plan->op[i];
    q->of_stream[op->stream][op->stream_index] = i;
    for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
      int32_t buffer = op->operand[j].buffer;
      if (buffer < 0) continue;
      q->last[op->stream][buffer] = i;
      if (first_stream[buffer] == ZR_N_STREAMS) first_stream[buffer] = op->stream;
    }
  }
  return ZR_OK;
}

/* Position over two steps of the n-th operation of a stream. */
static int64_t position(const quiet_t *q, int stream, int32_t n) {
  int32_t count = q->plan->stream_ops[stream];
  return n < count ? q->of_stream[stream][n]
                   : (int64_t)q->plan->n_ops + q->of_stream[stream][n - count];
}

static bool knows_all(const quiet_t *q, int stream, int32_t n, int32_t buffer) {
  const zr_clock_t *clock = &q->clock[position(q, stream, n)];
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    int32_t last = q->last[s][buffer];
    if (s != stream && last >= 0 && clock->done[s] <= q->plan->op[last].stream_index) return false;
  }
  return true;
}

/* Clocks grow along a stream, so the first operation that knows all is found by halving. */
static int64_t quiet_from(const quiet_t *q, int stream, int32_t buffer) {
  int32_t low = q->plan->op[q->last[stream][buffer]].stream_index + 1;
  int32_t most = 2 * q->plan->stream_ops[stream], high = most;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (knows_all(q, stream, middle, buffer))
      high = middle;
    else
      low = middle + 1;
  }
  return low < most ? position(q, stream, low) : 2 * (int64_t)q->plan->n_ops;
}

zr_status_t zr_quiet_init(zr_quiet_t *quiet, const zr_plan_t *plan) {
  quiet_t q = {.plan = plan};
  *quiet = (zr_quiet_t){.alloc = plan->alloc};
  size_t n = plan->n_buffers;
  zr_status_t status = zr_alloc_get(plan->alloc, n, sizeof *quiet->from, &quiet->from);
  if (status == ZR_OK)
    status = zr_alloc_get(plan->alloc, n, sizeof *quiet->first_stream, &quiet->first_stream);
  if (status == ZR_OK) status = prepare(&q, quiet->first_stream);
  for (int32_t i = 0; status == ZR_OK && i < (int32_t)n; i++) {
    uint8_t stream = quiet->first_stream[i];
    if (stream < ZR_N_STREAMS) quiet->from[i] = quiet_from(&q, stream, i);
  }
  zr_alloc_free(plan->alloc, q.clock);
  zr_alloc_free(plan->alloc, q.list);
  zr_alloc_free(plan->alloc, q.lasts);
  if (status != ZR_OK) zr_quiet_fini(quiet);
  return status;
}

void zr_quiet_fini(zr_quiet_t *quiet) {
  if (quiet->alloc == NULL) return;
  zr_alloc_free(quiet->alloc, quiet->from);
  zr_alloc_free(quiet->alloc, quiet->first_stream);
  *quiet = (zr_quiet_t){0};
}
