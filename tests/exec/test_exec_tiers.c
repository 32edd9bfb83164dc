/* Plans over three tiers: serial = concurrent = with delays, bit for bit; bytes over each link are
 * the plan's; reading and writing what persists on any tier. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mini_tiers.h"
#include "tests/support/temp_dir.h"

typedef struct {
  bool serial, run_ahead, cpu_kernels, map_host;
  bool real_disk; /* and the real mapping of host memory */
  int disk_kind;  /* zr_disk_kind_t */
  uint64_t delay_seed, disk_seed;
  int n_threads, poison;
} run_mode_t;

typedef struct {
  void *contents;
  int64_t bytes;
  zr_step_record_t record;
} result_t;

static int n_mapped;

static zr_status_t map_host(int64_t bytes, bool pin, zr_host_memory_t *out_memory) {
  void *memory =
      mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  n_mapped++;
  *out_memory = (zr_host_memory_t){.memory = memory, .bytes = bytes, .is_pinned = pin};
  return ZR_OK;
}

static void unmap_host(zr_host_memory_t *memory) {
  assert_int_equal(munmap(memory->memory, (size_t)memory->bytes), 0);
  n_mapped--;
}

static void check_bytes(mini_t *mini, int64_t n_steps, int64_t n_evals) {
  zr_exec_stats_t stats;
  zr_exec_stats(mini->exec, &stats);
  for (int l = 0; l < ZR_N_LINKS; l++) {
    assert_int_equal(stats.moved_bytes[l],
                     n_steps * tiers_step_bytes[l] + n_evals * tiers_eval_bytes[l]);
    assert_int_equal(stats.moving_bytes[l], 0);
  }
}

/* What the eval plan left in the probe, from what the disk holds. */
static void check_probe(mini_t *mini) {
  static float sum[TIERS_ELEMS], part[TIERS_ELEMS], probe[TIERS_ELEMS];
  for (int i = 0; i < TIERS_ELEMS; i++) sum[i] = 1;
  for (int u = 0; u < TIERS_UNITS; u++) {
    assert_ok(zr_exec_download(mini->exec, mini->state[u], 0, part, TIERS_PART_BYTES));
    for (int i = 0; i < TIERS_ELEMS; i++) sum[i] += part[i];
  }
  assert_ok(zr_exec_download(mini->exec, mini->probe, 0, probe, TIERS_PART_BYTES));
  assert_memory_equal(probe, sum, TIERS_PART_BYTES);
}

static void set_mode(mini_t *mini, const run_mode_t *mode) {
  if (mode->n_threads > 1) {
    assert_ok(zr_pool_create(&mini->alloc, mode->n_threads, &mini->pool));
    mini->options.pool = mini->pool;
  }
  if (mode->cpu_kernels) mini_use_cpu_kernels(mini);
  if (mode->map_host) {
    mini->options.host_map = map_host;
    mini->options.host_unmap = unmap_host;
    mini->options.pin_host = true;
  }
  mini->options.serial = mode->serial;
  mini->options.delay_seed = mode->delay_seed;
  mini->options.delay_max_ns = 300000;
  mini->options.poison = mode->poison;
}

/* Files, with checksums: what was never written must not be read. */
static void use_real_disk(mini_t *mini, int kind) {
  const char *path = temp_dir;
  const zr_disk_options_t options = {.kind = kind,
                                     .path = &path,
                                     .n_paths = 1,
                                     .bytes = tiers_disk_bytes(mini),
                                     .node_bytes = tiers_disk_bytes(mini),
                                     .block_bytes = 8192,
                                     .queue_depth = 4,
                                     .checksums = true};
  mini->disk_ops->close(mini->disk);
  assert_ok(zr_disk_open(&mini->alloc, &options, &mini->disk_ops, &mini->disk));
  mini->options.disk_ops = mini->disk_ops;
  mini->options.disk = mini->disk;
  mini->options.host_map = zr_host_map;
  mini->options.host_unmap = zr_host_unmap;
}

