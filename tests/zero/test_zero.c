/* The compiler's front: trees, flats, and programs that compile and verify for every legal setting.
 */
#include <string.h>

#include "runtime/plan/cost.h"
#include "runtime/zero/tree.h"
#include "runtime/zero/zero.h"
#include "tests/support/cmocka_all.h"

/* --- the one tree ---------------------------------------------------------------------------- */

/* A sum as text, so that its shape can be compared: "(0+1)". */
static void direct(char *out, size_t bytes, int64_t begin, int64_t n) {
  if (n == 1) {
    snprintf(out, bytes, "%d", (int)begin);
    return;
  }
  int64_t split = 1;
  while (split * 2 < n) split *= 2;
  char left[1024], right[1024];
  direct(left, sizeof left, begin, split);
  direct(right, sizeof right, begin + split, n - split);
  snprintf(out, bytes, "(%.400s+%.400s)", left, right);
}

static void streamed(char *out, size_t bytes, int64_t n) {
  static char slot[ZR_TREE_SLOTS][1024];
  zr_tree_t tree;
  zr_tree_init(&tree, n);
  for (int64_t leaf = 0; leaf < n; leaf++) {
    zr_tree_step_t step = zr_tree_next(&tree);
    char text[1024];
    if (step.accumulate) {
      snprintf(text, sizeof text, "(%.900s+%d)", slot[step.slot], (int)leaf);
    } else {
      snprintf(text, sizeof text, "%d", (int)leaf);
    }
    snprintf(slot[step.slot], sizeof slot[0], "%s", text);
    for (int k = step.slot, m = step.n_merges; m > 0; m--, k--) {
      snprintf(text, sizeof text, "(%.490s+%.490s)", slot[k - 1], slot[k]);
      snprintf(slot[k - 1], sizeof slot[0], "%s", text);
    }
    assert_int_equal(step.done, leaf == n - 1);
  }
  snprintf(out, bytes, "%s", slot[0]);
}

static void test_tree_is_the_definition(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 40; n++) {
    char want[1024], got[1024];
    direct(want, sizeof want, 0, n);
    streamed(got, sizeof got, n);
    assert_string_equal(want, got);
  }
}

/* --- programs --------------------------------------------------------------------------------- */

typedef struct {
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
} kern_t;

static kern_t open_kern(void) {
  kern_t k;
  assert_int_equal(zr_kern_ref_open(NULL, ZR_F32, &k.ops, &k.kern), ZR_OK);
  return k;
}

static zr_zero_options_t options_for(kern_t k, zr_arch_t arch, int stage, int n_ranks,
                                     int64_t n_micro) {
  zr_zero_options_t o;
  zr_zero_defaults(&o);
  zr_model_defaults(arch, &o.model);
  o.model.vocab_size = 65;
  o.model.hidden_size = 24;
  o.model.n_layers = 3;
  o.model.n_heads = 3;
  o.model.head_dim = arch == ZR_ARCH_GPT2 ? 0 : 10;
  o.model.n_kv_heads = arch == ZR_ARCH_GPT2 ? 0 : 1;
  o.model.sliding_window = 0;
  o.model.intermediate_size = 50;
  o.model.max_positions = 40;
  o.run = (zr_model_run_t){.micro_batch = 2, .seq_len = 20};
  o.stage = stage;
  o.n_ranks = n_ranks;
  o.n_micro = n_micro;
  o.eval = true;
  o.kern_ops = k.ops;
  o.kern = k.kern;
  return o;
}

static int64_t sent(const zr_zero_t *zero) {
  zr_account_t account;
  zr_cost_account(zr_program_find(zero->program, "step"), &account);
  return account.sent_bytes;
}

static void check_traffic(const zr_zero_t *zero, const zr_zero_options_t *o) {
  int64_t n = o->n_ranks, p = zero->n_params_padded * 4, reductions = zero->n_reductions;
  int64_t tied = zero->options.model.tie_word_embeddings ? zero->unit[0].flat_elems * 4 : 0;
  int64_t gathers = 1;
  if (o->stage == 3) gathers = o->order == ZR_ORDER_BREADTH ? 2 : 2 * o->n_micro;
  int64_t most = ((gathers * p) + reductions * (p + tied)) / n * (n - 1);
  int64_t small = 2000 * (n - 1); /* the integer all-reduces */
  assert_true(sent(zero) <= most + small);
}

