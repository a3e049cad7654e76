#!/usr/bin/env bash
# debian.sh [DIRECTORY]: test the packages in dist on Debian 12: in a bare tree, under systemd as process 1 with an
# engine (hack/debian/guest.sh, in systemd-nspawn), and the .rpm in the same tree. Needs root, debootstrap,
# systemd-container and rpm. It takes some minutes and removes everything except DIRECTORY, which later runs reuse.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. hack/engine/images.sh

fail() { echo "debian: FAILED: $*" >&2; exit 1; }
arch=$(dpkg --print-architecture)
deb=$(echo dist/crishim_*_"$arch".deb) rpm=$(echo dist/crishim-*."$(uname -m)".rpm)
[[ -e $deb && -e $rpm ]] || fail 'no package in dist: make dist first'
[ "$(id -u)" = 0 ] || fail 'no root'

work=$(mktemp -d) guest=
root=${1:-$work/debian}
clean_up() {
  local status=$?
  trap - EXIT
  if [ -n "$guest" ]; then
    kill -TERM "$guest" 2>/dev/null || true # systemd-nspawn powers it off
    wait "$guest" || true
  fi
  rm -rf --one-file-system "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# files: all installed and remaining files in the tree.
files() {
  (cd "$root" && find . -xdev \( -path ./root -o -path ./tmp -o -path ./run -o -path ./proc -o -path ./sys -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/dpkg \
    -o -path ./var/lib/rpm -o -path ./var/lib/docker -o -path ./var/lib/containerd -o -path ./var/lib/systemd \) -prune -o -print) | sort
}
nothing_left() { # AFTER-WHAT
  files | diff "$work/files" - || fail "$1 leaves this"
}
bare() { # TITLE: a tree without /proc, where nothing runs
  local said
  echo "== $1"
  files >"$work/files"
  said=$(chroot "$root" dpkg -i /root/first.deb 2>&1) || fail "$said"
  chroot "$root" crishim --version
  said=$(chroot "$root" dpkg -P crishim 2>&1) || fail "$said"
  [[ $said != *awk* ]] || fail "$said"
  nothing_left "$1"
}

if [ ! -e "$root/etc/debian_version" ]; then
  echo '== debootstrap'
  debootstrap --variant=minbase bookworm "$root" >"$work/log" 2>&1 || fail "$(tail "$work/log")"
fi
# Leftovers of a failure in a tree that was kept.
chroot "$root" dpkg -P crishim >"$work/log" 2>&1
rm -rf "$root"/etc/crishim "$root"/etc/cni/net.d/* "$root"/root
mkdir -p "$root/root"
cp "$deb" "$root/root/first.deb"
dpkg-deb -R "$deb" "$work/next"
sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
dpkg-deb -Znone --root-owner-group -b "$work/next" "$root/root/next.deb" >/dev/null
busybox_layer "$work"
image_archive "$work" '["sh"]' busybox:1.36 >"$root/root/busybox.tar"
cp -r examples hack/debian/guest.sh "$root/root/"

[ -e "$root/usr/lib/systemd/systemd" ] || bare 'without systemd, man and bash-completion'
chroot "$root" apt-get update -qq
DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y -qq --no-install-recommends \
  systemd-sysv dbus man-db bash-completion iproute2 iptables docker.io containernetworking-plugins >"$work/log" 2>&1 || fail "$(tail "$work/log")"
bare 'with systemd that does not run'

echo '== rpm'
rpm -qlp "$rpm" | grep -qx /usr/share/man/man1/crishim-exec.1.gz || fail 'the rpm has no page of exec'
mkdir -p "$root/usr/share/zsh/site-functions" # exists in rpm distributions
files >"$work/files"
rpm --root "$root" -i --nodeps "$rpm" 2>"$work/log" || fail "$(cat "$work/log")" # Debian's rpm recommends alien
chroot "$root" crishim --version
chroot "$root" systemctl -q enable crishim.service crishim-sync@etc-pods
rpm --root "$root" -e crishim 2>"$work/log" || fail "$(cat "$work/log")"
nothing_left 'rpm -e'

echo '== boot'
systemd-nspawn -D "$root" -M "crishim-$$" --boot --register=no --keep-unit --private-network --link-journal=no --console=read-only \
  --capability=all --system-call-filter='@keyring bpf' </dev/null >"$work/boot" 2>&1 &
guest=$!
pid=
for ((i = 0; i < 120; i++)); do
  pid=$(pgrep -P "$guest" | head -n 1 || true)
  case $(if [ -n "$pid" ]; then nsenter -t "$pid" -a systemctl is-system-running 2>/dev/null; fi) in
    running | degraded) break ;;
  esac
  kill -0 "$guest" 2>/dev/null || fail "$(tail "$work/boot")"
  sleep 1
done
files >"$work/files"
nsenter -t "$pid" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=xterm bash /root/guest.sh
nothing_left 'purge'
echo 'debian: ok'
