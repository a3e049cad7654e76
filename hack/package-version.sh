#!/usr/bin/env bash
# package-version.sh VERSION EPOCH: print the version of a package from the program's version and the time of the
# commit. It starts with a digit. Pre-releases use ~ and commits after a release use +: v0.9.0-3-gabc is 0.9.0+3.gabc.
# Versions without a tag sort before all tagged ones, and by the time of the commit.
set -euo pipefail
version=${1%-dirty}
case $version in
  v*-*-g*) package=${version%-*-g*}+$(sed -E 's/.*-([0-9]+)-(g[0-9a-f]+)$/\1.\2/' <<<"$version") ;;
  v*) package=$version ;;
  *) package=0.0.0+$(date -u -d "@$2" +%Y%m%d%H%M%S).g$version ;;
esac
package=${package#v}
package=${package//-/\~}
case $1 in
  *-dirty) case $package in *+*) package+=.dirty ;; *) package+=+dirty ;; esac ;;
esac
echo "$package"
