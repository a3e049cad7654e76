#!/bin/sh
# setup.sh: configure the machine of vm.sh. It runs once, in the new file system.
set -e
cd /usr/local/lib/vm
chmod 755 agent.sh
install -D -m 644 agent.service /etc/systemd/system/crishim-vm.service
install -D -m 644 config.toml /etc/containerd/config.toml
install -D -m 644 10-test.conflist /etc/cni/net.d/10-test.conflist
install -d /etc/cni/broken.d
echo '{"cniVersion": "0.4.0", "name": "broken", "type": "portmap"}' >/etc/cni/broken.d/10-broken.conf
printf '[Match]\nName=en* eth*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n' >/etc/systemd/network/any.network
: >/etc/fstab
echo crishim-vm >/etc/hostname
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\nDefaultTimeoutStartSec=infinity\n' >/etc/systemd/system.conf.d/slow.conf
systemctl enable crishim-vm.service systemd-networkd.service docker.service containerd.service
systemctl mask getty@tty1.service serial-getty@ttyS0.service serial-getty@hvc0.service systemd-networkd-wait-online.service \
  apt-daily.timer apt-daily-upgrade.timer e2scrub_reap.service dpkg-db-backup.timer fstrim.timer
