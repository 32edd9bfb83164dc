/* cmocka with the headers it needs in front of it, in the order it needs them. */
#ifndef ZR_TESTS_KERNELS_CHECK_H
#define ZR_TESTS_KERNELS_CHECK_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
