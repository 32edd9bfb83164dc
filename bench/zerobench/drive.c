#include "bench/zerobench/drive.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

#include "offload/disk/retune.h"
#include "runtime/base/clock.h"

enum { N_SLOTS = 4, MIB = 1 << 20 };

const char *const zr_drive_mode_names[ZR_DRIVE_MODES] = {"read", "write", "mixed"};
const char *const zr_mover_names[ZR_N_MOVERS] = {"io_uring", "posix", "fio", "fio as it comes"};
const zr_drive_setting_t zr_drive_default = {ZR_MOVER_URING, MIB, 16};

const char *zr_drive_text(const zr_drive_setting_t *s, char out_text[32]) {
  bool in_mib = s->block_bytes % MIB == 0;
  (void)snprintf(out_text, 32, "%lld %s x %d", (long long)(s->block_bytes >> (in_mib ? 20 : 10)),
                 in_mib ? "MiB" : "KiB", s->depth);
  return out_text;
}

bool zr_drive_same(const zr_drive_setting_t *a, const zr_drive_setting_t *b) {
  return a->block_bytes == b->block_bytes && a->depth == b->depth;
}

/* --- opening --- */

static zr_status_t check(zr_drive_t *drive, int64_t more_bytes) {
  const zr_bench_t *b = drive->bench;
  const int64_t align = ZR_DISK_ALIGN_BYTES;
  if (b->n_ranks > 1) {
    return zr_fail(ZR_ERR_CONFIG, "%s measures one drive from one process: start it without mpirun",
                   b->command);
  }
  if (drive->chunk_bytes % align != 0 || drive->bytes % align != 0) {
    return zr_fail(ZR_ERR_CONFIG, "--bytes and --chunk must be multiples of %lld",
                   (long long)align);
  }
  if (drive->bytes / 2 < drive->chunk_bytes) {
    return zr_fail(ZR_ERR_CONFIG, "--bytes %lld: two chunks of %lld at least (--chunk)",
                   (long long)drive->bytes, (long long)drive->chunk_bytes);
  }
  struct statvfs about;
  if (statvfs(drive->path, &about) != 0) {
    return zr_fail(ZR_ERR_CONFIG, "--path %s: %s", drive->path, strerror(errno));
  }
  const double free_bytes = (double)about.f_bavail * (double)about.f_frsize;
  const double wanted_bytes = (double)drive->bytes + (double)more_bytes;
  if (free_bytes >= wanted_bytes) return ZR_OK;
  return zr_fail(ZR_ERR_NO_SPACE, "--path %s: %.1f GiB are free and %.1f GiB wanted: see --bytes",
                 drive->path, free_bytes / 0x1p30, wanted_bytes / 0x1p30);
}

/* No drive makes less of these bytes. */
static void scramble(char *memory, int64_t bytes) {
  uint64_t x = 88172645463325252u;
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    memcpy(memory + i, &x, 8);
  }
}

static zr_status_t fill(zr_drive_t *drive) {
  int64_t begin_ns = zr_clock_ns();
  for (int64_t at = 0, bytes; at < drive->bytes; at += bytes) {
    const int64_t left = drive->bytes - at;
    bytes = left < drive->chunk_bytes ? left : drive->chunk_bytes;
    ZR_TRY(drive->ops->write(drive->disk, at, drive->memory, bytes));
    if (zr_clock_ns() - begin_ns < 5000000000) continue;
    begin_ns = zr_clock_ns();
    zr_bench_say(drive->bench, "%lld of %lld MiB written", (long long)((at + bytes) / MIB),
                 (long long)(drive->bytes / MIB));
  }
  return ZR_OK;
}

static int64_t or_else(int64_t value, int64_t otherwise) {
  return value > 0 ? value : otherwise;
}

/* What fio can do here is tried. */
static bool find_fio(zr_drive_t *drive) {
  zr_drive_setting_t setting = zr_drive_default;
  setting.mover = ZR_MOVER_FIO;
  double gbps;
  for (int try = 0; try < 2; try++) {
    drive->fio_registers = try == 0;
    if (zr_drive_run_fio(drive, ZR_DRIVE_READ, &setting, 0.1, &gbps) == ZR_OK) return true;
  }
  return false;
}

