/* The CPU backend: the table of kinds, the choice of instruction set, and what was prepared. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#include "runtime/base/dtype.h"

/* NULL: not a kernel's kind (data and collectives are the executor's). */
static const zr_cpu_kind_t *const kinds[ZR_N_OP_KINDS] = {
    [ZR_OP_NOP] = &zr_cpu_nop,
    [ZR_OP_EMBEDDING] = &zr_cpu_embedding,
    [ZR_OP_LINEAR] = &zr_cpu_linear,
    [ZR_OP_LAYERNORM] = &zr_cpu_layernorm,
    [ZR_OP_RMSNORM] = &zr_cpu_rmsnorm,
    [ZR_OP_HEAD_NORM] = &zr_cpu_head_norm,
    [ZR_OP_ROPE] = &zr_cpu_rope,
    [ZR_OP_ROPE_TABLE] = &zr_cpu_rope_table,
    [ZR_OP_ATTENTION] = &zr_cpu_attention,
    [ZR_OP_GELU] = &zr_cpu_gelu,
    [ZR_OP_SWIGLU] = &zr_cpu_swiglu,
    [ZR_OP_ADD] = &zr_cpu_add,
    [ZR_OP_HEAD_LOSS] = &zr_cpu_head_loss,
    [ZR_OP_HEAD_EVAL] = &zr_cpu_head_eval,
    [ZR_OP_EMBEDDING_GRAD] = &zr_cpu_embedding_grad,
    [ZR_OP_LINEAR_GRAD_X] = &zr_cpu_linear_grad_x,
    [ZR_OP_LINEAR_GRAD_W] = &zr_cpu_linear_grad_w,
    [ZR_OP_LINEAR_GRAD_B] = &zr_cpu_linear_grad_b,
    [ZR_OP_LAYERNORM_GRAD] = &zr_cpu_layernorm_grad,
    [ZR_OP_RMSNORM_GRAD] = &zr_cpu_rmsnorm_grad,
    [ZR_OP_HEAD_NORM_GRAD] = &zr_cpu_head_norm_grad,
    [ZR_OP_ATTENTION_GRAD] = &zr_cpu_attention_grad,
    [ZR_OP_GELU_GRAD] = &zr_cpu_gelu_grad,
    [ZR_OP_SWIGLU_GRAD] = &zr_cpu_swiglu_grad,
    [ZR_OP_COUNT] = &zr_cpu_count,
    [ZR_OP_LOSS_SUM] = &zr_cpu_loss_sum,
    [ZR_OP_CONTROL_BEGIN] = &zr_cpu_control_begin,
    [ZR_OP_CONTROL_COUNT] = &zr_cpu_control_count,
    [ZR_OP_CONTROL_UPDATE] = &zr_cpu_control_update,
    [ZR_OP_CONTROL_END] = &zr_cpu_control_end,
    [ZR_OP_FILL] = &zr_cpu_fill,
    [ZR_OP_ACCUMULATE] = &zr_cpu_accumulate,
    [ZR_OP_SHARD_ADD] = &zr_cpu_accumulate,
    [ZR_OP_BLOCK_NORM] = &zr_cpu_block_norm,
    [ZR_OP_ADAMW] = &zr_cpu_adamw,
    [ZR_OP_SGD] = &zr_cpu_sgd,
    [ZR_OP_LION] = &zr_cpu_lion,
    [ZR_OP_ADAGRAD] = &zr_cpu_adagrad,
};

static const zr_cpu_kind_t *kind_of(const zr_kern_shape_t *shape) {
  return shape->kind >= 0 && shape->kind < ZR_N_OP_KINDS ? kinds[shape->kind] : NULL;
}

static int64_t scratch_bytes(const zr_kern_t *kern, const zr_kern_shape_t *shape, int n_workers) {
  (void)kern;
  const zr_cpu_kind_t *kind = kind_of(shape);
  return kind == NULL || kind->scratch_bytes == NULL ? 0 : kind->scratch_bytes(shape, n_workers);
}

/* --- prepare ------------------------------------------------------------------------------------
 */

/* Types of the operands of each kind: T the compute type, the same for all; S a sum type; A one
 * that T is added to; F fp32;
 * M a state of an optimizer, fp32 or bf16; N never there; L what completes a parameter's master;
 * '.' not a matter of types.
 */
