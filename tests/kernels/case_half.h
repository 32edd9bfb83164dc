/* The 16-bit cases on any backend: what a backend's own test needs is one call of kern_half_check.
 * Failures fail the cmocka test. One thread. */
#ifndef ZR_TESTS_KERNELS_CASE_HALF_H
#define ZR_TESTS_KERNELS_CASE_HALF_H

#include "tests/kernels/case_call.h"

typedef struct {
  const char *name; /* in messages */
  const zr_kern_ops_t *ops;
  zr_kern_t *kern;
  zr_pool_t *const *pool; /* the calling thread and each of these give the same bits */
  int n_pools;
} kern_backend_t;

/* Each 16-bit case: within its bounds of the double oracle, or the oracle's bits where they are 0;
 * nothing outside the outputs is written; neither what was there before, nor addresses, nor pools
 * change a bit; accumulating is adding. Returns how many cases the backend has no kernel for yet
 * (ZR_ERR_UNSUPPORTED from prepare), each of which it prints. */
int kern_half_check(const kern_backend_t *backend);

#endif
