#!/usr/bin/env bash
# lint.sh: formatting, vet, shell scripts, sentences, exported names, golangci-lint, deadcode. All run, even if one fails.
set -euo pipefail
shopt -s inherit_errexit # a tool that cannot be built must fail here, not later
cd "$(dirname "$0")/.."
tags=$(cat hack/tags)
status=0

unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
[ -z "$unformatted" ] || { printf 'gofmt wants to change:\n%s\n' "$unformatted" >&2; status=1; }
go vet -tags "$tags" ./... || status=1
if command -v shellcheck >/dev/null; then
  git ls-files -co --exclude-standard 'hack/*.sh' 'packaging/*.sh' .ci/run | xargs -r shellcheck || status=1
else
  echo 'lint: there is no shellcheck: shell scripts are not checked' >&2
  [ "${CRISHIM_REQUIRE_ENGINE:-}" != 1 ] || status=1
fi

linter=$(hack/tool.sh github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0)
go run -trimpath -tags "$tags" ./hack/sentences || status=1
go run -trimpath -tags "$tags" ./hack/exported || status=1

"$linter" run --allow-parallel-runners --build-tags "$tags" --timeout 10m ./... || status=1

# Code that no program reaches. Helpers for tests belong in internal/test.
deadcode=$(hack/tool.sh golang.org/x/tools/cmd/deadcode@v0.52.0)
mapfile -t programs < <(go list -tags "$tags" -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./...)
# Except the kubelet's interfaces, which TestKubeGenericRuntimeOnEngine tests on real runtimes.
kubelet='Manager\.(Type|Version|APIVersion|GetImageRef|ImageStats|GetContainerLogs|UpdatePodCIDR|GetExec|GetAttach|GetPortForward)$'
dead=$("$deadcode" -tags "$tags" "${programs[@]}" | { grep -vE "^kuberuntime/.* $kubelet|^internal/test/" || true; }) || status=1
[ -z "$dead" ] || { printf 'nothing but a test reaches:\n%s\n' "$dead" >&2; status=1; }
exit "$status"
