#!/usr/bin/env bash
# fuzz.sh TIME: every fuzz target of the module for TIME each, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rlE '^func Fuzz[A-Z]' --include '*_test.go' . | while read -r file; do
  sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(.*/\1/p' "$file" | while read -r target; do
    echo "== $target in $(dirname "$file")"
    go test -tags urfave_cli_no_docs -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$(dirname "$file")"
  done
done
