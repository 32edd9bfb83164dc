/* The kernel interface: the kinds of operation, what each must compute, and the table a kernel
 * backend offers.
 *
 * Floor 1. Backends (kernels/ref, kernels/cpu, later kernels/cuda) implement zr_kern_ops_t; the
 * executor calls `run` from the thread of the operation's stream; the compiler asks
 * `scratch_bytes`. A kernel allocates nothing, takes no lock, spreads work with zr_parallel_for cut
 * by shape (never by thread count), and writes every logical byte of its outputs and nothing else.
 * Same inputs, same bits: for any pool, any alignment (>= 64) and any address.
 *
 * The static facts of each kind (names, streams, accesses, cost) are in the table of
 * runtime/plan/op.h. */
#ifndef ZR_KERNELS_KERN_H
#define ZR_KERNELS_KERN_H

#include <stdint.h>

#include "runtime/base/dtype.h"
#include "runtime/base/pool.h"
#include "runtime/base/status.h"

/* T = rows = batch * seq; every matrix is row-major; "ld" is a row stride in elements (>= the row's
 * length). Operand order is the order in braces; [W] written, [A] written or accumulated, [R] read,
 * [S] scratch, [?] may be absent. "Accumulate" is out = fl(out + fl(value)): the value is complete
 * before it is added, and the gradient of a parameter, a leaf of the tree of sums, is also rounded
 * to out's type, so that it is the same number whoever adds it. Tokens are i32.
 *
 * Types. A plan has one compute type for parameters, activations and their gradients: fp32, bf16 or
 * fp16, and one sum type for parameter gradients (grad_accum_dtype): fp32 or bf16. shape.dtype[]
 * says what each operand has. Always fp32: statistics, lse, the rotary table; always f64: losses.
 * Kernels load to fp32, compute as in fp32 and round once, to nearest even, where they store;
 * a value that accumulates is rounded to the sum's type first, then added in fp32 and rounded: the
 * bits of writing it and adding it later. With bf16 parameters the fp32 master is
 * (param << 16) + low as bits, low a signed 16-bit number; fp16 keeps a whole fp32 master in low.
 */
