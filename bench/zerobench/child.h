/* Another program, run to its end. */
#ifndef ZR_BENCH_CHILD_H
#define ZR_BENCH_CHILD_H

#include <stddef.h>

#include "runtime/base/status.h"

/* Runs argv[0] (looked for in PATH) with standard input closed, and keeps what it writes to
 * standard output, cut to `bytes`. After limit_s it is ended. ZR_ERR_UNSUPPORTED: there is no such
 * program, it failed, or it took too long; the detail says which. */
zr_status_t zr_bench_child(char *const argv[], double limit_s, char *out_text,
                           size_t bytes) ZR_MUST_CHECK;

#endif
