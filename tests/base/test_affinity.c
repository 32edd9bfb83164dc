#include <sched.h>

#include "runtime/base/affinity.h"
#include "runtime/base/affinity_part.h"
#include "tests/support/cmocka_all.h"

static void parts_are_contiguous_and_complete(void **state) {
  (void)state;
  for (int cores = 1; cores <= 17; ++cores) {
    for (int ranks = 1; ranks <= cores; ++ranks) {
      int expected = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        int begin, end;
        zr_affinity_part(cores, rank, ranks, &begin, &end);
        assert_int_equal(begin, expected);
        assert_true(end > begin && end - begin <= cores / ranks + 1);
        assert_true(end - begin >= cores / ranks);
        expected = end;
      }
      assert_int_equal(expected, cores);
    }
  }
  int begin, end;
  zr_affinity_part(2, 5, 8, &begin, &end);
  assert_int_equal(begin, 0);
  assert_int_equal(end, 2);
  assert_int_equal(zr_affinity_threads(2, 2, 8), 1);
}

static void a_lone_rank_bound_to_one_core_gets_all(void **state) {
  (void)state;
  cpu_set_t before, one, after;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  size_t first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  int n_cores = 0;
  assert_int_equal(zr_affinity_widen(0, 1, &n_cores), ZR_OK);
  assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
  assert_true(CPU_COUNT(&after) >= CPU_COUNT(&before));
  assert_true(n_cores >= 1 && n_cores <= CPU_COUNT(&after));
}

static void ranks_get_disjoint_parts(void **state) {
  (void)state;
  int n_cores = 0;
  assert_int_equal(zr_affinity_widen(0, 1, &n_cores), ZR_OK);
  cpu_set_t all, a, b, both;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  if (n_cores < 2) skip();
  assert_int_equal(zr_affinity_widen(0, 2, &n_cores), ZR_OK);
  assert_int_equal(sched_getaffinity(0, sizeof a, &a), 0);
  assert_int_equal(zr_affinity_widen(1, 2, &n_cores), ZR_OK);
  assert_int_equal(sched_getaffinity(0, sizeof b, &b), 0);
  CPU_AND(&both, &a, &b);
  assert_int_equal(CPU_COUNT(&both), 0);
  CPU_OR(&both, &a, &b);
  assert_true(CPU_EQUAL(&both, &all));
  /* More ranks than cores share all of them. */
  assert_int_equal(zr_affinity_widen(3, 100000, &n_cores), ZR_OK);
  assert_int_equal(n_cores, 1);
  assert_int_equal(sched_getaffinity(0, sizeof a, &a), 0);
  assert_true(CPU_EQUAL(&a, &all));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_are_contiguous_and_complete),
      cmocka_unit_test(a_lone_rank_bound_to_one_core_gets_all),
      cmocka_unit_test(ranks_get_disjoint_parts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
