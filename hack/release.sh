#!/usr/bin/env bash
# release.sh: build the first release in CHANGELOG.md from a clean and tested tree, in dist. It tags the commit unless
# the tag exists; it does not push the tag.
set -euo pipefail
cd "$(dirname "$0")/.."
refuse() { echo "release: $*" >&2; exit 1; }

version=$(sed -n 's/^## //p' CHANGELOG.md | head -n 1)
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || refuse "CHANGELOG.md begins with \"$version\", not with a version such as v1.2.3"
[ -z "$(git status --porcelain)" ] || refuse 'there are changes that are not committed'
tagged=$(git rev-parse -q --verify "refs/tags/$version^{commit}" || true)
[ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] || refuse "$version is another commit: a new release needs a title of its own in CHANGELOG.md"

# A check whose program is missing has failed; make verify installs the programs.
CRISHIM_REQUIRE_ENGINE=1 make --no-print-directory verify test race vm-test
[ -z "$(git status --porcelain)" ] || refuse 'verify, test, race or vm-test has changed the tree'
[ -n "$tagged" ] || git tag -a -m "crishim $version" "$version"
make --no-print-directory reproducible
echo "release: $version is in dist; git push origin $version publishes its tag"
