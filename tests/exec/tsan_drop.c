/* Runs a small program with one of its waits taken out: ThreadSanitizer must report a race, since
 * the executor declares every operation's operands to it. Only built with -fsanitize=thread.
 *
 *   tsan_drop PROGRAM count    prints how many waits the step has
 *   tsan_drop PROGRAM none     runs it as it is
 *   tsan_drop PROGRAM K        without the K-th wait (from 0)
 *
 * PROGRAM: mini or tiers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mini_tiers.h"

/* Taken out: operation `op` of execution 1 + back no longer waits for `awaited` of execution 1. */
typedef struct {
  int32_t op, awaited;
  int back;
} dropped_t;

static dropped_t drop_wait(zr_plan_t *plan, int k) {
  for (size_t i = 0; i < plan->n_ops; i++) {
    zr_op_t *op = &plan->op[i];
    if (k >= op->n_waits) {
      k -= op->n_waits;
      continue;
    }
    char name[96], other[96];
    const dropped_t dropped = {(int32_t)i, op->wait[k].op, op->wait[k].back};
    zr_plan_op_name(plan, dropped.op, name, sizeof name);
    zr_plan_op_name(plan, dropped.awaited, other, sizeof other);
    printf("dropped: %s waits for %s (back %d)\n", name, other, dropped.back);
    fflush(stdout);
    op->wait[k] = op->wait[--op->n_waits];
    return dropped;
  }
  fail_msg("there is no wait %d", k);
  return (dropped_t){0};
}

static void delay_op(mini_t *mini, int32_t op, int execution, int64_t delay_ns) {
  /* The device's: arenas, their poison, and uploads but those to a disk. */
  const int64_t n_calls_before = mini->disk ? 2 + 2 + 2 : 1 + 1 + mini->n_units;
  const int64_t n_ops = (int64_t)mini->program->plan[MINI_STEP]->n_ops;
  const zr_fault_t fault = {.kind = ZR_FAULT_DELAY,
                            .at = n_calls_before + execution * n_ops + op + 1,
                            .delay_ns = delay_ns};
  assert_ok(zr_hal_fault_open(&mini->alloc, &fault, mini->hal_ops, mini->hal, &mini->hal_ops,
                              &mini->hal));
  mini->options.hal_ops = mini->hal_ops;
  mini->options.hal = mini->hal;
}

/* A wait may see a later value than it asks for, and then orders more than the plan does. So the
 * two operations are kept apart from all others: the one that lost its wait runs when the rest has
 * come to a stop, and the one it should have waited for still later. */
static void drop(mini_t *mini, int k) {
  const dropped_t dropped = drop_wait(mini->program->plan[MINI_STEP], k);
  delay_op(mini, dropped.op, dropped.back, 40000000);
  delay_op(mini, dropped.awaited, 0, 100000000);
}

static void run(bool tiers, const char *which) {
  mini_t mini;
  if (tiers) {
    tiers_open(&mini, NULL);
  } else {
    mini_open(&mini, &mini_shape);
  }
  zr_plan_t *plan = mini.program->plan[MINI_STEP];
  if (!strcmp(which, "count")) {
    printf("%d\n", plan->n_waits);
  } else {
    if (strcmp(which, "none") != 0) drop(&mini, atoi(which));
    if (tiers) {
      mini.options.poison = 0; /* all of the disk is written, so that no read comes too early */
      tiers_start(&mini, NULL);
    } else {
      mini_start(&mini);
    }
    for (int64_t i = 1; i <= 3; i++) assert_ok(zr_exec_start(mini.exec, MINI_STEP, i));
    assert_ok(zr_exec_wait(mini.exec));
  }
  mini_close(&mini);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: tsan_drop mini|tiers count|none|K\n");
    return 2;
  }
  run(!strcmp(argv[1], "tiers"), argv[2]);
  return 0;
}
