/* Saving a checkpoint, and throwing old ones away. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/train/checkpoint.h"
#include "runtime/train/checkpoint_names.h"
#include "runtime/train/files.h"

void zr_checkpoint_from_control(const zr_control_t *control, zr_checkpoint_counters_t *out) {
  *out = (zr_checkpoint_counters_t){.step = control->step,
                                    .iteration = control->iteration,
                                    .skipped = control->skipped,
                                    .skipped_in_row = control->skipped_in_row,
                                    .tokens = control->tokens,
                                    .digest_valid = control->param_digest_valid,
                                    .digest = {control->last_digest[0], control->last_digest[1]},
                                    .loss_scale = control->loss_scale,
                                    .scale_chances = control->scale_chances,
                                    .scale_last_skipped = control->scale_last_skipped};
}

void zr_checkpoint_to_control(const zr_checkpoint_counters_t *counters, zr_control_t *out_control) {
  out_control->step = counters->step;
  out_control->iteration = counters->iteration;
  out_control->skipped = counters->skipped;
  out_control->skipped_in_row = counters->skipped_in_row;
  out_control->tokens = counters->tokens;
  out_control->param_digest_valid = counters->digest_valid;
  memcpy(out_control->last_digest, counters->digest, sizeof counters->digest);
  out_control->loss_scale = counters->loss_scale;
  out_control->scale_chances = counters->scale_chances;
  out_control->scale_last_skipped = counters->scale_last_skipped;
}

void zr_checkpoint_name(int64_t step, char out_name[ZR_CHECKPOINT_NAME_BYTES]) {
  (void)snprintf(out_name, ZR_CHECKPOINT_NAME_BYTES, "step-%08lld", (long long)step);
}

/* folder/.writing-step-00000010 */
static zr_status_t writing_path(const char *folder, int64_t step, char out_path[ZR_PATH_BYTES]) {
  char name[ZR_CHECKPOINT_NAME_BYTES], hidden[2 * ZR_CHECKPOINT_NAME_BYTES];
  zr_checkpoint_name(step, name);
  (void)snprintf(hidden, sizeof hidden, ZR_CHECKPOINT_WRITING "%s", name);
  return zr_files_join(out_path, folder, hidden);
}

zr_status_t zr_checkpoint_begin(const char *folder, int64_t step) {
  char path[ZR_PATH_BYTES];
  ZR_TRY(zr_files_make_dirs(folder));
  ZR_TRY(writing_path(folder, step, path));
  zr_files_remove_dir(path);
  if (mkdir(path, 0777) != 0) return zr_files_fail("make the folder", path, errno);
  return ZR_OK;
}

/* --- a rank's file --------------------------------------------------------------------------- */

enum { NAME_BYTES = ZR_SAFETENSORS_NAME_BYTES - 48 }; /* a range follows */

typedef struct {
  zr_alloc_t *alloc;
  const zr_zero_t *zero;
  zr_safetensors_entry_t *entry;
  size_t n_entries, capacity;
  zr_safetensors_writer_t *writer;
} share_t;

/* A whole tensor keeps its name and shape, a slice says its range. */
static zr_status_t list_piece(void *context, const zr_piece_t *piece, float *data) {
  (void)data;
  share_t *share = context;
  ZR_TRY(zr_alloc_grow(share->alloc, &share->entry, &share->capacity, share->n_entries + 1,
                       sizeof *share->entry));
  zr_safetensors_entry_t *entry = &share->entry[share->n_entries++];
  const zr_tape_tensor_t *tensor = piece->tensor;
  int64_t elems = tensor->rows * tensor->cols;
  char name[NAME_BYTES];
  zr_state_name(share->zero, piece, name, sizeof name);
  entry->dtype = ZR_F32;
  if (piece->begin == 0 && piece->end == elems) {
    entry->n_dims = tensor->n_dims;
    entry->dim[0] = tensor->n_dims == 2 ? tensor->rows : tensor->cols;
    entry->dim[1] = tensor->cols;
    (void)snprintf(entry->name, sizeof entry->name, "%s", name);
  } else {
    entry->n_dims = 1;
    entry->dim[0] = piece->end - piece->begin;
    (void)snprintf(entry->name, sizeof entry->name, "%s[%lld:%lld]", name, (long long)piece->begin,
                   (long long)piece->end);
  }
  return ZR_OK;
}

