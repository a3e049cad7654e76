#!/usr/bin/env bash
# package-version.sh VERSION EPOCH: the version of a package, of the version of its program and the time of the commit. It begins with a
# digit; what comes before a release has ~ in it, and commits after it have +: v0.9.0-3-gabc is 0.9.0+3.gabc. Without any tag
# it comes before all that have one, and an older commit before a newer one.
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
