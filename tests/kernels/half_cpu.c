/* The cpu backend over the 16-bit cases, in every instruction set that the machine has. Cases it
 * has no kernel for yet are named; exit code 77 when it has none for any. */
#include "tests/kernels/case_half.h"
#include "tests/kernels/check.h"

static int n_run;

static void cases_hold(void **state) {
  (void)state;
  static const char *const isa[] = {"avx512", "avx2", "baseline"};
  zr_pool_t *pool[2] = {NULL, NULL};
  for (int p = 0; p < 2; p++) assert_int_equal(zr_pool_create(NULL, 2 + p, &pool[p]), ZR_OK);
  for (size_t i = 0; i < sizeof isa / sizeof *isa; i++) {
    kern_backend_t cpu = {.name = isa[i], .pool = pool, .n_pools = 2};
    zr_status_t status = zr_kern_cpu_open(NULL, isa[i], &cpu.ops, &cpu.kern);
    if (status == ZR_ERR_UNSUPPORTED) continue;
    assert_int_equal(status, ZR_OK);
    int n_skipped = kern_half_check(&cpu);
    print_message("%s: %d of %d cases skipped\n", isa[i], n_skipped, kern_n_half_cases);
    n_run += kern_n_half_cases - n_skipped;
    cpu.ops->close(cpu.kern);
  }
  for (int p = 0; p < 2; p++) zr_pool_destroy(pool[p]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cases_hold)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed == 0 && n_run == 0 ? 77 : failed;
}
