/* Inside kernels/cpu: the backend's state and what each file of kinds offers to cpu.c. */
#ifndef ZR_KERNELS_CPU_CPU_H
#define ZR_KERNELS_CPU_CPU_H

#include <stddef.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"
#include "kernels/kern.h"

enum { ZR_CPU_MAX_GEMMS = 8 };

/* What `prepare` made for one shape. */
typedef struct zr_cpu_prepared_t {
  struct zr_cpu_prepared_t *next;
  zr_kern_shape_t shape;
  int n_workers;
  zr_cpu_gemm_t *gemm[ZR_CPU_MAX_GEMMS];
} zr_cpu_prepared_t;

struct zr_kern_t {
  zr_alloc_t *alloc;
  const zr_cpu_rows_set_t *rows; /* of the instruction set, by element type */
  zr_cpu_library_t *library;     /* NULL: products by the row kernels */
  zr_cpu_prepared_t *prepared;
};

/* A gemm that a kind needs. */
typedef struct {
  zr_cpu_gemm_shape_t shape;
  int accumulate;
} zr_cpu_gemm_need_t;

/* A kind: one row of the table in cpu.c. */
typedef struct {
  const char *name;
  int scratch; /* index of the scratch operand; -1: none */
  int64_t (*scratch_bytes)(const zr_kern_shape_t *shape, int n_workers); /* NULL: 0 */
  int (*gemms)(const zr_kern_shape_t *shape, zr_cpu_gemm_need_t need[ZR_CPU_MAX_GEMMS]);
  zr_status_t (*run)(zr_kern_t *kern, const zr_kern_call_t *call);
} zr_cpu_kind_t;

extern const zr_cpu_kind_t zr_cpu_embedding, zr_cpu_embedding_grad;
extern const zr_cpu_kind_t zr_cpu_linear, zr_cpu_linear_grad_x, zr_cpu_linear_grad_w,
    zr_cpu_linear_grad_b;
extern const zr_cpu_kind_t zr_cpu_layernorm, zr_cpu_layernorm_grad, zr_cpu_rmsnorm,
    zr_cpu_rmsnorm_grad;
extern const zr_cpu_kind_t zr_cpu_head_norm, zr_cpu_head_norm_grad;
extern const zr_cpu_kind_t zr_cpu_rope, zr_cpu_rope_table;
extern const zr_cpu_kind_t zr_cpu_attention, zr_cpu_attention_grad;
extern const zr_cpu_kind_t zr_cpu_gelu, zr_cpu_gelu_grad, zr_cpu_swiglu, zr_cpu_swiglu_grad,
    zr_cpu_add, zr_cpu_fill, zr_cpu_accumulate;
extern const zr_cpu_kind_t zr_cpu_head_loss, zr_cpu_head_eval;
extern const zr_cpu_kind_t zr_cpu_nop, zr_cpu_count, zr_cpu_loss_sum, zr_cpu_control_begin,
    zr_cpu_control_count, zr_cpu_control_update, zr_cpu_control_end;
extern const zr_cpu_kind_t zr_cpu_block_norm, zr_cpu_adamw, zr_cpu_sgd, zr_cpu_lion, zr_cpu_adagrad;

static inline zr_cpu_type_t zr_cpu_type(const zr_kern_shape_t *shape, int operand) {
  int dtype = shape->dtype[operand];
  return dtype == ZR_BF16 ? ZR_CPU_BF16 : dtype == ZR_F16 ? ZR_CPU_F16 : ZR_CPU_F32;
}
/* Row kernels for the type of an operand, and for fp32. */
static inline const zr_cpu_rows_t *zr_cpu_rows_of(const zr_kern_t *kern,
                                                  const zr_kern_shape_t *shape, int operand) {
  return (*kern->rows)[zr_cpu_type(shape, operand)];
}
static inline const zr_cpu_rows_t *zr_cpu_rows_f32(const zr_kern_t *kern) {
  return (*kern->rows)[ZR_CPU_F32];
}

static inline int zr_cpu_accumulates(const zr_kern_shape_t *shape, int operand) {
  return (int)(shape->accumulate >> operand & 1u);
}

static inline int64_t zr_cpu_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static inline int64_t zr_cpu_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static inline int64_t zr_cpu_blocks(int64_t total, int64_t block) {
  return (total + block - 1) / block;
}
/* Element i of an array of `rows`' type. */
static inline void *zr_cpu_at(const zr_cpu_rows_t *rows, void *base, int64_t i) {
  return (char *)base + i * rows->elem_bytes;
}
static inline const void *zr_cpu_at_in(const zr_cpu_rows_t *rows, const void *base, int64_t i) {
  return (const char *)base + i * rows->elem_bytes;
}
static inline int64_t zr_cpu_round_64(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/* ZR_ERR_DATA unless low <= index[i] < bound for all i. */
zr_status_t zr_cpu_check_indices(const int32_t *index, int64_t n, int64_t low,
                                 int64_t bound) ZR_MUST_CHECK;

/* Where documents begin: NULL, or each of n rows in 0 .. its place in its sample of `seq`. */
zr_status_t zr_cpu_check_starts(const int32_t *starts, int64_t n, int64_t seq) ZR_MUST_CHECK;

/* Operand `operand` [cols] of the call, in its type, (+)= sum over blocks of part[block][c], in the
 * fixed tree whose node over n blocks splits at the largest power of two below n; columns are
 * spread over the pool. part is used up. */
void zr_cpu_sum_blocks(const zr_kern_t *kern, const zr_kern_call_t *call, int operand,
                       int64_t n_blocks, int64_t cols, float *part);

#endif
