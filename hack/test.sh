#!/usr/bin/env bash
# test.sh [race]: all tests, or those of the packages under the race detector, then a look at whether they
# left anything on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=$(cat hack/tags)

# What runs with the engines' environment. The engines make the outcome, and the test cache does not know
# them: -count=1. make verify has vetted, and no test reads debug information (-w). The seed of shuffle is
# in the output of what fails. GOGC is for the compiler and the linker, which end soon; no program of ours sees it.
go_test() {
  TMPDIR=$CRISHIM_TEST_TMP GOTMPDIR=$CRISHIM_TEST_TMP GOGC=400 go test -exec 'env -u GOTMPDIR -u GOGC' \
    -trimpath -tags "$tags" -vet=off -ldflags=-w -count=1 -shuffle=on -timeout 20m "$@"
}
# The programs, that is the scripts in the root package, internal/reliability and hack/image, are tested as
# they are shipped; the rest also under the race detector (make race).
mapfile -t packages < <(go list -tags "$tags" ./... | grep -v -e '/crishim$' -e '/internal/reliability$' -e '/hack/image$')
# Tests of ./commands that read what some hundred command lines each print. Under the race detector they take
# five times as long, and start no goroutine of a verb that the others do not: there, every verb is in
# TestEveryVerbWhenARuntimeFails or in a test of its own.
texts='^Test(Differential|Formats|Runtimes|BrokenRuntimes|EveryVerbOnWhatHasNoNames|EveryVerbWhereACallIsMissing|HostileTextOfEveryVerb|FilesWithoutAnEnd)$'
status=0 part=
case ${1:-} in
  packages)
    # Built as make build does, they share what it has compiled.
    CGO_ENABLED=0 go_test -p 2 -parallel 4 "${packages[@]}" || status=1
    ;;
  programs)
    # One package after the other: each starts serves that follow all pods of the engine, and their logs.
    CGO_ENABLED=0 go_test -p 1 -parallel 4 . ./internal/reliability ./hack/image || status=1
    ;;
  races)
    # Each of sixty programs would sleep for a second at its end, for races of what still runs then.
    GORACE=atexit_sleep_ms=100 go_test -race -p 2 -parallel 4 -skip "$texts" "${packages[@]}" || status=1
    ;;
  both)
    case ${DOCKER_HOST:-} in
      # Most of it is waiting: on private engines, the programs have some of their own and run beside the
      # packages. In a process group of its own (-m), because a shell makes others ignore an interrupt.
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

# What tests make in the directory for temporary files is seen for certain. In memory, where that can be
# mounted: some sixty programs are linked there.
CRISHIM_TEST_TMP=$(mktemp -d /tmp/crishim-XXXX) # short: sockets are in it
export CRISHIM_TEST_TMP CRISHIM_ENGINE_IN_MEMORY=1
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o mode=700 crishim-test "$CRISHIM_TEST_TMP" 2>/dev/null; then
  trap 'umount -l "$CRISHIM_TEST_TMP" && rmdir "$CRISHIM_TEST_TMP"' EXIT # of an interrupted run
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
