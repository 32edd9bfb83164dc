/* Checkpoints in plain memory: any rank count reads what any other wrote; what is damaged is
 * refused by name; an interrupted save leaves the last good one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/train/checkpoint.h"
#include "runtime/train/files.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/temp_dir.h"

enum { N_TENSORS = 3, N_UNITS = 2, MOST_RANKS = 4, SHARD = 1024 };

/* A model of three tensors in two units, as runtime/zero lays it out for n_ranks. */
typedef struct {
  zr_zero_t zero;
  zr_tape_t tape;
  zr_tape_tensor_t tensor[N_TENSORS];
  zr_flat_tensor_t flat_tensor[N_TENSORS];
  zr_zero_unit_t unit[N_UNITS];
  float *memory[3 * N_UNITS]; /* by buffer index */
  zr_states_t states;
} model_t;

static zr_status_t get(void *context, int32_t buffer, int64_t offset, void *out, int64_t bytes) {
  const model_t *model = context;
  memcpy(out, (char *)model->memory[buffer] + offset, (size_t)bytes);
  return ZR_OK;
}

static zr_status_t put(void *context, int32_t buffer, int64_t offset, const void *data,
                       int64_t bytes) {
  const model_t *model = context;
  memcpy((char *)model->memory[buffer] + offset, data, (size_t)bytes);
  return ZR_OK;
}

static float value_of(int kind, int tensor, int64_t index) {
  return (float)(1000000 * kind + 100000 * tensor + index);
}

/* stage 0: all whole; 1: moments cut; 3: parameters too. */
static model_t *make_model(int rank, int n_ranks, int stage, bool filled) {
  static const struct {
    const char *name;
    int64_t rows, cols, begin;
    int32_t unit, dims;
  } rows[N_TENSORS] = {{"wte.weight", 17, 70, 0, 0, 2}, /* 1190 elements */
                       {"ln.weight", 1, 77, 1216, 0, 1},
                       {"lm_head.weight", 50, 61, 0, 1, 2}}; /* 3050 */
  model_t *m = calloc(1, sizeof *m);
  assert_non_null(m);
  m->zero = (zr_zero_t){
      .tape = &m->tape, .unit = m->unit, .n_units = N_UNITS, .flat_tensor = m->flat_tensor};
  m->zero.options.n_ranks = n_ranks;
  m->zero.options.state_dtype = ZR_F32;
  m->tape = (zr_tape_t){.tensor = m->tensor, .n_tensors = N_TENSORS, .dtype = ZR_F32};
  for (int t = 0; t < N_TENSORS; ++t) {
    m->tensor[t] = (zr_tape_tensor_t){
        .unit = rows[t].unit, .n_dims = rows[t].dims, .rows = rows[t].rows, .cols = rows[t].cols};
    (void)snprintf(m->tensor[t].name, sizeof m->tensor[t].name, "%s", rows[t].name);
    m->flat_tensor[t] = (zr_flat_tensor_t){
        .tensor = t, .begin = rows[t].begin, .elems = rows[t].rows * rows[t].cols};
  }
  for (int u = 0; u < N_UNITS; ++u) {
    int64_t used = u == 0 ? 1293 : 3050, blocks = (used + SHARD - 1) / SHARD;
    int64_t shard = (blocks + n_ranks - 1) / n_ranks * SHARD;
    m->unit[u] = (zr_zero_unit_t){.first_tensor = u == 0 ? 0 : 2,
                                  .n_tensors = u == 0 ? 2 : 1,
                                  .flat_elems = shard * n_ranks,
                                  .shard_elems = shard,
                                  .param = 3 * u,
                                  .state = {3 * u + 1, 3 * u + 2},
                                  .param_sharded = stage == 3,
                                  .optimizer_sharded = stage > 0};
    for (int kind = 0; kind < 3; ++kind) {
      float *memory = malloc((size_t)(shard * n_ranks) * sizeof *memory);
      assert_non_null(memory);
      m->memory[3 * u + kind] = memory;
      for (int64_t i = 0; i < shard * n_ranks; ++i) memory[i] = -1;
      bool cut = kind == 0 ? stage == 3 : stage > 0;
      int64_t from = cut ? shard * rank : 0;
      for (int t = 0; filled && t < N_TENSORS; ++t) {
        if (rows[t].unit != u) continue;
        for (int64_t i = 0; i < m->flat_tensor[t].elems; ++i) {
          int64_t at = m->flat_tensor[t].begin + i - from;
          if (at >= 0 && at < (cut ? shard : shard * n_ranks)) memory[at] = value_of(kind, t, i);
        }
      }
    }
  }
  m->states = (zr_states_t){.alloc = zr_alloc_default(),
                            .zero = &m->zero,
                            .rank = rank,
                            .get = get,
                            .put = put,
                            .context = m};
  return m;
}

