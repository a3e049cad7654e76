#!/usr/bin/env bash
# dist.sh [DIRECTORY]: build a release in dist or DIRECTORY: programs, archives, packages, images, bills of materials,
# licences, checksums. The result depends only on the commit and the version of Go.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

dist=${1:-$PWD/dist}
version=${VERSION:-$(git describe --tags --always --dirty --match 'v*')}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
tags=$(cat hack/tags)
# A user's own build settings must not affect a release.
unset GOEXPERIMENT GOOS GOARCH
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC GOFLAGS=-trimpath CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0
nfpm=$(hack/tool.sh github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0)

package=$(hack/package-version.sh "$version" "$SOURCE_DATE_EPOCH")

rm -rf "$dist"
mkdir -p "$dist"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # ARCH
  GOARCH=$1 go build -buildvcs=false -tags "$tags" -ldflags "-s -w -X main.version=$version" -o "$work/crishim-$1" .
  GOARCH=$1 go build -buildvcs=false -tags "$tags" -ldflags "-s -w -X main.version=$version" -o "$work/kubectl-crishim-$1" ./cmd/kubectl-crishim
}

# stage ARCH PREFIX DIRECTORY: runs make install. Only the program depends on the architecture.
stage() {
  local tree=$work/tree${2//\//-}
  if [ ! -e "$tree" ]; then
    RUN=$work/crishim-$(go env GOHOSTARCH) DESTDIR=$tree PREFIX=$2 hack/install.sh "$work/crishim-$1"
  fi
  cp -r "$tree" "$3"
  install -m 755 "$work/crishim-$1" "$3$2/bin/crishim"
  find "$3" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

package() { # ARCH FORMAT
  ARCH=$1 VERSION=$package STAGE=$work/package-$1 "$nfpm" package --config packaging/nfpm.yaml --packager "$2" --target "$dist/" >"$work/nfpm" 2>&1 ||
    { cat "$work/nfpm" >&2; exit 1; }
}

for arch in amd64 arm64; do build "$arch"; done
for arch in amd64 arm64; do
  name=crishim-$version-linux-$arch
  cp "$work/crishim-$arch" "$dist/crishim-linux-$arch"

  # For unpacking in /usr/local, with example settings.
  stage "$arch" /usr/local "$work/archive-$arch"
  mv "$work/archive-$arch/etc/crishim/serve.yaml" "$work/archive-$arch/usr/local/share/doc/crishim/"
  tar -C "$work/archive-$arch/usr/local" --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --transform "s,^\.,$name," -cf - . | gzip -9n >"$dist/$name.tar.gz"

  # The plugin belongs next to kubectl, which is rarely on a node.
  mkdir "$work/plugin-$arch"
  install -m 755 "$work/kubectl-crishim-$arch" "$work/plugin-$arch/kubectl-crishim"
  install -m 644 LICENSE "$work/archive-$arch/usr/local/share/doc/crishim/THIRD-PARTY-LICENSES" "$work/plugin-$arch/"
  tar -C "$work/plugin-$arch" --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    -cf - . | gzip -9n >"$dist/kubectl-$name.tar.gz"

  stage "$arch" /usr "$work/package-$arch"
  package "$arch" rpm
  # Debian's zsh uses another directory, and its copyright file has its own name.
  mv "$work/package-$arch/usr/share/zsh/site-functions" "$work/package-$arch/usr/share/zsh/vendor-completions"
  mv "$work/package-$arch/usr/share/doc/crishim/LICENSE" "$work/package-$arch/usr/share/doc/crishim/copyright"
  package "$arch" deb

  go run -tags "$tags" ./hack/image -arch "$arch" -version "$version" -epoch "$SOURCE_DATE_EPOCH" -licences "$work/archive-$arch/usr/local/share/doc/crishim" \
    -o "$dist/$name-image.tar" "$work/crishim-$arch"
  go run ./hack/sbom "$work/crishim-$arch" "$version" >"$dist/$name.cdx.json"
  go run ./hack/sbom "$work/kubectl-crishim-$arch" "$version" >"$dist/kubectl-$name.cdx.json"
done
# README.md states the size of the image. The plugin contains client-go.
small() { # MB FILE...
  local limit=$(($1 * 1000 * 1000)) file
  shift
  for file; do
    [ "$(stat -c %s "$file")" -le "$limit" ] || { echo "$file has more than $limit bytes" >&2; exit 1; }
  done
}
small 20 "$dist"/*-image.tar
small 62 "$work"/kubectl-crishim-*

sum() { sha256sum "$dist/kubectl-crishim-$version-linux-$1.tar.gz" | cut -d ' ' -f 1; }
sed -e "s/VERSION/$version/g" -e "s/SHA256_AMD64/$(sum amd64)/" -e "s/SHA256_ARM64/$(sum arm64)/" packaging/krew.yaml >"$dist/krew.yaml"
cp "$work/archive-amd64/usr/local/share/doc/crishim/THIRD-PARTY-LICENSES" "$dist/"
(cd "$dist" && sha256sum -- * >SHA256SUMS)
