#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "bench/zerobench/step.h"

enum { TOKENS = 200000, GPT2_VOCAB = 50257, QUICK_VOCAB = 500, TEXT_BYTES = 2048 };

zr_status_t zr_step_folder_make(zr_bench_t *b, char folder[ZR_STEP_PATH_BYTES]) {
  const char *parent = getenv("TMPDIR");
  memset(folder, 0, ZR_STEP_PATH_BYTES);
  if (b->rank == 0) {
    (void)snprintf(folder, ZR_STEP_PATH_BYTES, "%.400s/zerobench-XXXXXX",
                   parent == NULL ? "/tmp" : parent);
    if (mkdtemp(folder) == NULL) {
      return zr_fail(ZR_ERR_IO, "%s: no folder can be made there: %s; set TMPDIR", folder,
                     strerror(errno));
    }
  }
  return b->comm_ops->broadcast(b->comm, folder, ZR_STEP_PATH_BYTES, 0);
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *ftw) {
  (void)about, (void)type, (void)ftw;
  return remove(path);
}

void zr_step_folder_remove(const zr_bench_t *b, const char *folder) {
  if (b->rank == 0 && folder[0] != 0) (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A token file of llm.c: 256 integers of header, then 16-bit ids. */
static zr_status_t write_tokens(const zr_step_run_t *run, uint32_t vocab) {
  if (run->bench->rank != 0) return ZR_OK;
  char path[ZR_STEP_PATH_BYTES + 16];
  (void)snprintf(path, sizeof path, "%s/tokens.bin", run->folder);
  FILE *file = fopen(path, "wbe");
  if (file == NULL) return zr_fail(ZR_ERR_IO, "%s: %s", path, strerror(errno));
  const int32_t header[256] = {20240520, 1, TOKENS};
  size_t written = fwrite(header, sizeof header, 1, file);
  for (uint32_t i = 0; i < TOKENS; i++) {
    uint16_t id = (uint16_t)(i * 2654435761u % vocab);
    written += fwrite(&id, sizeof id, 1, file);
  }
  if (fclose(file) == 0 && written == TOKENS + 1) return ZR_OK;
  return zr_fail(ZR_ERR_IO, "%s can not be written: %s", path, strerror(errno));
}

static const char large[] =
    "model: {preset: gpt2}\n"
    "data: {train: %s/tokens.bin, seq_len: 256}\n"
    "train_micro_batch_size_per_gpu: 4\n";
static const char small[] =
    "model: {architectures: [GPT2LMHeadModel], n_embd: 48, n_layer: 2, n_head: 3,\n"
    "        n_positions: 32, vocab_size: 500}\n"
    "data: {train: %s/tokens.bin, seq_len: 32}\n"
    "train_micro_batch_size_per_gpu: 2\n";
static const char rest[] =
    "gradient_accumulation_steps: 1\n"
    "gradient_clipping: 1.0\n"
    "optimizer: {type: AdamW, params: {lr: 3e-4}}\n"
    "bf16: {enabled: %s}\n"
    "fp16: {enabled: %s}\n";

static zr_status_t synthetic(const zr_step_run_t *run, zr_config_file_t **out_config) {
  const zr_bench_options_t *o = &run->bench->options;
  const char *dtype = o->dtype == NULL ? "fp32" : o->dtype;
  char text[TEXT_BYTES];
  ZR_TRY(write_tokens(run, o->quick ? QUICK_VOCAB : GPT2_VOCAB));
  ZR_TRY(run->bench->comm_ops->barrier(run->bench->comm));
  int used = snprintf(text, sizeof text, o->quick ? small : large, run->folder);
  used += snprintf(text + used, sizeof text - (size_t)used, rest,
                   strcmp(dtype, "bf16") == 0 ? "true" : "false",
                   strcmp(dtype, "fp16") == 0 ? "true" : "false");
  return zr_config_parse(run->bench->alloc, "zerobench", text, (size_t)used, out_config);
}

static zr_status_t set(zr_config_file_t *config, const char *key, const char *format,
                       long long number) {
  char value[64], pair[128];
  (void)snprintf(value, sizeof value, format, number);
  (void)snprintf(pair, sizeof pair, "%s=%s", key, value);
  return zr_config_set(config, pair);
}

static zr_status_t make_measurement(const zr_step_run_t *run, zr_config_file_t *config) {
  char pair[ZR_STEP_PATH_BYTES + 32];
  (void)snprintf(pair, sizeof pair, "run.dir=%s/run", run->folder);
  ZR_TRY(zr_config_set(config, pair));
  (void)snprintf(pair, sizeof pair, "run.trace=2-%lld", (long long)run->steps);
  ZR_TRY(zr_config_set(config, pair));
  ZR_TRY(set(config, "run.steps", "%lld", run->steps));
  ZR_TRY(set(config, "run.threads", "%lld", run->bench->n_threads));
  ZR_TRY(set(config, "run.eval_every", "%lld", 0));
  ZR_TRY(set(config, "run.log_every", "%lld", 1));
  ZR_TRY(set(config, "checkpoint.every", "%lld", 0));
  ZR_TRY(zr_config_set(config, "checkpoint.at_end=false"));
  ZR_TRY(zr_config_set(config, "checkpoint.resume=false"));
  return run->budget_bytes > 0 ? set(config, "memory.device", "%lld", run->budget_bytes) : ZR_OK;
}

static zr_status_t fill(const zr_step_run_t *run, zr_config_file_t *config) {
  const zr_bench_options_t *o = &run->bench->options;
  for (int i = 0; i < o->n_sets; i++) ZR_TRY(zr_config_set(config, o->set[i]));
  ZR_TRY(make_measurement(run, config));
  ZR_TRY(zr_config_check(config));
  return zr_config_batch(config, run->bench->n_ranks);
}

zr_status_t zr_step_config(const zr_step_run_t *run, zr_config_file_t **out_config) {
  const zr_bench_options_t *o = &run->bench->options;
  zr_config_file_t *config = NULL;
  ZR_TRY(o->n_arguments > 0 ? zr_config_load(run->bench->alloc, o->argument[0], &config)
                            : synthetic(run, &config));
  zr_status_t status = fill(run, config);
  if (status != ZR_OK) {
    zr_config_destroy(config);
    return status;
  }
  *out_config = config;
  return ZR_OK;
}