static void drop_model(model_t *m) {
  for (int i = 0; i < 3 * N_UNITS; ++i) free(m->memory[i]);
  free(m);
}

/* Every element that the rank holds is right, padding is zero. */
static void check_model(const model_t *m, int rank, int stage) {
  for (int u = 0; u < N_UNITS; ++u) {
    for (int kind = 0; kind < 3; ++kind) {
      bool cut = kind == 0 ? stage == 3 : stage > 0;
      int64_t shard = m->unit[u].shard_elems, from = cut ? shard * rank : 0;
      for (int64_t i = 0; i < (cut ? shard : m->unit[u].flat_elems); ++i) {
        float want = 0;
        for (int t = m->unit[u].first_tensor; t < m->unit[u].first_tensor + m->unit[u].n_tensors;
             ++t) {
          int64_t index = from + i - m->flat_tensor[t].begin;
          if (index >= 0 && index < m->flat_tensor[t].elems) want = value_of(kind, t, index);
        }
        if (m->memory[3 * u + kind][i] != want) {
          fail_msg("unit %d kind %d element %lld: %g, not %g", u, kind, (long long)i,
                   (double)m->memory[3 * u + kind][i], (double)want);
        }
      }
    }
  }
}

static const char options_text[] = "optimizer:\n  params:\n    lr: 0.001\nrun:\n  seed: 3\n";

static void save(int64_t step, int n_ranks, int stage, bool commit) {
  zr_checkpoint_file_t file[MOST_RANKS];
  assert_int_equal(zr_checkpoint_begin(temp_dir, step), ZR_OK);
  model_t *model = NULL;
  for (int rank = 0; rank < n_ranks; ++rank) {
    if (model != NULL) drop_model(model);
    model = make_model(rank, n_ranks, stage, true);
    assert_int_equal(zr_checkpoint_write(&model->states, temp_dir, step, &file[rank]), ZR_OK);
  }
  zr_checkpoint_manifest_t manifest = {.counters = {.step = step,
                                                    .iteration = step + 2,
                                                    .skipped = 2,
                                                    .tokens = 1ll << 40,
                                                    .digest = {0xfedcba9876543210ull, 5}},
                                       .options = options_text,
                                       .kernels = "cpu",
                                       .zero = &model->zero,
                                       .file = file,
                                       .n_files = (size_t)n_ranks};
  if (commit)
    assert_int_equal(zr_checkpoint_commit(zr_alloc_default(), temp_dir, &manifest), ZR_OK);
  drop_model(model);
}

static zr_checkpoint_t *open_latest(void) {
  zr_checkpoint_t *checkpoint = NULL;
  zr_status_t status = zr_checkpoint_open_latest(zr_alloc_default(), temp_dir, &checkpoint);
  if (status != ZR_OK) print_error("%s\n", zr_detail());
  assert_int_equal(status, ZR_OK);
  return checkpoint;
}

static void any_ranks_read_what_others_wrote(void **state) {
  (void)state;
  static const int stages[] = {0, 1, 3};
  int64_t step = 0;
  for (int writers = 1; writers <= MOST_RANKS; ++writers) {
    for (int s = 0; s < 3; ++s) {
      save(++step, writers, stages[s], true);
      zr_checkpoint_t *checkpoint = open_latest();
      const zr_checkpoint_counters_t *c = zr_checkpoint_counters(checkpoint);
      assert_int_equal(c->step, step);
      assert_int_equal(c->iteration, step + 2);
      assert_int_equal(c->tokens, 1ll << 40);
      assert_true(c->digest[0] == 0xfedcba9876543210ull);
      for (int readers = 1; readers <= MOST_RANKS; ++readers) {
        for (int rank = 0; rank < readers; ++rank) {
          int stage = stages[(s + rank + readers) % 3];
          model_t *model = make_model(rank, readers, stage, false);
          assert_int_equal(zr_checkpoint_verify(checkpoint, rank, readers), ZR_OK);
          assert_int_equal(zr_checkpoint_load(checkpoint, &model->states), ZR_OK);
          check_model(model, rank, stage);
          drop_model(model);
        }
      }
      zr_checkpoint_close(checkpoint);
    }
  }
}

