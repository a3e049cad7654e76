# A private containerd with the CRI plugin enabled and its own CNI network.
# shellcheck shell=bash

ctr_k8s() { ctr --address "$RUN/containerd.sock" --namespace k8s.io "$@"; }
containerd_answers() { [ -S "$RUN/containerd.sock" ] && timeout 10 ctr --address "$RUN/containerd.sock" version >/dev/null 2>&1; }
cri_ready() { timeout 10 ctr --address "$RUN/containerd.sock" plugins ls | awk '$2 == "cri" && $NF == "ok" { ok = 1 } END { exit !ok }'; }

start_containerd() {
  mkdir -p "$DATA/cni-conf"
  free_subnet
  cni_conf >"$DATA/cni-conf/10-crishim.conflist"
  mkdir -p "$DATA/cni-broken"
  echo '{"cniVersion": "0.4.0", "name": "broken", "type": "portmap"}' >"$DATA/cni-broken/10-broken.conf"
  containerd_conf >"$RUN/containerd.toml"
  daemon containerd containerd --config "$RUN/containerd.toml"
  wait_for containerd containerd_answers
  wait_for containerd cri_ready
}

cni_conf() {
  cat <<JSON
{
  "cniVersion": "0.4.0",
  "name": "crishim-test",
  "plugins": [
    {"type": "bridge", "bridge": "$CNI_BRIDGE", "isGateway": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "dataDir": "$DATA/cni-ipam",
              "ranges": [[{"subnet": "$SUBNET.128/25"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]
}
JSON
}

# restrict_oom_score_adj: root without CAP_SYS_RESOURCE (in a container or CI) cannot lower the score, and containerd
# would otherwise reject each pod.
containerd_conf() {
  cat <<TOML
version = 2
root = "$DATA/containerd"
state = "$RUN/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "$RUN/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$DATA/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$(snapshotter)"
  # For tests: pods of this class get no network.
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.no-network]
    runtime_type = "io.containerd.runc.v2"
    cni_conf_dir = "$DATA/cni-broken"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$DATA/cni-conf"
TOML
}

# Inside a container the data directory may be on overlayfs, which cannot be stacked.
snapshotter() {
  local t=$DATA/overlay-check
  mkdir -p "$t/l" "$t/u" "$t/w" "$t/m"
  if mount -t overlay overlay -o "lowerdir=$t/l,upperdir=$t/u,workdir=$t/w" "$t/m" 2>/dev/null; then
    umount "$t/m"
    echo overlayfs
  else
    echo native
  fi
  rm -rf "$t"
}

stop_containerd() {
  local ns id
  if alive containerd && containerd_answers; then
    # Tasks belong to shims, which outlive the daemon.
    for ns in k8s.io moby; do
      for id in $(ctr --address "$RUN/containerd.sock" -n "$ns" tasks ls -q); do
        timeout 20 ctr --address "$RUN/containerd.sock" -n "$ns" tasks rm -f "$id" >/dev/null 2>&1 || true
      done
    done
  fi
  end containerd
  end_shims
  if command -v ip >/dev/null; then ip link del "$CNI_BRIDGE" 2>/dev/null || true; fi
}

# A killed containerd leaves its shims, which have our socket in their command line, and their containers, which outlive
# a killed shim.
end_shims() {
  local p shim child
  for p in /proc/[0-9]*; do
    case $({ tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null || true) in
      *containerd-shim*" -address $RUN/containerd.sock "*) ;;
      *) continue ;;
    esac
    shim=${p#/proc/}
    for child in $(cat "$p/task/$shim/children" 2>/dev/null || true); do kill -9 "$child" 2>/dev/null || true; done
    kill -9 "$shim" 2>/dev/null || true
  done
}
