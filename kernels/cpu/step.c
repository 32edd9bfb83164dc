/* Kinds of the step that are a few words: counts, sums of losses, the control block's rules. */
#include "kernels/control.h"
#include "kernels/cpu/cpu.h"

static zr_status_t nop_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  (void)kern;
  (void)call;
  return ZR_OK;
}

static zr_status_t count_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  (void)kern;
  const int32_t *targets = call->operand[0];
  zr_control_t *ctl = call->operand[1];
  int64_t count = 0;
  for (int64_t t = 0; t < call->shape->attr[ZR_ROWS]; t++) count += targets[t] >= 0;
  ctl->count_local += count;
  return ZR_OK;
}

static zr_status_t loss_sum_run(zr_kern_t *kern, const zr_kern_call_t *call) {
  (void)kern;
  const double *loss = call->operand[0];
  zr_control_t *ctl = call->operand[1];
  for (int64_t t = 0; t < call->shape->attr[ZR_ROWS]; t++) zr_exact_add(&ctl->loss, loss[t]);
  return ZR_OK;
}

#define CONTROL(rule)                                                                    \
  static zr_status_t control_##rule##_run(zr_kern_t *kern, const zr_kern_call_t *call) { \
    (void)kern;                                                                          \
    zr_control_##rule(call->operand[0]);                                                 \
    return ZR_OK;                                                                        \
  }                                                                                      \
  const zr_cpu_kind_t zr_cpu_control_##rule = {"control_" #rule, -1, NULL, NULL,         \
                                               control_##rule##_run}

CONTROL(begin);
CONTROL(count);
CONTROL(update);
CONTROL(end);

const zr_cpu_kind_t zr_cpu_nop = {"nop", -1, NULL, NULL, nop_run};
const zr_cpu_kind_t zr_cpu_count = {"count", -1, NULL, NULL, count_run};
const zr_cpu_kind_t zr_cpu_loss_sum = {"loss_sum", -1, NULL, NULL, loss_sum_run};
