/* cmocka with the headers it wants before it. */
#ifndef ZR_TESTS_SUPPORT_CMOCKA_ALL_H
#define ZR_TESTS_SUPPORT_CMOCKA_ALL_H

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Hides the slot of zr_hal_ops_t; fail_msg is still there. */
#undef fail

#endif
