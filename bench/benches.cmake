zr_bench(bench_kernels SOURCES bench_kernels.c DEPENDS zr_plan zr_kern_cpu)
zr_bench(bench_compile SOURCES bench_compile.c DEPENDS zr_zero zr_kern_ref)

# The yardstick: plain loops as a compiler makes them fast, without the library's own rules.
if(OpenMP_C_FOUND AND NOT ZR_SANITIZE)
  add_executable(gpt2_plain gpt2_plain.c)
  target_compile_options(gpt2_plain PRIVATE -Ofast -march=native -ffp-contract=fast -fopenmp
    -Wno-conversion -Wno-shadow)
  target_link_libraries(gpt2_plain PRIVATE OpenMP::OpenMP_C m)
  set_target_properties(gpt2_plain PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endif()
