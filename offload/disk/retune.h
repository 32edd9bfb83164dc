/* For benches: the files of a disk with other settings, so that what was written once is read with
 * many. Floor 2, private: programs choose their settings when they open a disk. */
#ifndef ZR_OFFLOAD_DISK_RETUNE_H
#define ZR_OFFLOAD_DISK_RETUNE_H

#include "offload/tier.h"

/* Of a disk from zr_disk_open on one path, while no transfer runs: what was written stays. Its
 * `name` and `describe` still say what it was opened with. ZR_ERR_UNSUPPORTED: the system refuses
 * that engine, and the disk goes on as before. ZR_ERR_CONFIG: kind ZR_DISK_AUTO, several paths, or
 * a block or depth that zr_disk_open refuses too. */
zr_status_t zr_disk_retune(zr_disk_t *disk, int kind, int64_t block_bytes,
                           int queue_depth) ZR_MUST_CHECK;
/* Of its first file, which has no name: another program reaches it as /proc/PID/fd/N. */
int zr_disk_descriptor(const zr_disk_t *disk);

#endif
