/* The backward of whole models, derived from the tape, against central differences of the loss,
 * with the double oracle: every element of every tensor, within 1e-6 of the tensor's largest.
 *
 * Differences are of fourth order with step 1e-3: truncation about 1e-13 of the fifth derivative,
 * rounding about 1e-13 of the loss. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "tests/kernels/check.h"
#include "tests/support/tape_run.h"

/* 16 of 18 targets count: their inverse is a float too. */
enum { MICRO_BATCH = 2, SEQ = 9, ROWS = MICRO_BATCH * SEQ };

static const double bound = 1e-6, step = 1e-3;

typedef struct {
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  zr_model_config_t config;
  zr_tape_t *tape, *eval_tape;
  tape_run_t run, eval; /* the second without a backward */
  int32_t tokens[ROWS], targets[ROWS];
} model_t;

static void config_for(zr_arch_t arch, bool tied, zr_model_config_t *c) {
  zr_model_defaults(arch, c);
  c->vocab_size = 7;
  c->hidden_size = 8;
  c->n_layers = 2;
  c->n_heads = 2;
  c->intermediate_size = 10;
  c->max_positions = SEQ + 2;
  c->tie_word_embeddings = tied;
  if (arch == ZR_ARCH_LLAMA && !tied) {
    c->attention_bias = c->mlp_bias = 1;
    c->rope_scaling = ZR_ROPE_LINEAR;
    c->rope_factor = 2;
  }
  if (arch != ZR_ARCH_GPT2) {
    c->n_heads = 4;
    c->n_kv_heads = 2;
    c->head_dim = 6; /* 24 columns of heads in a hidden size of 8 */
    c->rope_theta = 100;
  }
  assert_int_equal(zr_model_resolve(c), ZR_OK);
}

static void record(model_t *m, bool training, zr_tape_t **out_tape, tape_run_t *run) {
  zr_model_run_t shape = {
      .micro_batch = MICRO_BATCH, .seq_len = SEQ, .logits_chunk = 5, .training = training};
  assert_int_equal(zr_model_record(NULL, &m->config, &shape, out_tape), ZR_OK);
  tape_run_init(run, *out_tape, &m->config, &shape, ZR_F64, m->ops, m->kern, NULL);
}

static void open_model(model_t *m, zr_arch_t arch, bool tied) {
  memset(m, 0, sizeof *m);
  assert_int_equal(zr_kern_ref_open(NULL, ZR_F64, &m->ops, &m->kern), ZR_OK);
  config_for(arch, tied, &m->config);
  record(m, true, &m->tape, &m->run);
  record(m, false, &m->eval_tape, &m->eval);
  uint64_t key = zr_rng_key(5, "tokens"), vocab = (uint64_t)m->config.vocab_size;
  for (uint64_t i = 0; i < ROWS; i++) {
    m->tokens[i] = (int32_t)(zr_rng_u64(key, 2 * i) % vocab);
    m->targets[i] = i == 3 || i == 12 ? -1 : (int32_t)(zr_rng_u64(key, 2 * i + 1) % vocab);
  }
}

static void close_model(model_t *m) {
  tape_run_fini(&m->run);
  tape_run_fini(&m->eval);
  zr_tape_destroy(m->tape);
  zr_tape_destroy(m->eval_tape);
  m->ops->close(m->kern);
}

/* None at a special place: norms not 1, biases not 0. */
static double *initial(const zr_tape_tensor_t *tensor) {
  int64_t elems = tensor->rows * tensor->cols;
  double *values = malloc((size_t)elems * sizeof *values);
  assert_non_null(values);
  for (int64_t i = 0; i < elems; i++) {
    double normal = zr_rng_normal(zr_rng_key(3, tensor->name), (uint64_t)i);
    values[i] = (tensor->init == ZR_INIT_ONE ? 1.0 : 0.0) + 0.4 * normal;
  }
  return values;
}

static double loss_of(tape_run_t *run, const model_t *m) {
  tape_run_begin(run, m->targets, 1);
  tape_run_batch(run, m->tokens, m->targets);
  assert_int_equal(run->control->count_local, ROWS - 2);
  return tape_run_loss(run);
}

static double moved_loss(model_t *m, size_t tensor, double *values, int64_t i, double by) {
  double before = values[i];
  values[i] = before + by;
  tape_run_set_param(&m->eval, tensor, values);
  values[i] = before;
  return loss_of(&m->eval, m);
}

static void check_tensor(model_t *m, size_t t) {
  const zr_tape_tensor_t *tensor = &m->tape->tensor[t];
  int64_t elems = tensor->rows * tensor->cols;
  double *values = initial(tensor), *grad = calloc((size_t)elems, sizeof *grad);
  assert_non_null(grad);
  tape_run_add_gradient(&m->run, t, grad);
  double largest = 0;
  for (int64_t i = 0; i < elems; i++) largest = fmax(largest, fabs(grad[i]));
  assert_true(largest > 1e-4);
  for (int64_t i = 0; i < elems; i++) {
    double near = moved_loss(m, t, values, i, step) - moved_loss(m, t, values, i, -step);
    double far = moved_loss(m, t, values, i, 2 * step) - moved_loss(m, t, values, i, -2 * step);
    double want = (8 * near - far) / (12 * step);
    if (!(fabs(grad[i] - want) <= bound * largest))
      fail_msg("%s[%d]: gradient %.9g, difference %.9g", tensor->name, (int)i, grad[i], want);
  }
  tape_run_set_param(&m->eval, t, values);
  free(values);
  free(grad);
}

static void check_model(zr_arch_t arch, bool tied) {
  model_t m;
  open_model(&m, arch, tied);
  assert_int_equal(m.tape->n_tensors, m.eval_tape->n_tensors);
  for (size_t t = 0; t < m.tape->n_tensors; t++) {
    double *values = initial(&m.tape->tensor[t]);
    tape_run_set_param(&m.run, t, values);
    tape_run_set_param(&m.eval, t, values);
    free(values);
  }
  double loss = loss_of(&m.run, &m);
  assert_true(fabs(loss - loss_of(&m.eval, &m)) <= 1e-13 * loss);
  for (size_t t = 0; t < m.tape->n_tensors; t++) check_tensor(&m, t);
  close_model(&m);
}

static void test_gpt2_tied(void **state) {
  (void)state;
  check_model(ZR_ARCH_GPT2, true);
}

static void test_gpt2_own_head(void **state) {
  (void)state;
  check_model(ZR_ARCH_GPT2, false);
}

static void test_llama_tied(void **state) {
  (void)state;
  check_model(ZR_ARCH_LLAMA, true);
}

static void test_llama_own_head(void **state) {
  (void)state;
  check_model(ZR_ARCH_LLAMA, false);
}

static void test_mistral(void **state) {
  (void)state;
  check_model(ZR_ARCH_MISTRAL, false);
}

static void test_qwen2(void **state) {
  (void)state;
  check_model(ZR_ARCH_QWEN2, true);
}

static void test_qwen3(void **state) {
  (void)state;
  check_model(ZR_ARCH_QWEN3, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpt2_tied),  cmocka_unit_test(test_gpt2_own_head),
      cmocka_unit_test(test_llama_tied), cmocka_unit_test(test_llama_own_head),
      cmocka_unit_test(test_mistral),    cmocka_unit_test(test_qwen2),
      cmocka_unit_test(test_qwen3),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
