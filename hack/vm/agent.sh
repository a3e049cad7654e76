#!/bin/bash
# agent.sh: load the test images, report ready, wait for the directories of vm.sh, run its command there, and power off.
stty raw -echo
export HOME=/root LC_ALL=C.UTF-8 DOCKER_HOST=unix:///run/docker.sock CRISHIM_TEST_IMAGE=busybox:crishim
export CRISHIM_TEST_CONTAINERD=unix:///run/containerd/containerd.sock
cd /usr/local/lib/vm || exit
if ! { docker load -q -i busybox.tar && ctr -n k8s.io images import --no-unpack busybox.tar && ctr -n k8s.io images import --no-unpack pause.tar; }; then
  journalctl -b --no-pager -p notice
  systemctl poweroff --force --force
fi
sync
echo ready # vm.sh saves the state of the machine here

mkdir -p /run/vm
until mount -t virtiofs control /run/vm 2>/dev/null; do sleep 0.1; done
until [ -s /run/vm/now ]; do sleep 0.1; done
date -s "@$(cat /run/vm/now)" >/dev/null
directory=$(cat /run/vm/directory)
mkdir -p "$directory"
until mount -t virtiofs tree "$directory" 2>/dev/null; do sleep 0.1; done
bash /run/vm/command
echo $? >/run/vm/status
sync
systemctl poweroff --force --force
