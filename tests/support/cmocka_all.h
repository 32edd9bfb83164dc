/* cmocka with the headers it wants before it. */
#ifndef ZR_TESTS_SUPPORT_CMOCKA_ALL_H
#define ZR_TESTS_SUPPORT_CMOCKA_ALL_H

/* cmocka.h must come last. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

/* `fail` would hide the slot of zr_hal_ops_t; cmocka's own fail_msg needs it, so it is redefined.
 */
#undef fail
#undef fail_msg
#define fail_msg(message, ...)                          \
  do {                                                  \
    print_error("ERROR: " message "\n", ##__VA_ARGS__); \
    _fail(__FILE__, __LINE__);                          \
  } while (0)

#endif
