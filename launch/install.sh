#!/usr/bin/env bash
# Installs what zerorun needs from Debian 12's archive; does nothing where all is there. usage: install.sh [--tests]
set -euo pipefail
packages=(gcc cmake ninja-build pkg-config libc6-dev libopenmpi-dev openmpi-bin libdnnl-dev libgomp1
  libyaml-dev libjansson-dev libxxhash-dev libhwloc-dev liburing-dev bible-kjv)
if [ "${1:-}" = --tests ]; then
  packages+=(libcmocka-dev clang-format python3 git strace)
fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install.sh: run as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
