# The busybox test image, built from Debian's static busybox, so that no registry is needed.
# shellcheck shell=bash

load_images() {
  local t
  t=$DATA/image
  rm -rf "$t"
  mkdir -p "$t"
  busybox_layer "$t"
  image_archive "$t" '["sh"]' "$TEST_IMAGE" >"$t/busybox.tar"
  if ! DOCKER_HOST=$DOCKER docker image inspect "$TEST_IMAGE" >/dev/null 2>&1; then
    DOCKER_HOST=$DOCKER docker load -q -i "$t/busybox.tar" >/dev/null
    # On an existing engine, down removes the image.
    [ "$DOCKER_IS_OURS" = 1 ] || echo "$DOCKER" >"$DATA/loaded-into"
  fi
  ctr_k8s images import --no-unpack "$t/busybox.tar" >/dev/null
  # The sandbox image: a shell that waits, reaps and exits on SIGTERM.
  image_archive "$t" '["sh", "-c", "trap \"exit 0\" TERM INT; while :; do sleep 3600 & wait; done"]' "$PAUSE_IMAGE" >"$t/pause.tar"
  ctr_k8s images import --no-unpack "$t/pause.tar" >/dev/null
  rm -rf "$t"
}

# busybox_layer DIR: writes DIR/layer.tar with a link for every applet and user alice (1000).
busybox_layer() {
  local r=$1/root a
  mkdir -p "$r"/{bin,etc,tmp,root,dev,proc,sys,var,home}
  chmod 1777 "$r/tmp"
  cp "$(command -v busybox)" "$r/bin/busybox"
  for a in $("$r/bin/busybox" --list); do
    [ "$a" = busybox ] || ln -s busybox "$r/bin/$a"
  done
  printf 'root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/tmp:/bin/sh\n' >"$r/etc/passwd"
  printf 'root:x:0:\nalice:x:1000:\nextra:x:1234:alice\n' >"$r/etc/group"
  tar -C "$r" --sort=name --owner=0 --group=0 --mtime=@0 -cf "$1/layer.tar" .
}

# image_archive DIR CMD-JSON NAME: a `docker save` archive on stdout, which containerd reads too.
image_archive() {
  local config
  printf '{"architecture":"%s","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Env":["PATH=/bin"],"Cmd":%s},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$(dpkg --print-architecture)" "$2" "$(sha256sum <"$1/layer.tar" | cut -d' ' -f1)" >"$1/config.tmp"
  config=$(sha256sum <"$1/config.tmp" | cut -d' ' -f1).json
  mv "$1/config.tmp" "$1/$config"
  printf '[{"Config":"%s","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$config" "$3" >"$1/manifest.json"
  tar -C "$1" -cf - manifest.json "$config" layer.tar
}

unload_images() {
  [ -f "$DATA/loaded-into" ] || return 0
  DOCKER_HOST=$(cat "$DATA/loaded-into") timeout 60 docker rmi "$TEST_IMAGE" >/dev/null 2>&1 || true
}
