/* Which samples a micro-batch holds: a function of the step and the leaf of the one tree, so every
 * rank count sees the same. */
#include "runtime/train/loop_state.h"

int64_t zr_loop_batch_samples(const zr_loop_t *loop) {
  return loop->v->micro_batch_size * loop->v->grad_accum_steps * loop->n_ranks;
}

zr_status_t zr_loop_fetch(void *context, int plan, int64_t iteration, int64_t micro,
                          int32_t *out_tokens, int32_t *out_targets, int32_t *out_starts,
                          int64_t rows) {
  const zr_loop_t *loop = context;
  int64_t seq_len = loop->v->seq_len, n_micro = loop->v->grad_accum_steps;
  bool evaluates = plan == loop->plan_eval;
  int64_t batch = evaluates ? iteration / n_micro : iteration;
  int64_t leaf =
      zr_zero_leaf(&loop->zero->options, loop->rank, evaluates ? iteration % n_micro : micro);
  int64_t first = batch * zr_loop_batch_samples(loop) + leaf * loop->v->micro_batch_size;
  for (int64_t i = 0; i < rows / seq_len; ++i) {
    int32_t *tokens = out_tokens + i * seq_len, *targets = out_targets + i * seq_len;
    int32_t *starts = out_starts != NULL ? out_starts + i * seq_len : NULL;
    ZR_TRY(evaluates ? zr_data_sample_in_order(loop->eval, first + i, tokens, targets, starts)
                     : zr_data_sample(loop->train, first + i, tokens, targets, starts));
  }
  return ZR_OK;
}

int64_t zr_loop_ask(void *context, int plan) {
  const zr_loop_t *loop = context;
  return plan == loop->plan_step ? zr_job_take_requests() : 0;
}
