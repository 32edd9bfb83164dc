/* A disk of files, inside: its files, its lanes, and the engine that moves bytes.
 *
 *   disk.c      the table: checks, cancel, numbers; hands a transfer to its lane's engine
 *   request.c   a transfer is cut into requests; what each result means
 *   posix.c     engine: threads with pread and pwrite
 *   ring_*.c    engine: io_uring
 *
 * A lane is one direction, of reads there are two. Its transfer is driven by the thread that called
 * read or write; nothing of it is shared with the others but the files and the table of checksums.
 */
#ifndef ZR_OFFLOAD_DISK_INTERNAL_H
#define ZR_OFFLOAD_DISK_INTERNAL_H

#include <limits.h>

#include "offload/disk/verdict.h"
#include "offload/tier.h"

enum {
  ZR_DISK_N_LANES = 3, /* read, write, and a second reader at once */
  ZR_DISK_MOST_PATHS = 64,
  ZR_DISK_MOST_IN_FLIGHT = 4096,
  ZR_DISK_MOST_THREADS = 8,
  ZR_DISK_MOST_BLOCK_BYTES = 1 << 30,
  ZR_DISK_DESCRIBE_BYTES = 1024
};

typedef struct {
  char *path;          /* the directory that was asked for */
  char *name;          /* of the file, which has no name any more */
  int direct_fd;       /* O_DIRECT; -1: refused */
  int buffered_fd;     /* always */
  int64_t align_bytes; /* of direct transfers, as the file says; at most ZR_DISK_ALIGN_BYTES */
  int64_t bytes;
} zr_disk_file_t;

/* One request: a piece of a transfer that lies in one file. */
typedef struct {
  int file;
  bool is_write, is_buffered;
  int64_t begin;       /* on the disk, of the whole request */
  int64_t begin_bytes; /* of the whole request */
  int64_t offset;      /* in the file, of what is left */
  int64_t bytes;       /* left */
  char *memory;        /* of what is left */
  int64_t refused_ns;  /* when EAGAIN or EINTR came first since bytes moved; 0: no such answer */
  int64_t ready_ns;    /* not before */
} zr_disk_request_t;

/* What tests replace: answers of the kernel pass through here. */
typedef enum {
  ZR_DISK_CALL_SETUP = 0,
  ZR_DISK_CALL_REGISTER_FILES,
  ZR_DISK_CALL_REGISTER_BUFFERS,
  ZR_DISK_CALL_ENTER,
  ZR_DISK_CALL_OPEN_DIRECT,
  ZR_DISK_CALL_FALLOCATE
} zr_disk_call_t;

#define ZR_DISK_NOT_YET INT_MIN

typedef struct {
  void *context;
  /* Before a call of that kind: 0, or -errno, which stands for its answer. Any thread. */
  int (*call)(void *context, zr_disk_call_t call);
  /* Bytes or -errno of a request, as the engine is to see it; ZR_DISK_NOT_YET holds it back, and it
   * is asked again a millisecond later. Any thread. */
  int (*result)(void *context, const zr_disk_request_t *request, int answer);
  int64_t buffer_bytes; /* most of a registered buffer: 1 GiB; a multiple of the alignment */
  int64_t retry_ns;     /* how long EAGAIN and EINTR are retried: 10 s */
  int64_t drain_ns;     /* how long a failed transfer waits for what is in flight: 5 s */
} zr_disk_seam_t;

extern const zr_disk_seam_t zr_disk_seam_default;

typedef struct {
  zr_disk_t *disk;
  void *engine; /* what the engine keeps for this lane */
  bool is_write;
  bool is_stuck; /* requests never completed: nothing more is moved */
  _Atomic int is_busy;
  _Atomic int64_t moved_bytes, moving_bytes, n_requests, n_resumed, n_retried;
  /* the transfer */
  int64_t offset, bytes;
  char *memory;
  _Atomic int64_t cursor; /* bytes that requests were made for */
  zr_verdict_t failure;
} zr_disk_lane_t;

