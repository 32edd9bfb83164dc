/* Status: the one result type of zerorun, and the detail that goes with a failure.
 *
 * Every function that can fail returns zr_status_t. The detail (where, which rank, which operation,
 * a sentence for a person) is set once, where the failure is detected, in a fixed thread-local
 * record; it is never allocated. Callable from any thread; nothing blocks. */
#ifndef ZR_BASE_STATUS_H
#define ZR_BASE_STATUS_H

#include <stddef.h>

/* Negative values are errors, grouped by what dies with them. */
typedef enum {
  ZR_OK = 0,
  ZR_PENDING = 1, /* not finished yet; not an error */

  /* the request */
  ZR_ERR_INVALID_ARGUMENT = -10, /* the programmer's or the user's mistake: exit code 2 */
  ZR_ERR_CONFIG = -11,           /* wrong usage or configuration: exit code 2 */
  ZR_ERR_DATA = -12,             /* unreadable or wrong data, model or checkpoint: exit code 3 */
  ZR_ERR_NOT_FOUND = -13,        /* a file or name that is not there: exit code 3 */
  ZR_ERR_UNSUPPORTED = -14,      /* known, but not built or not there yet: exit code 2 */
  ZR_ERR_VERIFY = -15,           /* a plan that breaks its own rules: exit code 1 */

  /* the rank */
  ZR_ERR_OUT_OF_MEMORY = -20, /* does not fit (memory): exit code 4 */
  ZR_ERR_NO_SPACE = -21,      /* does not fit (disk): exit code 4 */

  /* the stream or device */
  ZR_ERR_IO = -30,      /* a disk or file failed: exit code 5 */
  ZR_ERR_DEVICE = -31,  /* a device failed: exit code 5 */
  ZR_ERR_NETWORK = -32, /* a collective failed: exit code 5 */
  ZR_ERR_TIMEOUT = -33, /* the watchdog: something is late: exit code 5 */

  /* the job */
  ZR_ERR_PEER = -40,    /* another rank failed or vanished: exit code 6 */
  ZR_ERR_NUMERIC = -41, /* the numbers failed: exit code 7 */
  ZR_ERR_INTERNAL = -50 /* a bug in zerorun: exit code 1 */
} zr_status_enum_t;

/* A struct-free int so that `warn_unused_result` applies to every function that returns it. */
typedef int zr_status_t;
#define ZR_MUST_CHECK __attribute__((warn_unused_result))

/* Evaluates `expr` once; returns its status from the calling function unless it is ZR_OK. */
#define ZR_TRY(expr)                                    \
  do {                                                  \
    zr_status_t zr_try_status_ = (expr);                \
    if (zr_try_status_ != ZR_OK) return zr_try_status_; \
  } while (0)

enum { ZR_DETAIL_BYTES = 512 };

/* Sets this thread's detail (printf format, cut at ZR_DETAIL_BYTES) and returns `status`, so that a
 * failure is `return zr_fail(ZR_ERR_DATA, "%s: ...", path)`. Say what, where and what to do in one
 * line. */
zr_status_t zr_fail(zr_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* This thread's detail: "" when none. Valid until the thread's next zr_fail or zr_detail_set. */
const char *zr_detail(void);
void zr_detail_set(
    const char *text); /* copies; used when a failure moves from a stream to its waiter */

/* Short constant name, "out of memory"; the documented exit code of CONFIG.md. */
const char *zr_status_name(zr_status_t status);
int zr_status_exit_code(zr_status_t status);

#endif
