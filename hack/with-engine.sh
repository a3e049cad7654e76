#!/usr/bin/env bash
# with-engine.sh CMD...: run CMD with the test engines up and in its environment. Engines
# that were up before stay up; those that this started go again, also when CMD fails, with
# the last of several that use them at the same time.
set -euo pipefail
engine=$(dirname "$0")/engine.sh
run=${CRISHIM_ENGINE_DIR:+$CRISHIM_ENGINE_DIR/run}
run=${run:-/run/crishim-engine}

clean_up() {
  local status=$?
  trap - EXIT
  # Each user holds a shared lock; who gets it alone is the last.
  flock -u 8 2>/dev/null || true
  if [ -e "$run/temporary" ] && flock -n -x 8; then "$engine" down || status=1; fi
  exit "$status"
}

# One trap for all ends; a signal ends the script, and so takes this way too.
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
until
  # The daemons outlive a run of tests that others share them with, and are not what it left.
  env -u CRISHIM_TEST_TMP "$engine" up temporary
  exec 8<"$run"
  flock -s -w 60 8
  # They may have gone down while we waited for the lock.
  "$engine" status
do :; done
eval "$("$engine" env)"
"$@" 8<&-
