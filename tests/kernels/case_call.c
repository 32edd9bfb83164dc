#include "tests/kernels/case_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/rng.h"
#include "tests/kernels/check.h"

enum { GUARD_BYTES = 256, ALIGN_BYTES = 64 };

static zr_dtype_t or_f32(uint8_t dtype) {
  return dtype == 0 ? ZR_F32 : (zr_dtype_t)dtype;
}

static zr_dtype_t dtype_of(const kern_case_t *one, kern_type_t type) {
  switch (type) {
    case KERN_REAL:
      return or_f32(one->compute);
    case KERN_SUM:
      return or_f32(one->sum);
    case KERN_STATE:
      return or_f32(one->states);
    case KERN_F32:
      return ZR_F32;
    case KERN_REST:
      return one->compute == ZR_BF16 ? ZR_I16 : ZR_F32;
    case KERN_I32:
    case KERN_STARTS:
      return ZR_I32;
    case KERN_F64:
      return ZR_F64;
    default:
      return ZR_U8;
  }
}

zr_kern_shape_t kern_case_shape(const kern_case_t *one, zr_dtype_t real) {
  zr_kern_shape_t shape = {.kind = one->kind,
                           .accumulate = one->accumulate,
                           .real = one->real,
                           .present = (uint8_t)~one->absent};
  memcpy(shape.attr, one->attr, sizeof shape.attr);
  kern_operand_t desc[ZR_MAX_OPERANDS];
  int n = kern_operands(&shape, desc);
  shape.present &= (uint8_t)((1u << n) - 1);
  for (int i = 0; i < n; i++) {
    if (desc[i].type == KERN_REST && (one->compute == 0 || real == ZR_F64))
      shape.present &= (uint8_t) ~(1u << i);
    if (desc[i].type == KERN_STARTS && !one->documents) shape.present &= (uint8_t) ~(1u << i);
    bool is_real = desc[i].type <= KERN_F32;
    bool present = (shape.present >> i & 1) != 0;
    if (!present || desc[i].role == KERN_SCRATCH)
      shape.dtype[i] = ZR_U8;
    else
      shape.dtype[i] = (uint8_t)(is_real && real == ZR_F64 ? ZR_F64 : dtype_of(one, desc[i].type));
  }
  return shape;
}

static int64_t elem_bytes_of(const zr_kern_shape_t *shape, const kern_operand_t *desc, int dtype) {
  switch (desc->type) {
    case KERN_CONTROL:
      return (int64_t)sizeof(zr_control_t);
    case KERN_LAYOUT:
      return (int64_t)sizeof(zr_kern_layout_t) +
             kern_layout_build(shape, NULL) * (int64_t)sizeof(zr_kern_tensor_t);
    default:
      return zr_dtype_bytes((zr_dtype_t)dtype);
  }
}

/* A block of guard, `bytes` starting `offset` past an aligned address, guard: all poison. */
static void place(kern_call_t *call, int i, int64_t bytes, int64_t offset) {
  int64_t total = 2 * GUARD_BYTES + bytes + offset;
  total = (total + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
  call->block[i] = aligned_alloc(ALIGN_BYTES, (size_t)total);
  call->snapshot[i] = malloc((size_t)total);
  assert_true(call->block[i] != NULL && call->snapshot[i] != NULL);
  memset(call->block[i], call->poison, (size_t)total);
  memcpy(call->snapshot[i], call->block[i], (size_t)total);
  call->block_bytes[i] = total;
  call->call.operand[i] = call->block[i] + GUARD_BYTES + offset;
  call->call.bytes[i] = bytes;
}

void kern_call_init(kern_call_t *call, const kern_case_t *one, zr_dtype_t real, uint8_t poison) {
  *call = (kern_call_t){.offset = one->offset,
                        .control = one->control,
                        .poison = poison,
                        .compute = one->compute,
                        .sum = one->sum,
                        .states = one->states};
  call->shape = kern_case_shape(one, real);
  call->call.shape = &call->shape;
  int n = kern_operands(&call->shape, call->desc);
  for (int i = 0; i < n; i++) {
    const kern_operand_t *desc = &call->desc[i];
    if (desc->role == KERN_ABSENT || desc->role == KERN_SCRATCH) continue;
    call->elem_bytes[i] = elem_bytes_of(&call->shape, desc, call->shape.dtype[i]);
    call->stored[i] = (uint8_t)dtype_of(one, desc->type);
    int64_t elems = desc->n_rows > 0 ? (desc->n_rows - 1) * desc->ld + desc->row_elems : 0;
    int64_t offset = call->offset >> i & 1u ? call->elem_bytes[i] : 0;
    place(call, i, elems * call->elem_bytes[i], offset);
  }
}

void kern_call_fini(kern_call_t *call) {
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    free(call->block[i]);
    free(call->snapshot[i]);
  }
  *call = (kern_call_t){0};
}

zr_status_t kern_call_run(kern_call_t *call, const zr_kern_ops_t *ops, zr_kern_t *kern,
                          zr_pool_t *pool) {
  int n_workers = zr_pool_n_workers(pool);
  int64_t scratch_bytes = ops->scratch_bytes(kern, &call->shape, n_workers);
  for (int i = 0; i < ZR_MAX_OPERANDS; i++)
    if (call->desc[i].role == KERN_SCRATCH && scratch_bytes > 0 && call->block[i] == NULL)
      place(call, i, scratch_bytes, 0);
    else if (call->desc[i].role == KERN_SCRATCH && scratch_bytes == 0)
      call->shape.present &= (uint8_t) ~(1u << i);
  ZR_TRY(ops->prepare(kern, &call->shape, n_workers, &call->call.prepared));
  call->call.pool = pool;
  return ops->run(kern, &call->call);
}

