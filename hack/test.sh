#!/usr/bin/env bash
# test.sh: all tests, then a look at whether they left anything on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=$(cat hack/tags)
shuffle=-shuffle=on # the seed is in the output of what fails
race=()
if command -v gcc >/dev/null; then race=(-race); fi

if [ "${1:-}" != inside ]; then
  # What tests make in the directory for temporary files is seen for certain.
  CRISHIM_TEST_TMP=$(mktemp -d /tmp/crishim-XXXX) # short: sockets are in it
  export CRISHIM_TEST_TMP
  before=$(hack/leftovers.sh)
  status=0
  if [ "$(id -u)" = 0 ] || hack/engine.sh status; then
    [ "$(id -u)" != 0 ] || hack/engine.sh packages
    hack/with-engine.sh "$0" inside || status=$?
  else
    echo "test: not root and no engines of hack/engine.sh: tests that need one are skipped" >&2
    "$0" inside || status=$?
  fi
  find "$CRISHIM_TEST_TMP" -mindepth 1 -maxdepth 1 | sed 's/^/test: left behind: /' >&2
  if ! rmdir "$CRISHIM_TEST_TMP" 2>/dev/null; then rm -rf --one-file-system "$CRISHIM_TEST_TMP"; status=1; fi
  after=$(hack/leftovers.sh)
  if left=$(diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") | sed -n 's/^> //p'); [ -n "$left" ]; then
    printf 'test: left on the machine:\n%s\n' "$left" >&2
    status=1
  fi
  if [ "$status" = 0 ]; then echo "test: ok"; else echo "test: FAILED" >&2; fi
  exit "$status"
fi

# The engines make the outcome, and the test cache does not know them: -count=1.
# The scripts in the root package and internal/reliability run the plain program: under the race
# detector each of their hundreds of starts would take a second. One after the other: each starts
# serves that look after all pods of the engine, and their logs.
packages=$(go list -tags "$tags" ./... | grep -v -e '/crishim$' -e '/internal/reliability$')
status=0
export TMPDIR=$CRISHIM_TEST_TMP
# shellcheck disable=SC2086
go test "${race[@]}" -tags "$tags" -count=1 "$shuffle" -p 2 -timeout 20m $packages || status=1
go test -tags "$tags" -count=1 "$shuffle" -p 1 -timeout 20m . ./internal/reliability || status=1
if [ -n "${DOCKER_HOST:-}" ]; then hack/leftovers.sh containers || status=1; fi
exit "$status"
