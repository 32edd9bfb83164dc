/* A program's disk arena: byte offsets of the disk, reached through a bounce buffer while nothing
 * runs. Operations go to the disk without it (copy.c). */
#include <string.h>

#include "runtime/exec/state.h"

enum { GRAIN_BYTES = ZR_DISK_ALIGN_BYTES, BOUNCE_BYTES = 4 << 20 };

static int64_t round_up(int64_t bytes) {
  return (bytes + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
}

zr_status_t zr_exec_disk_open(zr_exec_t *exec, int64_t bytes) {
  const zr_exec_options_t *o = &exec->options;
  zr_exec_disk_t *disk = &exec->disk;
  if (!o->disk_ops || !o->disk) {
    return zr_fail(ZR_ERR_INVALID_ARGUMENT,
                   "rank %d: the program keeps %lld bytes on disk, but the executor was given no "
                   "disk: open one and set disk_ops and disk",
                   exec->rank, (long long)bytes);
  }
  const int64_t host_bytes = exec->arena_bytes[ZR_TIER_HOST];
  if (host_bytes > 0) {
    ZR_TRY(o->disk_ops->attach(o->disk, exec->arena[ZR_TIER_HOST], host_bytes));
  }
  const size_t n_words = (size_t)(round_up(bytes) / GRAIN_BYTES / 64 + 1);
  ZR_TRY(zr_alloc_get(exec->alloc, n_words, sizeof *disk->written, &disk->written));
  ZR_TRY(zr_alloc_get(exec->alloc, 1, BOUNCE_BYTES + GRAIN_BYTES, &disk->bounce_memory));
  const uintptr_t begin = (uintptr_t)disk->bounce_memory;
  disk->bounce = (char *)disk->bounce_memory + (size_t)round_up((int64_t)begin) - begin;
  return ZR_OK;
}

void zr_exec_disk_close(zr_exec_t *exec) {
  zr_alloc_free(exec->alloc, exec->disk.written);
  zr_alloc_free(exec->alloc, exec->disk.bounce_memory);
}

/* Once operations have run, whatever is read was written: by them, or before them from here. */
static bool was_written(const zr_exec_t *exec, int64_t offset) {
  if (exec->n_before + exec->n_executions > 0) return true;
  const int64_t grain = offset / GRAIN_BYTES;
  return exec->disk.written[grain / 64] >> (grain % 64) & 1;
}

static void mark_written(zr_exec_t *exec, int64_t offset, int64_t bytes) {
  for (int64_t grain = offset / GRAIN_BYTES; grain < (offset + bytes) / GRAIN_BYTES; grain++) {
    exec->disk.written[grain / 64] |= (uint64_t)1 << (grain % 64);
  }
}

static zr_status_t write_bounce(zr_exec_t *exec, int64_t offset, int64_t bytes) {
  const zr_exec_options_t *o = &exec->options;
  ZR_TRY(o->disk_ops->write(o->disk, offset, exec->disk.bounce, bytes));
  mark_written(exec, offset, bytes);
  return ZR_OK;
}

zr_status_t zr_exec_disk_fill(zr_exec_t *exec, int value) {
  memset(exec->disk.bounce, value, BOUNCE_BYTES);
  const int64_t end = round_up(exec->arena_bytes[ZR_TIER_DISK]);
  for (int64_t at = 0; at < end; at += BOUNCE_BYTES) {
    ZR_TRY(write_bounce(exec, at, end - at < BOUNCE_BYTES ? end - at : BOUNCE_BYTES));
  }
  return ZR_OK;
}

/* Where nothing was written yet. */
static zr_status_t write_zeros(zr_exec_t *exec, int64_t begin, int64_t end) {
  for (int64_t at = begin, to; at < end; at = to) {
    to = at + GRAIN_BYTES;
    if (was_written(exec, at)) continue;
    while (to < end && to - at < BOUNCE_BYTES && !was_written(exec, to)) to += GRAIN_BYTES;
    memset(exec->disk.bounce, 0, (size_t)(to - at));
    ZR_TRY(write_bounce(exec, at, to - at));
  }
  return ZR_OK;
}

/* What a plan writes before it reads anything needs no zeros first: the plan that fills a disk
 * would find all of it written, at twice the time and wear. */
static void mark_plan(zr_exec_t *exec, int plan) {
  const zr_exec_plan_t *p = &exec->plan[plan];
  for (size_t i = 0; i < p->plan->n_ops; i++) {
    const zr_exec_op_t *op = &p->op[i];
    if (op->kind == ZR_OP_DISK_READ) return;
    if (op->kind != ZR_OP_DISK_WRITE) continue;
    mark_written(exec, op->disk_offset, op->call.shape->attr[ZR_COPY_BYTES]);
  }
}

zr_status_t zr_exec_disk_complete(zr_exec_t *exec, int plan) {
  const zr_program_t *program = exec->options.program;
  if (!exec->disk.bounce) return ZR_OK;
  mark_plan(exec, plan);
  for (int32_t i = 0; i < program->n_persistent; i++) {
    const zr_buffer_t *b = &program->plan[0]->buffer[i];
    if (b->tier != ZR_TIER_DISK) continue;
    const int64_t begin = b->offset / GRAIN_BYTES * GRAIN_BYTES;
    ZR_TRY(write_zeros(exec, begin, round_up(b->offset + b->bytes)));
  }
  return ZR_OK;
}

/* A grain of which only a part will be changed: as it is on disk; zeros if it was never written. */
static zr_status_t read_edge(zr_exec_t *exec, int64_t offset, char *out_grain) {
  const zr_exec_options_t *o = &exec->options;
  if (was_written(exec, offset)) {
    return o->disk_ops->read(o->disk, offset, out_grain, GRAIN_BYTES);
  }
  memset(out_grain, 0, GRAIN_BYTES);
  return ZR_OK;
}

/* The part of [offset, offset + bytes) that fits into the bounce buffer, and the grains it is in.
 */
typedef struct {
  int64_t begin, head, bytes, grain_bytes;
} piece_t;

static piece_t piece_at(int64_t offset, int64_t bytes) {
  piece_t piece = {.head = offset % GRAIN_BYTES};
  piece.begin = offset - piece.head;
  piece.bytes = bytes < BOUNCE_BYTES - piece.head ? bytes : BOUNCE_BYTES - piece.head;
  piece.grain_bytes = round_up(piece.head + piece.bytes);
  return piece;
}

zr_status_t zr_exec_disk_put(zr_exec_t *exec, int64_t offset, const void *source, int64_t bytes) {
  char *bounce = exec->disk.bounce;
  for (const char *from = source; bytes > 0;) {
    const piece_t p = piece_at(offset, bytes);
    const int64_t last = p.grain_bytes - GRAIN_BYTES, end = p.head + p.bytes;
    const bool is_last_cut = end < p.grain_bytes;
    if (p.head > 0 || (is_last_cut && last == 0)) ZR_TRY(read_edge(exec, p.begin, bounce));
    if (is_last_cut && last > 0) ZR_TRY(read_edge(exec, p.begin + last, bounce + last));
    memcpy(bounce + p.head, from, (size_t)p.bytes);
    ZR_TRY(write_bounce(exec, p.begin, p.grain_bytes));
    from += p.bytes;
    offset += p.bytes;
    bytes -= p.bytes;
  }
  return ZR_OK;
}

zr_status_t zr_exec_disk_get(zr_exec_t *exec, int64_t offset, void *destination, int64_t bytes) {
  const zr_exec_options_t *o = &exec->options;
  for (char *to = destination; bytes > 0;) {
    const piece_t p = piece_at(offset, bytes);
    ZR_TRY(write_zeros(exec, p.begin, p.begin + p.grain_bytes));
    ZR_TRY(o->disk_ops->read(o->disk, p.begin, exec->disk.bounce, p.grain_bytes));
    memcpy(to, exec->disk.bounce + p.head, (size_t)p.bytes);
    to += p.bytes;
    offset += p.bytes;
    bytes -= p.bytes;
  }
  return ZR_OK;
}
