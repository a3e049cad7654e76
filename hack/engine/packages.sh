# Installs Debian packages for missing programs only.
# shellcheck shell=bash

# required command or file, and the package that contains it
needed_by_engines() {
  cat <<'LIST'
dockerd docker.io
docker docker.io
containerd containerd
runc runc
/usr/lib/cni/portmap containernetworking-plugins
busybox busybox-static
iptables iptables
ip iproute2
LIST
}

# Small programs for tests.
needed_by_tests() {
  cat <<'LIST'
/usr/sbin/sshd openssh-server
ssh openssh-client
/usr/share/bash-completion/bash_completion bash-completion
kubectl kubernetes-client
tmux tmux
LIST
}

needed_by_bench() {
  cat <<'LIST'
hyperfine hyperfine
jq jq
LIST
}

needed_by_vm() {
  cat <<'LIST'
qemu-system-x86_64 qemu-system-x86
/usr/lib/qemu/virtiofsd qemu-system-common
mmdebstrap mmdebstrap
mkfs.ext4 e2fsprogs
busybox busybox-static
LIST
}

# Compilers, an emulator for the other architecture, generators and linters. make test uses some of them if they are
# installed.
needed_by_verify() {
  case $(dpkg --print-architecture) in
    amd64) printf '%s\n' 'aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu' 'qemu-aarch64 qemu-user' ;;
    arm64) printf '%s\n' 'x86_64-linux-gnu-gcc gcc-x86-64-linux-gnu' 'qemu-x86_64 qemu-user' ;;
  esac
  cat <<'LIST'
gcc gcc
/usr/include/stdlib.h libc6-dev
protoc protobuf-compiler
shellcheck shellcheck
groff groff-base
file file
systemd-analyze systemd
LIST
}

# missing_packages LIST: prints the packages of a list whose programs are missing.
missing_packages() {
  local what package
  "$1" | while read -r what package; do
    case $what in
      /*) [ -e "$what" ] ;;
      # A dynamically linked busybox would not run in an image without libraries.
      busybox) command -v busybox >/dev/null && ! ldd "$(command -v busybox)" 2>&1 | grep -q '=>' ;;
      *) command -v "$what" >/dev/null ;;
    esac || printf '%s\n' "$package"
  done | sort -u
}

require_root_unless_docker() {
  [ "$(id -u)" = 0 ] || die "no root: cannot start engines (start Docker, or run as root)"
}

# install_missing LIST...: installs the missing packages of these lists.
install_missing() {
  local packages
  mapfile -t packages < <(for list in "$@"; do missing_packages "$list"; done)
  [ ${#packages[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "no apt-get to install what is missing: ${packages[*]}"
  [ "$(id -u)" = 0 ] || die "no root to install what is missing: ${packages[*]}"
  without_services apt_install "${packages[@]}"
  # Tests start their own sshd; none may start at the next boot.
  if [[ " ${packages[*]} " == *' openssh-server '* ]] && command -v systemctl >/dev/null; then
    systemctl disable -q ssh.service ssh.socket 2>/dev/null || true
  fi
}

apt_install() {
  local try install=(apt-get --no-install-recommends install)
  for try in 1 2; do
    if apt-get update -qq >&2 &&
      say "installing $("${install[@]}" -s "$@" | grep -c ^Inst) packages with apt-get: $*, and what they need" &&
      DEBIAN_FRONTEND=noninteractive "${install[@]}" -y -qq "$@" >&2; then
      return 0
    fi
    [ "$try" = 2 ] || { say "apt failed, trying once more"; sleep 5; }
  done
  die "apt could not install: $*"
}

# without_services CMD...: keeps packages from starting daemons. On a machine that never ran Docker it must not create
# its bridge and iptables rules.
without_services() {
  local policy=/usr/sbin/policy-rc.d status=0
  if [ -e "$policy" ]; then "$@"; return; fi
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  "$@" || status=$?
  rm -f "$policy"
  trap - EXIT
  return "$status"
}
