#!/usr/bin/env bash
# reproducible.sh: repeat make dist in a copy of the tree and compare the results byte by byte. With FRESH=1 without
# build cache.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -e dist/SHA256SUMS ] || { echo 'reproducible: there is nothing in dist: make dist first' >&2; exit 1; }

# A copy has no version and time of its own.
VERSION=${VERSION:-$(git describe --tags --always --dirty --match 'v*')}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export VERSION SOURCE_DATE_EPOCH
elsewhere=$(mktemp -d)
trap 'chmod -R u+w "$elsewhere"; rm -rf "$elsewhere"' EXIT
copy="$elsewhere/some other place"
mkdir "$copy"
tar --exclude=./.git --exclude=./dist --exclude=./bin -cf - . | tar -C "$copy" -xmf -
if [ -n "${FRESH:-}" ]; then export GOCACHE=$elsewhere/cache; fi
(umask 077 && "$copy/hack/dist.sh")
if ! diff -r dist "$copy/dist"; then
  echo 'reproducible: two builds differ' >&2
  exit 1
fi
echo 'reproducible: ok'
