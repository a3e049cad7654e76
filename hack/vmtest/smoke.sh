#!/usr/bin/env bash
# smoke.sh: limits, an update, statistics, an OOM kill and the end of a pod, on Docker and on containerd. make vm-smoke runs
# it in the machine of hack/vm.sh.
set -euo pipefail
PATH=$PWD/bin:$PATH

fail() { echo "smoke: FAILED: $*" >&2; exit 1; }
want() { # TEXT COMMAND...: the command prints the text
  local text=$1 out
  shift
  echo "+ $*"
  out=$("$@" 2>&1) || fail "$*: $out"
  out=$(xargs <<<"$out")
  [[ $out == *"$text"* ]] || fail "$*: want \"$text\" in: $out"
}
eventually() { # COMMAND...
  local i
  for ((i = 0; i < 60; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 1
  done
  fail "never: $*"
}
killed() { crishim inspect smoke/grows >/tmp/grows && grep -q OOMKilled /tmp/grows; }
# near A B: they differ by a twentieth at most.
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a > b ? a - b : b - a; exit !(b > 0 && d <= b / 20) }' || fail "$3: $1 is not near $2"; }

[ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || fail 'no cgroup v2'
cat >/tmp/pod.yaml <<Y
apiVersion: v1
kind: Pod
metadata: {name: smoke}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: fits
    image: $CRISHIM_TEST_IMAGE
    command: [sh, -c, 'dd if=/dev/zero of=/dev/shm/kept bs=1M count=20 2>/dev/null; exec sleep 1000']
    resources: {requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}
  - name: grows
    image: $CRISHIM_TEST_IMAGE
    command: [sh, -c, 'x=aaaaaaaaaaaaaaaa; while :; do x=\$x\$x; done']
    resources: {limits: {memory: 16Mi}}
Y
for CONTAINER_RUNTIME_ENDPOINT in docker:///run/docker.sock "$CRISHIM_TEST_CONTAINERD"; do
  export CONTAINER_RUNTIME_ENDPOINT
  echo "== $CONTAINER_RUNTIME_ENDPOINT"
  want '' crishim apply /tmp/pod.yaml
  want '67108864 0 50000 100000 10' crishim exec smoke/fits sh -c 'cd /sys/fs/cgroup; cat memory.max memory.swap.max cpu.max cpu.weight'
  eventually killed
  want 'limit is 16MiB' crishim why smoke
  want '' crishim update --memory 96Mi --cpu-quota 30000 --cpu-period 100000 smoke/fits
  want '100663296 30000 100000' crishim exec smoke/fits sh -c 'cd /sys/fs/cgroup; cat memory.max cpu.max'
  id=$(crishim ps -q --no-trunc --name fits)
  group=$(find /sys/fs/cgroup -type d -name "*$id*" | head -n 1)
  near "$(crishim stats "$id" -o 'jsonpath={.stats[0].memory.usageBytes.value}')" "$(cat "$group/memory.current")" 'memory in use'
  if [[ $CONTAINER_RUNTIME_ENDPOINT == docker:* ]]; then
    used=$(docker stats --no-stream --format '{{.MemUsage}}' "$id" | awk '{ print $1 * 1048576 }')
    near "$(crishim stats "$id" -o 'jsonpath={.stats[0].memory.workingSetBytes.value}')" "$used" 'stats beside docker stats'
    near "$(crishim top --once -o 'jsonpath={.pods[*].containers[?(@.name=="fits")].memoryBytes}')" "$used" 'top beside docker stats'
  fi
  want '' crishim delete smoke
  [ -z "$(crishim pods -q)" ] || fail 'the pod is left'
  [ ! -e "$group" ] || fail "$group is left"
done
echo 'smoke: ok'