static void an_interrupted_save_leaves_the_last_good_one(void **state) {
  (void)state;
  save(100, 2, 3, true);
  save(101, 2, 3, false); /* killed before the manifest */
  char path[ZR_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/.writing-step-00000101", temp_dir);
  assert_int_equal(access(path, F_OK), 0);
  zr_checkpoint_t *checkpoint = open_latest();
  assert_int_equal(zr_checkpoint_counters(checkpoint)->step, 100);
  zr_checkpoint_close(checkpoint);
  save(101, 2, 3, true); /* the same step again, over what was left */
  checkpoint = open_latest();
  assert_int_equal(zr_checkpoint_counters(checkpoint)->step, 101);
  zr_checkpoint_close(checkpoint);
  save(101, 3, 0, true); /* and over a whole one */
  checkpoint = open_latest();
  assert_int_equal(zr_checkpoint_verify(checkpoint, 0, 1), ZR_OK);
  zr_checkpoint_close(checkpoint);
}

/* Message without the folder. */
static const char *message(void) {
  static char text[600];
  const char *rest = zr_detail(), *at = strstr(rest, temp_dir);
  (void)snprintf(text, sizeof text, "%.*s%s", at ? (int)(at - rest) : 0, rest,
                 at ? at + strlen(temp_dir) + 1 : rest);
  return text;
}

static void poke(const char *name, long at, int change) {
  char path[ZR_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/%s", temp_dir, name);
  FILE *file = fopen(path, "r+");
  assert_non_null(file);
  assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
  int byte = fgetc(file);
  assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
  assert_true(fputc(byte ^ change, file) != EOF);
  assert_int_equal(fclose(file), 0);
}

static void damage_is_named(void **state) {
  (void)state;
  static const char file[] = "step-00000200/rank-00001-of-00002.safetensors";
  char path[ZR_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/%s", temp_dir, file);
  save(200, 2, 3, true);
  poke(file, -100, 1);
  zr_checkpoint_t *checkpoint = open_latest();
  assert_int_equal(zr_checkpoint_verify(checkpoint, 0, 2), ZR_OK); /* the other rank's file */
  assert_int_equal(zr_checkpoint_verify(checkpoint, 1, 2), ZR_ERR_DATA);
  assert_string_equal(message(),
                      "step-00000200/rank-00001-of-00002.safetensors is damaged: its checksum does "
                      "not fit the manifest's; to go on from an older checkpoint write its name "
                      "into checkpoints/latest");
  zr_checkpoint_close(checkpoint);
  struct stat about;
  assert_int_equal(stat(path, &about), 0);
  assert_int_equal(truncate(path, about.st_size - 8), 0);
  assert_int_equal(zr_checkpoint_open_latest(zr_alloc_default(), temp_dir, &checkpoint),
                   ZR_ERR_DATA);
  assert_string_equal(message(), "step-00000200/rank-00001-of-00002.safetensors is cut off");
  assert_int_equal(truncate(path, 5), 0);
  assert_int_equal(zr_checkpoint_open_latest(zr_alloc_default(), temp_dir, &checkpoint),
                   ZR_ERR_DATA);
  assert_string_equal(message(),
                      "step-00000200/rank-00001-of-00002.safetensors is cut off: it has 5 bytes");
  assert_int_equal(unlink(path), 0);
  assert_int_equal(zr_checkpoint_open_latest(zr_alloc_default(), temp_dir, &checkpoint),
                   ZR_ERR_DATA);
  assert_string_equal(message(),
                      "can not open step-00000200/rank-00001-of-00002.safetensors: No such file or "
                      "directory");
  save(201, 2, 3, true);
  poke("step-00000201/manifest.json", 60, 2);
  assert_int_equal(zr_checkpoint_open_latest(zr_alloc_default(), temp_dir, &checkpoint),
                   ZR_ERR_DATA);
  assert_non_null(strstr(message(), "step-00000201/manifest.json"));
}

static void other_options_are_refused(void **state) {
  (void)state;
  save(300, 1, 0, true);
  zr_checkpoint_t *checkpoint = open_latest();
  assert_int_equal(zr_checkpoint_compare(checkpoint, options_text, "cpu"), ZR_OK);
  assert_int_equal(
      zr_checkpoint_compare(checkpoint, "optimizer:\n  params:\n    lr: 0.002\nrun:\n  seed: 3\n",
                            "cpu"),
      ZR_ERR_CONFIG);
  assert_string_equal(message(),
                      "step-00000300 was made with optimizer.params.lr: 0.001, now it is 0.002; "
                      "continue with the same options, start a new run.dir, or set "
                      "checkpoint.ignore_options=true");
  assert_int_equal(zr_checkpoint_compare(checkpoint, options_text, "ref"), ZR_ERR_CONFIG);
  model_t *model = make_model(0, 1, 0, false);
  model->tensor[2].cols = 62;
  assert_int_equal(zr_checkpoint_load(checkpoint, &model->states), ZR_ERR_DATA);
  assert_string_equal(message(),
                      "step-00000300: tensor lm_head.weight is 50 x 61 there, the model here has "
                      "50 x 62");
  drop_model(model);
  zr_checkpoint_close(checkpoint);
}

static bool is_there(const char *name) {
  char path[ZR_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/%s", temp_dir, name);
  return access(path, F_OK) == 0;
}

static void old_ones_are_removed(void **state) {
  (void)state;
  for (int64_t step = 400; step <= 450; step += 10) save(step, 1, 0, true);
  save(460, 1, 0, false);
  zr_checkpoint_prune(temp_dir, 450, 2, 210);
  assert_true(is_there("step-00000450") && is_there("step-00000440") && is_there("step-00000420"));
  assert_false(is_there("step-00000430") || is_there("step-00000410") || is_there("step-00000400"));
  assert_false(is_there(".writing-step-00000460") || is_there("step-00000300"));
}

static void nothing_is_left_when_memory_fails(void **state) {
  (void)state;
  save(500, 2, 3, true);
  zr_alloc_t alloc;
  zr_status_t status = ZR_ERR_OUT_OF_MEMORY;
  for (int64_t n = 1; status != ZR_OK; ++n) {
    assert_true(n < 100);
    zr_alloc_init(&alloc);
    alloc.fail_at = n;
    zr_checkpoint_t *checkpoint = NULL;
    model_t *model = make_model(1, 2, 1, false);
    model->states.alloc = &alloc;
    status = zr_checkpoint_open_latest(&alloc, temp_dir, &checkpoint);
    if (status == ZR_OK) status = zr_checkpoint_verify(checkpoint, 1, 2);
    if (status == ZR_OK) status = zr_checkpoint_load(checkpoint, &model->states);
    zr_checkpoint_close(checkpoint);
    drop_model(model);
    assert_true(status == ZR_OK || status == ZR_ERR_OUT_OF_MEMORY);
    assert_int_equal(alloc.live_count, 0);
  }
}

static void an_unwritable_folder_is_named(void **state) {
  (void)state;
  assert_int_equal(zr_checkpoint_begin("/proc/zerorun", 1), ZR_ERR_IO);
  assert_non_null(strstr(zr_detail(), "can not make the folder /proc/zerorun"));
  FILE *full = fopen("/dev/full", "w");
  assert_non_null(full);
  assert_int_equal(zr_files_write_all(fileno(full), "/dev/full", "x", 1), ZR_ERR_NO_SPACE);
  assert_string_equal(zr_detail(),
                      "can not write /dev/full: No space left on device; free some space or set "
                      "run.dir elsewhere");
  (void)fclose(full);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_ranks_read_what_others_wrote),
      cmocka_unit_test(an_interrupted_save_leaves_the_last_good_one),
      cmocka_unit_test(damage_is_named),
      cmocka_unit_test(other_options_are_refused),
      cmocka_unit_test(old_ones_are_removed),
      cmocka_unit_test(nothing_is_left_when_memory_fails),
      cmocka_unit_test(an_unwritable_folder_is_named),
  };
  return cmocka_run_group_tests(tests, make_temp_dir, remove_temp_dir);
}
