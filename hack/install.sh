#!/usr/bin/env bash
# install.sh PROGRAM: install a package's files below $DESTDIR$PREFIX (/usr/local): PROGRAM, manual pages, completions
# and units, and below $DESTDIR/etc the settings of serve unless they exist. If PROGRAM is for another machine, RUN is
# the same program for this one.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

program=${1:?usage: install.sh PROGRAM} run=${RUN:-$1} prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix settings=${DESTDIR:-}/etc/crishim/serve.yaml
share=$to/share doc=$to/share/doc/crishim man=$to/share/man/man1
mkdir -p "$to/bin" "$man" "$doc" "$to/lib/systemd/system" "$share/crishim" \
  "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"

install -m 755 "$program" "$to/bin/crishim"

env -u GOOS -u GOARCH go run -trimpath -tags "$(cat hack/tags)" ./hack/docs -man "$man"
gzip -9nf "$man"/crishim.1 "$man"/crishim-*.1

"$run" completion bash >"$share/bash-completion/completions/crishim"
"$run" completion zsh >"$share/zsh/site-functions/_crishim"
"$run" completion fish >"$share/fish/vendor_completions.d/crishim.fish"
# For the name crictl, if it is a link to crishim.
"$run" --compat=crictl completion bash >"$share/crishim/crictl.bash"

cp LICENSE README.md CHANGELOG.md "$doc/"
cp -r docs examples "$doc/"
hack/licences.sh >"$doc/THIRD-PARTY-LICENSES"

for unit in packaging/*.service packaging/*.socket; do
  sed "s,/usr/bin/crishim,$prefix/bin/crishim," "$unit" >"$to/lib/systemd/system/${unit##*/}"
done
if [ ! -e "$settings" ]; then
  mkdir -p "${settings%/*}"
  cp packaging/serve.yaml "$settings"
fi
