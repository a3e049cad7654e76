#!/bin/sh
# After a removal: state stays and is named; dpkg's purge removes it.
set -e
state=${DPKG_ROOT:-}/var/lib/crishim logs=${DPKG_ROOT:-}/var/log/crishim
case "${1:-}" in
  remove | 0)
    for dir in "$state" "$logs"; do
      [ ! -d "$dir" ] || echo "crishim: $dir stays, with volumes and logs of pods" >&2
    done
    ;;
  purge)
    if awk -v "dir=$state/" 'index($2, dir) == 1 { found = 1 } END { exit !found }' /proc/self/mounts 2>/dev/null; then
      echo "crishim: $state stays: volumes of pods are mounted there" >&2
    else
      rm -rf --one-file-system "$state"
    fi
    rm -rf "$logs" "${DPKG_ROOT:-}/run/crishim" "${DPKG_ROOT:-}/var/lib/cni/cache/crishim"
    ;;
esac
if [ -d "${DPKG_ROOT:-}/run/systemd/system" ]; then
  systemctl daemon-reload || true
fi
