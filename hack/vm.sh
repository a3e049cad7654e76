#!/usr/bin/env bash
# vm.sh VERB: a Debian with systemd, cgroup v2, Docker and containerd in QEMU, for what this host's kernel cannot show.
#
#   vm.sh build           make the machine's file system, which is cached
#   vm.sh run COMMAND...  run a command in the same directory of the machine, and exit with its status
#   vm.sh shell           the same with a shell on this terminal
#
# CRISHIM_VM is the release of Debian: bookworm (the default) or trixie. The machine shares the current directory; all other
# writes are lost when it ends, at the latest after CRISHIM_VM_TIMEOUT seconds (3600). Without KVM it is emulated, about ten
# times slower, so it is booted once: the cache has the state of the running machine, and run continues it.
# Needs root, and installs QEMU and mmdebstrap.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$here/engine/state.sh"
# shellcheck source=/dev/null
. "$here/engine/images.sh"
# shellcheck source=/dev/null
. "$here/engine/packages.sh"

suite=${CRISHIM_VM:-bookworm}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/crishim-vm
packages=linux-image-cloud-amd64,initramfs-tools,apparmor,systemd-sysv,udev,dbus,docker.io,docker-cli,containerd,runc
packages+=,containernetworking-plugins,iptables,nftables,iproute2,procps,kmod,busybox-static,ca-certificates,jq
[ "$suite" != bookworm ] || packages=${packages/,docker-cli/} # part of docker.io there
work='' pids=()

fail() { echo "vm: FAILED: $*" >&2; exit 1; }

