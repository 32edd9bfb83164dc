#!/bin/bash
# zerorun beside PyTorch and DeepSpeed on the same work, one interleaved run; a table on standard output.
#
#   bench/compare.sh BUILD_DIR [--peers DIR --venv VENV] [--json FILE] [--rounds N] [--only one,two,update] [--limit S]
#
# DIR holds the peers' scripts and VENV their Python environment (compare.py says which). Without them the yardstick is
# the plain C step of this folder.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ ! -x "$1/zerorun" ]; then
  echo "compare.sh: ${1:-BUILD_DIR} has no zerorun: usage: compare.sh BUILD_DIR [--peers DIR --venv VENV] [--json FILE]" >&2
  exit 2
fi
if [ $# -eq 1 ]; then
  exec python3 "$here/step.py" "$1"
fi
exec python3 "$here/compare.py" "$@"
