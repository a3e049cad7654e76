#!/usr/bin/env bash
# lint.sh: formatting, vet, shell scripts, golangci-lint, deadcode. All run, also when one complains.
set -euo pipefail
shopt -s inherit_errexit # a tool that cannot be built is the error, not its absence later
cd "$(dirname "$0")/.."
linter_version=v2.15.0
deadcode_version=v0.52.0
tags=urfave_cli_no_docs,grpcnotrace,nethttpomithttp2
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

# tool NAME PACKAGE VERSION prints the path of a program. It is built once per machine and version, away
# from GOBIN: the version is part of the name.
tool() {
  local name=$1 package=$2 version=$3 built
  built=${XDG_CACHE_HOME:-$HOME/.cache}/crishim/$name-$version
  if [ ! -x "$built" ]; then
    echo "lint: building $name $version (once)" >&2
    bin=$(mktemp -d)
    trap 'rm -rf "$bin"' EXIT
    GOFLAGS='' GOBIN=$bin go install "$package@$version"
    mkdir -p "$(dirname "$built")"
    mv "$bin/$name" "$built"
  fi
  echo "$built"
}

linter=$(tool golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$linter_version")
"$linter" run --allow-parallel-runners --build-tags "$tags" --timeout 10m ./... || status=1

# What no program of ours reaches. What only tests use is no program's, and is not looked at.
deadcode=$(tool deadcode golang.org/x/tools/cmd/deadcode "$deadcode_version")
mapfile -t programs < <(go list -tags "$tags" -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./...)
dead=$("$deadcode" -tags "$tags" "${programs[@]}") || status=1
[ -z "$dead" ] || { printf 'nothing but a test reaches:\n%s\n' "$dead" >&2; status=1; }
exit "$status"
