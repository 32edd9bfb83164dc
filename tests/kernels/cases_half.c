/* The cases in bf16 and fp16: every kind with odd sizes, sums of gradients in fp32 and bf16. */
#include "tests/kernels/cases.h"

/* Outputs of 16 bits: half a unit of the last place (2^-8 of bf16, 2^-11 of fp16) for the rounding,
 * and a little for a number that fp32's own error moves over a tie; a whole one or more where a
 * backend may round inside too, to use 16-bit products: probabilities, gradients of logits. */
#define BF16_ONCE 4.2e-3
#define BF16_TWICE 8e-3
#define BF16_CHAIN 2e-2
#define F16_ONCE 5.2e-4
#define F16_TWICE 1e-3
#define F16_CHAIN 2.5e-3

/* Other outputs, as in cases.c. */
#define ROWS 1e-6
#define PRODUCT 4e-6
#define CHAIN 1e-5

#define B(i) (1u << (i))
#define BF16(once) .compute = ZR_BF16, .bound_half = once
#define F16(once) .compute = ZR_F16, .bound_half = once
#define SUM_BF16 .sum = ZR_BF16

/* Kinds with bound 0 have the oracle's bits. */
const kern_case_t kern_half_cases[] = {
    {"embedding bf16", ZR_OP_EMBEDDING, 0, .attr = {24, 16, 50, 12, 12}, BF16(0)},
    {"embedding bf16 tails", ZR_OP_EMBEDDING, 0, .attr = {35, 13, 7, 5, 9}, BF16(0)},
    {"embedding bf16 no pos", ZR_OP_EMBEDDING, 0, .attr = {33, 67, 128, 11, 0}, .absent = B(2),
     BF16(0)},
    {"embedding fp16", ZR_OP_EMBEDDING, 0, .attr = {35, 13, 7, 5, 9}, F16(0)},
    {"embedding_grad bf16", ZR_OP_EMBEDDING_GRAD, ROWS, .attr = {24, 16, 50, 12, 12},
     BF16(BF16_ONCE)},
    {"embedding_grad bf16 sum", ZR_OP_EMBEDDING_GRAD, ROWS, .attr = {35, 13, 7, 5, 9},
     BF16(BF16_ONCE), SUM_BF16},
    {"embedding_grad bf16 add", ZR_OP_EMBEDDING_GRAD, ROWS, .attr = {60, 33, 300, 20, 32},
     .accumulate = B(2) | B(3), BF16(BF16_ONCE)},
    {"embedding_grad bf16 sum add", ZR_OP_EMBEDDING_GRAD, ROWS, .attr = {60, 33, 300, 20, 32},
     .accumulate = B(2) | B(3), BF16(BF16_ONCE), SUM_BF16},
    {"embedding_grad fp16", ZR_OP_EMBEDDING_GRAD, ROWS, .attr = {64, 8, 3, 32, 0}, .absent = B(3),
     F16(F16_ONCE)},

    {"linear bf16", ZR_OP_LINEAR, PRODUCT, .attr = {16, 32, 48, 32, 48, 0}, BF16(BF16_ONCE)},
    {"linear bf16 tails", ZR_OP_LINEAR, PRODUCT, .attr = {7, 13, 5, 13, 5, 0}, BF16(BF16_ONCE)},
    {"linear bf16 tails io", ZR_OP_LINEAR, PRODUCT, .attr = {7, 13, 5, 13, 5, 1}, BF16(BF16_ONCE)},
    {"linear bf16 no bias", ZR_OP_LINEAR, PRODUCT, .attr = {33, 65, 17, 65, 17, 0}, .absent = B(2),
     BF16(BF16_ONCE)},
    {"linear bf16 ld io", ZR_OP_LINEAR, PRODUCT, .attr = {19, 24, 31, 29, 70, 1},
     .offset = B(0) | B(3), BF16(BF16_ONCE)},
    {"linear bf16 one row", ZR_OP_LINEAR, PRODUCT, .attr = {1, 300, 257, 300, 257, 0},
     BF16(BF16_ONCE)},
    {"linear bf16 pieces", ZR_OP_LINEAR, PRODUCT, .attr = {530, 40, 400, 40, 400, 0},
     BF16(BF16_ONCE)},
    {"linear fp16 tails", ZR_OP_LINEAR, PRODUCT, .attr = {7, 13, 5, 13, 5, 0}, F16(F16_ONCE)},
    {"linear fp16 io", ZR_OP_LINEAR, PRODUCT, .attr = {33, 65, 17, 65, 17, 1}, F16(F16_ONCE)},
    {"linear_grad_x bf16", ZR_OP_LINEAR_GRAD_X, PRODUCT, .attr = {16, 32, 48, 32, 48, 0},
     BF16(BF16_ONCE)},
    {"linear_grad_x bf16 io add", ZR_OP_LINEAR_GRAD_X, PRODUCT, .attr = {7, 13, 5, 13, 5, 1},
     .accumulate = B(2), BF16(BF16_ONCE)},
    {"linear_grad_x bf16 ld add", ZR_OP_LINEAR_GRAD_X, PRODUCT, .attr = {19, 24, 31, 29, 70, 0},
     .accumulate = B(2), .offset = B(0) | B(2), BF16(BF16_ONCE)},
    {"linear_grad_x bf16 pieces", ZR_OP_LINEAR_GRAD_X, PRODUCT, .attr = {530, 400, 36, 400, 36, 0},
     BF16(BF16_ONCE)},
    {"linear_grad_x fp16", ZR_OP_LINEAR_GRAD_X, PRODUCT, .attr = {19, 24, 31, 29, 70, 0},
     F16(F16_ONCE)},
    {"linear_grad_w bf16", ZR_OP_LINEAR_GRAD_W, PRODUCT, .attr = {16, 32, 48, 32, 48, 0},
     BF16(BF16_ONCE)},
    {"linear_grad_w bf16 io add", ZR_OP_LINEAR_GRAD_W, PRODUCT, .attr = {7, 13, 5, 13, 5, 1},
     .accumulate = B(2), BF16(BF16_ONCE)},
    {"linear_grad_w bf16 sum", ZR_OP_LINEAR_GRAD_W, PRODUCT, .attr = {19, 24, 31, 29, 70, 0},
     .offset = B(0) | B(1), BF16(BF16_ONCE), SUM_BF16},
    {"linear_grad_w bf16 sum add", ZR_OP_LINEAR_GRAD_W, PRODUCT, .attr = {19, 24, 31, 29, 70, 1},
     .accumulate = B(2), .offset = B(0) | B(1), BF16(BF16_ONCE), SUM_BF16},
    {"linear_grad_w bf16 pieces", ZR_OP_LINEAR_GRAD_W, PRODUCT, .attr = {30, 390, 520, 390, 520, 0},
     BF16(BF16_ONCE)},
    {"linear_grad_w fp16 add", ZR_OP_LINEAR_GRAD_W, PRODUCT, .attr = {7, 13, 5, 13, 5, 0},
     .accumulate = B(2), F16(F16_ONCE)},
    {"linear_grad_w sum", ZR_OP_LINEAR_GRAD_W, PRODUCT, .attr = {19, 24, 31, 29, 70, 0},
     .bound_half = BF16_ONCE, SUM_BF16}, /* fp32 with bf16 sums */
    {"linear_grad_b bf16", ZR_OP_LINEAR_GRAD_B, PRODUCT, .attr = {77, 1, 31, 1, 70, 0},
     .offset = B(0), BF16(BF16_ONCE)},
    {"linear_grad_b bf16 sum add", ZR_OP_LINEAR_GRAD_B, PRODUCT, .attr = {300, 1, 5, 1, 5, 0},
     .accumulate = B(1), BF16(BF16_ONCE), SUM_BF16},
    {"linear_grad_b fp16 add", ZR_OP_LINEAR_GRAD_B, PRODUCT, .attr = {300, 1, 5, 1, 5, 0},
     .accumulate = B(1), F16(F16_ONCE)},

    {"layernorm bf16", ZR_OP_LAYERNORM, ROWS, .attr = {9, 32}, .real = 1e-5, BF16(BF16_ONCE)},
    {"layernorm bf16 tails", ZR_OP_LAYERNORM, ROWS, .attr = {5, 77}, .real = 1e-5, BF16(BF16_ONCE)},
    {"layernorm bf16 wide", ZR_OP_LAYERNORM, ROWS, .attr = {67, 515}, .real = 1e-6,
     BF16(BF16_ONCE)},
    {"layernorm fp16", ZR_OP_LAYERNORM, ROWS, .attr = {5, 77}, .real = 1e-5, F16(F16_ONCE)},
    {"rmsnorm bf16", ZR_OP_RMSNORM, ROWS, .attr = {5, 77}, .real = 1e-5, BF16(BF16_ONCE)},
    {"rmsnorm bf16 wide", ZR_OP_RMSNORM, ROWS, .attr = {67, 515}, .real = 1e-6, BF16(BF16_ONCE)},
    {"rmsnorm fp16", ZR_OP_RMSNORM, ROWS, .attr = {5, 77}, .real = 1e-5, F16(F16_ONCE)},
    {"layernorm_grad bf16", ZR_OP_LAYERNORM_GRAD, CHAIN, .attr = {5, 77}, .real = 1e-5,
     BF16(BF16_ONCE)},
    {"layernorm_grad bf16 add", ZR_OP_LAYERNORM_GRAD, CHAIN, .attr = {131, 45}, .real = 1e-5,
     .accumulate = B(4) | B(5) | B(6), BF16(BF16_ONCE)},
    {"layernorm_grad bf16 sum", ZR_OP_LAYERNORM_GRAD, CHAIN, .attr = {33, 65}, .real = 1e-5,
     BF16(BF16_ONCE), SUM_BF16},
    {"layernorm_grad bf16 sum add", ZR_OP_LAYERNORM_GRAD, CHAIN, .attr = {131, 45}, .real = 1e-5,
     .accumulate = B(4) | B(5) | B(6), BF16(BF16_ONCE), SUM_BF16},
    {"layernorm_grad fp16", ZR_OP_LAYERNORM_GRAD, CHAIN, .attr = {5, 77}, .real = 1e-5,
     F16(F16_ONCE)},
    {"rmsnorm_grad bf16", ZR_OP_RMSNORM_GRAD, CHAIN, .attr = {5, 77}, .real = 1e-5,
     BF16(BF16_ONCE)},
    {"rmsnorm_grad bf16 sum add", ZR_OP_RMSNORM_GRAD, CHAIN, .attr = {131, 45}, .real = 1e-6,
     .accumulate = B(4) | B(5), BF16(BF16_ONCE), SUM_BF16},
    {"rmsnorm_grad fp16 add", ZR_OP_RMSNORM_GRAD, CHAIN, .attr = {33, 65}, .real = 1e-6,
     .accumulate = B(5), F16(F16_ONCE)},

    {"rope bf16", ZR_OP_ROPE, 0, .attr = {12, 6, 4, 8, 32, 0}, BF16(BF16_ONCE)},
    {"rope bf16 ld inverse", ZR_OP_ROPE, 0, .attr = {21, 7, 3, 10, 55, 1}, .offset = B(1),
     BF16(BF16_ONCE)},
    {"rope fp16", ZR_OP_ROPE, 0, .attr = {66, 33, 2, 64, 256, 0}, F16(F16_ONCE)},

    {"attention bf16", ZR_OP_ATTENTION, PRODUCT, .attr = {2, 8, 4, 4, 8}, .real = 0.35355339059,
     BF16(BF16_TWICE)},
    {"attention bf16 grouped", ZR_OP_ATTENTION, PRODUCT, .attr = {2, 13, 6, 2, 16}, .real = 0.25,
     BF16(BF16_TWICE)},
    {"attention bf16 one", ZR_OP_ATTENTION, PRODUCT, .attr = {1, 1, 1, 1, 2}, .real = 1,
     BF16(BF16_TWICE)},
    {"attention bf16 tiles", ZR_OP_ATTENTION, PRODUCT, .attr = {1, 131, 2, 1, 64}, .real = 0.125,
     BF16(BF16_TWICE)},
    {"attention bf16 sharp", ZR_OP_ATTENTION, 1e-4, .attr = {1, 70, 2, 2, 12}, .real = 40,
     BF16(BF16_TWICE)},
    {"attention fp16", ZR_OP_ATTENTION, PRODUCT, .attr = {1, 33, 3, 1, 10}, .real = 1,
     F16(F16_TWICE)},
    {"attention_grad bf16", ZR_OP_ATTENTION_GRAD, 0, .attr = {2, 8, 4, 4, 8}, .real = 0.35355339059,
     BF16(BF16_CHAIN)},
    {"attention_grad bf16 grouped", ZR_OP_ATTENTION_GRAD, 0, .attr = {2, 13, 6, 2, 16},
     .real = 0.25, BF16(BF16_CHAIN)},
    {"attention_grad bf16 tiles", ZR_OP_ATTENTION_GRAD, 0, .attr = {1, 131, 2, 1, 64},
     .real = 0.125, BF16(BF16_CHAIN)},
    {"attention_grad fp16", ZR_OP_ATTENTION_GRAD, 0, .attr = {1, 33, 3, 1, 10}, .real = 1,
     F16(F16_CHAIN)},

    {"gelu bf16", ZR_OP_GELU, 0, .attr = {1003}, BF16(BF16_ONCE)},
    {"gelu bf16 empty", ZR_OP_GELU, 0, .attr = {0}, BF16(BF16_ONCE)},
    {"gelu bf16 blocks", ZR_OP_GELU, 0, .attr = {70001}, BF16(BF16_ONCE)},
    {"gelu fp16", ZR_OP_GELU, 0, .attr = {37}, F16(F16_ONCE)},
    {"gelu_grad bf16", ZR_OP_GELU_GRAD, 0, .attr = {1003}, BF16(BF16_ONCE)},
    {"gelu_grad fp16", ZR_OP_GELU_GRAD, 0, .attr = {37}, F16(F16_ONCE)},
    {"swiglu bf16", ZR_OP_SWIGLU, 0, .attr = {1005}, BF16(BF16_ONCE)},
    {"swiglu fp16", ZR_OP_SWIGLU, 0, .attr = {7}, F16(F16_ONCE)},
    {"swiglu_grad bf16", ZR_OP_SWIGLU_GRAD, 0, .attr = {1005}, BF16(BF16_ONCE)},
    {"swiglu_grad fp16", ZR_OP_SWIGLU_GRAD, 0, .attr = {37}, F16(F16_ONCE)},
    {"add bf16", ZR_OP_ADD, 0, .attr = {1007}, BF16(0)},
    {"add bf16 empty", ZR_OP_ADD, 0, .attr = {0}, BF16(0)},
    {"add fp16", ZR_OP_ADD, 0, .attr = {1007}, F16(0)},

    /* dw of fp32 from gradients of logits that may have been rounded; the loss is bounded by
     * head_eval */
    {"head_loss bf16", ZR_OP_HEAD_LOSS, BF16_TWICE, .attr = {16, 24, 50, 64, 8}, BF16(BF16_TWICE)},
    {"head_loss bf16 tails", ZR_OP_HEAD_LOSS, BF16_TWICE, .attr = {13, 17, 50, 50, 5},
     BF16(BF16_TWICE)},
    {"head_loss bf16 add", ZR_OP_HEAD_LOSS, BF16_TWICE, .attr = {29, 32, 301, 320, 8},
     .accumulate = B(6), BF16(BF16_TWICE)},
    {"head_loss bf16 sum", ZR_OP_HEAD_LOSS, CHAIN, .attr = {13, 17, 50, 50, 5}, BF16(BF16_CHAIN),
     SUM_BF16},
    {"head_loss bf16 sum add", ZR_OP_HEAD_LOSS, CHAIN, .attr = {9, 12, 31, 64, 100},
     .accumulate = B(6), BF16(BF16_CHAIN), SUM_BF16},
    {"head_loss bf16 pieces", ZR_OP_HEAD_LOSS, BF16_TWICE, .attr = {70, 24, 1100, 1152, 64},
     BF16(BF16_TWICE)},
    {"head_loss fp16", ZR_OP_HEAD_LOSS, F16_TWICE, .attr = {13, 17, 50, 50, 5}, F16(F16_TWICE)},
    {"head_eval bf16", ZR_OP_HEAD_EVAL, CHAIN, .attr = {13, 17, 1030, 1030, 5}, BF16(0)},
    {"head_eval fp16", ZR_OP_HEAD_EVAL, CHAIN, .attr = {16, 24, 50, 64, 8}, F16(0)},

    {"fill bf16", ZR_OP_FILL, 0, .attr = {1003}, .real = 0.1, BF16(0)},
    {"fill fp16", ZR_OP_FILL, 0, .attr = {37}, .real = 0.1, F16(0)},
    {"accumulate bf16", ZR_OP_ACCUMULATE, 0, .attr = {1011}, .accumulate = B(1), BF16(0), SUM_BF16},
    {"accumulate bf16 blocks", ZR_OP_ACCUMULATE, 0, .attr = {70001}, .accumulate = B(1), BF16(0),
     SUM_BF16},
    {"accumulate bf16 in fp32", ZR_OP_ACCUMULATE, 0, .attr = {1011}, .accumulate = B(1), BF16(0)},
    {"accumulate fp16", ZR_OP_ACCUMULATE, 0, .attr = {1011}, .accumulate = B(1), F16(0),
     .sum = ZR_F16},
    {"shard_add bf16", ZR_OP_SHARD_ADD, 0, .attr = {2051}, .accumulate = B(1), BF16(0), SUM_BF16},
    {"block_norm bf16", ZR_OP_BLOCK_NORM, 0, .attr = {67 * 1024}, SUM_BF16},
    {"block_norm bf16 empty", ZR_OP_BLOCK_NORM, 0, .attr = {0}, SUM_BF16},

    {"adamw bf16 stage 0", ZR_OP_ADAMW, 0, .attr = {8192, 0, 0, 2048}, BF16(0)},
    {"adamw bf16 sum", ZR_OP_ADAMW, 0, .attr = {2048, 0, 2048, 2048}, BF16(0), SUM_BF16},
    {"adamw bf16 odd", ZR_OP_ADAMW, 0, .attr = {777, 333, 1024, 1024}, BF16(0)},
    {"adamw bf16 long", ZR_OP_ADAMW, 0, .attr = {70 * 1024, 0, 0, 18 * 1024}, BF16(0), SUM_BF16},
    {"adamw bf16 l2", ZR_OP_ADAMW, 0, .attr = {2048, 0, 2048, 2048}, .control = KERN_CTL_L2,
     BF16(0)},
    {"adamw bf16 skip", ZR_OP_ADAMW, 0, .attr = {2048, 0, 2048, 2048}, .control = KERN_CTL_SKIP,
     BF16(0)},
    {"adamw bf16 bad", ZR_OP_ADAMW, 0, .attr = {8192, 0, 0, 2048}, .control = KERN_CTL_BAD_PARAMS,
     BF16(0)},
    {"adamw bf16 empty", ZR_OP_ADAMW, 0, .attr = {0, 0, 0, 1024}, BF16(0)},
    {"adamw fp16", ZR_OP_ADAMW, 0, .attr = {8192, 0, 0, 2048}, F16(0)},
    {"adamw fp16 odd", ZR_OP_ADAMW, 0, .attr = {777, 333, 1024, 1024}, F16(0), SUM_BF16},
    {"adamw fp16 bad", ZR_OP_ADAMW, 0, .attr = {8192, 0, 0, 2048}, .control = KERN_CTL_BAD_PARAMS,
     F16(0)},
    {"adamw sum", ZR_OP_ADAMW, 0, .attr = {2048, 0, 2048, 2048}, SUM_BF16}, /* fp32, bf16 sums */
};

const int kern_n_half_cases = (int)(sizeof kern_half_cases / sizeof kern_half_cases[0]);
