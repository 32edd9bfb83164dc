/* States that live away from the device: a share of them on the host, or chunks on disk. What is
 * filled comes back, through every place, and nothing else is touched. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/train/states.h"
#include "tests/support/cmocka_all.h"

enum { ROWS = 61, COLS = 113, ELEMS = ROWS * COLS, GRAIN = 1024, CHUNK = 2048, FLAT = 7 * GRAIN };
enum { PARAM, LOW, FIRST, SECOND, AWAY_LOW, AWAY_FIRST, AWAY_SECOND, PACKED, N_BUFFERS };

typedef struct {
  zr_zero_t zero;
  zr_tape_t tape;
  zr_tape_tensor_t tensor;
  zr_flat_tensor_t place;
  zr_zero_unit_t unit;
  char *memory[N_BUFFERS];
  int64_t bytes[N_BUFFERS];
  int64_t moved; /* the most that was asked for at once */
  zr_states_t states;
  int64_t n_read;
} model_t;

static void check_range(model_t *m, int32_t buffer, int64_t offset, int64_t bytes) {
  assert_in_range(buffer, 0, N_BUFFERS - 1);
  assert_true(offset >= 0 && bytes > 0 && offset + bytes <= m->bytes[buffer]);
  if (bytes > m->moved) m->moved = bytes;
}

static zr_status_t get(void *context, int32_t buffer, int64_t offset, void *out, int64_t bytes) {
  model_t *m = context;
  check_range(m, buffer, offset, bytes);
  memcpy(out, m->memory[buffer] + offset, (size_t)bytes);
  return ZR_OK;
}

static zr_status_t put(void *context, int32_t buffer, int64_t offset, const void *data,
                       int64_t bytes) {
  model_t *m = context;
  check_range(m, buffer, offset, bytes);
  memcpy(m->memory[buffer] + offset, data, (size_t)bytes);
  return ZR_OK;
}

