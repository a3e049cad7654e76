#!/usr/bin/env bash
# bench.sh [-quick]: measure the table of docs/performance.md with the engine of DOCKER_HOST; print it and write
# bench.json. crishim and its peer alternate, so that a slow machine affects both. Results are medians; the ratio is the
# median of the pairs' ratios. Rows that are worse than in docs/performance.md by more than a tenth are named. -quick
# checks that each row works; its results are meaningless.
set -euo pipefail
shopt -s inherit_errexit
export LC_ALL=C
json=$PWD/bench.json
cd "$(dirname "$0")/.."
: "${DOCKER_HOST:?names no engine (make bench starts one)}" "${CRISHIM_TEST_IMAGE:?names no busybox image}"
# runs of a short command and of a long one, length of lists, pods of a small and of a large node, how many of those have
# a container, pods of a burst, MiB, seconds of a kubelet's calls
runs=30 few=5 listed=1000 some=40 pods=500 busy=200 burst=100 mib=1024 seconds=60
case "$*" in
  '') ;;
  -quick) runs=5 few=3 listed=50 some=5 pods=20 busy=10 burst=20 mib=64 seconds=10 ;;
  *) echo 'usage: bench.sh [-quick]' >&2; exit 2 ;;
esac

[ "$(id -u)" != 0 ] || hack/engine.sh packages bench
dir=$(mktemp -d /tmp/crishim-bench.XXXX) mounted=''
export serve=unix://$dir/serve.sock CRISHIM_TEST_IMAGE dir