typedef struct {
  const char *name;
  /* All lanes. ZR_ERR_UNSUPPORTED: the system refuses; the detail says what. Leaves what it made
   * for `stop`. */
  zr_status_t (*start)(zr_disk_t *disk);
  void (*attach)(zr_disk_t *disk);
  /* Moves the lane's transfer, or fails the lane, or leaves off because the disk was cancelled.
   * Nothing is in flight afterwards, unless the lane is stuck. */
  void (*move)(zr_disk_lane_t *lane);
  void (*stop)(zr_disk_t *disk); /* also after half a start, or none */
} zr_disk_engine_t;

extern const zr_disk_engine_t zr_disk_engine_posix, zr_disk_engine_uring;

struct zr_disk_t {
  zr_alloc_t *alloc;
  zr_disk_seam_t seam;
  const zr_disk_engine_t *engine;
  int64_t bytes, node_bytes, block_bytes;
  int queue_depth, rank, n_files;
  zr_disk_file_t *file; /* [n_files] */
  zr_disk_lane_t lane[ZR_DISK_N_LANES];
  _Atomic uint64_t *checksum;    /* [bytes / ZR_DISK_ALIGN_BYTES], 0: never written; or NULL */
  char *attached;                /* memory that transfers will use, or NULL */
  int64_t attached_bytes;        /* a multiple of ZR_DISK_ALIGN_BYTES */
  _Atomic int has_said_buffered; /* that a direct transfer was refused */
  zr_verdict_t cancelled;
  char notice[384]; /* what was refused */
  char text[ZR_DISK_DESCRIBE_BYTES];
};

/* --- disk.c --- */
zr_status_t zr_disk_open_with(zr_alloc_t *alloc, const zr_disk_options_t *options,
                              const zr_disk_seam_t *seam, const zr_disk_ops_t **out_ops,
                              zr_disk_t **out_disk) ZR_MUST_CHECK;
void zr_disk_note(zr_disk_t *disk, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- file.c --- */
/* Makes and opens the file of disk->file[index], whose path and bytes are set. */
zr_status_t zr_disk_file_open(zr_disk_t *disk, int index) ZR_MUST_CHECK;
void zr_disk_file_close(zr_disk_t *disk, int index);

/* --- direct.c --- */
/* Opens `name` for direct transfers into file->direct_fd and proves that they work by one block
 * written and read; where they are refused it stays -1 and a note is made. */
zr_status_t zr_disk_file_open_direct(zr_disk_t *disk, int index) ZR_MUST_CHECK;

/* --- space.c --- */
int64_t zr_disk_file_bytes(const zr_disk_t *disk, int index);
/* What this rank's files need is free on each file system; with `of_node` what the node needs. */
zr_status_t zr_disk_check_space(const zr_disk_t *disk, bool of_node) ZR_MUST_CHECK;
zr_status_t zr_disk_fail_space(const zr_disk_t *disk, int index, int error);

/* --- request.c --- */
/* The next request of the lane's transfer; false: there is none, or none is wanted any more. Any
 * thread. */
bool zr_disk_request_next(zr_disk_lane_t *lane, zr_disk_request_t *out_request);
typedef enum { ZR_DISK_DONE = 0, ZR_DISK_AGAIN, ZR_DISK_FAILED } zr_disk_outcome_t;
/* What `answer` (bytes or -errno) means. AGAIN: the request says what is left, and from when.
 * FAILED: the lane has the detail. */
zr_disk_outcome_t zr_disk_request_settle(zr_disk_lane_t *lane, zr_disk_request_t *request,
                                         int answer);
int zr_disk_request_fd(const zr_disk_t *disk, const zr_disk_request_t *request);
bool zr_disk_lane_is_over(const zr_disk_lane_t *lane); /* failed or cancelled */
/* Requests in flight that never completed. */
void zr_disk_lane_stick(zr_disk_lane_t *lane, int n_requests);

/* --- checksum.c --- */
void zr_disk_checksum_set(zr_disk_t *disk, const zr_disk_request_t *request);
zr_status_t zr_disk_checksum_check(const zr_disk_t *disk,
                                   const zr_disk_request_t *request) ZR_MUST_CHECK;

#endif