static result_t run_mode(const run_mode_t *mode) {
  mini_t mini;
  result_t result = {0};
  const memdisk_options_t slow = {.delay_seed = mode->disk_seed, .delay_max_ns = 400000};
  tiers_open(&mini, NULL);
  set_mode(&mini, mode);
  if (mode->real_disk) use_real_disk(&mini, mode->disk_kind);
  tiers_start(&mini, mode->real_disk ? NULL : &slow);
  assert_true(zr_exec_host_memory(mini.exec)->is_pinned == mode->map_host);
  const int64_t calls = mini.alloc.n_calls;
  for (int64_t i = 1; i <= 6; i++) {
    assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
    if (!mode->run_ahead) assert_ok(zr_exec_wait(mini.exec));
    if (i == 3) assert_ok(zr_exec_start(mini.exec, MINI_EVAL, i));
  }
  assert_ok(zr_exec_record(mini.exec, 6, &result.record));
  for (int64_t i = 1; i <= 2; i++) assert_ok(zr_exec_start(mini.exec, MINI_EVAL, i));
  assert_ok(zr_exec_wait(mini.exec));
  assert_int_equal(mini.alloc.n_calls, calls);
  check_bytes(&mini, 6, 3);
  check_probe(&mini);
  result.contents = mini_contents(&mini, &result.bytes);
  mini_close(&mini);
  assert_int_equal(n_mapped, 0);
  return result;
}

static void test_modes_agree(void **state) {
  (void)state;
  const run_mode_t oracle_mode = {.serial = true, .poison = -1};
  result_t oracle = run_mode(&oracle_mode);
  assert_int_equal(oracle.record.step, 6);
  assert_true(oracle.record.digest_params != 0 && oracle.record.digest_states != 0);
  const run_mode_t modes[] = {
      {.poison = -1},
      {.poison = 255, .run_ahead = true, .map_host = true},
      {.poison = 0xa5, .run_ahead = true, .n_threads = 3, .disk_seed = 1},
      {.poison = 0, .delay_seed = 1},
      {.poison = -1, .delay_seed = 2, .disk_seed = 2, .run_ahead = true, .n_threads = 2},
      {.poison = 255, .cpu_kernels = true, .n_threads = 2, .run_ahead = true, .disk_seed = 3},
      {.serial = true, .poison = 255, .map_host = true, .disk_seed = 4},
      {.poison = -1, .real_disk = true, .disk_kind = ZR_DISK_POSIX, .run_ahead = true},
      {.poison = 255, .real_disk = true, .disk_kind = ZR_DISK_AUTO, .run_ahead = true},
  };
  for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
    result_t other = run_mode(&modes[m]);
    assert_int_equal(oracle.bytes, other.bytes);
    assert_memory_equal(oracle.contents, other.contents, (size_t)oracle.bytes);
    assert_memory_equal(&oracle.record, &other.record, sizeof oracle.record);
    free(other.contents);
  }
  free(oracle.contents);
}

/* --- what persists --- */

static void check_part(mini_t *mini, int32_t buffer, const char *expected, int64_t offset,
                       int64_t bytes) {
  static char got[TIERS_STATE_BYTES];
  assert_ok(zr_exec_download(mini->exec, buffer, offset, got, bytes));
  assert_memory_equal(got, expected + offset, (size_t)bytes);
}

