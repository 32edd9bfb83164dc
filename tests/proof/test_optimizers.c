/* Exactness of every optimizer, in every type, with states in fp32 and bf16: stages, loop orders,
 * threads, serial and concurrent, ranks give the bits of one rank with one thread in serial mode, a
 * skipped step among them. Run under mpirun with 1, 2, 3 and 4 ranks. */
#include <math.h>

#include "tests/proof/machine.h"

enum { N_STEPS = 4, SKIPPED = 2, N_LEAVES = 12 };

typedef struct {
  const char *name;
  int32_t optimizer;
  double momentum;
  bool nesterov;
} optimizer_t;

static const optimizer_t optimizers[] = {
    {"adamw", ZR_OP_ADAMW, 0, false},        {"sgd", ZR_OP_SGD, 0, false},
    {"sgd momentum", ZR_OP_SGD, 0.9, false}, {"sgd nesterov", ZR_OP_SGD, 0.9, true},
    {"lion", ZR_OP_LION, 0, false},          {"adagrad", ZR_OP_ADAGRAD, 0, false},
};
static const zr_dtype_t dtypes[] = {ZR_F32, ZR_BF16, ZR_F16};
static machine_world_t world;

static void base_options(const optimizer_t *optimizer, zr_dtype_t dtype, zr_dtype_t state,
                         machine_options_t *out_options) {
  machine_defaults(out_options);
  out_options->arch = ZR_ARCH_LLAMA;
  out_options->dtype = dtype;
  out_options->state_dtype = state;
  out_options->optimizer = optimizer->optimizer;
  out_options->momentum = optimizer->momentum;
  out_options->nesterov = optimizer->nesterov;
  out_options->n_leaves = N_LEAVES;
  out_options->skipped_step = SKIPPED;
  if (dtype == ZR_F16) out_options->scaling = zr_loss_scale_defaults();
}

static void check_reference(const optimizer_t *optimizer, const zr_step_record_t *record) {
  for (int k = 0; k < N_STEPS; k++) {
    const bool skipped = k + 1 == SKIPPED,
               has_states = optimizer->optimizer != ZR_OP_SGD || optimizer->momentum > 0;
    assert_int_equal(record[k].skipped_now, skipped);
    assert_int_equal(record[k].n_bad_params, 0);
    if (k == 0) continue;
    assert_int_equal(record[k].digest_params == record[k - 1].digest_params, skipped);
    assert_int_equal(record[k].digest_states == record[k - 1].digest_states,
                     skipped || !has_states);
  }
  assert_true(record[N_STEPS - 1].loss < record[0].loss + 0.5);
}

/* Four schedules that between them have every stage, both orders, 1 to 3 threads, both modes. */
static void vary(int n, machine_options_t *options) {
  options->stage = n;
  options->order = n % 2 ? ZR_ORDER_BREADTH : ZR_ORDER_DEPTH;
  options->n_threads = 1 + n % 3;
  options->serial = n == 2;
  options->recompute = n == 3 ? ZR_RECOMPUTE_FULL : ZR_RECOMPUTE_NONE;
  options->delay_seed = n == 1 ? 3 + (uint64_t)world.rank : 0;
}

static void check(const optimizer_t *optimizer, zr_dtype_t dtype, zr_dtype_t state) {
  machine_options_t options;
  zr_step_record_t want[N_STEPS] = {{0}}, got[N_STEPS];
  base_options(optimizer, dtype, state, &options);
  options.serial = true;
  if (world.rank == 0) machine_records(&options, NULL, N_STEPS, want, NULL);
  assert_ok(world.ops->broadcast(world.comm, want, (int64_t)sizeof want, 0));
  check_reference(optimizer, want);
  for (int n = 0; n < 4; n++) {
    base_options(optimizer, dtype, state, &options);
    vary(n, &options);
    machine_records(&options, &world, N_STEPS, got, NULL);
    if (machine_records_equal(got, want, N_STEPS)) continue;
    print_message("%s, states %s\n", optimizer->name, zr_dtype_name(state));
    machine_print_options(&options, world.n_ranks);
    _fail(__FILE__, __LINE__);
  }
}

static void every_optimizer_is_exact(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++)
    for (int d = 0; d < 3; d++) {
      check(&optimizers[i], dtypes[d], ZR_F32);
      check(&optimizers[i], dtypes[d], ZR_BF16);
    }
}

/* bf16 states: the first parameters are those of fp32 states, later ones are near. */
static void states_are_used_before_they_are_rounded(void **state) {
  (void)state;
  if (world.n_ranks > 1) return;
  machine_options_t options;
  zr_step_record_t fp32[N_STEPS], bf16[N_STEPS];
  base_options(&optimizers[0], ZR_BF16, ZR_F32, &options);
  machine_records(&options, NULL, N_STEPS, fp32, NULL);
  options.state_dtype = ZR_BF16;
  machine_records(&options, NULL, N_STEPS, bf16, NULL);
  assert_true(fp32[0].digest_params == bf16[0].digest_params); /* used before they are rounded */
  assert_true(fp32[0].digest_states != bf16[0].digest_states);
  assert_true(fp32[3].digest_params != bf16[3].digest_params);
  assert_true(fabs(fp32[3].loss - bf16[3].loss) < 1e-2);
}

/* 2 parameter + 2 low + 2 + 2 states: 8 bytes of each parameter. */
static void states_in_16_bits_take_8_bytes(void **state) {
  (void)state;
  static const struct {
    int optimizer; /* place in optimizers */
    zr_dtype_t dtype, state;
    int64_t bytes;
  } cases[] = {{0, ZR_BF16, ZR_BF16, 8}, {0, ZR_BF16, ZR_F32, 12}, {0, ZR_F32, ZR_F32, 12},
               {1, ZR_F32, ZR_F32, 4},   {2, ZR_BF16, ZR_BF16, 6}, {4, ZR_BF16, ZR_F32, 8},
               {5, ZR_F16, ZR_BF16, 8}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    machine_options_t options;
    machine_t machine;
    base_options(&optimizers[cases[i].optimizer], cases[i].dtype, cases[i].state, &options);
    machine_open_virtual(&machine, &options, 1);
    int64_t bytes = 0;
    for (size_t b = 0; b < machine.step->n_buffers; b++) {
      const zr_buffer_t *buffer = &machine.step->buffer[b];
      const bool counts =
          buffer->category == ZR_CATEGORY_PARAM || buffer->category == ZR_CATEGORY_OPTIMIZER;
      if (counts && buffer->persistent) bytes += buffer->bytes;
    }
    assert_int_equal(bytes, cases[i].bytes * machine.zero->n_params_padded);
    machine_close(&machine);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_optimizer_is_exact),
                                     cmocka_unit_test(states_are_used_before_they_are_rounded),
                                     cmocka_unit_test(states_in_16_bits_take_8_bytes)};
  machine_world_open(&world);
  const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
  machine_world_close(&world);
  return n_failed;
}