static const char *const types[ZR_N_OP_KINDS] = {
    [ZR_OP_EMBEDDING] = ".TTT",    [ZR_OP_EMBEDDING_GRAD] = ".TSS",
    [ZR_OP_LINEAR] = "TTTT",       [ZR_OP_LINEAR_GRAD_X] = "TTT",
    [ZR_OP_LINEAR_GRAD_W] = "TTS", [ZR_OP_LINEAR_GRAD_B] = "TS",
    [ZR_OP_LAYERNORM] = "TTTTF",   [ZR_OP_LAYERNORM_GRAD] = "TTFTTSS",
    [ZR_OP_RMSNORM] = "TTTF",      [ZR_OP_RMSNORM_GRAD] = "TTFTTS",
    [ZR_OP_HEAD_NORM] = "TTTF",    [ZR_OP_HEAD_NORM_GRAD] = "TTFTTS",
    [ZR_OP_ROPE] = "FT",           [ZR_OP_ROPE_TABLE] = "F",
    [ZR_OP_ATTENTION] = "TTF",     [ZR_OP_ATTENTION_GRAD] = "TTFTT",
    [ZR_OP_GELU] = "TT",           [ZR_OP_GELU_GRAD] = "TTT",
    [ZR_OP_SWIGLU] = "TTT",        [ZR_OP_SWIGLU_GRAD] = "TTTTT",
    [ZR_OP_ADD] = "TTT",           [ZR_OP_HEAD_LOSS] = "TT...TS",
    [ZR_OP_HEAD_EVAL] = "TT",      [ZR_OP_FILL] = "T",
    [ZR_OP_ACCUMULATE] = "TA",     [ZR_OP_SHARD_ADD] = "TA",
    [ZR_OP_BLOCK_NORM] = "S",      [ZR_OP_ADAMW] = "TSMM..L",
    [ZR_OP_SGD] = "TSMN..L",       [ZR_OP_LION] = "TSMN..L",
    [ZR_OP_ADAGRAD] = "TSMN..L",
};

/* Whether an operand of type class `class` may have `dtype` where the compute type is `compute`. */
static int may_have(char class, zr_dtype_t dtype, zr_dtype_t compute) {
  int half = dtype == ZR_BF16 || dtype == ZR_F16;
  switch (class) {
    case 'T':
      return (half ? dtype : ZR_F32) == compute && dtype != ZR_I16;
    case 'A':
      return dtype != ZR_I16 && (!half || compute == ZR_F32 || dtype == compute);
    case 'S':
      return dtype != ZR_I16;
    case 'M':
      return dtype == ZR_BF16 || dtype == ZR_F32;
    case 'N':
      return 0;
    case 'L':
      return compute == ZR_BF16 ? dtype == ZR_I16 : dtype == ZR_F32;
    default:
      return !half && dtype != ZR_I16;
  }
}

static zr_dtype_t compute_type(const zr_kern_shape_t *shape, const char *class) {
  const char *first = strchr(class, 'T');
  int dtype = first == NULL ? ZR_F32 : shape->dtype[first - class];
  return dtype == ZR_BF16 || dtype == ZR_F16 ? (zr_dtype_t)dtype : ZR_F32;
}

static zr_status_t check_shape(const zr_kern_shape_t *shape) {
  const zr_cpu_kind_t *kind = kind_of(shape);
  if (kind == NULL)
    return zr_fail(ZR_ERR_UNSUPPORTED, "cpu: no kernel of kind %d", (int)shape->kind);
  if (zr_kern_has_act(shape->kind) && (shape->attr[ZR_ACT] < 0 || shape->attr[ZR_ACT] >= ZR_N_ACTS))
    return zr_fail(ZR_ERR_UNSUPPORTED, "cpu: there is no activation %lld",
                   (long long)shape->attr[ZR_ACT]);
  const char *class = types[shape->kind] == NULL ? "" : types[shape->kind];
  zr_dtype_t compute = compute_type(shape, class);
  size_t n_classes = strlen(class);
  for (size_t i = 0; i < ZR_MAX_OPERANDS; i++) {
    zr_dtype_t dtype = (zr_dtype_t)shape->dtype[i];
    if (!(shape->present >> i & 1)) continue;
    if (!may_have(i < n_classes ? class[i] : '.', dtype, compute)) {
      return zr_fail(ZR_ERR_UNSUPPORTED, "cpu: %s in %s has no kernel for %s as operand %d",
                     kind->name, zr_dtype_name(compute), zr_dtype_name(dtype), (int)i);
    }
  }
  if (shape->kind == ZR_OP_ADAMW &&
      shape->dtype[ZR_UPDATE_STATE] != shape->dtype[ZR_UPDATE_STATE + 1])
    return zr_fail(ZR_ERR_UNSUPPORTED, "cpu: adamw has states of one type only");
  if (zr_kern_is_update(shape->kind) && compute != ZR_F32 && !(shape->present >> ZR_UPDATE_LOW & 1))
    return zr_fail(ZR_ERR_UNSUPPORTED, "cpu: %s in %s needs the rest of its master parameters",
                   kind->name, zr_dtype_name(compute));
  return ZR_OK;
}

