/* One forward and backward of each golden model, operation by operation, against PyTorch in
 * float64: logits, loss and every gradient. Plain, with the double oracle, the float oracle and the
 * cpu kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/check.h"
#include "tests/oracle/golden.h"
#include "tests/support/tape_run.h"

/* Relative errors: of the loss, and L2 distances of the logits and of each gradient. Golden
 * gradients are stored as floats, hence the double oracle's bound. */
typedef struct {
  const char *name;
  const char *isa; /* of the cpu kernels; NULL: the oracle */
  zr_dtype_t real;
  double loss, logits, grad;
} backend_t;

static const backend_t backends[] = {
    {"ref double", NULL, ZR_F64, 1e-12, 1e-12, 1e-7},
    {"ref float", NULL, ZR_F32, 1e-6, 1e-6, 1e-5},
    {"cpu auto", "auto", ZR_F32, 1e-6, 1e-6, 1e-5},
    {"cpu avx2", "avx2", ZR_F32, 1e-6, 1e-6, 1e-5},
    {"cpu baseline", "baseline", ZR_F32, 1e-6, 1e-6, 1e-5},
};

static void set_params(const golden_t *g, tape_run_t *run) {
  for (size_t t = 0; t < run->tape->n_tensors; t++) {
    const zr_tape_tensor_t *tensor = &run->tape->tensor[t];
    double *values = golden_tensor(g, "param", tensor->name, tensor->rows * tensor->cols);
    tape_run_set_param(run, t, values);
    free(values);
  }
}

/* The head's input times the head's weights, of the micro-batch that ran last. */
static void get_logits(const golden_t *g, tape_run_t *run, double *out_logits) {
  const zr_tape_t *tape = run->tape;
  const zr_tape_op_t *head = NULL;
  for (size_t i = 0; i < tape->n_forward; i++)
    if (tape->op[i].kind == ZR_OP_HEAD_LOSS) head = &tape->op[i];
  assert_non_null(head);
  int64_t rows = head->attr[ZR_HEAD_ROWS], hidden = head->attr[ZR_HEAD_HIDDEN];
  int64_t padded = head->attr[ZR_HEAD_VOCAB_PADDED], vocab = g->config.vocab_size;
  int64_t attr[] = {rows, hidden, padded, hidden, padded, 0}, item = zr_dtype_bytes(run->real);
  void *y = malloc((size_t)(rows * padded * item));
  assert_non_null(y);
  tape_run_call_t call = {.kind = ZR_OP_LINEAR, .attr = attr, .n_operands = 4};
  call.operand[0].data = run->value[head->operand[0].value];
  call.operand[0].bytes = rows * hidden * item;
  call.operand[1].data = run->value[head->operand[1].value];
  call.operand[1].bytes = padded * hidden * item;
  call.operand[3].data = y;
  call.operand[3].bytes = rows * padded * item;
  for (int i = 0; i < 4; i++) call.operand[i].dtype = run->real;
  tape_run_call(run, &call);
  for (int64_t t = 0; t < rows; t++)
    for (int64_t v = 0; v < vocab; v++)
      out_logits[t * vocab + v] = run->real == ZR_F64 ? ((double *)y)[t * padded + v]
                                                      : (double)((float *)y)[t * padded + v];
  free(y);
}

static void check_gradient(const golden_t *g, const backend_t *b, const zr_tape_tensor_t *tensor,
                           double *got) {
  int64_t elems = tensor->rows * tensor->cols;
  double *want = golden_tensor(g, "grad", tensor->name, elems);
  golden_skip_key_bias(tensor->name, got, elems);
  elems = golden_skip_key_bias(tensor->name, want, elems);
  double distance = golden_distance(got, want, elems);
  if (!(distance <= b->grad))
    fail_msg("%s, %s: gradient of %s is off by %.2g", g->name, b->name, tensor->name, distance);
  free(want);
}

