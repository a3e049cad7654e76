#!/usr/bin/env bash
# reset.sh: remove leftovers of killed engines of hack/engine.sh and of killed tests, so that the machine is as after a
# fresh install. If an engine is running, everything may be in use and is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || exit 0
# shellcheck source=/dev/null
. hack/engine/state.sh

# Of engines: processes, mounts, bridges, directories, sysctls.
hack/engine.sh status || hack/engine.sh down
export CRISHIM_ENGINE_DIR=${CRISHIM_ENGINE_DIR:-/var/lib/crishim-engine}-2 # the second engines of make test
hack/engine.sh status || hack/engine.sh down
engines=$(running_engines)
if [ -n "$engines" ]; then
  # shellcheck disable=SC2086
  echo "reset: engines are running, nothing is reset:" $engines >&2
  exit 0
fi

# The note of an engine whose directories are already gone.
restore_sysctls

# Of CNI plugins in tests: by network name, which starts with crishim-.
if command -v iptables-save >/dev/null; then
  ours='name: "crishim-|name: \\"crishim-'
  mapfile -t chains < <(iptables-save -t nat 2>/dev/null | grep -E "$ours" | grep -oE '\bCNI-(DN-|SN-)?[0-9a-f]{20,}\b' | sort -u)
  iptables-save -t nat 2>/dev/null | sed -n -E "/$ours/s/^-A /-D /p" | while read -r rule; do
    eval "iptables -w -t nat $rule" || true
  done
  for c in "${chains[@]}"; do iptables -w -t nat -F "$c" && iptables -w -t nat -X "$c"; done
fi
! command -v ip >/dev/null || ip link del crishimtest0 2>/dev/null || true
rm -rf /var/lib/cni/{networks,results,cache/results}/crishim-*
rmdir /var/lib/cni/{networks,results,cache/results,cache/crishim,cache,} 2>/dev/null || true

# Of tests: directories with names that only tests use, if no test can be running.
find /tmp /run -maxdepth 1 -name 'crishim-test-*' -type d -user root -mmin +120 | while read -r d; do
  awk -v d="$d/" 'index($2, d) == 1 { print $2 }' /proc/mounts | sort -r | while read -r m; do umount -l "$m" || true; done
  rm -rf --one-file-system "$d"
done

left=$(hack/leftovers.sh | grep -v ^sysctl || true)
[ -z "$left" ] || printf 'reset: this stays, somebody may want it:\n%s\n' "$left" >&2