/* Any offset and length, on a disk that knows which of its grains were never written. */
static void test_odd_parts_of_a_disk(void **state) {
  (void)state;
  mini_t mini;
  tiers_open(&mini, NULL);
  assert_ok(zr_exec_create(&mini.alloc, &mini.options, &mini.exec));
  static char shadow[TIERS_STATE_BYTES], piece[TIERS_STATE_BYTES];
  static const int64_t cuts[][2] = {{5, 3},         {4095, 1},    {4096, 4096}, {4090, 10},
                                    {8193, 12000},  {8192, 4097}, {0, 0},       {20479, 4098},
                                    {24576, 24576}, {1, 20000},   {49151, 1},   {0, 49152}};
  for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
    const int64_t offset = cuts[c][0], bytes = cuts[c][1];
    for (int64_t i = 0; i < bytes; i++) piece[i] = (char)(i * 7 + (int64_t)c + 1);
    memcpy(shadow + offset, piece, (size_t)bytes);
    assert_ok(zr_exec_upload(mini.exec, mini.state[1], offset, piece, bytes));
    check_part(&mini, mini.state[1], shadow, offset, bytes);
    if (c > 9) check_part(&mini, mini.state[1], shadow, 3, 49149);
  }
  mini_close(&mini);
}

/* What nobody uploaded is zero, for the loop and for operations, and what was uploaded stays. */
static void test_fresh_states_on_disk_are_zero(void **state) {
  (void)state;
  mini_t mini;
  static char zeros[TIERS_STATE_BYTES], ones[6000];
  memset(ones, 1, sizeof ones);
  tiers_open(&mini, NULL);
  assert_ok(zr_exec_create(&mini.alloc, &mini.options, &mini.exec));
  assert_ok(zr_exec_upload(mini.exec, mini.state[0], 20480 + 100, ones, sizeof ones));
  check_part(&mini, mini.state[3], zeros, 10, 9000);
  assert_ok(zr_exec_start(mini.exec, MINI_EVAL, 1));
  assert_ok(zr_exec_wait(mini.exec));
  check_part(&mini, mini.state[1], zeros, 0, TIERS_STATE_BYTES);
  memcpy(zeros + 20480 + 100, ones, sizeof ones);
  check_part(&mini, mini.state[0], zeros, 0, TIERS_STATE_BYTES);
  memset(zeros, 0, sizeof zeros);
  check_bytes(&mini, 0, 1);
  check_probe(&mini);
  mini_close(&mini);
}

/* What operations have written is there when its edges are changed. */
static void test_parts_after_a_step(void **state) {
  (void)state;
  mini_t mini;
  tiers_open(&mini, NULL);
  tiers_start(&mini, NULL);
  assert_ok(zr_exec_start(mini.exec, MINI_STEP, 1));
  assert_ok(zr_exec_wait(mini.exec));
  static char state_bytes[TIERS_STATE_BYTES];
  assert_ok(zr_exec_download(mini.exec, mini.state[2], 0, state_bytes, TIERS_STATE_BYTES));
  memset(state_bytes + 4100, 0x3c, 9000);
  assert_ok(zr_exec_upload(mini.exec, mini.state[2], 4100, state_bytes + 4100, 9000));
  check_part(&mini, mini.state[2], state_bytes, 0, TIERS_STATE_BYTES);
  mini_close(&mini);
}

/* --- large ones --- */

/* A program of one plan with persistent buffers on disk, host and device, and whatever copies. */
typedef struct {
  mini_t mini;
  zr_plan_t *plan;
  int32_t disk, host, device;
} large_t;

enum { LARGE_BYTES = 9 << 20 };

static void large_open(large_t *l) {
  memset(l, 0, sizeof *l);
  mini_open_backends(&l->mini, NULL, NULL);
  zr_alloc_t *alloc = &l->mini.alloc;
  assert_ok(zr_program_create(alloc, &l->mini.program));
  assert_ok(zr_plan_create(alloc, "large", 1, &l->plan));
  int32_t *const buffer[] = {&l->device, &l->host, &l->disk};
  for (int tier = 0; tier < ZR_N_TIERS; tier++) {
    assert_ok(zr_plan_add_buffer(l->plan, zr_tier_name((zr_tier_t)tier), (zr_tier_t)tier,
                                 ZR_CATEGORY_PARAM, ZR_U8, LARGE_BYTES, true, buffer[tier]));
  }
}

