#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests: release, then under AddressSanitizer and ThreadSanitizer.
# usage: bash tests/run.sh [--long] [--quick] [PRESET ...]     presets: release asan tsan
set -euo pipefail
cd "$(dirname "$0")/.."
presets=()
for argument in "$@"; do
  case $argument in
    --long) export ZR_TEST_LONG=1 ;;
    --quick) presets=(release) ;;
    release | asan | tsan) presets+=("$argument") ;;
    *) echo "usage: bash tests/run.sh [--long] [--quick] [release|asan|tsan ...]" >&2; exit 2 ;;
  esac
done
[ ${#presets[@]} -gt 0 ] || presets=(release asan tsan)

bash launch/install.sh --tests
. launch/mpi_env.sh
export OMPI_MCA_btl=self,vader
export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"

# Under a sanitizer only what it can say something about, unless --long: with ThreadSanitizer the programs that have threads and
# ranks, with AddressSanitizer what is not proved again and again with other settings.
only() {
  [ -n "${ZR_TEST_LONG:-}" ] && return
  case $1 in
    asan) echo "-E ^(lint|base_lint|verify_random|proof_(exact|optimizers)(_r[2348])?|cpu_gemm|proof_homes_r[34]|proof_overlap|e2e_(exact|half|offload|resume|bisect)|golden_run_r[24]|bench_.*|comm_all_through_.*|comm_mpi_delays_r3)$" ;;
    tsan) echo "-R ^(base_pool|base_misc|hal_.*|comm_.*|disk_(null|result|refused)|exec_.*|cpu_cases|proof_(poison|accounting)_r2|e2e_faults)$ -E ^comm_(all_through_.*|mpi_delays_r3)$" ;;
  esac
}

# What those tests run, and nothing else: the targets are the files of the build folder that their commands name.
targets() {
  ctest --test-dir "build/$1" -N $(only "$1") | python3 -c '
import glob, os, re, sys
build = os.path.realpath(sys.argv[1])
chosen = set(re.findall(r"Test +#\d+: (\S+)", sys.stdin.read()))
found = set()
for path in glob.glob(build + "/**/CTestTestfile.cmake", recursive=True):
    for name, command in re.findall(r"add_test\(\[=*\[(.*?)\]=*\] (.*)\)", open(path).read()):
        if name in chosen:
            found.update(re.findall(r"\"%s/(.*?)\"" % re.escape(build), command))
print(*sorted(found))' "build/$1"
}

failed=0
for preset in "${presets[@]}"; do
  echo "== $preset"
  cmake --preset "$preset" >/dev/null
  if [ -n "$(only "$preset")" ]; then
    cmake --build --preset "$preset" --target $(targets "$preset")
  else
    cmake --build --preset "$preset"
  fi
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j 2 $(only "$preset") || failed=1
done
exit $failed
