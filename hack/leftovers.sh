#!/usr/bin/env bash
# leftovers.sh [containers]: list possible leftovers of crishim and its tests, one per line. With "containers": list
# pods and containers on the test engines, and fail if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
export -n CRISHIM_TEST_TMP # identifies processes of tests

things() {
  local d p
  for d in /tmp/crishim-*[!0-9]* /tmp/crishim-*/{shim,ssh}-* /run/crishim/* "${XDG_RUNTIME_DIR:-/nonexistent}"/crishim/*; do
    # A locked directory belongs to a running crishim.
    if [ -d "$d" ] && ! flock -n "$d" true; then continue; fi
    if [ -e "$d" ]; then printf 'file %s\n' "$d"; fi
  done
  # Running engines are in use; stopped ones leave nothing behind.
  if ! hack/engine.sh status; then
    for d in /run/crishim-engine /var/lib/crishim-engine{,-2}; do
      if [ -e "$d" ]; then printf 'file %s\n' "$d"; fi
    done
  fi
  # Directories shared with other programs, by names that only tests use.
  for d in /var/lib/crishim/* /var/log/crishim/* /var/lib/cni/{networks,results,cache/results}/crishim-* /run/crishim-test-*; do
    if [ -e "$d" ]; then printf 'file %s\n' "$d"; fi
  done
  { iptables-save | sed -n 's/^\(-A .*crishim\|:CNI-HOSTPORT\)/iptables &/p'; } 2>/dev/null || true
  if command -v ip >/dev/null; then ip -o link | sed -n 's/^[0-9]*: \(crishimtest[^:@]*\).*/link \1/p'; fi
  # The engines run until the note is gone.
  [ -e /run/crishim-sysctls ] || grep -s . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding | sed 's/^/sysctl /'
  awk '/crishim/ && !/crishim-engine/ { print "mount " $2 }' /proc/mounts
  awk '/crishim/ && !/crishim-engine/ && !/\/crishim(-[0-9]+)?\/(shim|ssh)-/ && $NF ~ /^[@\/]/ { print "socket " $NF }' /proc/net/unix
  find /sys/fs/cgroup -maxdepth 2 -type d -name 'crishim*' -printf 'cgroup %p\n' 2>/dev/null || true
  # Programs of this checkout and of test.sh; other crishim processes are in use.
  for p in /proc/[0-9]*; do
    if [ "$p" = "/proc/$$" ] || [ "$p" = "/proc/$BASHPID" ]; then continue; fi
    case $(readlink "$p/exe" 2>/dev/null) in
      "$PWD"/* | "${CRISHIM_TEST_TMP:-/nonexistent}"/*) ;;
      *) grep -sqzxF "CRISHIM_TEST_TMP=${CRISHIM_TEST_TMP:-/nonexistent}" "$p/environ" || continue ;;
    esac
    printf 'process %s %s\n' "${p#/proc/}" "$({ tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null)"
  done
}

containers() {
  local found
  found=$(docker ps -a --format 'docker {{.Names}} {{.Status}}' --filter label=io.kubernetes.docker.type)
  if [ -n "${CRISHIM_TEST_CONTAINERD:-}" ]; then
    found+=$(ctr --address "${CRISHIM_TEST_CONTAINERD#unix://}" -n k8s.io containers ls -q | sed 's/^/containerd /')
  fi
  [ -n "$found" ] || return 0
  printf 'left on the engines:\n%s\n' "$found" >&2
  return 1
}

case ${1:-} in
  containers) containers ;;
  *) things | sort -u ;;
esac
