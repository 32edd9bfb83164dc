/* The bound of a step: the busiest stream, what streams share (cores, a drive), or the longest
 * chain of values, whichever is longest.
 *
 * A buffer is cut into pieces where operands begin and end; each piece knows when its present
 * version is ready. An operation starts when all it reads is ready and overwrites without waiting:
 * space is not a dependency here. The list is run N_STEPS times; persistent values carry over. Rank
 * 0's places stand for all: the ranks' chains are the same. */
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/cost.h"

/* The growth is taken over the second half: exact for chains that repeat every 1, 2 or 4 steps once
 * the first half has worn off the start. */
enum { N_STEPS = 8 };

typedef struct {
  const zr_plan_t *plan;
  const int64_t *duration_ns;
  size_t *first;     /* [n_buffers + 1]: where a buffer's cuts begin */
  size_t *count;     /* [n_buffers]: distinct cuts */
  int64_t *cut;      /* by buffer, sorted */
  int64_t *ready_ns; /* of the piece that begins at the cut */
} chain_t;

static int by_value(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return a < b ? -1 : a > b;
}

static void each_cut(chain_t *c, bool fill) {
  for (size_t i = 0; i < c->plan->n_ops; i++) {
    for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
      const zr_operand_t *operand = &c->plan->op[i].operand[j];
      if (operand->buffer < 0) continue;
      size_t *n = &c->count[operand->buffer];
      if (fill) {
        int64_t *cut = &c->cut[c->first[operand->buffer] + *n];
        cut[0] = operand->offset;
        cut[1] = operand->offset + operand->bytes;
      }
      *n += 2;
    }
  }
}

static zr_status_t cut_buffers(chain_t *c) {
  const zr_plan_t *plan = c->plan;
  ZR_TRY(zr_alloc_get(plan->alloc, plan->n_buffers + 1, sizeof *c->first, &c->first));
  ZR_TRY(zr_alloc_get(plan->alloc, plan->n_buffers, sizeof *c->count, &c->count));
  each_cut(c, false);
  for (size_t i = 0; i < plan->n_buffers; i++) {
    c->first[i + 1] = c->first[i] + c->count[i];
    c->count[i] = 0;
  }
  size_t n_cuts = c->first[plan->n_buffers];
  ZR_TRY(zr_alloc_get(plan->alloc, n_cuts, sizeof *c->cut, &c->cut));
  ZR_TRY(zr_alloc_get(plan->alloc, n_cuts, sizeof *c->ready_ns, &c->ready_ns));
  each_cut(c, true);
  for (size_t i = 0; i < plan->n_buffers; i++) {
    int64_t *cut = &c->cut[c->first[i]];
    size_t n = 0;
    qsort(cut, c->count[i], sizeof *cut, by_value);
    for (size_t j = 0; j < c->count[i]; j++) {
      if (n == 0 || cut[j] != cut[n - 1]) cut[n++] = cut[j];
    }
    c->count[i] = n;
  }
  return ZR_OK;
}

/* The pieces of an operand: indices [*out_begin, *out_end) of cut and ready_ns. */
static void pieces(const chain_t *c, const zr_operand_t *operand, size_t *out_begin,
                   size_t *out_end) {
  const int64_t *cut = &c->cut[c->first[operand->buffer]];
  size_t low = 0, high = c->count[operand->buffer];
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (cut[middle] < operand->offset)
      low = middle + 1;
    else
      high = middle;
  }
  size_t end = low;
  while (cut[end] < operand->offset + operand->bytes) end++;
  *out_begin = c->first[operand->buffer] + low;
  *out_end = c->first[operand->buffer] + end;
}

static int64_t run_op(chain_t *c, size_t at) {
  const zr_op_t *op = &c->plan->op[at];
  int64_t start_ns = 0;
  size_t i, end;
  for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
    if (op->operand[j].buffer < 0 || !(op->operand[j].access & ZR_READ)) continue;
    pieces(c, &op->operand[j], &i, &end);
    for (; i < end; i++) {
      if (c->ready_ns[i] > start_ns) start_ns = c->ready_ns[i];
    }
  }
  int64_t end_ns = start_ns + c->duration_ns[at];
  for (int j = 0; j < ZR_MAX_OPERANDS; j++) {
    if (op->operand[j].buffer < 0 || !(op->operand[j].access & ZR_WRITE)) continue;
    pieces(c, &op->operand[j], &i, &end);
    for (; i < end; i++) c->ready_ns[i] = end_ns;
  }
  return end_ns;
}

