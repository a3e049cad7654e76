#!/usr/bin/env bash
# run.sh: compile the tests of the file tests, and run them, smoke.sh and units.sh in the machine of hack/vm.sh. "run.sh there"
# is its second half, in the machine.
set -euo pipefail
cd "$(dirname "$0")/../.."

list() { grep -v '^#' hack/vmtest/tests; } # PACKAGE NAME...
if [ "${1-}" != there ]; then
  list | cut -d' ' -f1 | sort -u | while read -r package; do
    CGO_ENABLED=0 go test -c -trimpath -tags "$(cat hack/tags)" -vet=off -ldflags=-w -o "bin/vm/${package//\//_}.test" "./$package"
  done
  CRISHIM_VM_TIMEOUT=${CRISHIM_VM_TIMEOUT:-7200} exec hack/vm.sh run hack/vmtest/run.sh there
fi

export CRISHIM_REQUIRE_ENGINE=1
failed=()
step() { # NAME COMMAND...
  local seconds=$SECONDS
  echo "== $1"
  "${@:2}" || failed+=("$1")
  echo "== $1: $((SECONDS - seconds)) s"
}
tests() { # PACKAGE NAME...
  local package=$1 patterns
  printf -v patterns '|^%s$' "${@:2}"
  install "bin/vm/${package//\//_}.test" /tmp/test || return
  (cd "$package" && /tmp/test -test.v -test.timeout 1h -test.run "${patterns#|}") | grep -E '^ *--- |^(PASS|FAIL|panic)|_test.go:'
}
nothing_left() {
  local left
  left=$(docker ps -aq; ctr -n k8s.io containers ls -q; ip -o link | grep veth; losetup -a; pgrep crishim; grep -E 'crishim|/pods/' /proc/mounts | grep -v virtiofs)
  [ -z "$left" ] || { echo "left: $left"; return 1; }
}

step smoke hack/vmtest/smoke.sh
step units hack/vmtest/units.sh
while read -r -a line; do
  step "${line[0]}" tests "${line[@]}" </dev/null
done < <(list)
step 'nothing left' nothing_left
[ ${#failed[@]} = 0 ] || { echo "vm-test: FAILED: ${failed[*]}"; exit 1; }
echo "vm-test: ok after $SECONDS s"
