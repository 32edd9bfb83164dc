# A subcommand is a file in zerobench/ and a row of its main.c.
file(GLOB zerobench_sources CONFIGURE_DEPENDS zerobench/*.c)
if(ZR_HAVE_DNNL)
  list(FILTER zerobench_sources EXCLUDE REGEX "_nodnnl\\.c$")
else()
  list(FILTER zerobench_sources EXCLUDE REGEX "_dnnl\\.c$")
endif()
zr_bench(zerobench SOURCES ${zerobench_sources} DEPENDS zr_train zr_backends ${DNNL_LIBS})
zr_bench(bench_compile SOURCES bench_compile.c DEPENDS zr_zero zr_kern_ref)

# The yardstick: plain loops as a compiler makes them fast, without the library's own rules.
if(OpenMP_C_FOUND AND NOT ZR_SANITIZE)
  add_executable(gpt2_plain gpt2_plain.c)
  target_compile_options(gpt2_plain PRIVATE -Ofast -march=native -ffp-contract=fast -fopenmp
    -Wno-conversion -Wno-shadow)
  target_link_libraries(gpt2_plain PRIVATE OpenMP::OpenMP_C m)
  set_target_properties(gpt2_plain PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endif()