static void check_one(kern_t k, zr_zero_options_t o) {
  zr_zero_t *zero = NULL;
  zr_status_t status = zr_zero_compile(NULL, &o, &zero);
  if (status != ZR_OK) {
    print_message("arch %d stage %d ranks %d micro %d order %d group %d prefetch %d: %s\n",
                  o.model.arch, o.stage, o.n_ranks, (int)o.n_micro, o.order, (int)o.group,
                  (int)o.prefetch, zr_detail());
    assert_int_equal(status, ZR_OK);
  }
  (void)k;
  if (o.n_ranks > 1) check_traffic(zero, &o);
  zr_zero_destroy(zero);
}

static void test_every_setting_verifies(void **state) {
  (void)state;
  kern_t k = open_kern();
  static const int64_t micros[] = {1, 2, 3, 4, 8, 12};
  static const zr_arch_t archs[] = {ZR_ARCH_GPT2, ZR_ARCH_LLAMA, ZR_ARCH_QWEN3};
  for (int arch = 0; arch < 3; arch++)
    for (int stage = 0; stage < 4; stage++)
      for (int n_ranks = 1; n_ranks <= 4; n_ranks++)
        for (size_t m = 0; m < sizeof micros / sizeof *micros; m++)
          for (int order = 0; order < 2; order++) {
            zr_zero_options_t o = options_for(k, archs[arch], stage, n_ranks, micros[m]);
            o.order = order;
            o.digest = m % 2 == 0;
            o.prefetch = (int64_t)m % 4;
            o.recompute = (int)m % 3;
            o.recompute_every = 1 + (int64_t)m % 2;
            for (int64_t a = -1; a < 1 || micros[m] % ((int64_t)1 << a) == 0; a++) {
              o.group = a;
              check_one(k, o);
            }
          }
  k.ops->close(k.kern);
}

/* 16-bit parameters: half the bytes on the wire, the rest of the master beside the moments. */
static void test_bf16_halves_what_travels(void **state) {
  (void)state;
  kern_t k = open_kern();
  for (int stage = 0; stage < 4; stage++) {
    int64_t bytes[3], states[3];
    for (int mode = 0; mode < 3; mode++) {
      zr_zero_options_t o = options_for(k, ZR_ARCH_LLAMA, stage, 4, 2);
      o.run.dtype = mode > 0 ? ZR_BF16 : ZR_F32;
      o.grad_dtype = mode > 1 ? ZR_BF16 : ZR_F32;
      zr_zero_t *zero = NULL;
      assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_OK);
      zr_account_t account;
      zr_cost_account(zr_program_find(zero->program, "step"), &account);
      bytes[mode] = account.sent_bytes;
      states[mode] = account.persistent_bytes[0][ZR_CATEGORY_PARAM];
      assert_int_equal(zero->unit[1].low >= 0, mode > 0);
      zr_zero_destroy(zero);
    }
    assert_int_equal(states[1] * 2, states[0]);
    assert_true(bytes[1] < bytes[0] || stage == 0);
    assert_true(bytes[2] < bytes[1]);
  }
  k.ops->close(k.kern);
}

static int64_t step_peak(const zr_zero_options_t *o, int *out_recompute) {
  zr_zero_t *zero = NULL;
  assert_int_equal(zr_zero_compile(NULL, o, &zero), ZR_OK);
  int64_t peak = zr_program_find(zero->program, "step")->peak_bytes[ZR_TIER_DEVICE];
  *out_recompute = zero->options.recompute;
  zr_zero_destroy(zero);
  return peak;
}

/* Less memory from none to attention to full; `auto` recomputes no more than the budget asks for
 * (a placement without lags may save as much). */
