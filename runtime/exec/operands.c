/* ThreadSanitizer sees an operation's accesses only in code that was built with it, and only those
 * that happen to be made. Declaring the operands makes every dropped wait a reported race, whatever
 * the kernel is. */
#include "runtime/exec/state.h"

#ifdef __SANITIZE_THREAD__

void __tsan_read_range(void *address, unsigned long bytes);
void __tsan_write_range(void *address, unsigned long bytes);

void zr_exec_declare_operands(const zr_exec_op_t *op) {
  const zr_op_t *plan_op = &op->exec->plan[op->plan].plan->op[op->op];
  for (int i = 0; i < ZR_MAX_OPERANDS; i++) {
    if (!op->call.operand[i]) continue;
    if (plan_op->operand[i].access == ZR_READ) {
      __tsan_read_range(op->call.operand[i], (unsigned long)op->call.bytes[i]);
    } else {
      __tsan_write_range(op->call.operand[i], (unsigned long)op->call.bytes[i]);
    }
  }
}

#else

void zr_exec_declare_operands(const zr_exec_op_t *op) {
  (void)op;
}

#endif
