#!/usr/bin/env bash
# tool.sh PACKAGE@VERSION: build a program once per machine and version, and print its path. The first build needs the
# network. GOBIN is not used, because the version is part of the name.
set -euo pipefail
name=${1##*/}
kept=${XDG_CACHE_HOME:-$HOME/.cache}/crishim/${name/@/-}
if [ ! -x "$kept" ]; then
  echo "tool: building $1 (once)" >&2
  bin=$(mktemp -d)
  trap 'rm -rf "$bin"' EXIT
  GOFLAGS='' GOBIN=$bin go install "$1" >&2
  mkdir -p "$(dirname "$kept")"
  mv "$bin/${name%@*}" "$kept"
fi
echo "$kept"