static zr_status_t write_piece(void *context, const zr_piece_t *piece, float *data) {
  share_t *share = context;
  return zr_safetensors_append(share->writer, data, (piece->end - piece->begin) * 4);
}

zr_status_t zr_checkpoint_write(const zr_states_t *states, const char *folder, int64_t step,
                                zr_checkpoint_file_t *out_file) {
  char dir[ZR_PATH_BYTES], path[ZR_PATH_BYTES], name[ZR_CHECKPOINT_FILE_BYTES];
  ZR_TRY(writing_path(folder, step, dir));
  zr_checkpoint_file_name(states->rank, states->zero->options.n_ranks, name);
  ZR_TRY(zr_files_join(path, dir, name));
  share_t share = {.alloc = states->alloc, .zero = states->zero};
  zr_status_t status = zr_states_list_share(states, list_piece, &share);
  if (status == ZR_OK) {
    status =
        zr_safetensors_create(states->alloc, path, share.entry, share.n_entries, &share.writer);
  }
  if (status == ZR_OK) status = zr_states_read_share(states, write_piece, &share);
  if (status == ZR_OK) {
    status = zr_safetensors_finish(share.writer, &out_file->hash, &out_file->bytes);
  } else {
    zr_safetensors_abandon(share.writer);
  }
  zr_alloc_free(states->alloc, share.entry);
  return status;
}

/* --- the manifest ---------------------------------------------------------------------------- */

static json_t *hex(uint64_t value) {
  return json_sprintf("%016llx", (unsigned long long)value);
}

static json_t *shapes(const zr_zero_t *zero) {
  json_t *all = json_object();
  for (size_t i = 0; i < zero->tape->n_tensors; ++i) {
    const zr_tape_tensor_t *tensor = &zero->tape->tensor[i];
    json_t *shape = tensor->n_dims == 2
                        ? json_pack("[II]", (json_int_t)tensor->rows, (json_int_t)tensor->cols)
                        : json_pack("[I]", (json_int_t)tensor->cols);
    (void)json_object_set_new(all, tensor->name, shape);
  }
  return all;
}

static json_t *files(const zr_checkpoint_manifest_t *manifest) {
  json_t *all = json_array();
  for (size_t i = 0; i < manifest->n_files; ++i) {
    char name[ZR_CHECKPOINT_FILE_BYTES];
    zr_checkpoint_file_name((int)i, (int)manifest->n_files, name);
    (void)json_array_append_new(
        all, json_pack("{s:s, s:I, s:o}", "name", name, "bytes",
                       (json_int_t)manifest->file[i].bytes, "xxh3", hex(manifest->file[i].hash)));
  }
  return all;
}

static zr_status_t manifest_text(const zr_checkpoint_manifest_t *manifest, char **out_text) {
  const zr_checkpoint_counters_t *c = &manifest->counters;
  json_t *root = json_pack(
      "{s:s, s:i, s:I, s:{s:I, s:I}, s:{s:I, s:I, s:I, s:I, s:o, s:o}, s:{s:f, s:I, s:I}, s:s, "
      "s:s, "
      "s:o, s:o}",
      "format", "zerorun checkpoint", "version", 1, "step", (json_int_t)c->step, "data",
      "iteration", (json_int_t)c->iteration, "tokens", (json_int_t)manifest->data_tokens,
      "counters", "skipped", (json_int_t)c->skipped, "skipped_in_row",
      (json_int_t)c->skipped_in_row, "tokens", (json_int_t)c->tokens, "digest_valid",
      (json_int_t)c->digest_valid, "digest_params", hex(c->digest[0]), "digest_states",
      hex(c->digest[1]), "scaler", "loss_scale", c->loss_scale, "chances",
      (json_int_t)c->scale_chances, "last_skipped", (json_int_t)c->scale_last_skipped, "kernels",
      manifest->kernels, "options", manifest->options, "model", shapes(manifest->zero), "files",
      files(manifest));
  char *plain = root == NULL ? NULL : json_dumps(root, ZR_CHECKPOINT_CANONICAL);
  if (plain != NULL) {
    (void)json_object_set_new(root, "checksum", hex(XXH3_64bits(plain, strlen(plain))));
    *out_text = json_dumps(root, JSON_INDENT(1));
  }
  zr_files_release(plain);
  json_decref(root);
  return plain != NULL && *out_text != NULL
             ? ZR_OK
             : zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for a checkpoint's manifest");
}

