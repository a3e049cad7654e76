#!/usr/bin/env bash
# units.sh: the units of the packages, started by systemd on cgroup v2. run.sh runs it in the machine of hack/vm.sh.
set -euo pipefail
PATH=/usr/local/bin:$PATH
fail() { echo "units: FAILED: $*" >&2; journalctl -b --no-pager -o cat -u 'crishim*' | tail -n 20 >&2; exit 1; }
eventually() { # COMMAND...
  local i
  for ((i = 0; i < 60; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 1
  done
  fail "never: $*"
}

install -D bin/crishim /usr/bin/crishim
cp packaging/*.service packaging/*.socket /etc/systemd/system/
install -D packaging/serve.yaml /etc/crishim/serve.yaml
mkdir -p /etc/crishim/pods
sed "s,busybox:1.36,$CRISHIM_TEST_IMAGE," examples/static-pods/clock.yaml >/etc/crishim/pods/clock.yaml
systemctl daemon-reload
systemctl start crishim.service "crishim-sync@$(systemd-escape --path /etc/crishim/pods)"
export CONTAINER_RUNTIME_ENDPOINT=unix:///run/crishim/crishim.sock
eventually crishim wait --for ready --timeout 1m examples/clock
[[ $(crishim runtime-config) == *[Ss][Yy][Ss][Tt][Ee][Mm][Dd]* ]] || fail "the cgroup driver: $(crishim runtime-config)"
systemctl restart crishim.service
eventually crishim wait --for ready --timeout 1m examples/clock
systemctl stop 'crishim-sync@*'
crishim delete --grace-period 0 examples/clock >/dev/null || fail 'delete'
systemctl stop crishim.service crishim.socket
said=$(timeout 300 crishim serve --cgroup-driver cgroupfs --listen unix:///run/other.sock 2>&1) && fail "serve ended well: $said"
[[ $said == *'"cgroupfs" is different from docker cgroup driver: "systemd"'* ]] || fail "the other cgroup driver: $said"
echo 'units: ok'
