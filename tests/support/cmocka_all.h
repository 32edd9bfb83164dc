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

/* Hides the slot of zr_hal_ops_t; fail_msg is still there. */
#undef fail

#endif