/* A checkpoint of this step that is there already (an interrupted run went over it again) makes
 * room first. */
static zr_status_t move_into_place(const char *folder, const char *from, const char *to) {
  char aside[ZR_PATH_BYTES];
  ZR_TRY(zr_files_join(aside, folder, ZR_CHECKPOINT_WRITING "replaced"));
  zr_files_remove_dir(aside);
  if (rename(to, aside) != 0 && errno != ENOENT) return zr_files_fail("rename", to, errno);
  if (rename(from, to) != 0) return zr_files_fail("rename", from, errno);
  ZR_TRY(zr_files_sync_dir(folder));
  zr_files_remove_dir(aside);
  return ZR_OK;
}

static zr_status_t commit(const char *folder, const zr_checkpoint_manifest_t *manifest,
                          const char *text) {
  char from[ZR_PATH_BYTES], to[ZR_PATH_BYTES], path[ZR_PATH_BYTES];
  char line[ZR_CHECKPOINT_NAME_BYTES];
  ZR_TRY(writing_path(folder, manifest->counters.step, from));
  ZR_TRY(zr_files_join(path, from, ZR_CHECKPOINT_MANIFEST));
  ZR_TRY(zr_files_sync_dir(from));
  ZR_TRY(zr_files_replace(path, text, strlen(text)));
  zr_checkpoint_name(manifest->counters.step, line);
  ZR_TRY(zr_files_join(to, folder, line));
  ZR_TRY(move_into_place(folder, from, to));
  size_t chars = strlen(line);
  line[chars++] = '\n'; /* in the place of the zero byte */
  ZR_TRY(zr_files_join(path, folder, ZR_CHECKPOINT_LATEST));
  return zr_files_replace(path, line, chars);
}

zr_status_t zr_checkpoint_commit(zr_alloc_t *alloc, const char *folder,
                                 const zr_checkpoint_manifest_t *manifest) {
  (void)alloc;
  char *text = NULL;
  zr_status_t status = manifest_text(manifest, &text);
  if (status == ZR_OK) status = commit(folder, manifest, text);
  zr_files_release(text);
  return status;
}

/* --- old ones -------------------------------------------------------------------------------- */

static int64_t step_of(const char *name) {
  char *end;
  if (strncmp(name, "step-", 5) != 0) return -1;
  long long step = strtoll(name + 5, &end, 10);
  return *end == 0 && end != name + 5 ? step : -1;
}

/* Checkpoints newer than `step`, up to `latest`: those beyond it are from before a run went back to
 * an older one. */
static int64_t count_newer(const char *folder, int64_t step, int64_t latest) {
  int64_t newer = 0;
  DIR *dir = opendir(folder);
  if (dir == NULL) return 0;
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    int64_t other = step_of(entry->d_name);
    newer += other > step && other <= latest;
  }
  closedir(dir);
  return newer;
}

void zr_checkpoint_prune(const char *folder, int64_t latest, int64_t keep_last,
                         int64_t keep_every) {
  DIR *dir = opendir(folder);
  if (dir == NULL) return;
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    char path[ZR_PATH_BYTES];
    int64_t step = step_of(entry->d_name);
    bool left_over =
        strncmp(entry->d_name, ZR_CHECKPOINT_WRITING, strlen(ZR_CHECKPOINT_WRITING)) == 0;
    bool kept = step >= 0 && keep_every > 0 && step % keep_every == 0;
    bool old = step >= 0 && !kept && count_newer(folder, step, latest) >= keep_last;
    if (!left_over && !old) continue;
    int used = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (used > 0 && used < ZR_PATH_BYTES) zr_files_remove_dir(path);
  }
  closedir(dir);
}