static int same_shape(const zr_kern_shape_t *a, const zr_kern_shape_t *b) {
  return a->kind == b->kind && a->accumulate == b->accumulate && a->present == b->present &&
         memcmp(a->attr, b->attr, sizeof a->attr) == 0 &&
         memcmp(a->dtype, b->dtype, sizeof a->dtype) == 0;
}

static void destroy_prepared(zr_alloc_t *alloc, zr_cpu_prepared_t *p) {
  if (p == NULL) return;
  for (int i = 0; i < ZR_CPU_MAX_GEMMS; i++) zr_cpu_gemm_destroy(p->gemm[i]);
  zr_alloc_free(alloc, p);
}

static zr_status_t make_gemms(zr_kern_t *kern, zr_cpu_prepared_t *p) {
  zr_cpu_gemm_need_t need[ZR_CPU_MAX_GEMMS];
  int n = kind_of(&p->shape)->gemms(&p->shape, need);
  for (int i = 0; i < n; i++) {
    ZR_TRY(zr_cpu_gemm_create(kern->alloc, kern->library, kern->rows, &need[i].shape,
                              need[i].accumulate, p->n_workers, &p->gemm[i]));
  }
  return ZR_OK;
}

static zr_status_t prepare(zr_kern_t *kern, const zr_kern_shape_t *shape, int n_workers,
                           void **out_prepared) {
  ZR_TRY(check_shape(shape));
  if (n_workers < 1)
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "cpu: prepare for %d workers", n_workers);
  if (kind_of(shape)->gemms == NULL) {
    *out_prepared = NULL;
    return ZR_OK;
  }
  for (zr_cpu_prepared_t *p = kern->prepared; p != NULL; p = p->next) {
    if (p->n_workers >= n_workers && same_shape(&p->shape, shape)) {
      *out_prepared = p;
      return ZR_OK;
    }
  }
  zr_cpu_prepared_t *made = NULL;
  ZR_TRY(zr_alloc_get(kern->alloc, 1, sizeof *made, &made));
  made->shape = *shape;
  made->n_workers = n_workers;
  zr_status_t status = make_gemms(kern, made);
  if (status != ZR_OK) {
    destroy_prepared(kern->alloc, made);
    return status;
  }
  made->next = kern->prepared;
  kern->prepared = made;
  *out_prepared = made;
  return ZR_OK;
}

/* --- run ----------------------------------------------------------------------------------------
 */

static zr_status_t run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const zr_cpu_kind_t *kind = kind_of(call->shape);
  if (kind == NULL)
    return zr_fail(ZR_ERR_UNSUPPORTED, "cpu: no kernel of kind %d", (int)call->shape->kind);
  if (kind->gemms != NULL && call->prepared == NULL)
    return zr_fail(ZR_ERR_INVALID_ARGUMENT, "cpu: %s was not prepared", kind->name);
  if (kind->scratch_bytes != NULL) {
    int64_t need = kind->scratch_bytes(call->shape, zr_pool_n_workers(call->pool));
    if (need > 0 && (call->operand[kind->scratch] == NULL || call->bytes[kind->scratch] < need)) {
      return zr_fail(ZR_ERR_INVALID_ARGUMENT, "cpu: %s needs %lld bytes of scratch, not %lld",
                     kind->name, (long long)need, (long long)call->bytes[kind->scratch]);
    }
  }
  return kind->run(kern, call);
}

/* --- open and close -----------------------------------------------------------------------------
 */

static void close_kern(zr_kern_t *kern) {
  if (kern == NULL) return;
  while (kern->prepared != NULL) {
    zr_cpu_prepared_t *p = kern->prepared;
    kern->prepared = p->next;
    destroy_prepared(kern->alloc, p);
  }
  zr_cpu_library_close(kern->library);
  zr_alloc_free(kern->alloc, kern);
}

#define TABLE(text)                                                               \
  {                                                                               \
    .name = text, .scratch_bytes = scratch_bytes, .prepare = prepare, .run = run, \
    .close = close_kern                                                           \
  }

typedef struct {
  const char *name;
  zr_cpu_rows_set_t rows;
  zr_kern_ops_t ops[2]; /* without and with a library for products */
} isa_t;

static const isa_t isas[ZR_CPU_N_ISAS] = {
    [ZR_CPU_BASELINE] = {"baseline",
                         {&zr_cpu_rows_baseline, &zr_cpu_rows_bf16_baseline,
                          &zr_cpu_rows_f16_baseline},
                         {TABLE("cpu (baseline)"), TABLE("cpu (baseline, dnnl)")}},
    [ZR_CPU_AVX2] = {"avx2",
                     {&zr_cpu_rows_avx2, &zr_cpu_rows_bf16_avx2, &zr_cpu_rows_f16_avx2},
                     {TABLE("cpu (avx2)"), TABLE("cpu (avx2, dnnl)")}},
    [ZR_CPU_AVX512] = {"avx512",
                       {&zr_cpu_rows_avx512, &zr_cpu_rows_bf16_avx512, &zr_cpu_rows_f16_avx512},
                       {TABLE("cpu (avx512)"), TABLE("cpu (avx512, dnnl)")}},
};

