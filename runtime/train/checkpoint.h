/* Checkpoints: named tensors with element ranges, one safetensors file for each rank in
 * checkpoints/step-00000010/, and manifest.json. A checkpoint does not know the topology: any rank
 * count and stage can load it.
 *
 * Writing: rank 0 begins (a temporary folder); every rank writes its file; rank 0 commits (manifest
 * last, one rename, then `latest`). The caller puts a barrier between those. A crash at any moment
 * leaves the last good checkpoint. Reading: every rank opens, each verifies its share of the files,
 * and reads what it holds. The loop's thread; streams drained. */
#ifndef ZR_TRAIN_CHECKPOINT_H
#define ZR_TRAIN_CHECKPOINT_H

#include "kernels/control.h"
#include "runtime/train/safetensors.h"
#include "runtime/train/states.h"

typedef struct {
  uint64_t hash; /* XXH3, 64 bits */
  int64_t bytes;
} zr_checkpoint_file_t;

/* What a checkpoint says besides its tensors. */
typedef struct {
  int64_t step, iteration; /* updates done; steps tried: the data cursor */
  int64_t skipped, skipped_in_row, tokens, digest_valid;
  uint64_t digest[2];
  /* fp16: of the next step; a manifest without it gives 0 */
  double loss_scale;
  int64_t scale_chances, scale_last_skipped;
} zr_checkpoint_counters_t;

void zr_checkpoint_from_control(const zr_control_t *control, zr_checkpoint_counters_t *out);
void zr_checkpoint_to_control(const zr_checkpoint_counters_t *counters, zr_control_t *out_control);

/* Folder "step-00000010". */
enum { ZR_CHECKPOINT_NAME_BYTES = 32 };
void zr_checkpoint_name(int64_t step, char out_name[ZR_CHECKPOINT_NAME_BYTES]);

/* --- writing; `folder` is the run's checkpoints folder --- */
zr_status_t zr_checkpoint_begin(const char *folder, int64_t step) ZR_MUST_CHECK;
zr_status_t zr_checkpoint_write(const zr_states_t *states, const char *folder, int64_t step,
                                zr_checkpoint_file_t *out_file) ZR_MUST_CHECK;
typedef struct {
  zr_checkpoint_counters_t counters;
  const char *options; /* the numeric options as YAML */
  const char *kernels; /* the kernel backend's name */
  int64_t data_tokens; /* of data.train: the order of samples hangs on it */
  const zr_zero_t *zero;
  const zr_checkpoint_file_t *file; /* [n_files]: rank r's */
  size_t n_files;
} zr_checkpoint_manifest_t;
zr_status_t zr_checkpoint_commit(zr_alloc_t *alloc, const char *folder,
                                 const zr_checkpoint_manifest_t *manifest) ZR_MUST_CHECK;
/* Removes what interrupted saves left, and the checkpoints before `latest` but the newest
 * keep_last and those of steps divisible by keep_every. Best effort. */
void zr_checkpoint_prune(const char *folder, int64_t latest, int64_t keep_last, int64_t keep_every);

/* --- reading --- */
typedef struct zr_checkpoint_t zr_checkpoint_t;

/* The checkpoint that `latest` names. *out_checkpoint = NULL: there is none, the run is new. */
zr_status_t zr_checkpoint_open_latest(zr_alloc_t *alloc, const char *folder,
                                      zr_checkpoint_t **out_checkpoint) ZR_MUST_CHECK;
void zr_checkpoint_close(zr_checkpoint_t *checkpoint); /* NULL is fine */
const zr_checkpoint_counters_t *zr_checkpoint_counters(const zr_checkpoint_t *checkpoint);
const char *zr_checkpoint_path(const zr_checkpoint_t *checkpoint);
/* Refuses other numeric options (ZR_ERR_CONFIG names the first one) or other kernels. */
zr_status_t zr_checkpoint_compare(const zr_checkpoint_t *checkpoint, const char *options,
                                  const char *kernels) ZR_MUST_CHECK;
/* Refuses data.train of another length (ZR_ERR_DATA): its samples would come in another order. */
zr_status_t zr_checkpoint_compare_data(const zr_checkpoint_t *checkpoint,
                                       int64_t data_tokens) ZR_MUST_CHECK;
/* Checksums of this rank's share of the files; a bad one is named. */
zr_status_t zr_checkpoint_verify(const zr_checkpoint_t *checkpoint, int rank,
                                 int n_ranks) ZR_MUST_CHECK;
/* Parameters and moments of everything this rank holds. */
zr_status_t zr_checkpoint_load(const zr_checkpoint_t *checkpoint,
                               const zr_states_t *states) ZR_MUST_CHECK;

#endif
