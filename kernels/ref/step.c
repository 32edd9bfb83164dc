/* Kernels of the step without a float type of their own. */
#include "kernels/control.h"
#include "kernels/ref/ref.h"

static zr_status_t run_nop(const zr_kern_call_t *call) {
  (void)call;
  return ZR_OK;
}

static zr_status_t run_count(const zr_kern_call_t *call) {
  const int32_t *target = call->operand[0]; /* [rows] */
  zr_control_t *ctl = call->operand[1];
  for (int64_t t = 0; t < call->shape->attr[ZR_ROWS]; t++) ctl->count_local += target[t] >= 0;
  return ZR_OK;
}

static zr_status_t run_loss_sum(const zr_kern_call_t *call) {
  const double *loss = call->operand[0]; /* [rows] */
  zr_control_t *ctl = call->operand[1];
  for (int64_t t = 0; t < call->shape->attr[ZR_ROWS]; t++) zr_exact_add(&ctl->loss, loss[t]);
  return ZR_OK;
}

static zr_status_t run_control_begin(const zr_kern_call_t *call) {
  zr_control_begin(call->operand[0]);
  return ZR_OK;
}

static zr_status_t run_control_count(const zr_kern_call_t *call) {
  zr_control_count(call->operand[0]);
  return ZR_OK;
}

static zr_status_t run_control_update(const zr_kern_call_t *call) {
  zr_control_update(call->operand[0]);
  return ZR_OK;
}

static zr_status_t run_control_end(const zr_kern_call_t *call) {
  zr_control_end(call->operand[0]);
  return ZR_OK;
}

const ref_run_fn_t ref_run_step[ZR_N_OP_KINDS] = {
    [ZR_OP_NOP] = run_nop,
    [ZR_OP_COUNT] = run_count,
    [ZR_OP_LOSS_SUM] = run_loss_sum,
    [ZR_OP_CONTROL_BEGIN] = run_control_begin,
    [ZR_OP_CONTROL_COUNT] = run_control_count,
    [ZR_OP_CONTROL_UPDATE] = run_control_update,
    [ZR_OP_CONTROL_END] = run_control_end,
};
