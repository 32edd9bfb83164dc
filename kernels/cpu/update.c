/* Block norm and optimizers: one pass over memory in fixed blocks. What they add to the control
 * block is integers (exact sums, digests, counts), so the order of tasks changes nothing. */
#include <stdatomic.h>

#include "kernels/control.h"
#include "kernels/cpu/cpu.h"
#include "kernels/optimizer.h"

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

/* --- optimizers ---------------------------------------------------------------------------------
 */

enum { UPDATE_ELEMS = 16384 };

typedef struct {
  const zr_cpu_rows_t *rows;
  const zr_control_t *ctl;
  const zr_kern_layout_t *layout;
  zr_cpu_update_t constants[2]; /* [decays] */
  zr_cpu_type_t g_type;
  int64_t g_bytes, low_bytes, state_bytes; /* of an element */
  void *p;
  char *low; /* NULL: p is its own master */
  char *state[ZR_MAX_STATES];
  const char *g;
  int64_t elems, first; /* element i is flat element first + i */
  int64_t own, own_end; /* flat elements whose digests this rank takes */
  _Atomic uint64_t digest[2];
  _Atomic int64_t n_bad;
} update_t;

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

/* Copies of what digests see of a piece, where the operands themselves are not that. */
typedef struct {
  float master[PIECE], state[ZR_MAX_STATES][PIECE];
} copies_t;

static void *at(char *base, int64_t i, int64_t bytes) {
  return base == NULL ? NULL : base + i * bytes;
}

/* Operands of flat elements from `from` on, all of `tensor` (NULL: padding). */
static zr_cpu_update_range_t range_at(const update_t *u, const zr_kern_tensor_t *tensor,
                                      int64_t from) {
  int64_t i = from - u->first;
  zr_cpu_update_range_t r = {.p = zr_cpu_at(u->rows, u->p, i),
                             .low = at(u->low, i, u->low_bytes),
                             .g = u->g + i * u->g_bytes,
                             .g_type = u->g_type,
                             .half_states = u->state_bytes == 2};
  for (int k = 0; k < ZR_MAX_STATES; k++) r.state[k] = at(u->state[k], i, u->state_bytes);
  if (tensor == NULL || !r.half_states) return r;
  r.round_key = zr_state_round_key(u->ctl->seed, tensor->digest_key[1], u->ctl->step);
  r.index = (uint64_t)(from - tensor->begin);
  return r;
}

static void see_copies(const update_t *u, zr_cpu_update_range_t *r, copies_t *copies) {
  if (u->ctl->digest >= 1 && u->low != NULL) r->master = copies->master;
  for (int k = 0; u->ctl->digest >= 2 && r->half_states && k < ZR_MAX_STATES; k++)
    r->seen[k] = copies->state[k];
}

static void digest_range(const update_t *u, const zr_kern_tensor_t *tensor, int64_t from,
                         int64_t to, const zr_cpu_update_range_t *r, account_t *account) {
  int64_t n = to - from;
  uint64_t index = (uint64_t)(from - tensor->begin);
  const float *master = r->master == NULL ? r->p : r->master;
  if (u->ctl->digest >= 1)
    account->digest[0] += u->rows->digest(n, tensor->digest_key[0], index, master);
  for (int k = 0; u->ctl->digest >= 2 && k < ZR_MAX_STATES; k++) {
    const float *state = r->half_states ? r->seen[k] : r->state[k];
    if (r->state[k] != NULL)
      account->digest[1] += u->rows->digest(n, tensor->digest_key[1 + k], index, state);
  }
}

/* A range that is wholly this rank's own or wholly not is accounted or not. */
static void tensor_range(const update_t *u, const zr_kern_tensor_t *tensor, int64_t from,
                         int64_t to, account_t *account) {
  copies_t copies __attribute__((aligned(64)));
  const zr_cpu_update_t *c = &u->constants[tensor != NULL && tensor->decays];
  while (from < to) {
    int64_t end = zr_cpu_min(to, from + PIECE);
    if (from < u->own) end = zr_cpu_min(end, u->own);
    if (from < u->own_end) end = zr_cpu_min(end, u->own_end);
    int mine = tensor != NULL && from >= u->own && from < u->own_end;
    zr_cpu_update_range_t r = range_at(u, tensor, from);
    if (mine) see_copies(u, &r, &copies);
    int64_t n_bad = u->rows->update(c, end - from, &r);
    if (mine) {
      account->n_bad += n_bad;
      digest_range(u, tensor, from, end, &r, account);
    }
    from = end;
  }
}