typedef enum {
  ZR_OP_NOP = 0,

  /* --- model, forward */
  /* y[t] = table[token[t]] + pos[p], p = t % seq, or with starts t % seq - starts[t].
   * {tokens R i32 [T], table R [vocab_padded, hidden], pos R? [*, hidden], y W, starts R? i32 [T]}
   */
  ZR_OP_EMBEDDING,
  /* y = x w^T + b (w_io = 0: w is [out, in], as torch's Linear) or x w + b (w_io = 1: w is [in,
   * out], as GPT-2's Conv1D).  {x R [T, in] ldx, w R, b R? [out], y W [T, out] ldy, scratch S} */
  ZR_OP_LINEAR,
  /* y = (x - mean) rstd w + b; stats[t] = {mean, rstd}.  {x R [T, cols], w R, b R, y W, stats W [T,
     2]}; real: eps */
  ZR_OP_LAYERNORM,
  /* y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps).  {x R [T, cols], w R, y W, stats W [T]}; real:
     eps */
  ZR_OP_RMSNORM,
  /* RMSNorm of each head: y = x rstd w over the head's own columns. Rows of x have no gaps, row t
   * of y starts at y + t ldy.  {x R [T, heads, head_dim], w R [head_dim], y W [T, heads, head_dim]
   * ldy, stats W [T, heads]}; real: eps */
  ZR_OP_HEAD_NORM,
  /* Rotates n_heads heads in place, Hugging Face's layout: pairs are (i, i + head_dim / 2) of a
   * head; position = t % seq. Row t starts at x + t ldx.  inverse = 1 turns back: it is the
   * gradient. Documents of a sample need no origins of their own here: scores hold only differences
   * of positions.  {table R [seq, head_dim / 2, 2] {cos, sin}, x A(in place) [T, n_heads, head_dim]
   * ldx} */
  ZR_OP_ROPE,
  /* table[p][i] = {cos, sin}(p f_i), f_i = theta^(-2 i / head_dim) or stretched as
   * kernels/rope_frequency.h says, in double, rounded once.  {table W}; real: theta */
  ZR_OP_ROPE_TABLE,
  /* Causal softmax attention with grouped KV heads; head h uses KV head h / (n_heads / n_kv_heads).
   * qkv is [T, (n_heads + 2 n_kv_heads) head_dim]: all q heads, then k, then v, in each row. Tiled:
   * nothing of size seq x seq. lse[t, h] = log sum exp of the scaled scores. With starts, row t of
   * a sample sees the keys of rows starts[t] .. t; 0 <= starts[t] <= t, or it is an error.
   * With a window, of those only its own and the window - 1 before it.
   * {qkv R, y W [T, n_heads head_dim], lse W [T, n_heads], starts R? i32 [T], scratch S}; real:
   * scale */
  ZR_OP_ATTENTION,
  /* y = act(x), its own being gelu_tanh: GPT-2's gelu_new.  {x R [elems], y W} */
  ZR_OP_GELU,
  /* y = act(gate) up, its own being silu.  {gate R [elems], up R, y W} */
  ZR_OP_SWIGLU,
  /* y = a + b.  {a R [elems], b R, y W} */
  ZR_OP_ADD,

  /* --- head: linear + cross-entropy in chunks of `chunk` rows; logits never whole */
  /* logits = x w^T, w [vocab_padded, hidden], columns >= vocab masked; loss[t] = lse -
   * logit[target], 0 where target < 0 (not counted).  Gradients of (sum of losses) *
   * ctl->inv_tokens at once, while the chunk's logits are warm. {x R [T, hidden], w R, targets R
   * i32 [T], ctl R, loss W f64 [T], dx W [T, hidden], dw A [vocab_padded, hidden], scratch S} */
  ZR_OP_HEAD_LOSS,
  /* The same without gradients.  {x R, w R, targets R, loss W f64 [T], scratch S} */
  ZR_OP_HEAD_EVAL,

  /* --- model, backward (gradient rules in runtime/plan/op.c name these) */
  /* dtable[v] = sum of dy[t] over token[t] = v in increasing t, starting from +0; dpos[p] likewise
   * over the rows at position p (positions that none has are +0).  Every row is written (or added).
   * {tokens R, dy R [T, hidden], dtable A, dpos A? [pos_rows, hidden], starts R? i32 [T], scratch
   * S}
   */
  ZR_OP_EMBEDDING_GRAD,
  ZR_OP_LINEAR_GRAD_X, /* dx = dy w (or dy w^T).  {dy R [T, out] ldy, w R, dx A [T, in] ldx, scratch
                          S} */
  ZR_OP_LINEAR_GRAD_W, /* dw = dy^T x (w_io = 1: x^T dy).  {x R [T, in] ldx, dy R [T, out] ldy, dw
                          A, scratch S} */
  ZR_OP_LINEAR_GRAD_B, /* db = sum over rows of dy, fixed blocks of rows and fixed tree.  {dy R ldy,
                          db A [out], scratch S} */
  ZR_OP_LAYERNORM_GRAD, /* {x R, w R, stats R, dy R, dx A, dw A, db A, scratch S} */
  ZR_OP_RMSNORM_GRAD,   /* {x R, w R, stats R, dy R, dx A, dw A, scratch S} */
  ZR_OP_HEAD_NORM_GRAD, /* {x R, w R, stats R, dy R ldy, dx A, dw A, scratch S} */
  ZR_OP_ATTENTION_GRAD, /* {qkv R, y R, lse R, dy R, dqkv W, starts R? i32 [T], scratch S};
                           probabilities recomputed from lse */
  ZR_OP_GELU_GRAD,      /* {x R, dy R, dx W} */
  ZR_OP_SWIGLU_GRAD,    /* {gate R, up R, dy R, dgate W, dup W} */

  /* --- the step --- */
  /* Tokens of one micro-batch (index `micro` of this rank's G) from the data source the executor
   * was given. starts[t]: the row of its sample in which row t's document begins.
   * {tokens W i32 [T], targets W i32 [T], starts W? i32 [T]}: not a kernel, the executor's */
  ZR_OP_FETCH,
  /* ctl->count_local += number of targets >= 0.  {targets R [T], ctl A} */
  ZR_OP_COUNT,
  /* ctl->loss += sum of loss[0 .. rows), each row added exactly.  {loss R f64 [T], ctl A} */
  ZR_OP_LOSS_SUM,
  ZR_OP_CONTROL_BEGIN,  /* first of a step: clears the accumulators.  {ctl A}; see kernels/control.h
                         */
  ZR_OP_CONTROL_COUNT,  /* after the count's all-reduce: inv_tokens.  {ctl A} */
  ZR_OP_CONTROL_UPDATE, /* after the norm's all-reduce: norm, clip, skip, learning rate, bias
                           corrections.  {ctl A} */
  ZR_OP_CONTROL_END,    /* after the digests' all-reduce: writes the step's record.  {ctl A} */
  ZR_OP_FILL,           /* every byte of dst = the fp32 `value`.  {dst W [elems]}; real: value */
  ZR_OP_ACCUMULATE,     /* dst = dst + src.  {src R [elems], dst A} */
  ZR_OP_SHARD_ADD, /* the same on the comm stream: the tree over groups.  {src R [elems], dst A} */
  /* ctl->norm += exact sum over blocks of 1,024 elements of (sum of squares in double, fixed
   * order); logical elements only: padding is zero in g.  {g R [elems, a multiple of 1024], ctl A}
   */
  ZR_OP_BLOCK_NORM,
  /* AdamW as torch.optim.AdamW defines it, fused with unscale and clip, predicated on ctl->skip.
   * Element i of the operands is flat element first + ctl->rank * first_per_rank + i; `layout`
   * (zr_kern_layout_t) says which tensor that is: whether it decays, and its digest key.  Digests
   * (if ctl->digest) and n_bad_params only of the flat elements [ctl->rank * shard, (ctl->rank + 1)
   * * shard), so that each logical element is counted once over the ranks. {param A, g R, exp_avg
   * A, exp_avg_sq A, layout R, ctl A, low A?} */
  ZR_OP_ADAMW,
  /* The same for the other optimizers (kernels/optimizer.h has their formulas): the operands stand
   * where AdamW's do, a state that they have no use for is absent. A state of any of them may be
   * bf16: it is rounded stochastically (optimizer.h) where it is stored.
   * {param A, g R, momentum_buffer A?, none A?, layout R, ctl A, low A?}; no buffer: no momentum */
  ZR_OP_SGD,
  ZR_OP_LION,    /* {param A, g R, exp_avg A, none A?, layout R, ctl A, low A?} */
  ZR_OP_ADAGRAD, /* {param A, g R, sum A, none A?, layout R, ctl A, low A?} */

  /* --- collectives: executed by comm.h's backend, not by kernels */
  ZR_OP_ALL_GATHER, /* flat[r] = shard of rank r.  shard may be flat[rank] itself.  {shard R, flat
                       W, scratch S?} */
  ZR_OP_REDUCE_SCATTER, /* shard (+)= tree sum over ranks of flat[rank].  {flat R, shard A, scratch
                           S} */
  ZR_OP_ALL_REDUCE,     /* int64 sums in place.  {data A i64, scratch S} */
  ZR_OP_BROADCAST,      /* {data A}; root: rank 0 */
  ZR_OP_BARRIER,        /* {} */

  /* --- copies between tiers: executed by the executor and the tiers' backends */
  ZR_OP_H2D,        /* host to device.  {src R, dst W} */
  ZR_OP_D2H,        /* device to host.  {src R, dst W} */
  ZR_OP_DISK_READ,  /* disk to host.  {src R, dst W} */
  ZR_OP_DISK_WRITE, /* host to disk.  {src R, dst W} */

  ZR_N_OP_KINDS
} zr_op_kind_t;

