#!/usr/bin/env bash
# fuzz.sh TIME: run each fuzz target of the module for TIME, one after the other. A failure does not stop the others;
# the last lines list the failed targets.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=()
while IFS=: read -r file line; do
  target=$(sed -E 's/^func (Fuzz[A-Za-z0-9]+)\(.*/\1/' <<<"$line")
  echo "== $target in $(dirname "$file")"
  go test -tags "$(cat hack/tags)" -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 5s "$(dirname "$file")" </dev/null ||
    failed+=("$(dirname "$file") $target")
done < <(grep -rE '^func Fuzz[A-Z]' --include '*_test.go' . | sort)
[ ${#failed[@]} -eq 0 ] || {
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
}
