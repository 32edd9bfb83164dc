zr_bench(bench_compile SOURCES bench_compile.c DEPENDS zr_zero zr_kern_ref)
