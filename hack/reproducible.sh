#!/usr/bin/env bash
# reproducible.sh: what make dist has made is made again from a clone elsewhere, and compared byte by byte.
# A cache of its own (FRESH=1) has everything compiled again too.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -e dist/SHA256SUMS ] || { echo 'reproducible: there is nothing in dist: make dist first' >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || { echo 'reproducible: what is not committed is not in a clone' >&2; exit 1; }

elsewhere=$(mktemp -d)
trap 'chmod -R u+w "$elsewhere"; rm -rf "$elsewhere"' EXIT
git clone -q . "$elsewhere/some other place"
if [ -n "${FRESH:-}" ]; then export GOCACHE=$elsewhere/cache; fi
(cd "$elsewhere/some other place" && umask 077 && hack/dist.sh)
if ! diff -r dist "$elsewhere/some other place/dist"; then
  echo 'reproducible: two builds of one commit differ' >&2
  exit 1
fi
echo 'reproducible: ok'
