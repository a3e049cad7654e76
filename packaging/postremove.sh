#!/bin/sh
# After a removal: state stays and is named; dpkg's purge removes it.
set -e
root=${DPKG_ROOT:-}
set -- "${1:-}" "$root/var/lib/crishim" "$root/var/log/crishim" "$root/run/crishim" "$root/var/lib/cni/cache/crishim"

# mounted prints a mount point at or below a directory. The kernel lists real paths, and /var may be a link. Sub paths of hostPath
# volumes are bind mounts, often of the same file system, which rm --one-file-system would enter.
mounted() {
  dir=$(readlink -f "$1") awk '
    { at = $5; gsub(/\\040/, " ", at); gsub(/\\011/, "\t", at); gsub(/\\012/, "\n", at); gsub(/\\134/, "\\\\", at) }
    at == ENVIRON["dir"] || index(at, ENVIRON["dir"] "/") == 1 { print at; exit }' /proc/self/mountinfo
}

case "$1" in
  remove | 0)
    for dir in "$2" "$3"; do
      [ ! -d "$dir" ] || echo "crishim: $dir stays, with volumes and logs of pods" >&2
    done
    ;;
  purge)
    shift
    stay=
    for dir in "$@"; do
      [ -e "$dir" ] || continue
      if ! at=$(mounted "$dir"); then
        stay="mounts cannot be listed"
      elif [ -n "$at" ]; then
        stay="$at is mounted"
      fi
    done
    for dir in "$@"; do
      if [ -z "$stay" ]; then
        rm -rf --one-file-system "$dir" # only the link, where it is one
      elif [ -e "$dir" ]; then
        echo "crishim: $dir stays: $stay" >&2
      fi
    done
    ;;
esac
if [ -d "$root/run/systemd/system" ]; then
  systemctl daemon-reload || true
fi
