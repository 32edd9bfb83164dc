/* Copies between tiers: what runs on the streams h2d, d2h, read and write, and their bytes. */
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "runtime/exec/state.h"

enum { LARGE_BYTES = 1 << 20, LINE_BYTES = 64 };

static int link_of(int32_t kind) {
  switch (kind) {
    case ZR_OP_H2D:
      return ZR_LINK_H2D;
    case ZR_OP_D2H:
      return ZR_LINK_D2H;
    case ZR_OP_DISK_READ:
      return ZR_LINK_DISK_READ;
    default:
      return ZR_LINK_DISK_WRITE;
  }
}

static int64_t bytes_of(const zr_exec_op_t *op) {
  return op->call.shape->attr[ZR_COPY_BYTES];
}

void zr_exec_copy_started(const zr_exec_op_t *op) {
  if (!zr_kern_is_copy(op->kind)) return;
  zr_exec_link_t *link = &op->exec->link[link_of(op->kind)];
  link->started_bytes += bytes_of(op);
  /* In virtual time nothing runs that could count. */
  if (op->exec->is_virtual) atomic_fetch_add(&link->moved_bytes, bytes_of(op));
}

#if defined(__SSE2__)
/* Stores that pass the caches by: the lines they overwrite are not fetched first. Measured with 1
 * to 64 MiB: 1.4 to 1.8 times memcpy's speed; with the copy read at once, as fast as memcpy. */
static void copy_large(char *to, const char *from, size_t bytes) {
  const size_t head = (size_t)(-(uintptr_t)to % LINE_BYTES);
  memcpy(to, from, head);
  size_t at = head;
  for (; at + LINE_BYTES <= bytes; at += LINE_BYTES) {
    for (size_t i = at; i < at + LINE_BYTES; i += sizeof(__m128i)) {
      _mm_stream_si128((__m128i *)(void *)(to + i),
                       _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
    }
  }
  memcpy(to + at, from + at, bytes - at);
  _mm_sfence(); /* before the timeline says that they are there */
}
#else
static void copy_large(char *to, const char *from, size_t bytes) {
  memcpy(to, from, bytes);
}
#endif

static void copy(void *to, const void *from, int64_t bytes) {
  if (bytes < LARGE_BYTES) {
    memcpy(to, from, (size_t)bytes);
  } else {
    copy_large(to, from, (size_t)bytes);
  }
}

static zr_status_t run(const zr_exec_op_t *op) {
  const zr_exec_options_t *o = &op->exec->options;
  void *const *x = op->call.operand;
  const int64_t bytes = bytes_of(op);
  if (bytes == 0) return ZR_OK;
  switch (op->kind) {
    case ZR_OP_DISK_READ:
      return o->disk_ops->read(o->disk, op->disk_offset, x[1], bytes);
    case ZR_OP_DISK_WRITE:
      return o->disk_ops->write(o->disk, op->disk_offset, x[0], bytes);
    default:
      copy(x[1], x[0], bytes);
      return ZR_OK;
  }
}

zr_status_t zr_exec_copy(const zr_exec_op_t *op) {
  ZR_TRY(run(op));
  atomic_fetch_add_explicit(&op->exec->link[link_of(op->kind)].moved_bytes, bytes_of(op),
                            memory_order_relaxed);
  return ZR_OK;
}
