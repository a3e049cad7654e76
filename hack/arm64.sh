#!/usr/bin/env bash
# arm64.sh: check the arm64 program on this machine: vet, build, and under qemu a version, a list of images, and the
# pause program.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=$(cat hack/tags)
export CGO_ENABLED=0 GOFLAGS=-trimpath

GOARCH=arm64 go vet -tags "$tags" ./...
program=$(mktemp)
trap 'rm -f "$program"' EXIT
GOARCH=arm64 GOARM64=v8.0 go build -buildvcs=false -tags "$tags" -ldflags '-s -w' -o "$program" .

if [ "$(go env GOARCH)" = arm64 ] || command -v qemu-aarch64 >/dev/null; then
  CRISHIM_TEST_ARM64=$program go test -tags "$tags" -count=1 -run '^TestArm64$' ./internal/checks
  go test -tags "$tags" -count=1 -run '^TestThePauseProcessEndsOnSignals$' ./shim/pause
else
  echo 'arm64: there is no qemu-aarch64 (the package qemu-user): the program is built and vetted, and not run' >&2
  [ "${CRISHIM_REQUIRE_ENGINE:-}" != 1 ]
fi
