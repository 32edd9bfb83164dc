/* The storage interface: host memory that a device can reach fast, and a disk. Floor 1.
 *
 * A disk is one flat array of bytes of this rank, [0, bytes), whatever files, paths and stripes it
 * consists of. Transfers are blocking calls: at most two threads read and one writes at a
 * time (the executor's read, h2d and write streams). Inside, a transfer is cut into requests of
 * `block_bytes`, at most `queue_depth` of them for each path in flight. A transfer returns when
 * every byte has been moved, or with one error that names file, offset and cause; short transfers
 * go on where they stopped, interrupted ones again. Bytes are counted when they have been moved. */
#ifndef ZR_OFFLOAD_TIER_H
#define ZR_OFFLOAD_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/hal/hal.h"

enum { ZR_DISK_ALIGN_BYTES = 4096 }; /* of offset, length and memory of every transfer */

typedef struct zr_disk_t zr_disk_t;

typedef struct {
  int64_t read_bytes, written_bytes;        /* moved so far */
  int64_t reading_bytes, writing_bytes;     /* asked for and not moved yet */
  int64_t n_requests, n_resumed, n_retried; /* short ones, interrupted or refused ones */
} zr_disk_stats_t;

/* The table of a disk backend. All slots required. */
typedef struct {
  const char *name;               /* "uring", "posix", "null", "fault(uring)" */
  void (*close)(zr_disk_t *disk); /* NULL is fine; no transfer runs */
  /* Memory that transfers will use (the host arena): registered where that is faster. Called at
   * most once, before the first transfer; transfers of other memory work too. */
  zr_status_t (*attach)(zr_disk_t *disk, void *memory, int64_t bytes) ZR_MUST_CHECK;
  /* Offset, bytes and memory are multiples of ZR_DISK_ALIGN_BYTES; bytes > 0. Nothing that was
   * never written is read. ZR_ERR_IO: file, offset, errno. */
  zr_status_t (*read)(zr_disk_t *disk, int64_t offset, void *memory, int64_t bytes) ZR_MUST_CHECK;
  zr_status_t (*write)(zr_disk_t *disk, int64_t offset, const void *memory,
                       int64_t bytes) ZR_MUST_CHECK;
  void (*stats)(const zr_disk_t *disk, zr_disk_stats_t *out_stats); /* any thread, any time */
  /* Any thread: transfers that wait, or come later, fail with `status`. The first one counts. A
   * transfer returns when what it has in flight is done: after 5 s it says that this never ended,
   * and returns all the same; that memory may still change. */
  void (*cancel)(zr_disk_t *disk, zr_status_t status, const char *detail);
  /* What the disk turned out to be, one line: "io_uring, O_DIRECT, 2 files in /a, /b, 16 x 1 MiB".
   */
  const char *(*describe)(const zr_disk_t *disk);
} zr_disk_ops_t;

typedef enum {
  ZR_DISK_AUTO = 0, /* io_uring with O_DIRECT, threads where one is refused: `describe` says so */
  ZR_DISK_URING,    /* io_uring; where it is refused: ZR_ERR_UNSUPPORTED */
  ZR_DISK_POSIX     /* pread and pwrite on threads */
} zr_disk_kind_t;

typedef struct {
  int kind;                /* zr_disk_kind_t */
  const char *const *path; /* [n_paths] directories: striped by block */
  int n_paths;
  int64_t bytes;       /* > 0, a multiple of ZR_DISK_ALIGN_BYTES */
  int64_t node_bytes;  /* of all ranks of this node; they may open in any order */
  int64_t block_bytes; /* 0: 1 MiB; a multiple of ZR_DISK_ALIGN_BYTES */
  int queue_depth;     /* 0: 16 */
  bool checksums;      /* XXH3 of every 4 KiB written, compared when read */
  int rank;            /* for names and messages */
} zr_disk_options_t;

/* One preallocated file per path in a directory of this job (0700, file 0600), locked and unlinked
 * at once: nothing is left behind whatever happens. ZR_ERR_CONFIG: a path that is missing or cannot
 * be written; ZR_ERR_NO_SPACE: how much is missing where. Blocks are allocated, so that when all
 * ranks have opened their disks there is room for all; where a file system can not allocate, it
 * must have node_bytes free. */
zr_status_t zr_disk_open(zr_alloc_t *alloc, const zr_disk_options_t *options,
                         const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) ZR_MUST_CHECK;
/* Moves nothing and counts. */
zr_status_t zr_disk_null_open(zr_alloc_t *alloc, int64_t bytes, const zr_disk_ops_t **out_ops,
                              zr_disk_t **out_disk) ZR_MUST_CHECK;
/* Wraps another disk; reads and writes count as calls. ZR_FAULT_CORRUPT flips a bit of what is
 * read. `close` closes the inner one too. */
zr_status_t zr_disk_fault_open(zr_alloc_t *alloc, const zr_fault_t *fault,
                               const zr_disk_ops_t *inner_ops, zr_disk_t *inner,
                               const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) ZR_MUST_CHECK;

/* Host memory for one arena. */
typedef struct {
  void *memory;  /* zeroed, at least 4096-byte aligned */
  int64_t bytes; /* as asked */
  bool is_pinned, is_huge;
  char notice[256]; /* what was refused, what it costs and what to do; "" */
} zr_host_memory_t;

/* One mapping of exactly `bytes` (rounded up to pages), in huge pages where possible, touched first
 * on the memory node of the cores this process runs on, locked if `pin`. Where locking is refused
 * it goes on without and says so in the notice. ZR_ERR_OUT_OF_MEMORY: how much. */
zr_status_t zr_host_map(int64_t bytes, bool pin, zr_host_memory_t *out_memory) ZR_MUST_CHECK;
void zr_host_unmap(zr_host_memory_t *memory);

#endif
