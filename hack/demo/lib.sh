# Functions that show a command, check it and clean up. demo.sh sets out, work, forward and pause_before, and opens 4 on
# its standard error.
# shellcheck shell=bash disable=SC2154

if [ -t 1 ]; then BOLD=$'\e[1m' BLUE=$'\e[36m' PLAIN=$'\e[0m'; else BOLD='' BLUE='' PLAIN=''; fi
title() { printf '\n%s%s%s\n' "$BOLD" "$*" "$PLAIN"; }
fail() {
  printf '\ndemo: FAILED: %s\n' "$*" >&4
  exit 1
}

# show CMD...: prints the command line as a user would type it.
show() {
  local word line='$'
  for word in "$@"; do
    case $word in
      '&' | '|') line+=" $word" ;;
      *[!A-Za-z0-9_./:@%+=,-]* | '') line+=" '$word'" ;;
      *) line+=" $word" ;;
    esac
  done
  printf '%s%s%s\n' "$BLUE" "$line" "$PLAIN"
}

run() { run_status 0 "$@"; }

# run_status CODE CMD...: shows the output and writes it without colour codes to $out.
run_status() {
  local want=$1 got=0
  shift
  show "$@"
  timeout 120 "$@" </dev/null >"$out" 2>&1 || got=$?
  cat "$out"
  [ "$want" = 0 ] || printf '(exit status %d)\n' "$got"
  [ "$got" = "$want" ] || fail "exit status $got, want $want: $*"
}

run_input() {
  local got=0 input=$1
  shift
  show echo "$input" '|' "$@"
  printf '%s\n' "$input" | timeout 120 "$@" >"$out" 2>&1 || got=$?
  cat "$out"
  [ "$got" = 0 ] || fail "exit status $got, want 0: $*"
}

want() { grep -qE -- "$1" "$out" || fail "the output has no $1"; }
want_not() { if grep -qwE -- "$1" "$out"; then fail "the output still has $1"; fi; }

# run_pty CMD LINE...: runs CMD on a pseudo-terminal and types each line at a prompt. The last line is `exit N`, and the
# exit status must be N.
run_pty() {
  local command=$1 line n=0 got=0 pid
  shift
  # shellcheck disable=SC2086
  show $command
  mkfifo "$work/keys"
  : >"$out" # prompts are counted before script(1) has opened it
  # script(1) is part of every Debian; -e returns the exit status.
  SHELL=/bin/sh timeout 120 script -qefc "$command" "$out" <"$work/keys" >/dev/null &
  pid=$!
  exec 5>"$work/keys"
  for line in "$@"; do
    n=$((n + 1))
    wait_until "prompt $n on the terminal" prompts "$n" || fail "$(cat "$out")"
    printf '%s\r' "$line" >&5
  done
  wait "$pid" || got=$?
  exec 5>&-
  rm "$work/keys"
  # The shell queries the terminal for its cursor. The answer would clutter the page.
  sed -e '/^Script /d' -e 's/\x1b\[6n//g' "$out"
  printf '(exit status %d)\n' "$got"
  [ "$got" = "${line#exit }" ] || fail "exit status $got, want ${line#exit }: $command"
}

prompts() { [ "$(grep -aoE '(/ |~ )?[#$] ' "$out" | wc -l)" -ge "$1" ]; }

# says CONTAINER LINE: waits for a line in the log. It must be the whole line, because an error may contain the same
# words.
says() { grep -qxE -- "$2" <<<"$(crishim logs "$1" 2>&1)"; }

# wait_until WHAT CMD...: waits at most a minute.
wait_until() {
  local what=$1 i
  shift
  for ((i = 0; i < 600; i++)); do
    if "$@"; then return; fi
    sleep 0.1
  done
  fail "no $what within a minute"
}

run_background() {
  show "$@" '&'
  : >"$work/forward" # read before the background process has opened it
  "$@" >"$work/forward" 2>&1 </dev/null &
  forward=$!
  wait_until "line from $*" grep -q 'Forwarding from 127' "$work/forward"
  cat "$work/forward"
}

forwarded_port() { sed -nE 's/.*127\.0\.0\.1:([0-9]+) .*/\1/p' "$work/forward" | head -n 1; }

stop_background() {
  [ -n "$forward" ] || return 0
  kill "$forward" 2>/dev/null || true
  wait "$forward" || true
  forward=''
}

# The demo is about Docker. If a CRI runtime answers, crishim would use that.
use_docker() {
  if ! crishim version 2>/dev/null | grep -qi 'RuntimeName: *docker'; then
    export CONTAINER_RUNTIME_ENDPOINT=docker://
    echo "(a CRI runtime answers on this machine: CONTAINER_RUNTIME_ENDPOINT=docker:// leads to Docker)"
  fi
}

pause_images() { docker images -q --no-trunc --filter reference='*/*pause*' --filter reference='*pause*' | sort -u; }

# By the names that all dockershims use, because labels are internal to the shim.
containers() { docker ps -aq --filter name='^/?k8s_.*_crishim-demo_[0-9]+$'; }

clean_up() {
  local status=$? ids
  trap - EXIT
  stop_background
  mapfile -t ids < <(containers)
  [ ${#ids[@]} -eq 0 ] || docker rm -f "${ids[@]}" >/dev/null || true
  # Keep the pause image only if it was there before.
  comm -13 <(printf '%s\n' "$pause_before") <(pause_images) | while read -r image; do
    docker rmi -f "$image" >/dev/null 2>&1 || true
  done
  [ "$status" = 0 ] || cat "$work/noise" >&4
  rm -rf "$work"
  [ "$status" = 0 ] || echo "demo: FAILED" >&4
  exit "$status"
}

nothing_left() {
  [ ! -s "$work/noise" ] || fail 'something else than the story was written'
  [ -z "$(containers)" ] || fail "containers are left: $(docker ps -a)"
  # A locked directory belongs to a running crishim.
  local d
  for d in /run/crishim/{shim,ssh}-*; do
    [ ! -d "$d" ] || ! flock -n "$d" true || fail "left in /run/crishim: $d"
  done
}
