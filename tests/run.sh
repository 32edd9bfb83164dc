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
# ranks, with AddressSanitizer one or two rank counts of each proof.
only() {
  [ -n "${ZR_TEST_LONG:-}" ] && return
  case $1 in
    asan) echo "-E ^(lint|base_lint|proof_(exact|optimizers)_r[348]|e2e_(half|offload)|golden_run_r4)$" ;;
    tsan) echo "-R ^(base_pool|base_misc|hal_.*|comm_.*|disk_(null|result|refused)|exec_.*|cpu_cases|golden_run_r2|proof_(poison|accounting)_r2|e2e_(faults|resume|bisect))$" ;;
  esac
}

failed=0
for preset in "${presets[@]}"; do
  echo "== $preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset"
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j 2 $(only "$preset") || failed=1
done
exit $failed
