#!/bin/sh
# Before a removal ("remove" of dpkg, 0 of rpm), not before an upgrade: units end, and crictl is no longer ours.
set -e
case "${1:-}" in remove | 0) ;; *) exit 0 ;; esac
if [ -d "${DPKG_ROOT:-}/run/systemd/system" ]; then
  systemctl stop crishim.socket crishim.service 'crishim-sync@*.service' || true
fi
# Also what was enabled in a tree that is not running; the template stands for all its instances.
if command -v systemctl >/dev/null 2>&1; then
  systemctl --quiet disable crishim.socket crishim.service crishim-sync@.service || true
fi
if command -v update-alternatives >/dev/null 2>&1; then
  update-alternatives --remove crictl /usr/bin/crishim || true
fi
# Of pods in an engine only crishim knows what they are, and it goes.
if pods=$(timeout 10 "${DPKG_ROOT:-}/usr/bin/crishim" -r docker:// pods -q 2>/dev/null) && [ -n "$pods" ]; then
  echo "crishim: pods stay in the Docker engine, and their logs in /var/log/pods: docker ps -a --filter label=io.kubernetes.docker.type" >&2
fi