static int64_t pad(int64_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

/* Chunks of CHUNK elements of `item` bytes. */
static int64_t chunks_bytes(int64_t elems, int64_t item) {
  int64_t whole = (elems - 1) / CHUNK;
  return whole * pad(CHUNK * item) + pad((elems - whole * CHUNK) * item);
}

typedef struct {
  zr_dtype_t dtype, state_dtype;
  uint8_t param, optimizer;
  int64_t away; /* elements of the optimizer's states */
} case_t;

static void give(model_t *m, int buffer, int64_t bytes) {
  m->bytes[buffer] = bytes;
  if (bytes == 0) return;
  m->memory[buffer] = malloc((size_t)bytes);
  assert_non_null(m->memory[buffer]);
  memset(m->memory[buffer], 0x5a, (size_t)bytes);
}

static void give_buffers(model_t *m, const case_t *c) {
  int64_t item = zr_dtype_bytes(c->dtype), state = zr_dtype_bytes(c->state_dtype);
  int64_t low = c->dtype == ZR_F32 ? 0 : c->dtype == ZR_BF16 ? 2 : 4;
  bool on_disk = c->optimizer == ZR_TIER_DISK;
  give(m, PARAM, c->param == ZR_TIER_DISK ? chunks_bytes(FLAT, item) : FLAT * item);
  give(m, LOW, (FLAT - c->away) * low);
  give(m, FIRST, (FLAT - c->away) * state);
  give(m, SECOND, (FLAT - c->away) * state);
  give(m, AWAY_LOW, on_disk ? 0 : c->away * low);
  give(m, AWAY_FIRST, on_disk ? 0 : c->away * state);
  give(m, AWAY_SECOND, on_disk ? 0 : c->away * state);
  give(m, PACKED, on_disk ? chunks_bytes(c->away, low + 2 * state) : 0);
}

static model_t *make_model(const case_t *c) {
  model_t *m = calloc(1, sizeof *m);
  assert_non_null(m);
  m->tensor = (zr_tape_tensor_t){.name = "w", .n_dims = 2, .rows = ROWS, .cols = COLS};
  m->tape = (zr_tape_t){.tensor = &m->tensor, .n_tensors = 1, .dtype = (int32_t)c->dtype};
  m->place = (zr_flat_tensor_t){.tensor = 0, .begin = 64, .elems = ELEMS};
  m->unit = (zr_zero_unit_t){.n_tensors = 1,
                             .flat_elems = FLAT,
                             .shard_elems = FLAT,
                             .param = PARAM,
                             .low = LOW,
                             .state = {FIRST, SECOND},
                             .away_elems = c->away,
                             .away_low = AWAY_LOW,
                             .away_state = {AWAY_FIRST, AWAY_SECOND},
                             .away_packed = c->optimizer == ZR_TIER_DISK ? PACKED : -1};
  m->zero = (zr_zero_t){.tape = &m->tape, .unit = &m->unit, .n_units = 1, .flat_tensor = &m->place};
  zr_zero_options_t *o = &m->zero.options;
  o->n_ranks = 1;
  o->run.dtype = c->dtype;
  o->state_dtype = c->state_dtype;
  o->optimizer = ZR_OP_ADAMW;
  o->chunk_elems = CHUNK;
  o->home.param = c->param;
  o->home.optimizer = c->optimizer;
  give_buffers(m, c);
  m->states = (zr_states_t){
      .alloc = zr_alloc_default(), .zero = &m->zero, .get = get, .put = put, .context = m};
  return m;
}

static void drop_model(model_t *m) {
  for (int i = 0; i < N_BUFFERS; ++i) free(m->memory[i]);
  free(m);
}

/* Representable in bf16 for states, with all bits of fp32 for masters. */
static float value_of(int kind, int64_t i) {
  if (kind != ZR_STATE_PARAM) return (float)(i % 251 - 125) * (kind == 1 ? 1.0f : 0.5f);
  return zr_f32_of_bits(((uint32_t)(i * 2654435761u) & 0x83ffffffu) | 0x3c000000u);
}

static zr_status_t fill_piece(void *context, const zr_piece_t *piece, float *data) {
  (void)context;
  for (int64_t i = piece->begin; i < piece->end; ++i) {
    data[i - piece->begin] = value_of(piece->kind, i);
  }
  return ZR_OK;
}

static zr_status_t check_piece(void *context, const zr_piece_t *piece, float *data) {
  model_t *m = context;
  for (int64_t i = piece->begin; i < piece->end; ++i) {
    float want = value_of(piece->kind, i);
    if (zr_f32_bits(data[i - piece->begin]) == zr_f32_bits(want)) continue;
    fail_msg("kind %d element %lld: %a, not %a", piece->kind, (long long)i,
             (double)data[i - piece->begin], (double)want);
  }
  m->n_read += piece->end - piece->begin;
  return ZR_OK;
}

static void states_come_back_from_every_place(void **state) {
  (void)state;
  static const zr_dtype_t types[][2] = {
      {ZR_F32, ZR_F32}, {ZR_BF16, ZR_F32}, {ZR_F16, ZR_F32}, {ZR_F32, ZR_BF16}, {ZR_BF16, ZR_BF16}};
  static const int64_t away[] = {0, GRAIN, 3 * GRAIN, FLAT};
  for (int i = 0; i < 5 * 4 * 4; ++i) {
    case_t c = {.dtype = types[i % 5][0], .state_dtype = types[i % 5][1]};
    c.away = away[i / 5 % 4];
    c.optimizer = i / 20 % 2 ? ZR_TIER_DISK : ZR_TIER_HOST;
    c.param = i / 40 % 2 ? ZR_TIER_DISK : ZR_TIER_DEVICE;
    model_t *m = make_model(&c);
    for (int kind = 0; kind < 3; ++kind) {
      assert_int_equal(zr_states_fill(&m->states, kind, fill_piece, m), ZR_OK);
    }
    assert_int_equal(zr_states_read_share(&m->states, check_piece, m), ZR_OK);
    assert_int_equal(m->n_read, 3 * ELEMS);
    if (c.optimizer == ZR_TIER_DISK && c.param == ZR_TIER_DISK && c.away == FLAT) {
      assert_in_range(m->moved, 1, CHUNK * 4);
    }
    drop_model(m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(states_come_back_from_every_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
