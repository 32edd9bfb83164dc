/* Ten AdamW steps of each golden model through the whole machine, against PyTorch in float64:
 * losses, gradient norms, and each tensor's update. On as many ranks as mpirun gives (1, 2, 4). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/check.h"
#include "tests/oracle/machine.h"

static const double loss_bound = 3e-6, norm_bound = 1e-6, update_bound = 1e-3;

static const zr_comm_ops_t *comm_ops;
static zr_comm_t *comm;
static int n_ranks;

/* micro_batch 4, 2 and 1: one, two and four micro-batches in a step. */
static const machine_setting_t settings[] = {
    {.micro_batch = 4, .group = -1, .prefetch = 1, .n_threads = 1},
    {.micro_batch = 4, .group = -1, .prefetch = 1, .n_threads = 2, .serial = true, .ref = true},
    {.micro_batch = 2, .group = -1, .prefetch = 1, .n_threads = 2, .stage = 3},
    {.micro_batch = 2, .group = 0, .prefetch = 0, .n_threads = 1, .stage = 1, .order = 1},
    {.micro_batch = 1, .group = -1, .prefetch = 2, .n_threads = 3, .stage = 2},
    {.micro_batch = 1, .group = 0, .prefetch = 1, .n_threads = 1, .stage = 3, .serial = true},
    {.micro_batch = 1, .group = -1, .prefetch = 1, .n_threads = 1, .stage = 3, .order = 1},
    {.micro_batch = 1, .group = 0, .prefetch = 1, .n_threads = 1, .stage = 0, .ref = true},
    {.micro_batch = 1, .group = -1, .prefetch = 1, .n_threads = 1, .stage = 3, .isa = "avx2"},
    {.micro_batch = 1, .group = -1, .prefetch = 1, .n_threads = 1, .stage = 3, .isa = "baseline"},
};

typedef struct {
  double loss, norm, update; /* the largest errors over their bounds */
} worst_t;

static void at_most(double *worst, double error, double bound, const char *what) {
  if (!(error <= bound)) fail_msg("%s is off by %.2g, more than %.2g", what, error, bound);
  if (error / bound > *worst) *worst = error / bound;
}

/* A rank that holds a part of the tensor is allowed its share of the whole tensor's distance. */
static void check_update(const machine_t *m, const zr_flat_tensor_t *place, const float *params,
                         int64_t begin, int64_t end, worst_t *worst) {
  const char *name = m->zero->tape->tensor[place->tensor].name;
  int64_t elems = place->elems;
  double *before = golden_tensor(m->golden, "param", name, elems);
  double *want = golden_tensor(m->golden, "update", name, elems);
  double *off = calloc((size_t)elems, sizeof *off);
  assert_non_null(off);
  for (int64_t i = 0; i < elems; i++) {
    int64_t at = place->begin + i;
    if (at >= begin && at < end) off[i] = (double)params[at - begin] - before[i] - want[i];
  }
  golden_skip_key_bias(name, off, elems);
  int64_t n = golden_skip_key_bias(name, want, elems);
  double share = begin == 0 && end >= place->begin + elems ? 1.0 : sqrt((double)n_ranks);
  char what[160];
  snprintf(what, sizeof what, "%s: update of %s", m->golden->name, name);
  at_most(&worst->update, share * golden_norm(off, n) / golden_norm(want, n), update_bound, what);
  free(before);
  free(want);
  free(off);
}

static void check_updates(machine_t *m, worst_t *worst) {
  for (size_t u = 0; u < m->zero->n_units; u++) {
    const zr_zero_unit_t *unit = &m->zero->unit[u];
    int64_t begin, end;
    float *params = machine_params(m, u, &begin, &end);
    for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->n_tensors; t++)
      check_update(m, &m->zero->flat_tensor[t], params, begin, end, worst);
    free(params);
  }
}