clean_up() {
  local status=$?
  trap - EXIT
  [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait
  [ -z "$work" ] || rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

make_disk() { # DIRECTORY
  local tree=$work/tree
  mmdebstrap --quiet --variant=minbase --format=directory --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$suite" "$tree" >"$work/log" 2>&1 || fail "$(tail "$work/log")"
  mv "$tree/boot" "$1"
  cp -r "$here/vm" "$tree/usr/local/lib"
  busybox_layer "$work"
  image_archive "$work" '["sh"]' "$TEST_IMAGE" >"$tree/usr/local/lib/vm/busybox.tar"
  image_archive "$work" '["sleep", "infinity"]' "$PAUSE_IMAGE" >"$tree/usr/local/lib/vm/pause.tar"
  chroot "$tree" sh /usr/local/lib/vm/setup.sh >"$work/log" 2>&1 || fail "$(tail "$work/log")"
  mkfs.ext4 -q -d "$tree" "$1/disk" 8G >"$work/log" 2>&1 || fail "$(tail "$work/log")"
  rm -rf --one-file-system "$tree"
}

# machine DIRECTORY ARGUMENT...: start QEMU, with its monitor on the pipes $work/monitor.in and .out.
machine() {
  local dir=$1 accel=tcg,thread=multi
  shift
  # /dev/kvm may be there and hang.
  if grep -qE '\<(vmx|svm)\>' /proc/cpuinfo && [ -w /dev/kvm ]; then accel=kvm; fi
  mkfifo "$work/monitor.in" "$work/monitor.out"
  timeout --foreground "${CRISHIM_VM_TIMEOUT:-3600}" qemu-system-x86_64 -accel "$accel" -cpu max -M pc -smp 2 -m 3G \
    -object memory-backend-memfd,id=memory,size=3G,share=on -numa node,memdev=memory \
    -nodefaults -display none -no-reboot -drive "file=$dir/disk,format=raw,if=virtio,cache=unsafe" -serial "file:$work/console" \
    -kernel "$(echo "$dir"/boot/vmlinuz-*)" -initrd "$(echo "$dir"/boot/initrd.img-*)" \
    -append 'console=ttyS0 root=/dev/vda rw quiet systemd.show_status=no mitigations=off tsc=reliable' \
    -device virtio-rng-pci -device virtio-serial-pci -device virtconsole,chardev=terminal -nic user,model=virtio-net-pci,restrict=on \
    -chardev "pipe,id=monitor,path=$work/monitor" -mon chardev=monitor "$@" <&0 &
  pids+=($!)
  exec 7>"$work/monitor.in"
  cat "$work/monitor.out" >"$work/monitor.log" 7>&- &
  pids+=($!)
}
monitor() { echo "$*" >&7; }

build() {
  local id new seconds
  [ "$(id -u)" = 0 ] || fail 'no root'
  install_missing needed_by_vm
  id=$(cat "$here"/vm/* "$here/engine/images.sh" | sha256sum - <(declare -f make_disk machine build; echo "$packages"; qemu-system-x86_64 --version) | sha256sum)
  image=$cache/$suite-${id:0:16}
  [ ! -e "$image" ] || return 0
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/new.XXXXXX")
  new=$work/image
  mkdir "$new"
  echo "vm: making a file system of Debian $suite" >&2
  make_disk "$new"
  echo "vm: booting it" >&2
  : >"$work/terminal"
  CRISHIM_VM_TIMEOUT=1200 machine "$new" -chardev "file,id=terminal,path=$work/terminal"
  seconds=$SECONDS
  until grep -q '^ready' "$work/terminal"; do
    kill -0 "${pids[0]}" 2>/dev/null || fail "the machine did not start: $(cat "$work/console" "$work/terminal")"
    sleep 1
  done
  echo "vm: up after $((SECONDS - seconds)) s" >&2
  monitor "migrate \"exec:cat >$new/state\""
  monitor quit
  wait "${pids[0]}"
  pids=()
  rm -rf "$cache/$suite"-*
  mv "$new" "$image"
  rm -rf "$work"
}

# share NAME DIRECTORY: a virtiofsd whose socket is NAME.sock.
share() {
  local i
  /usr/lib/qemu/virtiofsd --socket-path="$work/$1.sock" -o source="$2" -o sandbox=chroot -o cache=auto >>"$work/log" 2>&1 &
  pids+=($!)
  for ((i = 0; i < 100; i++)); do
    [ ! -S "$work/$1.sock" ] || return 0
    sleep 0.1
  done
  fail "no virtiofsd: $(tail -n 5 "$work/log")"
}

run() { # SIGNALS COMMAND...: signals of the terminal are for vm.sh (on) or for the command (off)
  local signals=$1 image qemu name
  shift
  build
  work=$(mktemp -d)
  mkdir "$work/control"
  {
    export -p | grep -E '^declare -x (CRISHIM_|GO|TERM=)' || true
    [ "$signals" = off ] || echo 'exec </dev/null'
    printf 'cd %q || exit\n%s\n' "$PWD" "$(printf '%q ' "$@")"
  } >"$work/control/command"
  echo "$PWD" >"$work/control/directory"
  share control "$work/control"
  share tree "$PWD"
  machine "$image" -snapshot -incoming "exec:cat $image/state" -chardev "stdio,id=terminal,signal=$signals" \
    -chardev "socket,id=control,path=$work/control.sock" -chardev "socket,id=tree,path=$work/tree.sock"
  qemu=${pids[-2]}
  until grep -q 'VM status: running' "$work/monitor.log"; do
    kill -0 "$qemu" 2>/dev/null || break
    monitor info status
    sleep 0.2
  done
  # QEMU can neither save nor load a machine with virtiofs, so the devices are added after the load.
  for name in control tree; do monitor "device_add vhost-user-fs-pci,chardev=$name,tag=$name"; done
  date +%s.%N >"$work/control/now"
  wait "$qemu" || true
  [ -s "$work/control/status" ] || fail "the machine ended early: $(tail -n 20 "$work/console" "$work/log")"
  exit "$(cat "$work/control/status")"
}

case ${1-} in
  build) build ;;
  run) shift; [ $# -gt 0 ] || fail 'run needs a command'; run on "$@" </dev/null ;;
  shell) run off bash -l ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
