/* bf16 with fp32 masters against PyTorch in float64, beside PyTorch's own bf16 with fp32 masters
 * (tests/golden/half.json): gradient and losses of one step, losses of ten. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/check.h"
#include "tests/oracle/machine.h"
#include "tests/support/tape_run.h"

/* How much further away than PyTorch's: all tensors together, and each by itself, whose distance is
 * a sum of few roundings and so a matter of luck too. */
static const double bound = 1.2, tensor_bound = 1.6, steps_bound = 1.5;

static json_t *theirs; /* half.json */

static double their(const char *model, const char *what) {
  const json_t *number = json_object_get(json_object_get(theirs, model), what);
  if (!json_is_number(number)) fail_msg("half.json: %s has no %s", model, what);
  return json_number_value(number);
}

static double their_tensor(const char *model, const char *tensor) {
  const json_t *all = json_object_get(json_object_get(theirs, model), "gradients");
  const json_t *number = json_object_get(all, tensor);
  if (!json_is_number(number)) fail_msg("half.json: %s has no %s", model, tensor);
  return json_number_value(number);
}

typedef struct {
  double off, all; /* sums of squares */
  double worst;    /* tensor, of PyTorch's */
} gradient_t;

typedef struct {
  double gradient, worst_tensor, token_losses; /* of PyTorch's */
} ratios_t;

static void add_gradient(const golden_t *g, const tape_run_t *run, size_t index, gradient_t *sum) {
  const zr_tape_tensor_t *tensor = &run->tape->tensor[index];
  int64_t elems = tensor->rows * tensor->cols;
  double *want = golden_tensor(g, "grad", tensor->name, elems);
  double *got = calloc((size_t)elems, sizeof *got);
  assert_non_null(got);
  tape_run_add_gradient(run, index, got);
  golden_skip_key_bias(tensor->name, got, elems);
  elems = golden_skip_key_bias(tensor->name, want, elems);
  double norm = golden_norm(want, elems), off = golden_distance(got, want, elems);
  double ratio = off / their_tensor(g->name, tensor->name);
  if (!(ratio <= tensor_bound))
    fail_msg("%s: gradient of %s is off by %.2e, %.2f x PyTorch's", g->name, tensor->name, off,
             ratio);
  sum->off += off * off * norm * norm;
  sum->all += norm * norm;
  if (ratio > sum->worst) sum->worst = ratio;
  free(got);
  free(want);
}

/* The loss of each token, from golden logits as from the run's own losses. */
static double token_losses_distance(const golden_t *g, const tape_run_t *run) {
  int64_t rows = g->samples * g->seq, vocab = g->config.vocab_size;
  double off = 0, all = 0;
  for (int64_t t = 0; t < rows; t++) {
    if (g->targets[t] < 0) continue;
    const double *logits = g->logits + t * vocab;
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++) sum += exp(logits[v]);
    double want = log(sum) - logits[g->targets[t]];
    double difference = tape_run_get(run, run->tape->losses, t) - want;
    off += difference * difference;
    all += want * want;
  }
  return sqrt(off / all);
}

/* Step 1, all samples at once as PyTorch has it. */
static ratios_t step_ratios(const golden_t *g, const zr_kern_ops_t *ops, zr_kern_t *kern) {
  zr_model_run_t shape = {.micro_batch = g->samples,
                          .seq_len = g->seq,
                          .logits_chunk = 64,
                          .training = true,
                          .dtype = ZR_BF16};
  zr_tape_t *tape = NULL;
  assert_int_equal(zr_model_record(NULL, &g->config, &shape, &tape), ZR_OK);
  tape_run_t run;
  tape_run_init(&run, tape, &g->config, &shape, ZR_F32, ops, kern, NULL);
  for (size_t t = 0; t < tape->n_tensors; t++) {
    const zr_tape_tensor_t *tensor = &tape->tensor[t];
    double *values = golden_tensor(g, "param", tensor->name, tensor->rows * tensor->cols);
    tape_run_set_param(&run, t, values);
    free(values);
  }
  tape_run_begin(&run, g->targets, 1);
  tape_run_batch(&run, g->tokens, g->targets);
  gradient_t sum = {0};
  for (size_t t = 0; t < tape->n_tensors; t++) add_gradient(g, &run, t, &sum);
  ratios_t ratios = {sqrt(sum.off / sum.all) / their(g->name, "gradient"), sum.worst,
                     token_losses_distance(g, &run) / their(g->name, "token_losses")};
  tape_run_fini(&run);
  zr_tape_destroy(tape);
  return ratios;
}

