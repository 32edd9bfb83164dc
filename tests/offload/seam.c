#include "tests/offload/seam.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/rng.h"

static int call(void *context, zr_disk_call_t kind) {
  seam_t *s = context;
  const int n = atomic_fetch_add(&s->n_calls[kind], 1);
  if (!s->refuse[kind] || n < s->skip[kind]) return 0;
  return s->times[kind] == 0 || n < s->skip[kind] + s->times[kind] ? s->refuse[kind] : 0;
}

/* As if the kernel had moved `bytes` and no more. */
static void spoil_rest(const seam_t *s, const zr_disk_request_t *r, int64_t bytes) {
  if (!r->is_write) {
    memset(r->memory + bytes, 0x77, (size_t)(r->bytes - bytes));
    return;
  }
  static const char wrong[1 << 20] = {1};
  const int fd = s->disk->file[r->file].buffered_fd;
  if (pwrite(fd, wrong, (size_t)(r->bytes - bytes), r->offset + bytes) < 0) abort();
}

static void flip(const seam_t *s, const zr_disk_request_t *r) {
  const int64_t place = s->flip_at - r->begin;
  if (s->flip_at <= 0 || r->is_write || place < 0 || place >= r->begin_bytes) return;
  r->memory[place - (r->begin_bytes - r->bytes)] ^= 4;
}

static bool is_held(seam_t *s, const zr_disk_request_t *r, int n) {
  const bool is_meant = s->hang_begin == 0 || (r->is_write && r->begin >= s->hang_begin);
  if (is_meant && atomic_load(&s->is_hung)) return true;
  return s->shuffle != 0 && zr_mix64(s->shuffle + (uint64_t)(r->begin + n)) % 4 != 0;
}

static int result(void *context, const zr_disk_request_t *r, int answer) {
  seam_t *s = context;
  if (is_held(s, r, atomic_load(&s->n_results))) {
    if (s->shuffle != 0) atomic_fetch_add(&s->n_results, 1);
    return ZR_DISK_NOT_YET;
  }
  if (atomic_load(&s->is_over)) atomic_fetch_add(&s->n_late, 1);
  flip(s, r);
  if (s->only_direct && r->is_buffered) return answer;
  const int n = atomic_fetch_add(&s->n_results, 1) + 1;
  if (s->at == 0 || n < s->at || n >= s->at + s->n) return answer;
  if (s->answer <= 0) return s->answer;
  if (s->answer >= r->bytes) return answer;
  spoil_rest(s, r, s->answer);
  return s->answer;
}

void seam_init(seam_t *s) {
  *s = (seam_t){.seam = zr_disk_seam_default};
  s->seam.context = s;
  s->seam.call = call;
  s->seam.result = result;
  s->memory = aligned_alloc(SEAM_GRAIN, SEAM_BYTES);
}

zr_status_t seam_open(seam_t *s, const char *path, int kind, int queue_depth, bool checksums) {
  const char *paths[] = {path, path};
  const zr_disk_options_t options = {.kind = kind,
                                     .path = paths,
                                     .n_paths = 2,
                                     .bytes = SEAM_BYTES,
                                     .block_bytes = 8 * SEAM_GRAIN,
                                     .queue_depth = queue_depth,
                                     .checksums = checksums};
  return zr_disk_open_with(NULL, &options, &s->seam, &s->ops, &s->disk);
}

void seam_close(seam_t *s) {
  if (s->ops) s->ops->close(s->disk);
  free(s->memory);
}

void seam_fill(seam_t *s, int version) {
  for (int64_t at = 0; at < SEAM_BYTES; at += 8) {
    const uint64_t word = zr_mix64((uint64_t)(at + version));
    memcpy(s->memory + at, &word, 8);
  }
}

int64_t seam_n_wrong(const seam_t *s, int version) {
  int64_t wrong = 0;
  for (int64_t at = 0; at < SEAM_BYTES; at += 8) {
    const uint64_t word = zr_mix64((uint64_t)(at + version));
    wrong += memcmp(s->memory + at, &word, 8) != 0;
  }
  return wrong;
}

zr_disk_stats_t seam_stats(const seam_t *s) {
  zr_disk_stats_t stats;
  s->ops->stats(s->disk, &stats);
  return stats;
}