static int64_t run_steps(chain_t *c) {
  int64_t last_ns = 0, half_ns = 0;
  for (int step = 0; step < N_STEPS; step++) {
    if (step == N_STEPS / 2) half_ns = last_ns;
    for (size_t i = 0; i < c->plan->n_ops; i++) {
      int64_t end_ns = run_op(c, i);
      if (end_ns > last_ns) last_ns = end_ns;
    }
  }
  return (last_ns - half_ns) / (N_STEPS / 2);
}

static void add_busy(const zr_plan_t *plan, const int64_t *duration_ns, zr_bound_t *bound) {
  int64_t busy_ns[ZR_N_STREAMS] = {0};
  for (size_t i = 0; i < plan->n_ops; i++) {
    busy_ns[plan->op[i].stream] += duration_ns[i];
    bound->serial_ns += duration_ns[i];
  }
  for (uint8_t s = 0; s < ZR_N_STREAMS; s++) {
    if (busy_ns[s] <= bound->busy_ns) continue;
    bound->busy_ns = busy_ns[s];
    bound->busiest = s;
  }
}

static int max_of(int a, int b) {
  return a > b ? a : b;
}

/* Threads x time of what computes or copies memory, spread over all cores without a gap. What waits
 * for other ranks or for a disk may cost the cores nothing. */
static void add_cores(const zr_plan_t *plan, const int64_t *duration_ns,
                      const zr_bound_machine_t *machine, zr_bound_t *bound) {
  double work_ns = 0;
  for (size_t i = 0; i < plan->n_ops; i++) {
    uint8_t s = plan->op[i].stream;
    bool all = s == ZR_STREAM_COMPUTE || s == ZR_STREAM_HOST;
    if (all) work_ns += (double)duration_ns[i] * machine->n_workers;
    if (s == ZR_STREAM_H2D || s == ZR_STREAM_D2H) work_ns += (double)duration_ns[i];
  }
  /* More workers than cores: their times alone have it already. */
  int n_cores = max_of(machine->n_cores, machine->n_workers);
  bound->cores_ns = (int64_t)(work_ns / n_cores);
}

/* However they are laid over each other, a drive serves at most mixed_drive of the two at once. */
static void add_drive(const zr_plan_t *plan, const int64_t *duration_ns,
                      const zr_bound_machine_t *machine, zr_bound_t *bound) {
  double both_ns = 0, mixed = machine->mixed_drive > 1 ? machine->mixed_drive : 1;
  for (size_t i = 0; i < plan->n_ops; i++) {
    uint8_t s = plan->op[i].stream;
    if (s == ZR_STREAM_READ || s == ZR_STREAM_WRITE) both_ns += (double)duration_ns[i];
  }
  bound->drive_ns = (int64_t)(both_ns / mixed);
}

static zr_status_t longest_chain(const zr_plan_t *plan, const int64_t *duration_ns,
                                 int64_t *out_ns) {
  chain_t chain = {.plan = plan, .duration_ns = duration_ns};
  zr_status_t status = cut_buffers(&chain);
  if (status == ZR_OK) *out_ns = run_steps(&chain);
  zr_alloc_free(plan->alloc, chain.first);
  zr_alloc_free(plan->alloc, chain.count);
  zr_alloc_free(plan->alloc, chain.cut);
  zr_alloc_free(plan->alloc, chain.ready_ns);
  return status;
}

static zr_status_t bound_of(const zr_plan_t *plan, const int64_t *duration_ns,
                            const zr_bound_machine_t *machine, zr_bound_t *out_bound) {
  zr_bound_t bound = {0};
  ZR_TRY(longest_chain(plan, duration_ns, &bound.chain_ns));
  add_busy(plan, duration_ns, &bound);
  if (machine != NULL) {
    add_cores(plan, duration_ns, machine, &bound);
    add_drive(plan, duration_ns, machine, &bound);
  }
  const int64_t part_ns[] = {bound.busy_ns, bound.chain_ns, bound.cores_ns, bound.drive_ns};
  for (size_t i = 0; i < sizeof part_ns / sizeof part_ns[0]; i++) {
    if (part_ns[i] > bound.bound_ns) bound.bound_ns = part_ns[i];
  }
  *out_bound = bound;
  return ZR_OK;
}

zr_status_t zr_cost_bound(const zr_plan_t *plan, const int64_t *duration_ns,
                          zr_bound_t *out_bound) {
  return bound_of(plan, duration_ns, NULL, out_bound);
}

zr_status_t zr_cost_bound_on(const zr_plan_t *plan, const int64_t *duration_ns,
                             const zr_bound_machine_t *machine, zr_bound_t *out_bound) {
  return bound_of(plan, duration_ns, machine, out_bound);
}
