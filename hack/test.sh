#!/usr/bin/env bash
# test.sh [race]: run all tests, or those of the packages under the race detector, and then check for leftovers on the
# machine.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=$(cat hack/tags)

# This part runs in the engines' environment. Results depend on the engines, which the test cache does not know:
# -count=1. make verify runs vet, and no test reads debug information (-w). Failures print the seed of shuffle. GOGC is
# for the compiler and linker, which are short-lived; crishim does not see it.
go_test() {
  TMPDIR=$CRISHIM_TEST_TMP GOTMPDIR=$CRISHIM_TEST_TMP GOGC=400 go test -exec 'env -u GOTMPDIR -u GOGC' \
    -trimpath -tags "$tags" -vet=off -ldflags=-w -count=1 -shuffle=on -timeout 20m "$@"
}
# Tests of the programs, which are internal/e2e, internal/reliability and hack/image, use the shipped build. The other
# tests also run under the race detector (make race), but for internal/checks, which is about the repository.
mapfile -t packages < <(go list -tags "$tags" ./... | grep -v -e '/internal/e2e$' -e '/internal/checks$' -e '/internal/reliability$' -e '/hack/image$')
# Tests of internal/e2e/verbs that run hundreds of command lines each. Under the race detector they take five times as long, and
# they start no goroutine that other tests do not: there, every verb is in TestEveryVerbWhenARuntimeFails or has its own
# test.
texts='^Test(Differential|Formats|Runtimes|BrokenRuntimes|EveryVerbOnWhatHasNoNames|EveryVerbWhereACallIsMissing|HostileTextOfEveryVerb|FilesWithoutAnEnd)$'
status=0 part=
case ${1:-} in
  packages)
    # With the flags of make build they share its cache.
    CGO_ENABLED=0 go_test -p 2 -parallel 4 "${packages[@]}" ./internal/checks || status=1
    ;;
  programs)
    # One package at a time: each starts serves, which follow all pods of the engine and their logs.
    CGO_ENABLED=0 go_test -p 1 -parallel 4 ./internal/e2e ./internal/reliability ./hack/image || status=1
    ;;
  races)
    # Each of sixty programs would sleep for a second at its end to detect late races.
    GORACE=atexit_sleep_ms=100 go_test -race -p 2 -parallel 4 -skip "$texts" "${packages[@]}" || status=1
    ;;
  both)
    case ${DOCKER_HOST:-} in
      # Most of the time is spent waiting. On private engines the programs therefore get their own engines and run in
      # parallel with the packages. They run in a process group of their own (-m), because a shell makes background
      # processes ignore an interrupt.
      unix:///run/crishim-engine/* | "unix://${CRISHIM_ENGINE_DIR:-/none}"/*)
        set -m
        CRISHIM_ENGINE_DIR=${CRISHIM_ENGINE_DIR:-/var/lib/crishim-engine}-2 CRISHIM_PRIVATE_ENGINE=1 hack/with-engine.sh "$0" programs </dev/null &
        set +m
        trap 'kill -- "-$!" 2>/dev/null' INT TERM HUP
        "$0" packages || status=1
        wait $! || status=1
        ;;
      *) for each in packages programs; do "$0" "$each" || status=1; done ;;
    esac
    exit "$status"
    ;;
  "") part=both ;;
  race) part=races ;;
  *) echo "test: no such part: $1" >&2; exit 2 ;;
esac
if [ -z "$part" ]; then
  if [ -n "${DOCKER_HOST:-}" ]; then hack/leftovers.sh containers || status=1; fi
  exit "$status"
fi

# A private directory for temporary files, so that leftovers are detected reliably. It is in memory if possible, because
# some sixty programs are linked there.
CRISHIM_TEST_TMP=$(mktemp -d /tmp/crishim-XXXX) # short, because it contains sockets
export CRISHIM_TEST_TMP CRISHIM_ENGINE_IN_MEMORY=1
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o mode=700 crishim-test "$CRISHIM_TEST_TMP" 2>/dev/null; then
  trap 'umount -l "$CRISHIM_TEST_TMP" && rmdir "$CRISHIM_TEST_TMP"' EXIT # after an interrupted run
fi
before=$(hack/leftovers.sh)
[ "$(id -u)" != 0 ] || hack/engine.sh packages tests
missing=$(hack/engine.sh missing | tr '\n' ' ')
if [ "$part" = races ] && ! command -v gcc >/dev/null; then
  echo 'test: the race detector needs gcc, which make verify installs' >&2
  exit 1
fi
[ -z "$missing" ] || echo "test: skipping what needs ${missing}(make verify installs them)" >&2
if [ "$(id -u)" = 0 ] || hack/engine.sh status; then
  hack/with-engine.sh "$0" "$part" || status=$?
else
  echo "test: not root and no engines of hack/engine.sh: tests that need one are skipped" >&2
  "$0" "$part" || status=$?
fi
left=$(find "$CRISHIM_TEST_TMP" -mindepth 1 -maxdepth 1)
if [ -n "$left" ]; then printf 'test: left behind:\n%s\n' "$left" >&2; status=1; fi
if mountpoint -q "$CRISHIM_TEST_TMP"; then umount "$CRISHIM_TEST_TMP" || { umount -l "$CRISHIM_TEST_TMP"; status=1; }; fi
trap - EXIT
rm -rf --one-file-system "$CRISHIM_TEST_TMP"
after=$(hack/leftovers.sh)
if left=$(diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") | sed -n 's/^> //p'); [ -n "$left" ]; then
  printf 'test: left on the machine:\n%s\n' "$left" >&2
  status=1
fi
if [ "$status" = 0 ]; then echo "test: ok"; else echo "test: FAILED" >&2; fi
exit "$status"
