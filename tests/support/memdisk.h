/* A disk in memory, for tests of whoever uses one: it does what tier.h asks of its callers to do
 * right (alignment, one reader and one writer, nothing read that was never written, one attach), by
 * an error that says what was wrong; and it delays, fails or hangs as asked. */
#ifndef ZR_TESTS_SUPPORT_MEMDISK_H
#define ZR_TESTS_SUPPORT_MEMDISK_H

#include "offload/tier.h"

typedef struct {
  uint64_t delay_seed;                 /* != 0: each transfer first sleeps pseudo-randomly ... */
  int64_t delay_max_ns;                /* ... at most this */
  int64_t read_delay_ns;               /* each read first sleeps this long */
  int64_t fail_read_at, fail_write_at; /* the n-th (from 1) fails with ZR_ERR_IO; 0: none */
  int64_t hang_read_at, hang_write_at; /* the n-th ends only when cancelled; 0: none */
} memdisk_options_t;

/* options NULL: none of that. */
zr_status_t memdisk_open(zr_alloc_t *alloc, int64_t bytes, const memdisk_options_t *options,
                         const zr_disk_ops_t **out_ops, zr_disk_t **out_disk) ZR_MUST_CHECK;
/* From now on; the transfers are counted from here. No transfer runs. */
void memdisk_set(zr_disk_t *disk, const memdisk_options_t *options);
const char *memdisk_memory(const zr_disk_t *disk); /* all its bytes */

#endif
