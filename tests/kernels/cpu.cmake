# The cpu backend against the oracle, over the shared table of cases.
foreach(name cpu_cases cpu_open cpu_gemm)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${name}.c)
    zr_test(${name} SOURCES ${name}.c DEPENDS kernel_cases zr_kern_cpu)
  endif()
endforeach()

# oneDNN picks its instruction set once a process: the library's AVX2 products need one of their own.
zr_test(cpu_cases_avx2 SOURCES cpu_cases.c DEPENDS kernel_cases zr_kern_cpu ARGS avx2)
