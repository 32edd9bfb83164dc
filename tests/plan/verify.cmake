# The verifier: directed cases, and random plans with their mutations.
zr_test(verify SOURCES verify_test.c DEPENDS zr_plan)
zr_test(verify_tiers SOURCES verify_tiers_test.c DEPENDS zr_plan)
zr_test(verify_random SOURCES verify_random_test.c verify_random.c verify_mutate.c verify_run.c
        DEPENDS zr_plan TIMEOUT 1800)