/* Ten steps through the whole machine. */
static double losses_ratio(const golden_t *g, const machine_setting_t *setting) {
  const zr_comm_ops_t *comm_ops;
  zr_comm_t *comm;
  machine_t m;
  double got[64];
  assert_in_range(g->steps, 1, 64);
  assert_int_equal(zr_comm_self_open(NULL, &comm_ops, &comm), ZR_OK);
  machine_open(&m, g, setting, comm_ops, comm);
  for (int64_t step = 1; step <= g->steps; step++) got[step - 1] = machine_step(&m, step).loss;
  machine_close(&m);
  comm_ops->close(comm);
  return golden_distance(got, g->losses, g->steps) / their(g->name, "losses");
}

typedef struct {
  double losses, bf16_sums; /* sums over the models of squares */
} total_t;

static void check_model(const char *name, bool ref, total_t *total) {
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  golden_t g;
  golden_open(&g, name);
  zr_status_t status = ref ? zr_kern_ref_open(NULL, ZR_F32, &ops, &kern)
                           : zr_kern_cpu_open(NULL, "auto", &ops, &kern);
  assert_int_equal(status, ZR_OK);
  ratios_t ratios = step_ratios(&g, ops, kern);
  ops->close(kern);
  machine_setting_t setting = {.micro_batch = g.samples,
                               .group = -1,
                               .prefetch = 1,
                               .n_threads = 1,
                               .dtype = ZR_BF16,
                               .ref = ref};
  double losses = losses_ratio(&g, &setting);
  setting.micro_batch = 1;
  setting.grad_dtype = ZR_BF16;
  double bf16_sums = losses_ratio(&g, &setting);
  print_message(
      "%s, %s: of PyTorch's distance: gradient %.2f (worst tensor %.2f), losses of tokens %.2f, "
      "of ten steps %.2f, with sums in bf16 %.2f\n",
      name, ref ? "ref" : "cpu", ratios.gradient, ratios.worst_tensor, ratios.token_losses, losses,
      bf16_sums);
  assert_true(ratios.gradient <= bound);
  assert_true(ratios.token_losses <= bound);
  total->losses += losses * losses;
  total->bf16_sums += bf16_sums * bf16_sums;
  golden_close(&g);
}

/* Ten losses of one model are ten draws: their distance varies by half from one order of additions
 * to another. All models' together are what is bounded. */
static void check_models(bool ref) {
  total_t total = {0};
  for (int m = 0; m < GOLDEN_N_HALF; m++) check_model(golden_names[m], ref, &total);
  double losses = sqrt(total.losses / GOLDEN_N_HALF);
  double bf16_sums = sqrt(total.bf16_sums / GOLDEN_N_HALF);
  print_message("all: losses %.2f, with sums in bf16 %.2f\n", losses, bf16_sums);
  assert_true(losses <= steps_bound);
  assert_true(bf16_sums <= steps_bound);
}

static void test_ref(void **state) {
  (void)state;
  check_models(true);
}

static void test_cpu(void **state) {
  (void)state;
  check_models(false);
}

static int open_theirs(void **state) {
  (void)state;
  theirs = json_load_file(ZR_GOLDEN_DIR "/half.json", 0, NULL);
  return theirs == NULL ? -1 : 0;
}

static int close_theirs(void **state) {
  (void)state;
  json_decref(theirs);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu)};
  return cmocka_run_group_tests(tests, open_theirs, close_theirs);
}
