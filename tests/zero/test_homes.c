/* Homes: every legal placement of states compiles and verifies; nothing stays on the device that
 * lives elsewhere; where elements lie is what the plan holds. */
#include <string.h>

#include "runtime/plan/cost.h"
#include "runtime/zero/zero.h"
#include "tests/support/cmocka_all.h"

static const zr_kern_ops_t *kern_ops;
static zr_kern_t *kern;

static zr_zero_options_t options_for(int stage, int n_ranks, int64_t n_micro) {
  zr_zero_options_t o;
  zr_zero_defaults(&o);
  zr_model_defaults(ZR_ARCH_LLAMA, &o.model);
  o.model.vocab_size = 65;
  o.model.hidden_size = 24;
  o.model.n_layers = 3;
  o.model.n_heads = 3;
  o.model.head_dim = 10;
  o.model.n_kv_heads = 1;
  o.model.intermediate_size = 50;
  o.model.max_positions = 40;
  o.run = (zr_model_run_t){.micro_batch = 2, .seq_len = 20};
  o.stage = stage;
  o.n_ranks = n_ranks;
  o.n_micro = n_micro;
  o.eval = true;
  o.digest = true;
  o.kern_ops = kern_ops;
  o.kern = kern;
  o.chunk_elems = 2048;
  return o;
}

static zr_zero_t *compile(const zr_zero_options_t *o) {
  zr_zero_t *zero = NULL;
  if (zr_zero_compile(NULL, o, &zero) == ZR_OK) return zero;
  print_message("stage %d ranks %d micro %d order %d homes %d %d %d %d slots %d: %s\n", o->stage,
                o->n_ranks, (int)o->n_micro, o->order, o->home.param, o->home.grad,
                o->home.optimizer, o->home.activation, (int)o->n_slots, zr_detail());
  _fail(__FILE__, __LINE__);
  return NULL;
}

static bool is_legal(const zr_zero_options_t *o) {
  if (o->home.param != ZR_TIER_DEVICE && o->n_ranks > 1 && o->stage != 3) return false;
  return o->home.optimizer != ZR_TIER_DEVICE ||
         (o->home.param == ZR_TIER_DEVICE && o->home.grad == ZR_TIER_DEVICE);
}

static void test_every_home_verifies(void **state) {
  (void)state;
  int n = 0;
  for (int homes = 0; homes < 81; homes++)
    for (int stage = 0; stage < 4; stage++)
      for (int n_ranks = 1; n_ranks <= 3; n_ranks += 2)
        for (int order = 0; order < 2; order++, n++) {
          zr_zero_options_t o = options_for(stage, n_ranks, n % 3 + 1);
          o.home = (zr_homes_t){(uint8_t)(homes % 3), (uint8_t)(homes / 3 % 3),
                                (uint8_t)(homes / 9 % 3), (uint8_t)(homes / 27)};
          o.order = order;
          o.prefetch = n % 3;
          o.n_slots = 1 + n % 4;
          o.chunk_elems = 1024 * (1 + n % 5);
          o.recompute = n / 2 % 3;
          o.run.dtype = n % 5 == 0 ? ZR_F32 : ZR_BF16;
          if (!is_legal(&o)) continue;
          zr_zero_destroy(compile(&o));
        }
}

static int64_t persistent(const zr_zero_t *zero, zr_tier_t tier, zr_category_t category) {
  zr_account_t account;
  zr_cost_account(zr_program_find(zero->program, "step"), &account);
  return account.persistent_bytes[tier][category];
}

/* Moved down, a state leaves the device whole. */
static void test_states_leave_the_device(void **state) {
  (void)state;
  for (uint8_t home = ZR_TIER_HOST; home <= ZR_TIER_DISK; home++) {
    zr_zero_options_t o = options_for(3, 2, 2);
    o.run.dtype = ZR_BF16;
    o.home = (zr_homes_t){home, home, home, ZR_TIER_DEVICE};
    zr_zero_t *zero = compile(&o);
    const int64_t per_rank = zero->n_params_padded / 2;
    assert_int_equal(persistent(zero, ZR_TIER_DEVICE, ZR_CATEGORY_PARAM), 0);
    assert_int_equal(persistent(zero, ZR_TIER_DEVICE, ZR_CATEGORY_GRAD), 0);
    assert_int_equal(persistent(zero, ZR_TIER_DEVICE, ZR_CATEGORY_OPTIMIZER), 0);
    assert_true(persistent(zero, (zr_tier_t)home, ZR_CATEGORY_PARAM) >= per_rank * 2);
    assert_true(persistent(zero, (zr_tier_t)home, ZR_CATEGORY_OPTIMIZER) >= per_rank * 10);
    zr_zero_destroy(zero);
  }
}

/* In `breadth` parameters, gradients and states travel once a step, however many micro-batches; in
 * `depth` parameters travel for each. */
