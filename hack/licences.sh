#!/usr/bin/env bash
# licences.sh: print the licences of the modules linked into crishim and kubectl-crishim, each text once with its
# modules. A module without a licence is an error that needs manual review.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A modules=() texts=()
while read -r module version dir; do
  found=''
  for file in "$dir"/*; do
    case ${file##*/} in
      [Ll][Ii][Cc][Ee][Nn][CcSs][Ee]* | COPYING* | NOTICE*) ;;
      *) continue ;;
    esac
    sum=$(sha256sum <"$file")
    modules[$sum]+="$module $version"$'\n'
    texts[$sum]=$file found=1
  done
  [ -n "$found" ] || { echo "licences: $module $version has none in $dir" >&2; exit 1; }
done < <(
  echo "Go $(go env GOVERSION) $(go env GOROOT)"
  go list -deps -tags "$(cat hack/tags)" -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' . ./cmd/kubectl-crishim | sort -u
)
for sum in "${!modules[@]}"; do
  printf '%s\t%s\n' "${modules[$sum]%%$'\n'*}" "$sum"
done | LC_ALL=C sort | while IFS=$'\t' read -r _ sum; do
  printf '%s\n%s\n' '================================================================================' "${modules[$sum]}"
  cat "${texts[$sum]}"
  echo
done
