#!/usr/bin/env bash
# guest.sh: the part of debian.sh that runs as root in a Debian booted by systemd.
set -euo pipefail
cd /root
served() { crishim -r unix:///run/crishim/crishim.sock "$@"; } # no other endpoint may answer

fail() {
  echo "debian: FAILED: $*" >&2
  journalctl -b --no-pager -o cat -u 'crishim*' | tail -n 20 >&2
  exit 1
}
has() { # TEXT COMMAND...: the command succeeds, and prints the text
  local text=$1 out
  shift
  out=$("$@" 2>&1) || fail "$*: $out"
  [[ $out == *"$text"* ]] || fail "$*: no \"$text\" in: $out"
}
eventually() { # COMMAND...
  local i
  for ((i = 0; i < 120; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.5
  done
  fail "never: $*"
}
pid() { systemctl show -p MainPID --value crishim; }
replaced() { [ "$(pid)" != 0 ] && [ "$(pid)" != "$1" ]; }
typed() { # KEYS: the result of bash completion on a terminal
  printf '. /etc/bash_completion; PS1=\n%b\nexit\n' "$1" | TERM=dumb script -qec 'bash --norc -i' /dev/null | tr -d '\r'
}

# Engines create cgroups, but systemd-nspawn has mounted them read-only.
for dir in /sys/fs/cgroup/*/; do mount -o remount,rw,bind "$dir" 2>/dev/null || true; done
eventually docker info
docker load -q -i busybox.tar

echo '== install'
has 'Setting up crishim' apt-get install -y ./first.deb
has '' systemd-analyze verify crishim.service crishim.socket 'crishim-sync@etc-pods.service'
has '' crishim ps
has 'docker' crictl version
[ "$(systemctl is-active crishim.socket crishim.service || true)" = $'inactive\ninactive' ] || fail 'the installation has started something'

echo '== manual and completion'
has 'crishim exec' man crishim-exec
for page in /usr/share/man/man1/crishim*.gz; do
  said=$(man --warnings -l "$page" 2>&1 >/dev/null) || fail "$page"
  [ -z "$said" ] || fail "$page: $said"
done
for name in crishim crictl; do
  has '@imagefsinfo@' typed "$name imagefsi\t --help >/dev/null && echo @imagefsi\"\"nfo@"
done

echo '== serve and sync'
systemctl -q enable --now crishim.service
has 'crishim serve   ready' crishim endpoints
mkdir -p /etc/crishim/pods
cp examples/static-pods/* /etc/crishim/pods/
systemctl -q enable --now "crishim-sync@$(systemd-escape --path /etc/crishim/pods)"
eventually crishim wait --for ready --timeout 1m examples/clock examples/files
has '' crishim apply --wait examples/web.yaml
has 'served from a pod' crishim exec web wget -qO- 127.0.0.1:8080
cat >tick.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: tick}
spec:
  containers:
  - name: c
    image: busybox:1.36
    command: [sh, -c, 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done']
Y
has '' crishim apply --wait tick.yaml

echo '== upgrade'
pods=$(crishim pods -q | sort) old=$(pid) failed=0
crishim exec tick sleep 600 >session 2>&1 &
session=$!
(while [ ! -e stop ]; do served ps -q >/dev/null 2>>calls || echo failed >>calls; done) &
calls=$!
has 'Setting up crishim' dpkg -i next.deb
eventually replaced "$old"
touch stop
wait "$calls"
wait "$session" || failed=$?
[ ! -s calls ] || fail "calls during the upgrade: $(cat calls)"
[ "$failed" = 125 ] || fail "the session ended with $failed: $(cat session)"
[ "$(crishim pods -q | sort)" = "$pods" ] || fail 'the upgrade has changed pods'

echo '== a crash, a hang, a restart of the engine'
old=$(pid)
kill -KILL "$old"
has '' served ps
replaced "$old" || fail 'something else answered'
mkdir -p /run/systemd/system/crishim.service.d
printf '[Service]\nWatchdogSec=5\n' >/run/systemd/system/crishim.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart crishim
old=$(pid)
kill -STOP "$old"
eventually replaced "$old"
rm -r /run/systemd/system/crishim.service.d
systemctl daemon-reload
awk 'NR > 1 && $4 != last + 1 { print "from " last " to " $4; bad = 1 } { last = $4 } END { exit bad }' /var/log/pods/default_tick*/c/0.log ||
  fail 'a gap in the log'
systemctl restart docker
has '' served info
eventually crishim wait --for ready --timeout 1m examples/clock

echo '== a network of CNI'
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/10-test.conflist <<'Y'
{"cniVersion": "0.4.0", "name": "test", "plugins": [
  {"type": "bridge", "bridge": "cni9", "isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
Y
crishim delete -q --grace-period 0 web
sed -i 's/^#network-plugin: cni/network-plugin: cni/' /etc/crishim/serve.yaml
systemctl restart crishim
sed 's/containerPort: 8080/&, hostPort: 8099/' examples/web.yaml >port.yaml
has 'address 10.99.0.' served apply --wait port.yaml
exec 3<>/dev/tcp/127.0.0.1/8099
printf 'GET / HTTP/1.0\r\n\r\n' >&3
has 'served from a pod' cat <&3
crishim delete -q --grace-period 0 web

echo '== remove and purge'
has 'pods stay in the Docker engine' dpkg -r crishim
[ "$(systemctl is-active crishim.socket crishim.service 'crishim-sync@*' || true)" = $'inactive\ninactive' ] || fail 'units run without their program'
[ -e /etc/crishim/serve.yaml ] || fail 'the settings are gone before a purge'
[ -n "$(docker ps -q --filter label=io.kubernetes.docker.type=container)" ] || fail 'the pods are gone'
docker ps -aq | xargs docker rm -f >/dev/null
rm -r /etc/crishim/pods /etc/cni/net.d/*
has '' dpkg -P crishim
for path in /run/crishim /var/log/crishim; do [ ! -e "$path" ] || fail "$path is left"; done
rm -rf /var/log/pods /var/lib/cni