/* gelu_tanh = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), gelu_erf = x (1 + erf(x / sqrt 2))
 * / 2, silu = x / (1 + e^-x), relu = max(x, 0), of slope 0 at 0. */
typedef enum {
  ZR_ACT_OWN = 0, /* of the kind */
  ZR_ACT_GELU_TANH,
  ZR_ACT_GELU_ERF,
  ZR_ACT_SILU,
  ZR_ACT_RELU,
  ZR_N_ACTS
} zr_act_t;

/* Names of the integer attributes of each kind: positions in attr[]. The same names, lower case,
 * are the text form's. */
enum {
  ZR_EMBEDDING_ROWS,
  ZR_EMBEDDING_HIDDEN,
  ZR_EMBEDDING_VOCAB,
  ZR_EMBEDDING_SEQ,
  ZR_EMBEDDING_POS_ROWS
};
/* ZR_EMBEDDING_VOCAB is the padded number of rows of the table; both embedding kinds share these.
 */
enum {
  ZR_LINEAR_ROWS,
  ZR_LINEAR_IN,
  ZR_LINEAR_OUT,
  ZR_LINEAR_LDX,
  ZR_LINEAR_LDY,
  ZR_LINEAR_W_IO
};                                   /* and all its gradients */
enum { ZR_NORM_ROWS, ZR_NORM_COLS }; /* layernorm, rmsnorm, gradients */
enum { ZR_ROPE_ROWS, ZR_ROPE_SEQ, ZR_ROPE_HEADS, ZR_ROPE_HEAD_DIM, ZR_ROPE_LDX, ZR_ROPE_INVERSE };
/* rope_table: at ZR_ROPE_SEQ and ZR_ROPE_HEAD_DIM what they say, and how it is stretched. */
enum {
  ZR_ROPE_TABLE_FACTOR = ZR_ROPE_ROWS,      /* bits of a double; 0: not stretched */
  ZR_ROPE_TABLE_LOW_FREQ = ZR_ROPE_HEADS,   /* bits of a double */
  ZR_ROPE_TABLE_HIGH_FREQ = ZR_ROPE_LDX,    /* bits of a double */
  ZR_ROPE_TABLE_ORIGINAL = ZR_ROPE_INVERSE, /* positions before; 0: linear */
};
enum {
  ZR_HEAD_NORM_ROWS,
  ZR_HEAD_NORM_HEADS,
  ZR_HEAD_NORM_HEAD_DIM,
  ZR_HEAD_NORM_LDY
}; /* and its gradient */
enum {
  ZR_ATTENTION_BATCH,
  ZR_ATTENTION_SEQ,
  ZR_ATTENTION_HEADS,
  ZR_ATTENTION_KV_HEADS,
  ZR_ATTENTION_HEAD_DIM,
  ZR_ATTENTION_WINDOW /* keys that a query sees; 0: all up to its own */
};
enum {
  ZR_ELEMS,
  ZR_ACT
}; /* gelu, swiglu, add, their gradients, fill, accumulate, block_norm; of
      gelu, swiglu and their gradients also a zr_act_t */