/* Runs the ten steps; returns the digest of the states after them. */
static uint64_t check_run(const golden_t *g, const machine_setting_t *setting, worst_t *worst) {
  machine_t m;
  machine_open(&m, g, setting, comm_ops, comm);
  zr_step_record_t record = {0};
  int n_clipped = 0;
  for (int64_t step = 1; step <= g->steps; step++) {
    record = machine_step(&m, step);
    char what[64];
    snprintf(what, sizeof what, "%s: loss of step %d", g->name, (int)step);
    double bound = step == 1 ? 1e-6 : loss_bound;
    at_most(&worst->loss, fabs(record.loss / g->losses[step - 1] - 1), bound, what);
    snprintf(what, sizeof what, "%s: norm of step %d", g->name, (int)step);
    at_most(&worst->norm, fabs(record.grad_norm / g->norms[step - 1] - 1), norm_bound, what);
    n_clipped += record.clip_coef < 1.0;
  }
  assert_in_range(n_clipped, 1, g->steps - 1);
  check_updates(&m, worst);
  machine_close(&m);
  return record.digest_states;
}

static bool fits(const machine_setting_t *s) {
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  if (s->micro_batch * n_ranks > 4) return false;
  if (s->isa == NULL) return true;
  if (zr_kern_cpu_open(NULL, s->isa, &ops, &kern) != ZR_OK) return false;
  ops->close(kern);
  return true;
}

static void test_model(void **state) {
  golden_t g;
  golden_open(&g, *state);
  worst_t worst = {0};
  for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
    if (fits(&settings[s])) (void)check_run(&g, &settings[s], &worst);
  print_message("%s: of their bounds: losses %.2f, norms %.2f, updates %.2f\n", g.name, worst.loss,
                worst.norm, worst.update);
  golden_close(&g);
}

/* The same samples cut into the same micro-batches give the same states, whatever the schedule. */
static void test_schedules_agree(void **state) {
  golden_t g;
  golden_open(&g, *state);
  worst_t worst = {0};
  uint64_t first = 0;
  for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
    if (settings[s].micro_batch != 1 || settings[s].ref || settings[s].isa != NULL) continue;
    uint64_t digest = check_run(&g, &settings[s], &worst);
    assert_true(digest != 0);
    if (first == 0) first = digest;
    assert_true(digest == first);
  }
  golden_close(&g);
}

static int open_comm(void **state) {
  (void)state;
  zr_status_t status = zr_comm_mpi_launched() ? zr_comm_mpi_open(NULL, &comm_ops, &comm)
                                              : zr_comm_self_open(NULL, &comm_ops, &comm);
  if (status == ZR_OK) n_ranks = comm_ops->info(comm).n_ranks;
  return status == ZR_OK ? 0 : -1;
}

static int close_comm(void **state) {
  (void)state;
  comm_ops->close(comm);
  return 0;
}

#define MODEL(test, name) cmocka_unit_test_prestate(test, (void *)(uintptr_t)(name))

int main(void) {
  const struct CMUnitTest tests[] = {
      MODEL(test_model, "gpt2"),
      MODEL(test_model, "llama_grouped"),
      MODEL(test_model, "llama_head_dim"),
      MODEL(test_model, "llama_scaled"),
      MODEL(test_model, "mistral"),
      MODEL(test_model, "qwen2"),
      MODEL(test_model, "qwen3"),
      MODEL(test_model, "gpt2_documents"),
      MODEL(test_model, "llama_documents"),
      MODEL(test_model, "mistral_window"),
      MODEL(test_model, "qwen2_window"),
      MODEL(test_model, "llama_gelu"),
      MODEL(test_schedules_agree, "gpt2"),
      MODEL(test_schedules_agree, "llama_head_dim"),
      MODEL(test_schedules_agree, "qwen3"),
      MODEL(test_schedules_agree, "gpt2_documents"),
  };
  return cmocka_run_group_tests(tests, open_comm, close_comm);
}
