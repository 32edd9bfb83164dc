/* Small things about files that checkpoints and logs share: whole-buffer writes, durable names,
 * errors by errno with the path. */
#ifndef ZR_TRAIN_FILES_H
#define ZR_TRAIN_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

enum { ZR_PATH_BYTES = 1024 };

/* Status and detail for a failed call: ENOSPC and EDQUOT are ZR_ERR_NO_SPACE. `verb`: "write". */
zr_status_t zr_files_fail(const char *verb, const char *path, int error);
/* "folder/name"; ZR_ERR_CONFIG when it is too long. */
zr_status_t zr_files_join(char out_path[ZR_PATH_BYTES], const char *folder,
                          const char *name) ZR_MUST_CHECK;
zr_status_t zr_files_make_dirs(const char *path) ZR_MUST_CHECK; /* with parents; there is fine */
zr_status_t zr_files_write_all(int fd, const char *path, const void *data,
                               size_t bytes) ZR_MUST_CHECK;
/* Makes the names in a folder durable. */
zr_status_t zr_files_sync_dir(const char *path) ZR_MUST_CHECK;
/* Writes `path` by way of a temporary name: after a crash it is the old or the new one, whole. */
zr_status_t zr_files_replace(const char *path, const void *data, size_t bytes) ZR_MUST_CHECK;
/* The whole of a small file, with a zero byte behind it. ZR_ERR_NOT_FOUND if it is not there. */
zr_status_t zr_files_read_text(zr_alloc_t *alloc, const char *path, char **out_text,
                               size_t *out_bytes) ZR_MUST_CHECK;
/* Gives back what a library took from malloc for us: open_memstream, jansson. NULL is fine. */
void zr_files_release(void *memory);
/* Removes a folder of plain files; what is not there is fine. Best effort: nothing depends on it.
 */
void zr_files_remove_dir(const char *path);

#endif
