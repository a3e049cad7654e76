#!/usr/bin/env bash
# demo.sh: the main features of crishim as a user would use them. It prints each command line and its output, checks
# both, and stops at the first error. Run it with `make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/bin:$PATH
IMAGE=${CRISHIM_TEST_IMAGE:-busybox:crishim}
work=$(mktemp -d "${TMPDIR:-/tmp}/crishim-demo.XXXXXX")
# shellcheck disable=SC2034 # lib.sh uses these
out=$work/out forward='' pause_before=''

# shellcheck source=/dev/null
. hack/demo/lib.sh
# Errors of the script itself do not belong in the story; they are printed at the end.
exec 4>&2 2>"$work/noise"
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

use_docker
# shellcheck disable=SC2034
pause_before=$(pause_images)
for f in pod httpd echo; do
  sed "s,IMAGE,$IMAGE,; s,LOGS,$work/logs," "hack/demo/$f.yaml" >"$work/$f.yaml"
done
cd "$work"

title "What is there"
run crishim endpoints
run crishim version
want 'RuntimeName: *docker'
run crishim images
want "${IMAGE%%:*}"
run crishim images -o json
want '"repoTags"'

title "A pod with a web server in it"
run crishim runp pod.yaml
run crishim pods
want 'web .*|Ready'
run crishim create web httpd.yaml pod.yaml
run crishim start httpd
wait_until 'word from httpd' says httpd ready
run crishim ps
want 'httpd'

title "Commands in it"
run crishim exec httpd cat /tmp/index.html
want 'served from a pod'
run_status 7 crishim exec httpd sh -c 'exit 7'
# shellcheck disable=SC2016 # the container's shell expands it
run_pty 'crishim exec -it httpd sh' 'tty; echo "user $(id -un)"' 'exit 3'
want '/dev/pts/'
want 'user root'

title "Its standard input"
run crishim create web echo.yaml pod.yaml
run crishim start echo
run_input 'hello from the outside' crishim attach -i echo
want 'you said: hello from the outside'

title "Its network"
run_background crishim port-forward web :80
port=$(forwarded_port)
run busybox wget -q -O - "http://127.0.0.1:$port/"
want 'served from a pod'
stop_background

title "What it said"
wait_until 'line of the request' says httpd '.* response:200'
run crishim logs httpd
want 'ready'
want 'response:200'

title "And away with it"
run crishim stop httpd
run crishim ps -a
want 'Exited'
run crishim rm httpd echo
run crishim stopp web
run crishim rmp web
run crishim pods
want_not 'web'
run crishim ps -a
want_not 'httpd'

nothing_left
echo
echo "demo: ok"