/* Step 1 in micro-batches of `micro_batch` samples; gradients are their sums. */
static void check_model(const golden_t *g, const backend_t *b, const zr_kern_ops_t *ops,
                        zr_kern_t *kern, int64_t micro_batch) {
  zr_model_run_t shape = {.micro_batch = micro_batch,
                          .seq_len = g->seq,
                          .logits_chunk = 7,
                          .training = true,
                          .separate = g->starts != NULL};
  zr_tape_t *tape = NULL;
  assert_int_equal(zr_model_record(NULL, &g->config, &shape, &tape), ZR_OK);
  tape_run_t run;
  tape_run_init(&run, tape, &g->config, &shape, b->real, ops, kern, NULL);
  set_params(g, &run);
  int64_t rows = micro_batch * g->seq, n_batches = g->samples / micro_batch;
  int64_t n_logits = rows * g->config.vocab_size;
  double *logits = malloc((size_t)(n_batches * n_logits) * sizeof *logits);
  double **grad = calloc(tape->n_tensors, sizeof *grad);
  assert_true(logits != NULL && grad != NULL);
  for (size_t t = 0; t < tape->n_tensors; t++)
    grad[t] = calloc((size_t)(tape->tensor[t].rows * tape->tensor[t].cols), sizeof **grad);
  tape_run_begin(&run, g->targets, n_batches);
  for (int64_t i = 0; i < n_batches; i++) {
    if (g->starts != NULL) tape_run_set_starts(&run, g->starts + i * rows);
    tape_run_batch(&run, g->tokens + i * rows, g->targets + i * rows);
    get_logits(g, &run, logits + i * n_logits);
    for (size_t t = 0; t < tape->n_tensors; t++) tape_run_add_gradient(&run, t, grad[t]);
  }
  double loss = tape_run_loss(&run), off = fabs(loss / g->losses[0] - 1);
  if (!(off <= b->loss)) fail_msg("%s, %s: loss is off by %.2g", g->name, b->name, off);
  off = golden_distance(logits, g->logits, n_batches * n_logits);
  if (!(off <= b->logits)) fail_msg("%s, %s: logits are off by %.2g", g->name, b->name, off);
  for (size_t t = 0; t < tape->n_tensors; t++) {
    check_gradient(g, b, &tape->tensor[t], grad[t]);
    free(grad[t]);
  }
  free(grad);
  free(logits);
  tape_run_fini(&run);
  zr_tape_destroy(tape);
}

static void check_backend(const backend_t *b) {
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  zr_status_t status = b->isa == NULL ? zr_kern_ref_open(NULL, b->real, &ops, &kern)
                                      : zr_kern_cpu_open(NULL, b->isa, &ops, &kern);
  if (status == ZR_ERR_UNSUPPORTED) {
    print_message("%s: not on this machine\n", b->name);
    return;
  }
  assert_int_equal(status, ZR_OK);
  for (int m = 0; m < GOLDEN_N_MODELS; m++) {
    golden_t golden;
    golden_open(&golden, golden_names[m]);
    for (int64_t micro_batch = 1; micro_batch <= golden.samples; micro_batch *= 2)
      check_model(&golden, b, ops, kern, micro_batch);
    golden_close(&golden);
  }
  ops->close(kern);
}

static void test_ref_double(void **state) {
  (void)state;
  check_backend(&backends[0]);
}

static void test_ref_float(void **state) {
  (void)state;
  check_backend(&backends[1]);
}

static void test_cpu(void **state) {
  (void)state;
  for (size_t b = 2; b < sizeof backends / sizeof *backends; b++) check_backend(&backends[b]);
}

/* Every tensor of the state dict is declared under its name; nothing else is. */
static void test_names_are_hugging_face(void **state) {
  (void)state;
  for (int m = 0; m < GOLDEN_N_MODELS; m++) {
    golden_t g;
    golden_open(&g, golden_names[m]);
    zr_model_run_t shape = {.micro_batch = 1, .seq_len = g.seq, .logits_chunk = 64};
    zr_tape_t *tape = NULL;
    assert_int_equal(zr_model_record(NULL, &g.config, &shape, &tape), ZR_OK);
    size_t n_params = 0;
    const char *key;
    json_t *entry;
    json_object_foreach(g.header, key, entry) n_params += strncmp(key, "param.", 6) == 0;
    assert_int_equal(n_params, tape->n_tensors);
    int64_t elems = 0;
    for (size_t t = 0; t < tape->n_tensors; t++) {
      const zr_tape_tensor_t *tensor = &tape->tensor[t];
      elems += tensor->rows * tensor->cols;
      free(golden_tensor(&g, "param", tensor->name, tensor->rows * tensor->cols));
    }
    assert_int_equal(elems, zr_model_n_params(&g.config));
    zr_tape_destroy(tape);
    golden_close(&g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_are_hugging_face),
      cmocka_unit_test(test_ref_double),
      cmocka_unit_test(test_ref_float),
      cmocka_unit_test(test_cpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