static int machine_has(int isa) {
  __builtin_cpu_init();
  if (isa == ZR_CPU_AVX2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  if (isa == ZR_CPU_AVX512) {
    return machine_has(ZR_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  }
  return 1;
}

static zr_status_t choose_isa(const char *name, zr_cpu_isa_t *out_isa) {
  for (int isa = ZR_CPU_N_ISAS - 1; isa >= 0; isa--) {
    int wanted = strcmp(name, "auto") == 0 || strcmp(name, isas[isa].name) == 0;
    if (wanted && machine_has(isa)) {
      *out_isa = (zr_cpu_isa_t)isa;
      return ZR_OK;
    }
    if (strcmp(name, isas[isa].name) == 0) {
      return zr_fail(ZR_ERR_UNSUPPORTED,
                     "cpu: this machine lacks %s; use auto, or baseline for the same bits anywhere",
                     name);
    }
  }
  return zr_fail(ZR_ERR_UNSUPPORTED,
                 "cpu: unknown instruction set \"%s\"; use auto, avx512, avx2 or baseline", name);
}

zr_status_t zr_kern_cpu_open(zr_alloc_t *alloc, const char *isa_name, const zr_kern_ops_t **out_ops,
                             zr_kern_t **out_kern) {
  zr_cpu_isa_t isa = ZR_CPU_BASELINE;
  ZR_TRY(choose_isa(isa_name, &isa));
  zr_kern_t *kern = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *kern, &kern));
  kern->alloc = alloc;
  kern->rows = &isas[isa].rows;
  zr_status_t status = zr_cpu_library_open(alloc, isa, &kern->library);
  if (status != ZR_OK) {
    close_kern(kern);
    return status;
  }
  *out_ops = &isas[isa].ops[kern->library != NULL];
  *out_kern = kern;
  return ZR_OK;
}

/* --- shared by the kinds ------------------------------------------------------------------------
 */

zr_status_t zr_cpu_check_indices(const int32_t *index, int64_t n, int64_t low, int64_t bound) {
  for (int64_t i = 0; i < n; i++) {
    if (index[i] < low || index[i] >= bound) {
      return zr_fail(ZR_ERR_DATA, "cpu: token %d at row %lld is not below the vocabulary's %lld",
                     index[i], (long long)i, (long long)bound);
    }
  }
  return ZR_OK;
}

zr_status_t zr_cpu_check_starts(const int32_t *starts, int64_t n, int64_t seq) {
  for (int64_t t = 0; starts != NULL && t < n; t++) {
    if (starts[t] < 0 || starts[t] > t % seq) {
      return zr_fail(ZR_ERR_DATA, "cpu: the document of row %lld begins at %d, not before it",
                     (long long)t, starts[t]);
    }
  }
  return ZR_OK;
}

typedef struct {
  const zr_cpu_rows_t *rows, *out_rows;
  int64_t n_blocks, cols;
  float *part;
  void *out;
  int accumulate;
} sum_t;

enum { SUM_COLS = 512 };

static void sum_columns(void *context, int64_t task, int worker) {
  (void)worker;
  const sum_t *s = context;
  int64_t c = task * SUM_COLS, n = zr_cpu_min(SUM_COLS, s->cols - c);
  for (int64_t step = 1; step < s->n_blocks; step *= 2) {
    for (int64_t i = 0; i + step < s->n_blocks; i += 2 * step) {
      s->rows->accumulate(n, s->part + (i + step) * s->cols + c, s->part + i * s->cols + c);
    }
  }
  const float zero[SUM_COLS] = {0};
  const float *sum = s->n_blocks > 0 ? s->part + c : zero;
  void *out = zr_cpu_at(s->out_rows, s->out, c);
  (s->accumulate ? s->out_rows->round_add : s->out_rows->round)(n, sum, out);
}

void zr_cpu_sum_blocks(const zr_kern_t *kern, const zr_kern_call_t *call, int operand,
                       int64_t n_blocks, int64_t cols, float *part) {
  sum_t sum = {
      zr_cpu_rows_f32(kern),  zr_cpu_rows_of(kern, call->shape, operand), n_blocks, cols, part,
      call->operand[operand], zr_cpu_accumulates(call->shape, operand)};
  zr_parallel_for(call->pool, zr_cpu_blocks(cols, SUM_COLS), sum_columns, &sum);
}