enum { ZR_HEAD_ROWS, ZR_HEAD_HIDDEN, ZR_HEAD_VOCAB, ZR_HEAD_VOCAB_PADDED, ZR_HEAD_CHUNK };
enum { ZR_FETCH_MICRO, ZR_FETCH_ROWS };
enum { ZR_ROWS }; /* count, loss_sum */
/* and the other optimizers */
enum { ZR_ADAMW_ELEMS, ZR_ADAMW_FIRST, ZR_ADAMW_FIRST_PER_RANK, ZR_ADAMW_SHARD };
enum { ZR_COPY_BYTES }; /* copies between tiers; of a disk's a multiple of 4096 */
enum {
  ZR_COMM_SHARD_BYTES
}; /* all_gather, reduce_scatter; all_reduce and broadcast: bytes in all */

/* Operands of every optimizer; at most ZR_MAX_STATES states from ZR_UPDATE_STATE on. */
enum {
  ZR_UPDATE_PARAM,
  ZR_UPDATE_GRAD,
  ZR_UPDATE_STATE,
  ZR_UPDATE_LAYOUT = 4,
  ZR_UPDATE_CTL,
  ZR_UPDATE_LOW,
  ZR_MAX_STATES = 2
};

static inline int zr_kern_is_update(int32_t kind) {
  return kind >= ZR_OP_ADAMW && kind <= ZR_OP_ADAGRAD;
}

static inline int zr_kern_has_act(int32_t kind) {
  return kind == ZR_OP_GELU || kind == ZR_OP_GELU_GRAD || kind == ZR_OP_SWIGLU ||
         kind == ZR_OP_SWIGLU_GRAD;
}

/* A copy between tiers. */
static inline int zr_kern_is_copy(int32_t kind) {
  return kind >= ZR_OP_H2D && kind <= ZR_OP_DISK_WRITE;
}

