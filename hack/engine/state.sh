# Paths and processes of the engines, and their removal. The other parts use these variables.
# shellcheck shell=bash disable=SC2034

if [ -n "${CRISHIM_ENGINE_DIR:-}" ]; then
  RUN=$CRISHIM_ENGINE_DIR/run DATA=$CRISHIM_ENGINE_DIR/data
else
  RUN=/run/crishim-engine DATA=/var/lib/crishim-engine
fi
TEST_IMAGE=busybox:crishim
PAUSE_IMAGE=docker.io/library/crishim-test-pause:1

# Engines in different directories must not share a bridge.
tag=$(printf '%s' "$RUN" | cksum | cut -d' ' -f1)
DOCKER_BRIDGE=crd$((tag % 100000)) CNI_BRIDGE=crc$((tag % 100000))

say() { printf 'engine: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# locked runs one engine.sh at a time. It locks an existing directory, so no lock file remains.
locked() { exec 9</run; flock -w 600 9 || die "another engine.sh holds the lock"; }

# Directories that daemons create outside their own. up records the missing ones, and down removes those if they are
# empty.
side_directories() {
  local g
  printf '%s\n' /run/containerd/runc/k8s.io /run/containerd/runc /run/containerd/s /run/containerd/fifo /run/containerd /run/netns /var/lib/cni/networks \
    /var/lib/cni/results /var/lib/cni/cache/results /var/lib/cni/cache/crishim /var/lib/cni/cache /var/lib/cni /opt/containerd /etc/docker /run/docker/plugins /run/docker \
    /run/docker/runtime-runc/moby /run/docker/runtime-runc /var/run/docker/containerd
  for g in /sys/fs/cgroup /sys/fs/cgroup/*/; do
    printf '%s\n' "${g%/}/docker/buildkit" "${g%/}/docker" "${g%/}/k8s.io"
  done
}

# Sysctls that CNI plugins enable for the whole machine and never disable. The first engines after a boot record the old
# values; the last ones restore them, unless another engine, which may need them, is running.
SYSCTLS=/run/crishim-sysctls

running_engines() {
  { grep -shxE 'dockerd|containerd|crio|kubelet|k3s.*|k0s|conmon|libvirtd|incusd|lxd' /proc/[0-9]*/comm || true; } | sort -u
}

note_sysctls() {
  [ -e "$SYSCTLS" ] || grep -s . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/{default,all}/forwarding >"$SYSCTLS" || true
}

restore_sysctls() {
  local file value
  if [ ! -e "$SYSCTLS" ] || [ -n "$(running_engines)" ]; then return; fi
  while IFS=: read -r file value; do
    [ "$(cat "$file")" = "$value" ] || echo "$value" >"$file"
  done <"$SYSCTLS"
  rm "$SYSCTLS"
}

# Chains that the portmap plugin creates once and never removes.
portmap_chains() { iptables-save -t nat 2>/dev/null | sed -n 's/^:\(CNI-HOSTPORT-[A-Z]*\) .*/\1/p'; }

make_dirs() {
  local d
  [ ${#RUN} -le 60 ] || die "CRISHIM_ENGINE_DIR is too long for socket paths: $RUN"
  mkdir -p "$RUN" "$DATA"
  # Images and containers of a test run are small and temporary, so they need no disk.
  if [ -n "${CRISHIM_ENGINE_IN_MEMORY:-}" ] && plenty_of_memory; then mount -t tmpfs crishim-engine "$DATA" || true; fi
  chmod 0711 "$RUN" "$DATA"
  side_directories | while read -r d; do [ -e "$d" ] || printf '%s\n' "$d"; done >"$DATA/absent-before"
  portmap_chains >"$DATA/chains-before"
  note_sysctls
}

plenty_of_memory() { awk '$1 == "MemAvailable:" { exit $2 < 8 * 1024 * 1024 }' /proc/meminfo; }

# daemon NAME CMD...: starts CMD in its own session with a log and a pid file. It inherits no descriptors: an inherited
# lock or make job pipe would block its owner. GOGC: dockerd starts itself twice for each pod with a network and spent a
# third of that time in garbage collection.
daemon() {
  local name=$1 fd
  shift
  (
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      [ "$fd" -le 2 ] || eval "exec $fd>&-"
    done
    GOGC=400 exec setsid "$@" </dev/null >"$DATA/$name.log" 2>&1
  ) &
  echo $! >"$RUN/$name.pid"
}

# wait_for NAME CMD...: until CMD succeeds or daemon NAME is gone.
wait_for() {
  local name=$1 i
  shift
  for ((i = 0; i < 600; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    alive "$name" || break
    sleep 0.1
  done
  tail -n 30 "$DATA/$name.log" >&2 || true
  die "$name did not start; its log is above"
}

alive() { [ -f "$RUN/$1.pid" ] && kill -0 "$(cat "$RUN/$1.pid")" 2>/dev/null; }

# end NAME: kills the process if its pid still belongs to the process that we started.
end() {
  local pid i
  [ -f "$RUN/$1.pid" ] || return 0
  pid=$(cat "$RUN/$1.pid")
  if { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF "$RUN"; then
    kill "$pid" 2>/dev/null || true
    for ((i = 0; i < 300; i++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
  fi
  rm -f "$RUN/$1.pid"
}

is_up() {
  [ -f "$RUN/env" ] || return 1
  # shellcheck source=/dev/null
  (. "$RUN/env" && docker_answers "$DOCKER_HOST" && containerd_answers)
}

write_env() {
  {
    printf 'export DOCKER_HOST=%q\n' "$DOCKER"
    printf 'export CRISHIM_TEST_CONTAINERD=%q\n' "unix://$RUN/containerd.sock"
    printf 'export CRISHIM_TEST_IMAGE=%q\n' "$TEST_IMAGE"
  } >"$RUN/env.new"
  mv "$RUN/env.new" "$RUN/env"
}

stop_all() {
  local m d c
  [ -d "$RUN" ] || [ -d "$DATA" ] || return 0
  unload_images
  stop_dockerd
  stop_containerd
  # Mounts of a killed daemon, deepest first.
  awk -v a="$RUN/" -v b="$DATA/" 'index($2, a) == 1 || index($2, b) == 1 { print $2 }' /proc/mounts | sort -r |
    while read -r m; do umount -l "$m" 2>/dev/null || true; done
  if [ -f "$DATA/chains-before" ]; then
    for c in $(portmap_chains | grep -vxF -f "$DATA/chains-before" || true); do drop_chain "$c"; done
  fi
  while read -r d; do rmdir "$d" 2>/dev/null || true; done < <(cat "$DATA/absent-before" 2>/dev/null)
  ! mountpoint -q "$DATA" || umount -l "$DATA"
  rm -rf "$RUN" "$DATA"
  restore_sysctls
  [ -z "${CRISHIM_ENGINE_DIR:-}" ] || rmdir "$CRISHIM_ENGINE_DIR" 2>/dev/null || true
}

# drop_chain NAME: removes the jumps to the chain first, as iptables requires.
drop_chain() {
  local rule
  iptables-save -t nat | sed -n "s/^-A \(.* -j $1\)\$/\1/p" | while read -r rule; do
    eval "iptables -t nat -D $rule" || true
  done
  iptables -t nat -F "$1" || true
  iptables -t nat -X "$1" || true
}
