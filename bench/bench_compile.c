/* Seconds to compile and verify a program: 100 layers x 16 micro-batches, every stage and order.
 * The bar is 1 s. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/clock.h"
#include "runtime/zero/zero.h"

static int compile(const zr_kern_ops_t *ops, zr_kern_t *kern, int stage, int order) {
  zr_zero_options_t o;
  zr_zero_defaults(&o);
  zr_model_defaults(ZR_ARCH_LLAMA, &o.model);
  o.model.n_layers = 100;
  o.model.hidden_size = 512;
  o.model.n_heads = 8;
  o.model.intermediate_size = 1408;
  o.run = (zr_model_run_t){.micro_batch = 1, .seq_len = 512};
  o.stage = stage;
  o.order = order;
  o.n_ranks = 8;
  o.n_micro = 16;
  o.eval = true;
  o.kern_ops = ops;
  o.kern = kern;
  o.n_workers = 2;
  zr_zero_t *zero = NULL;
  int64_t begin = zr_clock_ns();
  if (zr_zero_compile(NULL, &o, &zero) != ZR_OK) {
    fprintf(stderr, "bench_compile: %s\n", zr_detail());
    return 1;
  }
  double seconds = (double)(zr_clock_ns() - begin) * 1e-9;
  const zr_plan_t *plan = zr_program_find(zero->program, "step");
  printf(
      "stage %d %-7s %6zu ops %6zu buffers %5d waits (%d from placement) peak/bound %.3f  %.3f s\n",
      stage, order == ZR_ORDER_DEPTH ? "depth" : "breadth", plan->n_ops, plan->n_buffers,
      plan->n_waits, plan->n_placement_waits,
      (double)plan->peak_bytes[0] / (double)plan->lower_bound_bytes[0], seconds);
  zr_zero_destroy(zero);
  return 0;
}

int main(void) {
  const zr_kern_ops_t *ops = NULL;
  zr_kern_t *kern = NULL;
  if (zr_kern_ref_open(NULL, ZR_F32, &ops, &kern) != ZR_OK) return 1;
  int failed = 0;
  for (int stage = 0; stage < 4; stage++)
    for (int order = 0; order < 2; order++) failed |= compile(ops, kern, stage, order);
  ops->close(kern);
  return failed;
}