bool kern_call_is_output(const kern_call_t *call, int operand) {
  kern_role_t role = call->desc[operand].role;
  return role == KERN_WRITE || role == KERN_ADD || role == KERN_MODIFY;
}

int64_t kern_call_n_elems(const kern_call_t *call, int operand) {
  if (call->call.operand[operand] == NULL) return 0;
  return call->desc[operand].n_rows * call->desc[operand].row_elems;
}

static uint8_t *element(const kern_call_t *call, int operand, int64_t i) {
  const kern_operand_t *desc = &call->desc[operand];
  int64_t at = i / desc->row_elems * desc->ld + i % desc->row_elems;
  return (uint8_t *)call->call.operand[operand] + at * call->elem_bytes[operand];
}

double kern_call_get(const kern_call_t *call, int operand, int64_t i) {
  const void *at = element(call, operand, i);
  switch ((zr_dtype_t)call->shape.dtype[operand]) {
    case ZR_I32:
      return *(const int32_t *)at;
    case ZR_I16:
      return *(const int16_t *)at;
    case ZR_F64:
      return *(const double *)at;
    case ZR_BF16:
      return (double)zr_bf16_to_f32(*(const uint16_t *)at);
    case ZR_F16:
      return (double)zr_f16_to_f32(*(const uint16_t *)at);
    default:
      return (double)*(const float *)at;
  }
}

void kern_call_set(kern_call_t *call, int operand, int64_t i, double value) {
  void *at = element(call, operand, i);
  switch ((zr_dtype_t)call->shape.dtype[operand]) {
    case ZR_I32:
      *(int32_t *)at = (int32_t)value;
      break;
    case ZR_I16:
      *(int16_t *)at = (int16_t)value;
      break;
    case ZR_F64:
      *(double *)at = value;
      break;
    case ZR_BF16:
      *(uint16_t *)at = zr_bf16_from_f32((float)value);
      break;
    case ZR_F16:
      *(uint16_t *)at = zr_f16_from_f32((float)value);
      break;
    default:
      *(float *)at = (float)value;
      break;
  }
}

double kern_round(zr_dtype_t dtype, double value) {
  switch (dtype) {
    case ZR_BF16:
      return (double)zr_bf16_to_f32(zr_bf16_from_f32((float)value));
    case ZR_F16:
      return (double)zr_f16_to_f32(zr_f16_from_f32((float)value));
    default:
      return (double)(float)value;
  }
}

/* Bytes of [begin, end) of a block that differ from the snapshot. */
static int64_t n_changed(const kern_call_t *call, int operand, int64_t begin, int64_t end) {
  int64_t n = 0;
  for (int64_t i = begin; i < end; i++) n += call->block[operand][i] != call->snapshot[operand][i];
  return n;
}

static int64_t operand_damage(const kern_call_t *call, int operand) {
  const kern_operand_t *desc = &call->desc[operand];
  int64_t begin = 0; /* of the bytes not yet looked at, all of which must be unchanged */
  int64_t n = 0;
  int64_t base = (uint8_t *)call->call.operand[operand] - call->block[operand];
  if (desc->role == KERN_SCRATCH) {
    n = n_changed(call, operand, 0, base);
    begin = base + call->call.bytes[operand];
  } else if (kern_call_is_output(call, operand)) {
    for (int64_t row = 0; row < desc->n_rows; row++) {
      int64_t at = base + row * desc->ld * call->elem_bytes[operand];
      n += n_changed(call, operand, begin, at);
      begin = at + desc->row_elems * call->elem_bytes[operand];
    }
  }
  return n + n_changed(call, operand, begin, call->block_bytes[operand]);
}

int64_t kern_call_damage(const kern_call_t *call, int *out_operand) {
  int64_t n = 0;
  *out_operand = -1;
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (call->block[i] == NULL) continue;
    int64_t here = operand_damage(call, i);
    if (here > 0 && *out_operand < 0) *out_operand = i;
    n += here;
  }
  return n;
}

bool kern_call_equal(const kern_call_t *a, const kern_call_t *b, int operand) {
  const kern_operand_t *desc = &a->desc[operand];
  if (kern_call_n_elems(a, operand) != kern_call_n_elems(b, operand)) return false;
  if (kern_call_n_elems(a, operand) == 0) return true;
  size_t row_bytes = (size_t)(desc->row_elems * a->elem_bytes[operand]);
  for (int64_t row = 0; row < desc->n_rows; row++)
    if (memcmp(element(a, operand, row * desc->row_elems),
               element(b, operand, row * desc->row_elems), row_bytes) != 0)
      return false;
  return true;
}

double kern_call_error(const kern_call_t *a, const kern_call_t *b, int operand) {
  if (a->desc[operand].type == KERN_CONTROL)
    return kern_call_equal(a, b, operand) ? 0 : (double)INFINITY;
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < kern_call_n_elems(a, operand); i++) {
    double x = kern_call_get(a, operand, i), y = kern_call_get(b, operand, i);
    if (x == y || (isnan(x) && isnan(y))) {
      largest = fmax(largest, isfinite(y) ? fabs(y) : 0);
      continue;
    }
    if (!isfinite(x) || !isfinite(y)) return (double)INFINITY;
    worst = fmax(worst, fabs(x - y));
    largest = fmax(largest, fabs(y));
  }
  return worst / (largest > 0 ? largest : 1);
}
