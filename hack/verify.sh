#!/usr/bin/env bash
# verify.sh: checks that a change must pass in addition to the build.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" != 0 ] || hack/engine.sh packages tests verify
hack/lint.sh
go mod verify >/dev/null
go mod tidy -diff
go test -tags "$(cat hack/tags)" -count=1 -run 'TestImportRules|TestNoTestIsLeftOutUnnoticed|TestEvery|Exist' ./internal/checks

# Size is a feature, because scripts and people start this program often. 0.9 MB of it are tracing, 0.6 MB containerd's
# API, 0.4 MB image archives (zstd), 1.3 MB the terminal library of top, and 0.5 MB the pages of dump (html/template).
size=$(stat -c %s bin/crishim)
limit=$((40 * 1000 * 1000))
[ "$size" -le "$limit" ] || { echo "bin/crishim has $size bytes, limit $limit" >&2; exit 1; }
if command -v file >/dev/null && ! file bin/crishim | grep -q 'statically linked'; then
  echo "bin/crishim is not static" >&2
  exit 1
fi
hack/arm64.sh
# Generated files must match their sources.
hack/generate.sh verify
echo "verify: ok"