static void test_breadth_moves_states_once(void **state) {
  (void)state;
  for (int order = 0; order < 2; order++) {
    zr_account_t account[3];
    for (int k = 0; k < 3; k++) {
      zr_zero_options_t o = options_for(3, 1, (int64_t)1 << k);
      o.home = (zr_homes_t){ZR_TIER_DISK, ZR_TIER_DISK, ZR_TIER_DISK, ZR_TIER_DEVICE};
      o.order = order;
      o.recompute = ZR_RECOMPUTE_FULL;
      zr_zero_t *zero = compile(&o);
      zr_cost_account(zr_program_find(zero->program, "step"), &account[k]);
      zr_zero_destroy(zero);
    }
    for (int k = 1; k < 3; k++) {
      const bool same = account[k].disk_read_bytes == account[0].disk_read_bytes &&
                        account[k].disk_write_bytes == account[0].disk_write_bytes &&
                        account[k].h2d_bytes == account[0].h2d_bytes &&
                        account[k].d2h_bytes == account[0].d2h_bytes;
      assert_int_equal(same, order == ZR_ORDER_BREADTH);
    }
  }
}

/* Every element of every state has a place of its own. */
static void check_places(const zr_zero_t *zero, int held, int64_t elems, int64_t item,
                         size_t unit) {
  int64_t elem = 0, before_end = -1;
  int32_t before = -1;
  while (elem < elems) {
    const zr_zero_place_t place = zr_zero_place(zero, unit, held, elem);
    const zr_buffer_t *buffer = &zero->program->plan[0]->buffer[place.buffer];
    assert_true(place.elems > 0 && elem + place.elems <= elems);
    assert_true(place.offset >= 0 && place.offset + place.elems * item <= buffer->bytes);
    if (place.buffer == before) assert_true(place.offset >= before_end);
    before = place.buffer;
    before_end = place.offset + place.elems * item;
    const zr_zero_place_t last = zr_zero_place(zero, unit, held, elem + place.elems - 1);
    assert_int_equal(last.buffer, place.buffer);
    assert_int_equal(last.offset, place.offset + (place.elems - 1) * item);
    assert_int_equal(last.elems, 1);
    elem += place.elems;
  }
}

static void test_places(void **state) {
  (void)state;
  for (int n = 0; n < 9; n++) {
    zr_zero_options_t o = options_for(n % 2 == 0 ? 3 : 0, n % 2 == 0 ? 2 : 1, 1);
    o.home.optimizer = (uint8_t)(n % 3);
    o.home.param = n < 3 ? ZR_TIER_DEVICE : o.home.optimizer;
    o.ratio = o.home.param == ZR_TIER_DEVICE && n % 3 != 0 ? 0.4 : 0;
    o.chunk_elems = 3072;
    o.run.dtype = ZR_BF16;
    zr_zero_t *zero = compile(&o);
    for (size_t u = 0; u < zero->n_units; u++) {
      const zr_zero_unit_t *unit = &zero->unit[u];
      const int64_t elems = unit->optimizer_sharded ? unit->shard_elems : unit->flat_elems;
      check_places(zero, ZR_HELD_PARAM, elems, 2, u);
      check_places(zero, ZR_HELD_LOW, elems, 2, u);
      check_places(zero, ZR_HELD_STATE, elems, 4, u);
      check_places(zero, ZR_HELD_STATE + 1, elems, 4, u);
    }
    zr_zero_destroy(zero);
  }
}

static void refused(zr_zero_options_t o, const char *why) {
  zr_zero_t *zero = NULL;
  assert_int_equal(zr_zero_compile(NULL, &o, &zero), ZR_ERR_CONFIG);
  if (strstr(zr_detail(), why) == NULL) fail_msg("%s: expected \"%s\"", zr_detail(), why);
}

static void test_what_does_not_fit_together(void **state) {
  (void)state;
  zr_zero_options_t o = options_for(2, 2, 1);
  o.home = (zr_homes_t){.param = ZR_TIER_HOST, .optimizer = ZR_TIER_HOST};
  refused(o, "stage is 2");
  o = options_for(3, 2, 1);
  o.home.param = ZR_TIER_HOST;
  refused(o, "offload_optimizer");
  o = options_for(3, 1, 1);
  o.chunk_elems = 1000;
  refused(o, "plan.chunk");
  o = options_for(3, 1, 1);
  o.n_slots = 999;
  refused(o, "plan.slots");
  o = options_for(3, 1, 1);
  o.home = (zr_homes_t){.param = ZR_TIER_HOST, .optimizer = ZR_TIER_HOST};
  o.ratio = 0.5;
  refused(o, "ratio");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_home_verifies),
      cmocka_unit_test(test_states_leave_the_device),
      cmocka_unit_test(test_breadth_moves_states_once),
      cmocka_unit_test(test_places),
      cmocka_unit_test(test_what_does_not_fit_together),
  };
  assert_int_equal(zr_kern_ref_open(NULL, ZR_F32, &kern_ops, &kern), ZR_OK);
  const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
  kern_ops->close(kern);
  return n_failed;
}
