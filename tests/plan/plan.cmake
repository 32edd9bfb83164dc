# One helper, compiled into each test of the plan.
foreach(part build place wait text cost compile)
  zr_test(plan_${part} SOURCES plan_${part}_test.c plan_make.c plan_make_step.c DEPENDS zr_plan
          ARGS ${CMAKE_SOURCE_DIR}/tests/plan/golden)
endforeach()