zr_status_t zr_drive_open(zr_bench_t *b, int64_t more_bytes, zr_drive_t *drive) {
  const zr_bench_options_t *o = &b->options;
  *drive = (zr_drive_t){.bench = b, .path = o->path ? o->path : ".", .now = zr_drive_default};
  drive->bytes = or_else(o->bytes, (int64_t)(o->quick ? 64 : 8192) * MIB);
  drive->chunk_bytes = or_else(o->chunk_bytes, 10 * MIB);
  ZR_TRY(check(drive, more_bytes));
  zr_disk_options_t options = {.path = &drive->path,
                               .n_paths = 1,
                               .bytes = drive->bytes,
                               .node_bytes = drive->bytes,
                               .block_bytes = drive->now.block_bytes,
                               .queue_depth = drive->now.depth};
  ZR_TRY(zr_disk_open(b->alloc, &options, &drive->ops, &drive->disk));
  const int64_t memory_bytes = 2 * N_SLOTS * drive->chunk_bytes;
  void *memory = NULL;
  ZR_TRY(b->hal_ops->mem_create(b->hal, ZR_TIER_HOST, memory_bytes, &memory));
  drive->memory = memory;
  scramble(drive->memory, memory_bytes);
  ZR_TRY(drive->ops->attach(drive->disk, memory, memory_bytes));
  drive->has_uring = strcmp(drive->ops->name, "uring") == 0;
  if (!drive->has_uring) drive->now.mover = ZR_MOVER_POSIX;
  zr_bench_say(b, "writing %lld MiB in %s", (long long)(drive->bytes / MIB), drive->path);
  ZR_TRY(fill(drive));
  drive->has_fio = find_fio(drive);
  ZR_TRY(zr_bench_note(b, "disk: %s", drive->ops->describe(drive->disk)));
  return drive->has_fio ? ZR_OK : zr_bench_note(b, "no fio (%s): is it in PATH?", zr_detail());
}

void zr_drive_close(zr_drive_t *drive) {
  zr_bench_t *b = drive->bench;
  if (drive->ops != NULL) drive->ops->close(drive->disk);
  if (drive->memory != NULL) {
    b->hal_ops->mem_destroy(b->hal, ZR_TIER_HOST, drive->memory, 2 * N_SLOTS * drive->chunk_bytes);
  }
}

/* --- ours --- */

/* One stream's transfers, a chunk each, until it is time. */
typedef struct {
  zr_drive_t *drive;
  bool is_write;
  int64_t begin, end; /* of the file: round and round */
  char *memory;
  int64_t begin_ns, until_ns;
  double gbps; /* out */
} lane_t;

static zr_status_t run_lane(void *context, int64_t iteration) {
  (void)iteration;
  lane_t *lane = context;
  const zr_drive_t *drive = lane->drive;
  const int64_t bytes = drive->chunk_bytes;
  int64_t at = lane->begin, moved = 0;
  for (int slot = 0; moved == 0 || zr_clock_ns() < lane->until_ns; slot = (slot + 1) % N_SLOTS) {
    char *memory = lane->memory + slot * bytes;
    ZR_TRY(lane->is_write ? drive->ops->write(drive->disk, at, memory, bytes)
                          : drive->ops->read(drive->disk, at, memory, bytes));
    moved += bytes;
    at = at + 2 * bytes <= lane->end ? at + bytes : lane->begin;
  }
  lane->gbps = (double)moved / (double)(zr_clock_ns() - lane->begin_ns);
  return ZR_OK;
}

static zr_status_t retune(zr_drive_t *drive, const zr_drive_setting_t *setting) {
  if (drive->now.mover == setting->mover && zr_drive_same(&drive->now, setting)) return ZR_OK;
  const int kind = setting->mover == ZR_MOVER_URING ? ZR_DISK_URING : ZR_DISK_POSIX;
  ZR_TRY(zr_disk_retune(drive->disk, kind, setting->block_bytes, setting->depth));
  drive->now = *setting;
  return ZR_OK;
}

zr_status_t zr_drive_run(zr_drive_t *drive, zr_drive_mode_t mode, const zr_drive_setting_t *setting,
                         double seconds, double *out_gbps) {
  if (setting->mover >= ZR_MOVER_FIO) {
    return zr_drive_run_fio(drive, mode, setting, seconds, out_gbps);
  }
  ZR_TRY(retune(drive, setting));
  const zr_bench_t *b = drive->bench;
  const zr_stream_id_t stream[2] = {ZR_STREAM_READ, ZR_STREAM_WRITE};
  const int64_t half = drive->bytes / 2 / ZR_DISK_ALIGN_BYTES * ZR_DISK_ALIGN_BYTES;
  const int64_t begin_ns = zr_clock_ns(), until_ns = begin_ns + (int64_t)(seconds * 1e9);
  const bool is_mixed = mode == ZR_DRIVE_MIXED;
  lane_t lane[2];
  static uint64_t signal[2];
  for (int i = 0; i < 2; i++) {
    lane[i] = (lane_t){drive,
                       i == 1,
                       is_mixed && i == 1 ? half : 0,
                       is_mixed && i == 0 ? half : drive->bytes,
                       drive->memory + i * N_SLOTS * drive->chunk_bytes,
                       begin_ns,
                       until_ns,
                       0};
    if (!is_mixed && i != (int)mode) continue;
    zr_work_t work = {.fn = run_lane, .context = &lane[i], .signal = ++signal[i]};
    ZR_TRY(b->hal_ops->submit(b->hal, stream[i], &work));
  }
  for (int i = 0; i < 2; i++) ZR_TRY(b->hal_ops->wait(b->hal, stream[i], signal[i], -1));
  *out_gbps = lane[0].gbps + lane[1].gbps;
  return ZR_OK;
}
