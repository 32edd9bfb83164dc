/* Block norm and AdamW: one pass over memory in fixed blocks. What they add to the control block is
 * integers (exact sums, digests, counts), so the order of tasks changes nothing. */
#include <stdatomic.h>

#include "kernels/control.h"
#include "kernels/cpu/cpu.h"

/* --- block norm ---------------------------------------------------------------------------------
 */

enum { MAX_NORM_TASKS = 64 };

typedef struct {
  const zr_cpu_rows_t *rows;
  const void *g;
  int64_t n_blocks, n_tasks;
  zr_exact_sum_t sum[MAX_NORM_TASKS];
} norm_t;

static void norm_blocks(void *context, int64_t task, int worker) {
  (void)worker;
  norm_t *n = context;
  zr_exact_sum_t sum = {0};
  int64_t end = (task + 1) * n->n_blocks / n->n_tasks;
  for (int64_t i = task * n->n_blocks / n->n_tasks; i < end; i++)
    zr_exact_add(&sum, n->rows->block_norm(zr_cpu_at_in(n->rows, n->g, i * ZR_BLOCK_ELEMS)));
  n->sum[task] = sum;
}

static zr_status_t block_norm_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  norm_t n;
  n.rows = zr_cpu_rows_of(kern, call->shape, 0);
  n.g = call->operand[0];
  n.n_blocks = call->shape->attr[ZR_ELEMS] / ZR_BLOCK_ELEMS;
  n.n_tasks = zr_cpu_min(MAX_NORM_TASKS, n.n_blocks);
  zr_control_t *ctl = call->operand[1];
  zr_parallel_for(call->pool, n.n_tasks, norm_blocks, &n);
  for (int64_t i = 0; i < n.n_tasks; i++) zr_exact_merge(&ctl->norm, &n.sum[i]);
  return ZR_OK;
}

/* --- AdamW --------------------------------------------------------------------------------------
 */

enum { ADAMW_ELEMS = 16384 };

typedef struct {
  const zr_cpu_rows_t *rows;
  const zr_control_t *ctl;
  const zr_kern_layout_t *layout;
  zr_cpu_adamw_t constants[2]; /* [decays] */
  zr_cpu_type_t g_type;
  int64_t g_bytes, low_bytes; /* of an element */
  void *p;
  char *low; /* NULL: p is its own master */
  float *m, *v;
  const char *g;
  int64_t elems, first; /* element i is flat element first + i */
  int64_t own, own_end; /* flat elements whose digests this rank takes */
  _Atomic uint64_t digest[2];
  _Atomic int64_t n_bad;
} adamw_t;

/* What a task adds up before it tells the others. */
typedef struct {
  uint64_t digest[2];
  int64_t n_bad;
} account_t;

