#!/bin/sh
# Builds the pause binaries from src/pause.c, or checks those that are here:
#   build.sh          write pause-amd64 and pause-arm64
#   build.sh verify   build again and compare, where the compiler is installed
# Needs gcc and gcc-aarch64-linux-gnu of Debian 12; another compiler gives
# other bytes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here
if [ "${1:-}" = verify ]; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi
for arch in amd64:x86_64 arm64:aarch64; do
	if [ "$out" != "$here" ] && ! command -v "${arch#*:}-linux-gnu-gcc" >/dev/null; then
		echo "pause-${arch%:*}: not compared, there is no ${arch#*:}-linux-gnu-gcc" >&2
		continue
	fi
	"${arch#*:}-linux-gnu-gcc" -Os -Wall -Wextra -Werror -std=c11 \
		-static -nostdlib -ffreestanding -fno-pic -no-pie \
		-fno-stack-protector -fno-asynchronous-unwind-tables \
		-Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s \
		-o "$out/pause-${arch%:*}" "$here/src/pause.c"
	chmod 755 "$out/pause-${arch%:*}"
	[ "$out" = "$here" ] || cmp "$out/pause-${arch%:*}" "$here/pause-${arch%:*}"
done
