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

failed=0
for preset in "${presets[@]}"; do
  echo "== $preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset"
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j 2 || failed=1
done
exit $failed
