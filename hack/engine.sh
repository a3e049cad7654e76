#!/usr/bin/env bash
# engine.sh up|down|env|status|packages|missing: the engines that demo and tests run on.
#
#   up      take the Docker engine that answers, else start a private one; start a
#           private containerd with CRI and CNI; load the busybox test image.
#           Instant when it is up already.
#   env     print the exports that tests want (only while it is up)
#   status  exit 0 when up
#   down    end what up started and leave nothing of it
#   packages tests|verify|bench...  install what the engines and make test, verify or bench need, and
#           start nothing
#   missing  print the packages of make verify that are not installed
#
# Everything lives in /run/crishim-engine and /var/lib/crishim-engine, or below
# CRISHIM_ENGINE_DIR. The host's own engines, sockets and iptables chains are not touched.
set -euo pipefail
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for part in state packages images dockerd containerd; do
  # shellcheck source=/dev/null
  . "$here/engine/$part.sh"
done

up() {
  stop_all
  find_docker
  require_root_unless_docker
  install_missing needed_by_engines
  make_dirs
  start_containerd
  start_dockerd
  load_images
  write_env
}

case ${1:-} in
  up)
    locked
    if ! is_up; then
      up
      # with-engine.sh takes those down again that nobody asked to stay.
      if [ "${2:-}" = temporary ]; then : >"$RUN/temporary"; fi
    fi
    if [ "${2:-}" != temporary ]; then rm -f "$RUN/temporary"; fi
    ;;
  down) locked; stop_all ;;
  env) is_up || die "the engine is not up; run hack/engine.sh up"; cat "$RUN/env" ;;
  status) is_up ;;
  packages) locked; lists=("${@:2}"); install_missing needed_by_engines "${lists[@]/#/needed_by_}" ;;
  missing) missing_packages needed_by_verify ;;
  *) sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
