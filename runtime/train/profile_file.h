/* Machine profiles as JSON files: what `zerobench calibrate` writes and every command reads. One
 * thread. */
#ifndef ZR_TRAIN_PROFILE_FILE_H
#define ZR_TRAIN_PROFILE_FILE_H

#include "runtime/plan/profile.h"
#include "runtime/train/files.h"

/* ZR_ERR_NOT_FOUND if it is not there; ZR_ERR_CONFIG names what is wrong with it. */
zr_status_t zr_profile_read(zr_alloc_t *alloc, const char *path,
                            zr_profile_t *out_profile) ZR_MUST_CHECK;
/* Whole or not at all; its folder is made. `machine`: a line for people. */
zr_status_t zr_profile_write(const char *path, const zr_profile_t *profile,
                             const char *machine) ZR_MUST_CHECK;
/* $XDG_CACHE_HOME/zerorun/profile.json, or ~/.cache/...: where one is looked for when none is
 * named. Empty where the environment names no home. */
void zr_profile_default_path(char out_path[ZR_PATH_BYTES]);
/* The profile of `path`; NULL: of the default path if it is there and whole (else a warning), or
 * the built-in one. Give it back with zr_alloc_free. */
zr_status_t zr_profile_find(zr_alloc_t *alloc, const char *path,
                            zr_profile_t **out_profile) ZR_MUST_CHECK;

#endif