static void large_copy(large_t *l, int32_t kind, zr_operand_t from, zr_operand_t to) {
  const zr_op_desc_t desc = {.kind = kind,
                             .unit = -1,
                             .micro = -1,
                             .attr = {from.bytes},
                             .n_operands = 2,
                             .operand = {from, to}};
  assert_ok(zr_plan_add_op(l->plan, &desc, NULL));
}

static void large_start(large_t *l) {
  zr_place_options_t place;
  zr_place_defaults(&place);
  assert_ok(zr_program_add(l->mini.program, l->plan));
  assert_ok(zr_program_compile(l->mini.program, &place));
  assert_ok(memdisk_open(&l->mini.alloc, LARGE_BYTES, NULL, &l->mini.disk_ops, &l->mini.disk));
  mini_fill_options(&l->mini);
  assert_ok(zr_exec_create(&l->mini.alloc, &l->mini.options, &l->mini.exec));
}

static char *large_bytes(void) {
  char *bytes = malloc(LARGE_BYTES);
  assert_non_null(bytes);
  for (int64_t i = 0; i < LARGE_BYTES; i++) bytes[i] = (char)(i ^ i >> 9);
  return bytes;
}

/* More than the executor's own buffer holds. */
static void test_a_large_buffer_on_disk(void **state) {
  (void)state;
  enum { AT = 1234567 };
  large_t l;
  large_open(&l);
  large_start(&l);
  char *sent = large_bytes(), *got = calloc(1, LARGE_BYTES);
  assert_non_null(got);
  assert_ok(zr_exec_upload(l.mini.exec, l.disk, AT, sent + AT, LARGE_BYTES - AT));
  assert_ok(zr_exec_upload(l.mini.exec, l.disk, 0, sent, AT));
  assert_ok(zr_exec_download(l.mini.exec, l.disk, 1, got + 1, LARGE_BYTES - 1));
  got[0] = sent[0];
  assert_memory_equal(sent, got, LARGE_BYTES);
  free(sent);
  free(got);
  mini_close(&l.mini);
}

/* From and to places that are no multiple of anything; nothing beside them is touched. */
static void test_large_odd_copies(void **state) {
  (void)state;
  enum { BYTES = (5 << 20) + 13, UP = 77, DOWN = 3000001 };
  large_t l;
  large_open(&l);
  large_copy(&l, ZR_OP_H2D, zr_operand_part(l.host, 5, BYTES, ZR_READ),
             zr_operand_part(l.device, UP, BYTES, ZR_WRITE));
  large_copy(&l, ZR_OP_D2H, zr_operand_part(l.device, UP, BYTES, ZR_READ),
             zr_operand_part(l.host, DOWN, BYTES, ZR_WRITE));
  large_start(&l);
  char *sent = large_bytes(), *got = malloc(LARGE_BYTES), *expected = calloc(1, LARGE_BYTES);
  assert_true(got != NULL && expected != NULL);
  assert_ok(zr_exec_upload(l.mini.exec, l.host, 0, sent, LARGE_BYTES));
  assert_ok(zr_exec_start(l.mini.exec, 0, 1));
  assert_ok(zr_exec_wait(l.mini.exec));
  memcpy(expected + UP, sent + 5, BYTES);
  assert_ok(zr_exec_download(l.mini.exec, l.device, 0, got, LARGE_BYTES));
  assert_memory_equal(expected, got, LARGE_BYTES);
  memcpy(sent + DOWN, expected + UP, BYTES);
  assert_ok(zr_exec_download(l.mini.exec, l.host, 0, got, LARGE_BYTES));
  assert_memory_equal(sent, got, LARGE_BYTES);
  free(sent);
  free(got);
  free(expected);
  mini_close(&l.mini);
}

/* --- create --- */

