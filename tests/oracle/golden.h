/* A golden file of tests/golden: shape and hyperparameters of a tiny model, its parameters, and
 * what PyTorch gives in float64. Read whole by a reader of its own (jansson): the oracle does not
 * lean on the code it judges. Failures fail the cmocka test. */
#ifndef ZR_TESTS_ORACLE_GOLDEN_H
#define ZR_TESTS_ORACLE_GOLDEN_H

#include <jansson.h>
#include <stdbool.h>

#include "kernels/control.h"
#include "runtime/model/model.h"

/* Documents apart are no model of their own to PyTorch's bf16: half.json has the first ones. */
enum { GOLDEN_N_MODELS = 12, GOLDEN_N_HALF = 7 };
extern const char *const golden_names[GOLDEN_N_MODELS];

typedef struct {
  const char *name;
  char *bytes; /* the file */
  json_t *header, *settings;
  const char *data;
  zr_model_config_t config; /* resolved */
  zr_control_t control;     /* the host's part of it: schedule and optimizer */
  bool decay_matrices;
  int64_t steps, samples, seq;
  const int32_t *tokens, *targets;       /* [steps, samples, seq] */
  const int32_t *starts;                 /* of documents; NULL: samples are whole */
  const double *logits, *losses, *norms; /* [samples, seq, vocab] of step 1; [steps] */
} golden_t;

void golden_open(golden_t *golden, const char *name);
void golden_close(golden_t *golden);
/* Tensor `what` ("param", "grad", "update") `name`, with `elems` elements, as doubles; malloc'd. */
double *golden_tensor(const golden_t *golden, const char *what, const char *name, int64_t elems);

/* |a - b| / |b| in L2, and |a| alone. */
double golden_distance(const double *a, const double *b, int64_t elems);
double golden_norm(const double *a, int64_t elems);
/* Elements [0, *out_elems) of which a true gradient is not zero: all, but of GPT-2's c_attn.bias
 * (q, k, v) k's third is skipped. Compacts `values` in place. */
int64_t golden_skip_key_bias(const char *name, double *values, int64_t elems);

#endif
