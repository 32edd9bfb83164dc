/* The families' recording functions, and the few words they are written in. Private to
 * runtime/model. */
#ifndef ZR_MODEL_ARCH_H
#define ZR_MODEL_ARCH_H

#include "runtime/model/model.h"

void zr_arch_gpt2_record(zr_tape_t *tape, const zr_model_config_t *config,
                         const zr_model_run_t *run);
void zr_arch_llama_record(zr_tape_t *tape, const zr_model_config_t *config,
                          const zr_model_run_t *run);

/* Each records one operation and returns its output; rows T = micro_batch * seq_len. */
typedef struct {
  zr_tape_t *tape;
  const zr_model_config_t *config;
  const zr_model_run_t *run;
  int64_t rows;
  int64_t window; /* of attention in the layer being recorded; 0: none */
} zr_recorder_t;

int32_t zr_arch_embedding(zr_recorder_t *a, int32_t table,
                          int32_t positions); /* positions -1: none */
/* y [T, out] (a new value) = x w^T + b; w_io as kern.h. bias -1: none. */
int32_t zr_arch_linear(zr_recorder_t *a, const char *name, int32_t x, int64_t in, int64_t out,
                       int32_t weight, int32_t bias, int w_io);
/* The same into columns [column, column + out) of y, whose rows have ldy elements. */
void zr_arch_linear_into(zr_recorder_t *a, int32_t x, int64_t in, int64_t out, int32_t weight,
                         int32_t bias, int w_io, int32_t y, int64_t column, int64_t ldy);
int32_t zr_arch_layernorm(zr_recorder_t *a, const char *name, int32_t x, int32_t weight,
                          int32_t bias);
int32_t zr_arch_rmsnorm(zr_recorder_t *a, const char *name, int32_t x, int32_t weight);
/* RMSNorm of each head of x [T, heads, head_dim], into columns from `column` on of y with rows of
 * ldy. */
void zr_arch_head_norm_into(zr_recorder_t *a, const char *name, int32_t x, int64_t heads,
                            int32_t weight, int32_t y, int64_t column, int64_t ldy);
void zr_arch_rope(zr_recorder_t *a, int32_t qkv); /* q and k heads, in place */
int32_t zr_arch_attention(zr_recorder_t *a, int32_t qkv);
int32_t zr_arch_unary(zr_recorder_t *a, int32_t kind, const char *name, int32_t x);
int32_t zr_arch_binary(zr_recorder_t *a, int32_t kind, const char *name, int32_t x, int32_t y);
void zr_arch_head(zr_recorder_t *a, int32_t x,
                  int32_t weight); /* loss, and in training its gradients */

#endif