enum { ZR_MAX_OPERANDS = 8, ZR_MAX_ATTRS = 6, ZR_BLOCK_ELEMS = 1024, ZR_FLAT_ALIGN_ELEMS = 64 };

/* One tensor's place in a flat, as the optimizer sees it; sorted by begin. Gaps are padding. */
typedef struct {
  int64_t begin, end;     /* flat elements, end exclusive: logical elements only */
  uint64_t digest_key[3]; /* of the parameter and its states (base/digest.h) */
  int64_t decays;         /* 0 or 1 */
} zr_kern_tensor_t;

typedef struct {
  int64_t n_tensors;
  zr_kern_tensor_t tensor[]; /* [n_tensors] */
} zr_kern_layout_t;

/* What a kernel is asked to do, apart from addresses: enough to size scratch and to build
 * primitives. */
typedef struct {
  int32_t kind;        /* zr_op_kind_t */
  uint32_t accumulate; /* bit i: operand i is added to instead of overwritten */
  int64_t attr[ZR_MAX_ATTRS];
  double real;                    /* eps, theta, scale or value */
  uint8_t dtype[ZR_MAX_OPERANDS]; /* zr_dtype_t; of an absent operand: ZR_U8 */
  uint8_t present;                /* bit i: operand i is there */
} zr_kern_shape_t;

typedef struct {
  const zr_kern_shape_t *shape;
  void *operand[ZR_MAX_OPERANDS]; /* NULL where absent; 64-byte aligned unless a ld or an offset
                                     says otherwise (>= 4) */
  int64_t bytes[ZR_MAX_OPERANDS];
  void *prepared;  /* what `prepare` gave for this shape */
  zr_pool_t *pool; /* NULL: run on the calling thread */
} zr_kern_call_t;

/* The activation of a shape that has one: never ZR_ACT_OWN. */
static inline int zr_kern_act(const zr_kern_shape_t *shape) {
  int gelu = shape->kind == ZR_OP_GELU || shape->kind == ZR_OP_GELU_GRAD;
  int own = gelu ? ZR_ACT_GELU_TANH : ZR_ACT_SILU;
  return shape->attr[ZR_ACT] == ZR_ACT_OWN ? own : (int)shape->attr[ZR_ACT];
}

typedef struct zr_kern_t zr_kern_t; /* a backend's state */

/* The table of a kernel backend. All slots required. */
typedef struct {
  const char *name; /* "ref", "cpu (avx512, dnnl)" */
  /* Bytes of scratch the shape needs with `n_workers` workers; 0: none. Scratch comes 64-byte
   * aligned, undefined. */
  int64_t (*scratch_bytes)(const zr_kern_t *kern, const zr_kern_shape_t *shape, int n_workers);
  /* Before the first step: builds primitives for the shape. Equal shapes share one. *out_prepared
   * may be NULL. Owned by the backend until close. ZR_ERR_UNSUPPORTED names kind and type. */
  zr_status_t (*prepare)(zr_kern_t *kern, const zr_kern_shape_t *shape, int n_workers,
                         void **out_prepared) ZR_MUST_CHECK;
  zr_status_t (*run)(zr_kern_t *kern, const zr_kern_call_t *call) ZR_MUST_CHECK;
  void (*close)(zr_kern_t *kern); /* NULL is fine */
} zr_kern_ops_t;

/* Backends. `isa`: "auto", "avx512", "avx2", "baseline": bits of model kernels may differ between
 * them (a numeric option); the optimizer, block norm, accumulate and loss sum give the same bits in
 * all of them and in ref. */
zr_status_t zr_kern_cpu_open(zr_alloc_t *alloc, const char *isa, const zr_kern_ops_t **out_ops,
                             zr_kern_t **out_kern) ZR_MUST_CHECK;
/* The oracle: plain loops. dtype ZR_F32 or ZR_F64: in F64 every fp32 operand is a double instead
 * (gradient checks). */
zr_status_t zr_kern_ref_open(zr_alloc_t *alloc, zr_dtype_t dtype, const zr_kern_ops_t **out_ops,
                             zr_kern_t **out_kern) ZR_MUST_CHECK;

#endif