static void test_poison_reaches_every_tier(void **state) {
  (void)state;
  mini_t mini;
  tiers_open(&mini, NULL);
  mini.options.poison = 0x5a;
  assert_ok(zr_exec_create(&mini.alloc, &mini.options, &mini.exec));
  int64_t bytes;
  const char *host = zr_exec_arena(mini.exec, ZR_TIER_HOST, &bytes);
  assert_true(bytes > 0);
  for (int64_t i = 0; i < bytes; i++) assert_int_equal(host[i], 0x5a);
  assert_null(zr_exec_arena(mini.exec, ZR_TIER_DISK, &bytes));
  assert_int_equal(bytes, tiers_disk_bytes(&mini));
  const char *disk = memdisk_memory(mini.disk);
  for (int64_t i = 0; i < bytes; i++) assert_int_equal(disk[i], 0x5a);
  mini_close(&mini);
}

static void test_create_fails_at_every_allocation(void **state) {
  (void)state;
  mini_t mini;
  tiers_open(&mini, NULL);
  const int64_t live = mini.alloc.live_count;
  for (int64_t n = 1;; n++) {
    mini.disk_ops->close(mini.disk); /* it serves one executor */
    assert_ok(memdisk_open(&mini.alloc, tiers_disk_bytes(&mini), NULL, &mini.disk_ops, &mini.disk));
    mini.options.disk = mini.disk;
    mini.alloc.fail_at = mini.alloc.n_calls + n;
    const zr_status_t status = zr_exec_create(&mini.alloc, &mini.options, &mini.exec);
    mini.alloc.fail_at = 0;
    if (status == ZR_OK) break;
    assert_int_equal(status, ZR_ERR_OUT_OF_MEMORY);
    assert_int_equal(mini.alloc.live_count, live);
    assert_true(n < 100);
  }
  mini_close(&mini);
}

/* --- time and the null device --- */

/* Compute waits for copies that wait for a slow disk: the disk is to blame. */
static void test_exposed_time_is_the_slow_disks(void **state) {
  (void)state;
  mini_t mini;
  const memdisk_options_t slow = {.read_delay_ns = 10000000};
  tiers_open(&mini, NULL);
  tiers_start(&mini, &slow);
  for (int64_t i = 1; i <= 3; i++) assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
  assert_ok(zr_exec_wait(mini.exec));
  zr_exec_stats_t stats;
  zr_exec_stats(mini.exec, &stats);
  const int64_t of_read_ns = stats.exposed_ns[ZR_STREAM_READ];
  for (int s = 0; s < ZR_N_STREAMS; s++) {
    if (s != ZR_STREAM_READ) assert_true(of_read_ns > 2 * stats.exposed_ns[s]);
  }
  assert_true(of_read_ns > stats.stream_busy_ns[ZR_STREAM_READ] / 4);
  assert_true(of_read_ns <= 2 * stats.stream_busy_ns[ZR_STREAM_READ]);
  mini_close(&mini);
}

static void test_the_null_device_counts_the_same_bytes(void **state) {
  (void)state;
  mini_t mini;
  char byte = 0;
  tiers_open_virtual(&mini);
  assert_ok(zr_exec_create(&mini.alloc, &mini.options, &mini.exec));
  assert_ok(zr_exec_upload(mini.exec, mini.state[0], 5, &byte, 1));
  for (int64_t i = 1; i <= 4; i++) assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
  assert_ok(zr_exec_start(mini.exec, MINI_EVAL, 1));
  assert_ok(zr_exec_wait(mini.exec));
  check_bytes(&mini, 4, 1);
  mini_close(&mini);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_modes_agree),
      cmocka_unit_test(test_odd_parts_of_a_disk),
      cmocka_unit_test(test_fresh_states_on_disk_are_zero),
      cmocka_unit_test(test_parts_after_a_step),
      cmocka_unit_test(test_a_large_buffer_on_disk),
      cmocka_unit_test(test_large_odd_copies),
      cmocka_unit_test(test_poison_reaches_every_tier),
      cmocka_unit_test(test_create_fails_at_every_allocation),
      cmocka_unit_test(test_exposed_time_is_the_slow_disks),
      cmocka_unit_test(test_the_null_device_counts_the_same_bytes),
  };
  return cmocka_run_group_tests(tests, make_temp_dir, remove_temp_dir);
}