static void test_recompute_saves_memory(void **state) {
  (void)state;
  kern_t k = open_kern();
  for (int arch = 0; arch < ZR_N_ARCHS; arch++)
    for (int order = 0; order < 2; order++) {
      zr_zero_options_t o = options_for(k, (zr_arch_t)arch, 3, 2, 2);
      o.order = order;
      o.model.n_layers = 6;
      int64_t peak[3];
      for (int mode = 0; mode < 3; mode++) {
        int got;
        o.recompute = mode;
        peak[mode] = step_peak(&o, &got);
        assert_int_equal(got, mode);
      }
      assert_true(peak[1] < peak[0] && peak[2] < peak[1]);
      o.recompute_every = 2;
      int got;
      int64_t half = step_peak(&o, &got);
      assert_true(half < peak[0] && half > peak[2]);
      o.recompute_every = 1;
      o.recompute = ZR_RECOMPUTE_AUTO;
      for (int mode = 0; mode < 3; mode++) {
        o.place.budget_bytes[ZR_TIER_DEVICE] = peak[mode];
        o.prefetch = mode == 0 ? ZR_PREFETCH_AUTO : 1;
        int64_t fits = step_peak(&o, &got);
        assert_true(fits <= peak[mode] && got <= mode && got >= mode - 1);
      }
    }
  k.ops->close(k.kern);
}

static void test_leaves_cover_the_step(void **state) {
  (void)state;
  for (int n = 1; n <= 4; n++)
    for (int64_t a = 0; a <= 2; a++) {
      zr_zero_options_t o = {.n_ranks = n, .n_micro = 12, .group = a};
      bool seen[48] = {false};
      for (int r = 0; r < n; r++)
        for (int64_t g = 0; g < 12; g++) seen[zr_zero_leaf(&o, r, g)] = true;
      for (int i = 0; i < 12 * n; i++) assert_true(seen[i]);
    }
}

static void test_states_are_cut_by_stage(void **state) {
  (void)state;
  kern_t k = open_kern();
  int64_t whole[3] = {0}; /* param, grad, optimizer at stage 0 */
  for (int stage = 0; stage < 4; stage++) {
    zr_zero_options_t o = options_for(k, ZR_ARCH_LLAMA, stage, 4, 2);
    zr_zero_t *zero = NULL;
    assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_OK);
    zr_account_t account;
    zr_cost_account(zr_program_find(zero->program, "step"), &account);
    int64_t param = account.persistent_bytes[0][ZR_CATEGORY_PARAM];
    int64_t grad = account.persistent_bytes[0][ZR_CATEGORY_GRAD];
    int64_t states = account.persistent_bytes[0][ZR_CATEGORY_OPTIMIZER];
    if (stage == 0) whole[0] = param, whole[1] = grad, whole[2] = states;
    assert_int_equal(whole[0], zero->n_params_padded * 4);
    assert_int_equal(param, stage >= 3 ? whole[0] / 4 : whole[0]);
    assert_int_equal(grad, stage >= 2 ? 0 : whole[1]);
    assert_int_equal(states, stage >= 1 ? whole[2] / 4 : whole[2]);
    zr_zero_destroy(zero);
  }
  k.ops->close(k.kern);
}

/* What each optimizer keeps, under PyTorch's names, in fp32 and bf16, cut as AdamW's is. */
static void test_states_are_the_optimizers(void **state) {
  (void)state;
  static const struct {
    int32_t optimizer;
    bool no_momentum;
    int n_states;
    const char *name;
  } cases[] = {{0, false, 2, "exp_avg"},          {ZR_OP_ADAMW, false, 2, "exp_avg"},
               {ZR_OP_SGD, true, 0, NULL},        {ZR_OP_SGD, false, 1, "momentum_buffer"},
               {ZR_OP_LION, false, 1, "exp_avg"}, {ZR_OP_ADAGRAD, true, 1, "sum"}};
  kern_t k = open_kern();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int half = 0; half < 2; half++) {
      zr_zero_options_t o = options_for(k, ZR_ARCH_GPT2, 2, 4, 2);
      o.optimizer = cases[i].optimizer;
      o.no_momentum = cases[i].no_momentum;
      o.state_dtype = half ? ZR_BF16 : 0;
      zr_zero_t *zero = NULL;
      assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_OK);
      zr_account_t account;
      zr_cost_account(zr_program_find(zero->program, "step"), &account);
      assert_int_equal(account.persistent_bytes[0][ZR_CATEGORY_OPTIMIZER],
                       zero->n_params_padded / 4 * cases[i].n_states * (half ? 2 : 4));
      assert_int_equal(zr_zero_n_states(&o), cases[i].n_states);
      if (cases[i].name) assert_string_equal(zr_zero_state_name(&o, 0), cases[i].name);
      for (int s = 0; s < ZR_MAX_STATES; s++)
        assert_int_equal(zero->unit[0].state[s] >= 0, s < cases[i].n_states);
      zr_zero_destroy(zero);
    }
  k.ops->close(k.kern);
}

