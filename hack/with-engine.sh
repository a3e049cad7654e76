#!/usr/bin/env bash
# with-engine.sh CMD...: run CMD in the environment of the test engines. Engines that were already up stay up. Engines
# that this script has started are stopped afterwards, even if CMD fails, by the last of several concurrent users.
set -euo pipefail
engine=$(dirname "$0")/engine.sh
run=${CRISHIM_ENGINE_DIR:+$CRISHIM_ENGINE_DIR/run}
run=${run:-/run/crishim-engine}

clean_up() {
  local status=$?
  trap - EXIT
  # Each user holds a shared lock; the one that gets the exclusive lock is the last.
  flock -u 8 2>/dev/null || true
  if [ -e "$run/temporary" ] && flock -n -x 8; then "$engine" down || status=1; fi
  exit "$status"
}

# A single trap for all exits; a signal ends the script and runs it too.
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
until
  # The daemons outlive a test run that shares them with others, and are not leftovers of it.
  env -u CRISHIM_TEST_TMP "$engine" up temporary
  exec 8<"$run"
  flock -s -w 60 8
  # They may have been stopped while we waited for the lock.
  "$engine" status
do :; done
eval "$("$engine" env)"
"$@" 8<&-
