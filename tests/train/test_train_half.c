/* 16-bit parameters as their fp32 masters: every rank fills the parameters it holds and the rest of
 * the masters it updates, over several windows; what the ranks then read is what was filled. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/train/states.h"
#include "tests/support/cmocka_all.h"

enum { ROWS = 3001, COLS = 1511, ELEMS = ROWS * COLS, BLOCK = 1024, PARAM = 0, LOW = 1 };

typedef struct {
  zr_zero_t zero;
  zr_tape_t tape;
  zr_tape_tensor_t tensor;
  zr_flat_tensor_t place;
  zr_zero_unit_t unit;
  uint16_t *param;
  void *low;
  int64_t low_bytes; /* of one element */
  zr_states_t states;
  int64_t n_read;
} rank_t;

static zr_status_t get(void *context, int32_t buffer, int64_t offset, void *out, int64_t bytes) {
  const rank_t *r = context;
  memcpy(out, (buffer == PARAM ? (char *)r->param : (char *)r->low) + offset, (size_t)bytes);
  return ZR_OK;
}

static zr_status_t put(void *context, int32_t buffer, int64_t offset, const void *data,
                       int64_t bytes) {
  const rank_t *r = context;
  memcpy((buffer == PARAM ? (char *)r->param : (char *)r->low) + offset, data, (size_t)bytes);
  return ZR_OK;
}

static rank_t *make_rank(zr_dtype_t dtype, int rank, int n_ranks, int stage) {
  rank_t *r = calloc(1, sizeof *r);
  assert_non_null(r);
  int64_t blocks = (ELEMS + 64 + BLOCK - 1) / BLOCK;
  int64_t shard = (blocks + n_ranks - 1) / n_ranks * BLOCK;
  r->tensor = (zr_tape_tensor_t){.name = "w", .n_dims = 2, .rows = ROWS, .cols = COLS};
  r->tape = (zr_tape_t){.tensor = &r->tensor, .n_tensors = 1, .dtype = dtype};
  r->place = (zr_flat_tensor_t){.tensor = 0, .begin = 64, .elems = ELEMS};
  r->unit = (zr_zero_unit_t){.n_tensors = 1,
                             .flat_elems = shard * n_ranks,
                             .shard_elems = shard,
                             .param = PARAM,
                             .low = LOW,
                             .param_sharded = stage == 3,
                             .optimizer_sharded = stage > 0};
  r->zero = (zr_zero_t){.tape = &r->tape, .unit = &r->unit, .n_units = 1, .flat_tensor = &r->place};
  r->zero.options.run.dtype = dtype;
  r->zero.options.n_ranks = n_ranks;
  r->zero.options.state_dtype = ZR_F32;
  r->zero.options.optimizer = ZR_OP_SGD; /* without states of its own */
  r->zero.options.no_momentum = true;
  r->low_bytes = dtype == ZR_BF16 ? 2 : 4;
  /* Exactly what the rank holds: anything beyond it is found by the sanitizer. */
  r->param = malloc((size_t)(stage == 3 ? shard : shard * n_ranks) * sizeof *r->param);
  r->low = malloc((size_t)((stage > 0 ? shard : shard * n_ranks) * r->low_bytes));
  assert_true(r->param != NULL && r->low != NULL);
  r->states = (zr_states_t){.alloc = zr_alloc_default(),
                            .zero = &r->zero,
                            .rank = rank,
                            .get = get,
                            .put = put,
                            .context = r};
  return r;
}

static void drop_rank(rank_t *r) {
  free(r->param);
  free(r->low);
  free(r);
}

/* Numbers with all their bits: ties of bf16, small ones, both signs. */
static float master_of(int64_t i) {
  uint32_t bits = (uint32_t)(i * 2654435761u);
  return zr_f32_of_bits((bits & 0x83ffffffu) | 0x3c000000u);
}

static zr_status_t fill_piece(void *context, const zr_piece_t *piece, float *data) {
  (void)context;
  for (int64_t i = piece->begin; i < piece->end; ++i) data[i - piece->begin] = master_of(i);
  return ZR_OK;
}

static zr_status_t check_piece(void *context, const zr_piece_t *piece, float *data) {
  rank_t *r = context;
  if (piece->kind != ZR_STATE_PARAM) return ZR_OK;
  for (int64_t i = piece->begin; i < piece->end; ++i) {
    if (zr_f32_bits(data[i - piece->begin]) != zr_f32_bits(master_of(i)))
      fail_msg("element %lld: %a, not %a", (long long)i, (double)data[i - piece->begin],
               (double)master_of(i));
  }
  r->n_read += piece->end - piece->begin;
  return ZR_OK;
}

/* Every parameter that the rank holds, its own shard's or not, is its master rounded. */
static void check_params(const rank_t *r, zr_dtype_t dtype) {
  int64_t first = r->unit.param_sharded ? r->unit.shard_elems * r->states.rank : 0;
  int64_t held = r->unit.param_sharded ? r->unit.shard_elems : r->unit.flat_elems;
  for (int64_t i = 0; i < held; ++i) {
    int64_t at = first + i - r->place.begin;
    float master = at >= 0 && at < ELEMS ? master_of(at) : 0;
    uint16_t want;
    int16_t low;
    zr_master_split(master, &want, &low);
    if (dtype == ZR_F16) want = zr_f16_from_f32(master);
    if (r->param[i] != want)
      fail_msg("parameter %lld: %x, not %x", (long long)i, r->param[i], want);
  }
}

/* A master that is a number, and not one of its 16-bit type. */
static void check_too_large(rank_t *r, zr_dtype_t dtype) {
  int16_t low;
  int64_t at = r->place.begin + 7;
  if (dtype == ZR_BF16) {
    zr_master_split(zr_f32_of_bits(0x7f7fffffu), &r->param[at], &low);
    ((int16_t *)r->low)[at] = low;
  } else {
    ((float *)r->low)[at] = 65520.0f;
  }
  assert_int_equal(zr_states_check_finite(&r->states), ZR_ERR_NUMERIC);
  char want[80];
  (void)snprintf(want, sizeof want, "parameter w, element 7, became too large for %s",
                 zr_dtype_name(dtype));
  assert_string_equal(zr_detail(), want);
  assert_int_equal(zr_states_fill(&r->states, ZR_STATE_PARAM, fill_piece, NULL), ZR_OK);
}

static void masters_come_back(void **state) {
  (void)state;
  static const zr_dtype_t dtypes[] = {ZR_BF16, ZR_F16};
  static const int stages[] = {0, 1, 3};
  for (int k = 0; k < 12; ++k) {
    zr_dtype_t dtype = dtypes[k % 2];
    int stage = stages[k / 2 % 3], n_ranks = k < 6 ? 1 : 3;
    int64_t n_read = 0;
    for (int rank = 0; rank < n_ranks; ++rank) {
      rank_t *r = make_rank(dtype, rank, n_ranks, stage);
      assert_int_equal(zr_states_fill(&r->states, ZR_STATE_PARAM, fill_piece, NULL), ZR_OK);
      check_params(r, dtype);
      assert_int_equal(zr_states_check_finite(&r->states), ZR_OK);
      if (n_ranks == 1) check_too_large(r, dtype);
      r->n_read = 0;
      assert_int_equal(zr_states_read_share(&r->states, check_piece, r), ZR_OK);
      n_read += r->n_read;
      drop_rank(r);
    }
    assert_int_equal(n_read, ELEMS);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(masters_come_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
