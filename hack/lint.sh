#!/usr/bin/env bash
# lint.sh: formatting, vet, shell scripts, golangci-lint. All run, also when one complains.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v2.15.0
tags=urfave_cli_no_docs
status=0

unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
[ -z "$unformatted" ] || { printf 'gofmt wants to change:\n%s\n' "$unformatted" >&2; status=1; }
go vet -tags "$tags" ./... || status=1
if command -v shellcheck >/dev/null; then
  git ls-files -co --exclude-standard 'hack/*.sh' .ci/run | xargs -r shellcheck || status=1
else
  echo 'lint: there is no shellcheck: shell scripts are not looked at' >&2
  [ "${CRISHIM_REQUIRE_ENGINE:-}" != 1 ] || status=1
fi

# Built once per machine and version, away from GOBIN: the version is part of the name.
linter=${XDG_CACHE_HOME:-$HOME/.cache}/crishim/golangci-lint-$version
if [ ! -x "$linter" ]; then
  echo "lint: building golangci-lint $version (once)" >&2
  bin=$(mktemp -d)
  trap 'rm -rf "$bin"' EXIT
  GOFLAGS='' GOBIN=$bin go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
  mkdir -p "$(dirname "$linter")"
  mv "$bin/golangci-lint" "$linter"
fi
"$linter" run --allow-parallel-runners --build-tags "$tags" --timeout 10m ./... || status=1
exit "$status"