/* The first tensor that ends after flat element `flat`; n_tensors if none does. */
static int64_t tensor_after(const zr_kern_layout_t *layout, int64_t flat) {
  int64_t low = 0, high = layout->n_tensors;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (layout->tensor[middle].end > flat) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

enum { PIECE = 2048 }; /* so that a digest reads what the update has just left in the cache */

/* Flat elements [from, to), all of `tensor` (NULL: padding). master: where to copy masters, or
 * NULL. */
static int64_t update_range(const adamw_t *a, const zr_kern_tensor_t *tensor, int64_t from,
                            int64_t to, float *master) {
  int64_t i = from - a->first;
  const zr_cpu_adamw_t *c = &a->constants[tensor != NULL && tensor->decays];
  char *low = a->low == NULL ? NULL : a->low + i * a->low_bytes;
  return a->rows->adamw(c, to - from, zr_cpu_at(a->rows, a->p, i), low, a->g + i * a->g_bytes,
                        a->g_type, a->m + i, a->v + i, master);
}

static void digest_range(const adamw_t *a, const zr_kern_tensor_t *tensor, int64_t from, int64_t to,
                         const float *master, account_t *account) {
  int64_t i = from - a->first, n = to - from;
  uint64_t index = (uint64_t)(from - tensor->begin);
  if (a->ctl->digest >= 1)
    account->digest[0] += a->rows->digest(n, tensor->digest_key[0], index, master);
  if (a->ctl->digest >= 2) {
    account->digest[1] += a->rows->digest(n, tensor->digest_key[1], index, a->m + i);
    account->digest[1] += a->rows->digest(n, tensor->digest_key[2], index, a->v + i);
  }
}

/* A range that is wholly this rank's own or wholly not is accounted or not. */
static void tensor_range(const adamw_t *a, const zr_kern_tensor_t *tensor, int64_t from, int64_t to,
                         account_t *account) {
  float copy[PIECE] __attribute__((aligned(64)));
  while (from < to) {
    int64_t end = zr_cpu_min(to, from + PIECE);
    if (from < a->own) end = zr_cpu_min(end, a->own);
    if (from < a->own_end) end = zr_cpu_min(end, a->own_end);
    int mine = tensor != NULL && from >= a->own && from < a->own_end;
    float *master = mine && a->ctl->digest >= 1 && a->low != NULL ? copy : NULL;
    int64_t n_bad = update_range(a, tensor, from, end, master);
    if (mine) {
      account->n_bad += n_bad;
      if (a->low == NULL) master = (float *)a->p + (from - a->first);
      digest_range(a, tensor, from, end, master, account);
    }
    from = end;
  }
}

static void adamw_block(void *context, int64_t task, int worker) {
  (void)worker;
  adamw_t *a = context;
  account_t account = {0};
  int64_t flat = a->first + task * ADAMW_ELEMS;
  int64_t end = a->first + zr_cpu_min((task + 1) * ADAMW_ELEMS, a->elems);
  for (int64_t at = tensor_after(a->layout, flat); flat < end; at++) {
    const zr_kern_tensor_t *tensor = at < a->layout->n_tensors ? &a->layout->tensor[at] : NULL;
    int64_t begin = tensor == NULL ? end : zr_cpu_max(flat, zr_cpu_min(end, tensor->begin));
    int64_t stop = tensor == NULL ? end : zr_cpu_min(end, tensor->end);
    if (flat < begin) tensor_range(a, NULL, flat, begin, &account);
    if (begin < stop) tensor_range(a, tensor, begin, stop, &account);
    flat = zr_cpu_max(begin, stop);
  }
  for (int i = 0; i < 2; i++)
    atomic_fetch_add_explicit(&a->digest[i], account.digest[i], memory_order_relaxed);
  atomic_fetch_add_explicit(&a->n_bad, account.n_bad, memory_order_relaxed);
}

static zr_cpu_adamw_t constants_of(const zr_control_t *ctl, int decays) {
  return (zr_cpu_adamw_t){.clip_coef = ctl->clip_coef,
                          .decays = decays,
                          .decay_mul = ctl->decay_mul,
                          .step_size = ctl->step_size,
                          .inv_sqrt_bias2 = ctl->inv_sqrt_bias2,
                          .beta2 = ctl->beta2_f32,
                          .one_minus_beta1 = ctl->one_minus_beta1,
                          .one_minus_beta2 = ctl->one_minus_beta2,
                          .eps = ctl->eps_f32,
                          .l2 = (float)ctl->weight_decay,
                          .use_l2 = decays && ctl->l2};
}

static zr_status_t adamw_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  zr_control_t *ctl = call->operand[5];
  if (ctl->skip) return ZR_OK;
  zr_cpu_type_t p_type = zr_cpu_type(call->shape, 0), g_type = zr_cpu_type(call->shape, 1);
  adamw_t a = {.rows = (*kern->rows)[p_type],
               .ctl = ctl,
               .layout = call->operand[4],
               .constants = {constants_of(ctl, 0), constants_of(ctl, 1)},
               .g_type = g_type,
               .g_bytes = (*kern->rows)[g_type]->elem_bytes,
               .low_bytes = p_type == ZR_CPU_BF16 ? 2 : 4,
               .p = call->operand[0],
               .low = p_type == ZR_CPU_F32 ? NULL : call->operand[6],
               .g = call->operand[1],
               .m = call->operand[2],
               .v = call->operand[3],
               .elems = attr[ZR_ADAMW_ELEMS],
               .first = attr[ZR_ADAMW_FIRST] + ctl->rank * attr[ZR_ADAMW_FIRST_PER_RANK],
               .own = ctl->rank * attr[ZR_ADAMW_SHARD],
               .own_end = (ctl->rank + 1) * attr[ZR_ADAMW_SHARD]};
  zr_parallel_for(call->pool, zr_cpu_blocks(a.elems, ADAMW_ELEMS), adamw_block, &a);
  for (int i = 0; i < 2; i++) ctl->digest_sum[i] += a.digest[i];
  ctl->n_bad_params += a.n_bad;
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_block_norm = {"block_norm", -1, NULL, NULL, block_norm_run};
const zr_cpu_kind_t zr_cpu_adamw = {"adamw", -1, NULL, NULL, adamw_run};