/* optimizer.decay: all tensors, or those of two dimensions; never padding. */
static void test_what_decays(void **state) {
  (void)state;
  kern_t k = open_kern();
  for (int matrices = 0; matrices < 2; matrices++) {
    zr_zero_options_t o = options_for(k, ZR_ARCH_GPT2, 1, 2, 2);
    o.decay_matrices = matrices;
    zr_zero_t *zero = NULL;
    assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_OK);
    int64_t n_kept = 0, n_elems = 0;
    for (size_t u = 0; u < zero->n_units; u++) {
      zr_kern_layout_t *layout = NULL;
      int64_t bytes = 0;
      assert_int_equal(zr_zero_layout(zero, u, &layout, &bytes), ZR_OK);
      for (int64_t t = 0; t < layout->n_tensors; t++) {
        const zr_flat_tensor_t *flat = &zero->flat_tensor[zero->unit[u].first_tensor + t];
        const zr_tape_tensor_t *tensor = &zero->tape->tensor[flat->tensor];
        bool vector = strstr(tensor->name, "bias") != NULL || strstr(tensor->name, "ln_") != NULL;
        assert_int_equal(layout->tensor[t].decays, !(vector && matrices));
        n_kept += vector;
        n_elems += layout->tensor[t].end - layout->tensor[t].begin;
      }
      zr_alloc_free(zr_alloc_default(), layout);
    }
    assert_int_equal(n_kept, 3 * 8 + 2); /* 2 norms and 4 biases of a block, the last norm */
    assert_int_equal(n_elems, zero->n_params);
    zr_zero_destroy(zero);
  }
  k.ops->close(k.kern);
}

static void test_wrong_settings_are_named(void **state) {
  (void)state;
  kern_t k = open_kern();
  zr_zero_t *zero = NULL;
  zr_zero_options_t o = options_for(k, ZR_ARCH_GPT2, 2, 2, 6);
  o.group = 2;
  assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_ERR_CONFIG);
  assert_non_null(strstr(zr_detail(), "plan.group"));
  o = options_for(k, ZR_ARCH_GPT2, 4, 2, 6);
  assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_ERR_CONFIG);
  assert_non_null(strstr(zr_detail(), "zero_optimization.stage"));
  o = options_for(k, ZR_ARCH_GPT2, 3, 2, 6);
  o.run.seq_len = 41;
  assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_ERR_CONFIG);
  o = options_for(k, ZR_ARCH_GPT2, 3, 2, 2);
  o.place.budget_bytes[ZR_TIER_DEVICE] = 100000;
  assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_ERR_OUT_OF_MEMORY);
  assert_null(zero);
  k.ops->close(k.kern);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tree_is_the_definition),
      cmocka_unit_test(test_leaves_cover_the_step),
      cmocka_unit_test(test_states_are_cut_by_stage),
      cmocka_unit_test(test_states_are_the_optimizers),
      cmocka_unit_test(test_what_decays),
      cmocka_unit_test(test_bf16_halves_what_travels),
      cmocka_unit_test(test_recompute_saves_memory),
      cmocka_unit_test(test_every_setting_verifies),
      cmocka_unit_test(test_wrong_settings_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