static void update_block(void *context, int64_t task, int worker) {
  (void)worker;
  update_t *u = context;
  account_t account = {0};
  int64_t flat = u->first + task * UPDATE_ELEMS;
  int64_t end = u->first + zr_cpu_min((task + 1) * UPDATE_ELEMS, u->elems);
  for (int64_t i = tensor_after(u->layout, flat); flat < end; i++) {
    const zr_kern_tensor_t *tensor = i < u->layout->n_tensors ? &u->layout->tensor[i] : NULL;
    int64_t begin = tensor == NULL ? end : zr_cpu_max(flat, zr_cpu_min(end, tensor->begin));
    int64_t stop = tensor == NULL ? end : zr_cpu_min(end, tensor->end);
    if (flat < begin) tensor_range(u, NULL, flat, begin, &account);
    if (begin < stop) tensor_range(u, tensor, begin, stop, &account);
    flat = zr_cpu_max(begin, stop);
  }
  for (int i = 0; i < 2; i++)
    atomic_fetch_add_explicit(&u->digest[i], account.digest[i], memory_order_relaxed);
  atomic_fetch_add_explicit(&u->n_bad, account.n_bad, memory_order_relaxed);
}

static zr_cpu_update_t constants_of(int32_t kind, const zr_control_t *ctl, int decays) {
  return (zr_cpu_update_t){.kind = kind,
                           .clip_coef = ctl->clip_coef,
                           .decays = decays,
                           .decay_mul = ctl->decay_mul,
                           .step_size = ctl->step_size,
                           .inv_sqrt_bias2 = ctl->inv_sqrt_bias2,
                           .beta2 = ctl->beta2_f32,
                           .one_minus_beta1 = ctl->one_minus_beta1,
                           .one_minus_beta2 = ctl->one_minus_beta2,
                           .eps = ctl->eps_f32,
                           .momentum = ctl->momentum_f32,
                           .gain = ctl->gain,
                           .nesterov = ctl->nesterov != 0,
                           .l2 = (float)ctl->weight_decay,
                           .use_l2 = decays && ctl->l2};
}

static zr_status_t update_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  const int64_t *attr = call->shape->attr;
  int32_t kind = call->shape->kind;
  zr_control_t *ctl = call->operand[ZR_UPDATE_CTL];
  if (ctl->skip) return ZR_OK;
  zr_cpu_type_t p_type = zr_cpu_type(call->shape, ZR_UPDATE_PARAM);
  zr_cpu_type_t g_type = zr_cpu_type(call->shape, ZR_UPDATE_GRAD);
  void *const *state = &call->operand[ZR_UPDATE_STATE];
  update_t u = {.rows = (*kern->rows)[p_type],
                .ctl = ctl,
                .layout = call->operand[ZR_UPDATE_LAYOUT],
                .constants = {constants_of(kind, ctl, 0), constants_of(kind, ctl, 1)},
                .g_type = g_type,
                .g_bytes = (*kern->rows)[g_type]->elem_bytes,
                .low_bytes = p_type == ZR_CPU_BF16 ? 2 : 4,
                .state_bytes = call->shape->dtype[ZR_UPDATE_STATE] == ZR_BF16 ? 2 : 4,
                .p = call->operand[ZR_UPDATE_PARAM],
                .low = p_type == ZR_CPU_F32 ? NULL : call->operand[ZR_UPDATE_LOW],
                .g = call->operand[ZR_UPDATE_GRAD],
                .state = {state[0], state[1]},
                .elems = attr[ZR_ADAMW_ELEMS],
                .first = attr[ZR_ADAMW_FIRST] + ctl->rank * attr[ZR_ADAMW_FIRST_PER_RANK],
                .own = ctl->rank * attr[ZR_ADAMW_SHARD],
                .own_end = (ctl->rank + 1) * attr[ZR_ADAMW_SHARD]};
  zr_parallel_for(call->pool, zr_cpu_blocks(u.elems, UPDATE_ELEMS), update_block, &u);
  for (int i = 0; i < 2; i++) ctl->digest_sum[i] += u.digest[i];
  ctl->n_bad_params += u.n_bad;
  return ZR_OK;
}

const zr_cpu_kind_t zr_cpu_block_norm = {"block_norm", -1, NULL, NULL, block_norm_run};
const zr_cpu_kind_t zr_cpu_adamw = {"adamw", -1, NULL, NULL, update_run};
const zr_cpu_kind_t zr_cpu_sgd = {"sgd", -1, NULL, NULL, update_run};
const zr_cpu_kind_t zr_cpu_lion = {"lion", -1, NULL, NULL, update_run};
const zr_cpu_kind_t zr_cpu_adagrad = {"adagrad", -1, NULL, NULL, update_run};