clean_up() {
  local status=$?
  trap - EXIT
  remove_pods || status=1
  docker ps -aq --filter name=crishim-bench- | xargs -r docker rm -f >/dev/null || status=1
  remove_images || status=1
  jobs -p | xargs -r kill 2>/dev/null || true # some have ended
  wait
  if [ -n "$mounted" ]; then umount /run/crishim && rmdir /run/crishim || status=1; fi
  rm -rf "$dir"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- rows

# row WHAT UNIT FLOOR PEER: reads lines with crishim's result and the peer's, if there is a peer.
row() {
  jq -sRc --arg what "$1" --arg unit "$2" --arg floor "$3" --arg peer "$4" '
    def median: if any(. == null) then null else sort | .[length / 2 | floor] end;
    [split("\n")[] | select(. != "") | split(" ") | map(tonumber)]
    | {what: $what, unit: $unit, runs: length, crishim: map(.[0]) | median, peer: map(.[1]) | median, peerIs: (if $peer == "" then null else $peer end),
       ratio: map(if .[1] then .[0] / .[1] else null end) | median, floor: $floor}
    | (if $floor | endswith("x") then .ratio else .crishim end) as $value
    | ($floor | sub("^[<>=]+"; "") | sub("[ x].*"; "") | tonumber? // null) as $limit
    | .met = if $limit == null then null elif $floor | startswith(">=") then $value >= $limit
             elif $floor | startswith("<=") then $value <= $limit else $value < $limit end
  ' >>"$dir/rows"
  tail -n 1 "$dir/rows" | jq -r '"\(.what): \(.crishim * 100 | round / 100) \(.unit)"' >&2
}

# in_turn RUNS OURS THEIRS: the milliseconds of two commands, one line per run except the first.
in_turn() {
  local i commands=()
  for ((i = 0; i <= $1; i++)); do commands+=("$2" "$3"); done
  hyperfine -N --style none --runs 1 --export-json "$dir/times.json" "${commands[@]}" >"$dir/hyperfine" 2>&1 ||
    { cat "$dir/hyperfine" >&2; return 1; }
  jq -r '[.results[].times[0] * 1000] | range(2; length; 2) as $i | "\(.[$i]) \(.[$i + 1])"' "$dir/times.json"
}

# pair WHAT FLOOR PEER RUNS OURS THEIRS
pair() { in_turn "$4" "$5" "$6" | row "$1" ms "$2" "$3"; }

# rates WHAT FLOOR ARGS [PIPE]: the rate of an exec that transfers $mib, each run in a shell after PIPE.
rates() {
  local way
  for way in "embedded docker://" "dialled $serve"; do
    in_turn "$few" "sh -c \"${4:-} crishim -r ${way#* } exec $3\"" "sh -c \"${4:-} docker exec $3\"" | megabytes_per_second |
      row "exec $1, ${way% *}" MB/s "$2" docker
  done
}
megabytes_per_second() { awk -v mib="$mib" '{ kb = mib * 1048.576; print kb / $1, kb / $2 }'; }

# both WHAT EMBEDDED-FLOOR DIALLED-FLOOR RUNS ARGS [THEIRS]: a verb with the embedded shim and with serve, and docker's
# verb.
both() {
  pair "$1, embedded" "$2" docker "$4" "crishim -r docker:// $5" "docker ${6:-$5}"
  pair "$1, dialled" "$3" docker "$4" "crishim -r $serve $5" "docker ${6:-$5}"
}

table() {
  jq -n --arg crishim "$(crishim --version)" --arg engine "$(docker version -f '{{.Server.Version}}')" --arg quick "$*" --argjson cpus "$(nproc)" \
    '{$crishim, $engine, $cpus, quick: ($quick != ""), rows: [inputs]}' "$dir/rows" >"$json"
  jq -r '"\(.crishim), engine \(.engine), \(.cpus) processors\n"' "$json"
  printf '| what | crishim | docker | ratio | limit |\n|---|---|---|---|---|\n'
  jq -r '.rows[] | [.what, .crishim, .unit, .peer // "-", .peerIs // "-", .ratio // "-", .floor, if .met == false then ", missed" else "" end] | join("\t")' "$json" |
    while IFS=$'\t' read -r what ours unit theirs peer ratio floor verdict; do
      [ "$theirs" = - ] || { theirs=$(printf '%s: %.4g' "$peer" "$theirs"); theirs=${theirs#docker: }; ratio=$(printf %.2f "$ratio"); }
      printf '| %s | %.4g %s | %s | %s | %s%s |\n' "$what" "$ours" "$unit" "$theirs" "$ratio" "$floor" "$verdict"
    done
}

# worse names the rows that are worse than in docs/performance.md by more than a tenth.
worse() {
  awk -F ' *[|] *' '
    NF < 6 { next }
    { split($3, ours, " "); value = $5 == "-" ? ours[1] : $5 }
    FNR == NR { last[$2] = value; next }
    last[$2] > 0 && value > 0 && ($6 ~ /^>/ ? last[$2] / value : value / last[$2]) > 1.1 {
      print "worse than in docs/performance.md: " $2 ": " value ", was " last[$2]
    }' docs/performance.md "$dir/table"
}

# ---- pods

# new_pod NAME [2]: with 2 in the host's network, because the engine's bridge cannot hold hundreds of pods.
new_pod() {
  printf '{"metadata": {"name": "%s", "namespace": "crishim-bench"}, "linux": {"security_context": {"namespace_options": {"network": %d}}},
    "labels": {"io.kubernetes.pod.name": "%s", "io.kubernetes.pod.namespace": "crishim-bench"}}' "$1" "${2:-0}" "$1" | crishim -r "$serve" runp -
}

# new_container POD NAME COMMAND: creates and starts a container and prints its id.
new_container() {
  local id
  id=$(jq -n '{metadata: {name: $ARGS.positional[0]}, image: {image: env.CRISHIM_TEST_IMAGE}, command: ["sh", "-c", $ARGS.positional[1]]}' --args "$2" "$3" |
    crishim -r "$serve" create --no-pull "$1" -)
  crishim -r "$serve" start "$id"
}

# node_pod N BUSY: creates one of many pods, with a container if N is at most BUSY.
node_pod() {
  local pod
  pod=$(new_pod "full-$1" 2)
  [ "$1" -gt "$2" ] || new_container "$pod" main 'exec sleep 100000'
}

new_image() { docker import --change "LABEL number=$1" "$dir/layer.tar" "crishim-bench.example/app-$1:1.$1"; }
export -f new_pod new_container node_pod new_image

# many N FUNCTION ARGS...: calls FUNCTION for 1 to N, ten at a time; {} is the number.
many() { seq "$1" | xargs -P 10 -I{} bash -ec '"$@"' - "${@:2}" >/dev/null; }

remove_pods() { crishim -r docker:// rmp -f -a -n crishim-bench >"$dir/removed" 2>&1 || { cat "$dir/removed" >&2; return 1; }; }

remove_images() { docker images -q 'crishim-bench.example/*' | sort -u | xargs -r docker rmi -f >/dev/null; }

# start_serve ENDPOINT: starts serve and waits until it answers; its pid is $!.
start_serve() {
  crishim serve --listen "$1" --docker-endpoint "$DOCKER_HOST" >>"$dir/serve.log" 2>&1 &
  until [ -S "${1#unix://}" ]; do kill -0 $! || { cat "$dir/serve.log" >&2; return 1; }; sleep 0.001; done
  crishim -r "$1" version >/dev/null
}

# ---- measurements

# A program written by the linker is in the page cache in single pages, a copied program in large ones. The copy starts
# 1.5 ms faster.
mkdir "$dir/bin"
install -m 755 bin/crishim "$(command -v docker)" "$dir/bin"
${GO:-go} build -trimpath -tags "$(cat hack/tags)" -o "$dir/bin/bench" ./hack/bench
PATH=$dir/bin:$PATH
# /run is in memory on every node, but in a container it may be on a disk.
if [ "$(stat -f -c %T /run)" != tmpfs ] && mkdir /run/crishim 2>/dev/null; then
  mount -t tmpfs -o mode=755 crishim-bench /run/crishim && mounted=1
fi

start_serve "$serve"
serve_process=$!
pod=$(new_pod bench)
container=$(new_container "$pod" main 'head -c 1000 /dev/zero >/tmp/index.html; httpd -p 8080 -h /tmp; exec sleep 100000')

pair --version '<=0.65x' docker "$runs" 'crishim --version' 'docker --version'
both version '<=0.95x' '<=0.8x' "$runs" version
both images '<=0.95x' '<=0.8x' "$runs" images
both ps '<=0.95x' '<=0.8x' "$runs" ps
both inspect '<=0.95x' '<=0.8x' "$runs" "inspect $container"

ended=$(new_pod ended)
many "$listed" new_container "$ended" 'listed-{}' true
both "ps -a -o json, $listed containers" '<=1x' '<=1x' "$((runs / 2))" 'ps -a -o json' 'ps -a --format json'
both "ps -a, $listed ended containers" '<=1.2x' '<=1.2x' "$((runs / 2))" 'ps -a'
for ((i = 0; i < few; i++)); do
  begin=${EPOCHREALTIME/./}
  start_serve "unix://$dir/again.sock"
  echo "$((${EPOCHREALTIME/./} - begin))" | awk '{ print $1 / 1000 }'
  kill $!
  wait $! || true
done | row "start of serve with $listed containers" ms '<1000 ms' ''
docker ps -aq --filter name=k8s_listed- | xargs -P 10 -n 20 docker rm -f >/dev/null

echo 'crishim bench' >"$dir/file"
tar -cf "$dir/layer.tar" -C "$dir" file
many "$listed" new_image '{}'
both "images, $listed images" '<=1x' '<=1x' "$((runs / 2))" images
remove_images

both 'exec true' '<=1x' '<=1x' "$runs" "exec $container true"

zeros="dd if=/dev/zero bs=65536 count=$((mib * 16))"
rates stdout '>=0.85x' "$container $zeros"
rates stdin '>=0.65x' "-i $container dd of=/dev/null bs=65536" "$zeros status=none |"

address=$(crishim -r "$serve" inspectp "$pod" | jq -r .status.network.ip):8080
docker exec "$container" sh -c "$zeros >/tmp/big" 2>/dev/null
crishim -r "$serve" port-forward "$pod" :8080 >"$dir/forward" 2>&1 &
forward=$!
until grep -q '^Forwarding from 127' "$dir/forward"; do kill -0 $forward || { cat "$dir/forward" >&2; exit 1; }; sleep 0.05; done
forwarded=$(sed -n 's/^Forwarding from \(127[^ ]*\) .*/\1/p' "$dir/forward")
bench fetch $((5 * runs)) "http://$forwarded/" "http://$address/" | row 'port-forward, one connection' ms '<5 ms' direct
bench fetch "$few" "http://$forwarded/big" "http://$address/big" | megabytes_per_second | row 'port-forward, throughput' MB/s '>=0.4x' direct
kill $forward

bench burst "$((few - 1))" "$serve" "$burst" 10 | row "$burst pods by 10 clients" /s '>=0.9x' 'the same engine calls'

remove_pods
many "$some" node_pod '{}' "$some"
both "pods, $some pods" '<=1.2x' '<=1.2x' "$runs" pods ps
bench rhythm "$seconds" "$serve" | row "processor time for a kubelet's calls, $some pods" s '<=0.5x' \
  'a list and inspections each'
remove_pods
many "$pods" node_pod '{}' "$busy"
awk '/^VmRSS/ { print $2 / 1024 }' "/proc/$serve_process/status" | row "memory of serve, $pods pods" MiB '<45 MiB' ''
for way in "embedded docker://" "dialled $serve"; do
  in_turn "$((runs / 3))" "crishim -r ${way#* } stats -o json" 'crishim --version' | awk '{ print $1 - $2 }' |
    row "stats, $busy containers, ${way% *}, beyond start" ms '<100 ms' ''
done

stat -c %s bin/crishim "$dir/bin/docker" | awk '{ print $1 / 1e6 }' | paste -sd ' ' | row binary MB '<34 MB' docker
table "$@" | tee "$dir/table"
worse
