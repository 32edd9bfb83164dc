#!/bin/bash
# Every bench once, for a quiet machine (about 20 minutes, 30 with peers): tables on standard output, JSON in OUT_DIR.
#
#   bench/measure.sh BUILD_DIR OUT_DIR [--peers DIR --venv VENV]      the options are compare.sh's
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ] || [ ! -x "$1/bench/zerobench" ]; then
  echo "measure.sh: ${1:-BUILD_DIR} has no bench/zerobench: usage: measure.sh BUILD_DIR OUT_DIR [--peers DIR --venv VENV]" >&2
  exit 2
fi
build=$1 out=$2 failed=0
shift 2
mkdir -p "$out" || exit 2
. "$here/../launch/mpi_env.sh"
export OMPI_MCA_btl=self,vader

# bench NAME COMMAND...: a table, and OUT_DIR/NAME.json
bench() {
  local name=$1
  shift
  echo "--- $*"
  "$@" --json "$out/$name.json" || { echo "measure.sh: $name failed" >&2; failed=1; }
}

lscpu | grep -E '^(Model name|CPU family|Model|CPU\(s\)|L3)' || true
uptime
zerobench=$build/bench/zerobench
bench gemm "$zerobench" gemm
bench copy "$zerobench" copy
bench adam "$zerobench" adam --all
bench step-fp32 "$zerobench" step --dtype fp32
bench step-bf16 "$zerobench" step --dtype bf16
bench copy-2 mpirun -n 2 "$zerobench" copy
bench comm-2 mpirun -n 2 "$zerobench" comm
bench disk "$zerobench" disk --path "$out" --all
if [ $# -gt 0 ]; then
  "$here/compare.sh" "$build" "$@" --json "$out/compare.json" || failed=1
fi
uptime
exit $failed
