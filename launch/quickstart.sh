#!/usr/bin/env bash
# From a bare Debian 12 machine to a language model that has learnt real English, under ZeRO stage 3 on two ranks.
# usage: bash launch/quickstart.sh [RANKS]
set -euo pipefail
cd "$(dirname "$0")/.."
ranks=${1:-2}
bash launch/install.sh
. launch/mpi_env.sh

cmake -G Ninja -B build/release -S . -DCMAKE_BUILD_TYPE=Release >build.log 2>&1 && rm build.log ||
  { cat build.log >&2; exit 1; }
cmake --build build/release --target zerorun | tail -n 1

# The King James text, verse numbers cut off; the last twentieth is held out.
data=runs/data
mkdir -p "$data"
if [ ! -s "$data/kjv-train.txt" ]; then
  bible -f gen1:1-rev22:21 | sed 's/^[^ ]* //' >"$data/kjv.txt"
  lines=$(wc -l <"$data/kjv.txt")
  held_out=$((lines / 20))
  head -n $((lines - held_out)) "$data/kjv.txt" >"$data/kjv-train.txt"
  tail -n "$held_out" "$data/kjv.txt" >"$data/kjv-eval.txt"
fi

exec mpirun -n "$ranks" build/release/zerorun configs/quickstart.yaml
