# The Docker engine: an existing one, else a private one.
# shellcheck shell=bash

docker_answers() { command -v docker >/dev/null && DOCKER_HOST=$1 timeout 10 docker version >/dev/null 2>&1; }

# find_docker sets DOCKER to the engine's address and DOCKER_IS_OURS.
find_docker() {
  local s
  DOCKER_IS_OURS=0
  # Measurements need an engine without other users.
  if [ -n "${CRISHIM_PRIVATE_ENGINE:-}" ]; then DOCKER=unix://$RUN/docker.sock DOCKER_IS_OURS=1; return; fi
  # The caller's environment may still have our own address, even if the daemon has died.
  if [ "${DOCKER_HOST:-}" = "unix://$RUN/docker.sock" ]; then unset DOCKER_HOST; fi
  if [ -n "${DOCKER_HOST:-}" ]; then
    command -v docker >/dev/null || install_docker_cli
    docker_answers "$DOCKER_HOST" || die "DOCKER_HOST is $DOCKER_HOST, but no engine answers there"
    DOCKER=$DOCKER_HOST
    return
  fi
  for s in /var/run/docker.sock "${XDG_RUNTIME_DIR:-/nonexistent}/docker.sock"; do
    if [ -S "$s" ] && docker_answers "unix://$s"; then DOCKER=unix://$s; return; fi
  done
  DOCKER=unix://$RUN/docker.sock DOCKER_IS_OURS=1
}

install_docker_cli() {
  require_root_unless_docker
  without_services apt_install docker.io
}

# Its containerd is the private one, so the host's containerd is not affected. It writes no iptables rules: published
# ports use docker-proxy, and the chains of another Docker on this host are not changed.
start_dockerd() {
  [ "$DOCKER_IS_OURS" = 1 ] || return 0
  add_bridge "$DOCKER_BRIDGE"
  echo "${CRISHIM_DOCKERD_CONFIG:-{\}}" >"$RUN/daemon.json"
  daemon dockerd dockerd \
    --config-file "$RUN/daemon.json" --data-root "$DATA/docker" --exec-root "$RUN/docker" \
    -H "$DOCKER" --pidfile "$RUN/docker-own.pid" --group "$(id -g)" \
    --containerd "$RUN/containerd.sock" --bridge "$DOCKER_BRIDGE" \
    --iptables=false --ip-forward=false --ip-masq=false --userland-proxy=true --log-level warn
  wait_for dockerd docker_answers "$DOCKER"
}

# add_bridge NAME: uses the first subnet that does not overlap a route of this host.
add_bridge() {
  if ip link show "$1" >/dev/null 2>&1; then return; fi
  free_subnet
  ip link add "$1" type bridge
  ip addr add "$SUBNET.1/24" dev "$1"
  ip link set "$1" up
}

# free_subnet sets SUBNET to the first three octets of a free subnet below 10.213.
free_subnet() {
  local n taken
  taken=$(ip -4 route show table all; ip -4 addr)
  for n in $(seq 10 250); do
    SUBNET=10.213.$n
    grep -qF "$SUBNET." <<<"$taken" || return 0
  done
  die "no free subnet below 10.213.0.0/16"
}

stop_dockerd() {
  local id ours=unix://$RUN/docker.sock
  # Containers outlive a killed daemon, so they are removed first.
  if alive dockerd && docker_answers "$ours"; then
    for id in $(DOCKER_HOST=$ours docker ps -aq); do
      DOCKER_HOST=$ours timeout 60 docker rm -f "$id" >/dev/null 2>&1 || true
    done
  fi
  end dockerd
  if command -v ip >/dev/null; then ip link del "$DOCKER_BRIDGE" 2>/dev/null || true; fi
}
