/* Rotary positions in Hugging Face's layout. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/rope_frequency.h"

/* A row's angles, unpacked, are on the stack of its task; no model has larger heads. */
enum { ROWS = 8, MAX_HALF = 512 };

typedef struct {
  const zr_cpu_rows_t *rows;
  const float *table; /* [seq, half, 2] */
  void *x;
  int64_t n_rows, seq, heads, half, ldx;
  float sign;
} rope_t;

static void rope_block(void *context, int64_t task, int worker) {
  (void)worker;
  const rope_t *r = context;
  float cosine[MAX_HALF], sine[MAX_HALF];
  int64_t end = zr_cpu_min((task + 1) * ROWS, r->n_rows);
  for (int64_t t = task * ROWS; t < end; t++) {
    const float *angle = r->table + t % r->seq * 2 * r->half;
    for (int64_t i = 0; i < r->half; i++) {
      cosine[i] = angle[2 * i];
      sine[i] = r->sign * angle[2 * i + 1];
    }
    r->rows->rope(r->heads, r->half, cosine, sine, zr_cpu_at(r->rows, r->x, t * r->ldx));
  }
}

static zr_status_t rope_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  rope_t r = {zr_cpu_rows_of(kern, call->shape, 1),
              call->operand[0],
              call->operand[1],
              attr[ZR_ROPE_ROWS],
              attr[ZR_ROPE_SEQ],
              attr[ZR_ROPE_HEADS],
              attr[ZR_ROPE_HEAD_DIM] / 2,
              attr[ZR_ROPE_LDX],
              attr[ZR_ROPE_INVERSE] ? -1.0f : 1.0f};
  if (r.half > MAX_HALF)
    return zr_fail(ZR_ERR_UNSUPPORTED, "cpu: rope of heads larger than %d", 2 * MAX_HALF);
  zr_parallel_for(call->pool, zr_cpu_blocks(r.n_rows, ROWS), rope_block, &r);
  return ZR_OK;
}

static zr_status_t rope_table_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  (void)kern;
  const int64_t *attr = call->shape->attr;
  int64_t half = attr[ZR_ROPE_HEAD_DIM] / 2;
  float *table = call->operand[0]; /* [seq, half, 2] */
  for (int64_t i = 0; i < half; i++) {
    double frequency = zr_rope_frequency(call->shape, i);
    for (int64_t p = 0; p < attr[ZR_ROPE_SEQ]; p++) {
      double angle = (double)p * frequency;
      table[(p * half + i) * 2] = (float)cos(angle);
      table[(p * half + i) * 2 + 1] = (float)sin(angle);
    }
  }
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_rope = {"rope", -1, NULL, NULL, rope_run};
const zr_cpu_kind_t zr_cpu_rope_table = {"rope_table", -1, NULL, NULL, rope_table_run};
