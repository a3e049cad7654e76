#!/usr/bin/env bash
# generate.sh [verify]: write generated files: api's Go code and the pause programs. With "verify" they are generated
# elsewhere and compared. Files that cannot be generated here are reported; with CRISHIM_REQUIRE_ENGINE=1 that is a
# failure. "hack/engine.sh packages verify" installs the requirements.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-write} status=0
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

cannot() {
  printf 'generate: %s: %s\n' "$1" "$2" >&2
  if [ "$mode" = write ] || [ "${CRISHIM_REQUIRE_ENGINE:-}" = 1 ]; then status=1; fi
}

# take FILE: replaces our file by the new one or compares them. protoc writes its version into the code; only that line
# may differ.
take() {
  if [ "$mode" = write ]; then
    cp "$new/$1" "$1"
  elif ! cmp -s <(sed '/^\/\/ .*protoc  *v[0-9]/d' "$1") <(sed '/^\/\/ .*protoc  *v[0-9]/d' "$new/$1"); then
    echo "generate: $1 is not what hack/generate.sh makes of its source" >&2
    status=1
  fi
}

mkdir -p "$new/bin" "$new/internal/api" "$new/shim/pause"

if ! command -v protoc >/dev/null; then
  cannot api 'there is no protoc (the package protobuf-compiler)'
# protoc-gen-go has the version of the protobuf module in go.mod.
elif ! go build -o "$new/bin/" google.golang.org/protobuf/cmd/protoc-gen-go ||
  ! grpc=$(hack/tool.sh google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2); then
  cannot api "protoc's plugins cannot be built"
else
  PATH=$new/bin:$PATH protoc -I internal/api --plugin=protoc-gen-go-grpc="$grpc" --go_out="$new/internal/api" --go_opt=paths=source_relative \
    --go-grpc_out="$new/internal/api" --go-grpc_opt=paths=source_relative crishim.proto
  take internal/api/crishim.pb.go
  take internal/api/crishim_grpc.pb.go
fi

# Another compiler generates other code.
case $(cat /etc/debian_version 2>/dev/null) in
  12.*)
    for arch in amd64:x86_64 arm64:aarch64; do
      pause=shim/pause/pause-${arch%:*} compiler=${arch#*:}-linux-gnu-gcc
      if command -v "$compiler" >/dev/null; then
        "$compiler" -Os -Wall -Wextra -Werror -std=c11 \
          -static -nostdlib -ffreestanding -fno-pic -no-pie \
          -fno-stack-protector -fno-asynchronous-unwind-tables \
          -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s \
          -o "$new/$pause" shim/pause/src/pause.c
        chmod 755 "$new/$pause"
        take "$pause"
      else
        cannot "$pause" "there is no $compiler"
      fi
    done
    ;;
  *) cannot 'pause programs' "this is not Debian 12, and only its compiler makes the same bytes" ;;
esac
exit "$status"
